"""An IRModule in its last form -> the records of an executable file.

Functions are compiled in variants, because a rank-0 integer travels in an int register through
direct calls and as an object through closures: (entered from a closure?, object result?). The
variant for closures takes objects and compares the static dims of its parameters, which a direct
caller has done. A variant exists only if something refers to it. A function that returns objects
tail-calls variants that return objects, so a tail call never turns into a call for the sake of
boxing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from nimblevm.bytecode.serialize import (
    CheckedRecord,
    DimRecord,
    FunctionRecord,
    ParamRecord,
    ProgramBuilder,
    ProgramRecord,
    external_section,
)
from nimblevm.compiler.emit_function import FunctionEmitter
from nimblevm.compiler.emit_ops import has_static_claims
from nimblevm.compiler.kernel_table import KernelCache, KernelTable
from nimblevm.compiler.op_class import is_int
from nimblevm.compiler.rewrite import is_primitive, type_of
from nimblevm.compiler.type_table import TypeTable
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import Constructor, Function, GlobalVar, Span
from nimblevm.relay.late import LateArray
from nimblevm.relay.module import IRModule
from nimblevm.relay.print_names import Unique
from nimblevm.relay.text import Names, dim_text
from nimblevm.relay.types import TensorType, Type, value_tensors

Variant = tuple[GlobalVar, bool, bool]


class ProgramEmitter:
    """State while a module is turned into records; the Program of emit_frame."""

    def __init__(
        self, mod: IRModule, unbox: bool, producer: Mapping[str, str], cache: KernelCache
    ) -> None:
        self.mod = mod
        self.unbox = unbox
        self.builder = ProgramBuilder(producer)
        self.kernels = KernelTable(cache)
        self.types = TypeTable(mod, self.builder)
        self.variants: dict[Variant, int] = {}
        self.waiting: deque[Variant] = deque()

    def run(self) -> None:
        """Compile every public function and whatever those refer to."""
        for var, function in self.mod.functions.items():
            if is_public(function):
                self.function(var)
        while self.waiting:
            self._compile(self.waiting.popleft())

    # --- the Program protocol ---------------------------------------------------------------------

    def function(self, var: GlobalVar, *, closure: bool = False, boxed_result: bool = False) -> int:
        """Index of a variant of a global function; it is compiled later if it is new."""
        function = self.definition(var)
        closure = closure and (
            (self.unbox and any(is_int(type_of(p)) for p in function.params))
            or has_static_claims(function.params[function.attrs.get("captures", 0) :])
        )
        boxed_result = (
            boxed_result and self.unbox and is_int(function.ret_type or type_of(function.body))
        )
        key = (self.mod.get_global_var(var.name_hint), closure, boxed_result)
        index = self.variants.get(key)
        if index is None:
            index = self.variants[key] = self.builder.declare_function()
            self.waiting.append(key)
        return index

    def definition(self, var: GlobalVar) -> Function:
        return self.mod.function(var)

    def constructor(self, constructor: Constructor) -> int:
        return self.types.constructor(constructor)

    def first_constructor(self, type_: Type) -> int:
        return self.types.first_constructor(type_)

    def constructor_count(self, constructor: Constructor) -> int:
        return self.types.counts[constructor.belong_to]

    def note(self, text: str, span: Span | None) -> int:
        if span is None:
            return self.builder.note(text)
        return self.builder.note(text, self.builder.source(span.source), span.line, span.column)

    # --- one variant ------------------------------------------------------------------------------

    def _compile(self, variant: Variant) -> None:
        var, closure, boxed_result = variant
        function = self.mod.function(var)
        suffix = "".join(
            text for on, text in ((closure, "$closure"), (boxed_result, "$object")) if on
        )
        name = var.name_hint + suffix
        emitter = FunctionEmitter(self, function, var.name_hint, closure, boxed_result)
        emitter.run()
        dims, slots = signature_dims(function)
        params = tuple(
            ParamRecord(n, self.types.index(type_of(p), function.type_params, slots), in_int)
            for n, p, in_int in zip(
                param_names(function), function.params, emitter.param_is_int, strict=True
            )
        )
        result = self.types.index(emitter.result_type, function.type_params, slots)
        self.builder.define_function(
            self.variants[variant],
            FunctionRecord(
                name, params, result, emitter.ints.count, emitter.objs.count, emitter.code.words,
                emitter.result_is_int, is_public(function) and not suffix, dims,
                checked_dims(function, dims, slots),
                tuple(emitter.code.spans),
            ),
        )  # fmt: skip


def is_public(function: Function) -> bool:
    """Whether a function may be invoked by name from outside: one that the user wrote."""
    return not is_primitive(function) and not {"Lifted", "Closure", "Internal"} & set(
        function.attrs
    )


def param_names(function: Function) -> list[str]:
    """Names by which arguments can be given: each its own, where variables share one."""
    hints = [p.name_hint for p in function.params]
    counts, names = Counter(hints), Unique()
    for hint in hints:
        if counts[hint] == 1:
            names.reserve(hint)
    return [h if counts[h] == 1 else names.take(h) for h in hints]


def signature_dims(function: Function) -> tuple[tuple[DimRecord, ...], dict[DimVar, int]]:
    """The dims of a signature: each variable that is an axis of a parameter (through tuples), by
    first occurrence. Names are made unique: a builder may call two dims alike.
    """
    taken: dict[str, int] = {}  # and how often a suffix was made
    slots: dict[DimVar, int] = {}
    records: list[DimRecord] = []
    axes = (
        (index, dim)
        for index, param in enumerate(function.params)
        for tensor in value_tensors(type_of(param))
        for dim in tensor.shape
    )
    for index, dim in axes:
        if not isinstance(dim, DimVar) or dim in slots:
            continue
        slots[dim] = len(slots)
        name = wanted = dim.name or f"d{len(records)}"
        while name in taken:
            taken[wanted] += 1
            name = f"{wanted}_{taken[wanted]}"
        taken[name] = 0
        records.append(DimRecord(name, index))
    return tuple(records), slots


class _SlotNames(Names):
    """Dims called as the file calls them."""

    def __init__(self, records: Sequence[DimRecord], slots: Mapping[DimVar, int]) -> None:
        self.records = records
        self.slots = slots

    def dim_var(self, var: DimVar) -> str:
        slot = self.slots.get(var)
        return "?" if slot is None else f"?{self.records[slot].name}"


def checked_dims(
    function: Function, records: Sequence[DimRecord], slots: Mapping[DimVar, int]
) -> tuple[CheckedRecord, ...]:
    """Axes that the entry compares: static sizes and repeated dims of the parameters, as
    "%x axis 1 = 4"; tensors inside a tuple are counted from left to right, "%x tensor 2 axis 0 = ?n".
    """
    names = _SlotNames(records, slots)
    seen: set[DimVar] = set()
    found: list[CheckedRecord] = []
    for index, (name, param) in enumerate(zip(param_names(function), function.params, strict=True)):
        for number, tensor in enumerate(value_tensors(type_of(param))):
            inside = "" if isinstance(type_of(param), TensorType) else f" tensor {number}"
            for axis, dim in enumerate(tensor.shape):
                if isinstance(dim, DimVar) and dim not in seen:
                    seen.add(dim)
                    continue
                place = f"%{name}{inside} axis {axis}"
                found.append(CheckedRecord(index, axis, f"{place} = {dim_text(dim, names)}"))
    return tuple(found)


KernelBuilder = Callable[[KernelTable, ProgramBuilder], Mapping[str, int]]
"""Adds native sections for the kernels and says which place in their tables each kernel (by name)
has.
"""


def emit(
    mod: IRModule,
    unbox: bool = True,
    producer: Mapping[str, str] | None = None,
    native: KernelBuilder | None = None,
    cache: KernelCache | None = None,
    late: Iterable[LateArray] = (),
    weights_file: str = "",
    devices: Sequence[str] = ("cpu",),
) -> ProgramRecord:
    """The records of a module that has been through the pipeline. late: weights that are bound when the program is
    loaded, used or not; weights_file: where they lie; devices: the file's table. CompileError for what the format
    can't hold.
    """
    program = ProgramEmitter(mod, unbox, producer or {}, cache or KernelCache(unbox))
    for array in late:
        program.builder.weight(array.name, array.dtype.name, array.shape, array.digest)
    program.builder.weights_file = weights_file
    program.builder.devices = list(devices)
    program.run()
    places = native(program.kernels, program.builder) if native is not None else {}
    for record in program.kernels.records(dict(places)):
        program.builder.kernel(record)
    for runtime, blobs in program.kernels.external().items():
        program.builder.sections.append(external_section(runtime, blobs))
    return program.builder.finish()

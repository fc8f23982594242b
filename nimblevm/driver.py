"""From a program to an executable: the only module that knows compiler and runtime.

exe = compile(mod)                         # IRModule or Function -> Executable
data = compile_to_bytes(mod)               # the file alone, nothing is loaded
mod = optimize(mod)                        # what instructions are made of
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nimblevm import dtypes
from nimblevm.arguments import check_arguments, refuse_mask, shown
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.serialize import NATIVE, ProgramBuilder, SectionRecord, serialize
from nimblevm.compiler import device_targets
from nimblevm.compiler.constants import late_constant
from nimblevm.compiler.copying import unshared
from nimblevm.compiler.device_targets import Externals, OnPlacement
from nimblevm.compiler.devices import Devices, Placement
from nimblevm.compiler.emit import KernelBuilder, emit
from nimblevm.compiler.external import External
from nimblevm.compiler.kernel_key import is_region
from nimblevm.compiler.kernel_table import KernelCache, KernelTable
from nimblevm.compiler.limits import check_ranks
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.open_regions import compilers_of
from nimblevm.compiler.passes.remove_unused import remove_unused
from nimblevm.compiler.pipeline import PIPELINE
from nimblevm.compiler.rewrite import Rewriter
from nimblevm.compiler.tuned_products import tuned
from nimblevm.devices.device import backends
from nimblevm.errors import CompileError, InvalidInputType, RelayTypeError
from nimblevm.external import find as find_external
from nimblevm.kernels import llvm
from nimblevm.kernels import tune as tuning_record
from nimblevm.kernels.loop_ir import Kernel
from nimblevm.kernels.variants import Choices, Shape, Variant
from nimblevm.relay.dims import DimVar
from nimblevm.relay.gc_pause import gc_paused
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple, Var
from nimblevm.relay.late import LateArray
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import registry
from nimblevm.relay.op.dense import DenseAttrs
from nimblevm.relay.op.dense_pack import LANES, NARROW, DensePackAttrs
from nimblevm.relay.parse_cursor import did_you_mean
from nimblevm.relay.prelude import from_prelude
from nimblevm.relay.types import TensorType, Type
from nimblevm.relay.well_formed import check_well_formed
from nimblevm.vm.vm import VirtualMachine

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
"""(name of a stage that begins, stages done, all stages)"""
VERSION = "0.2.0"


def compile(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    target: str | Sequence[str] = "native",
    *,
    passes_off: Iterable[str] = (),
    unbox: bool = True,
    native: bool = True,
    plan_memory: bool = True,
    verify: bool = False,
    entry_points: Iterable[str] | None = None,
    on_pass: Callable[[str, float], None] | None = None,
    progress: Progress | None = None,
    weights: str = "float32",
    tuning: str | None = None,
    late_bound: bool | Iterable[str] = False,
    weights_file: str = "",
    external: Externals = (),
    device: str | Sequence[str] | None = None,
    on_placement: OnPlacement | None = None,
) -> Executable:
    """Compile a module (or one function, which becomes `main`) and load the result.

    params       parameters of main by name, bound as constants: arrays of exactly the declared dtype and shape, or
                 Python numbers and lists, which take it
    target       "native" (this machine; "llvm" means the same), a level for any machine: "x86-64-v2", "x86-64-v3",
                 "x86-64-v4", "x86-64-v4-vnni", "aarch64", or "none". Several (a list, or names with commas between)
                 give a file with machine code for each, of which a loader takes the best that its CPU has
                 (docs/targets.md)
    passes_off   names of passes to skip
    unbox        rank-0 integers and bools live in int registers
    native       write machine code; without llvmlite or a linker compile warns (NimbleWarning) and writes the
                 kernel IR alone, which is interpreted
    plan_memory  let tensors of disjoint lifetimes share storage
    verify       check the module after every pass (slow)
    entry_points names of the functions that can be called; what none of them reaches is left out. None: all that are
                 not the prelude's
    on_pass      called with a pass's name and its seconds
    progress     called when a stage begins: its name, how many of all stages are done, how many there are
    weights      dtype in which constant float32 weights of products are stored: "float32", or to halve their size
                 and the time to read them "float16" or "bfloat16" (sums stay float32, results change)
    tuning       the text of a tuning record (`tune`), which says how products run on this machine
    late_bound   names of parameters of main that become constants but stay out of the file, True: all of params. The
                 file names them with shape and dtype (and the SHA-256 of what params has); load(..., weights=) or
                 Executable.bind brings the values. Constant folding leaves them alone
    weights_file where these lie, relative to the file's folder: load() looks there then
    external     backends that bring their own code, by name ("blas", or several with commas between) or as External,
                 in order of preference: each gets the operators that its patterns match (docs/external-codegen.md)
    device       what kernels run on where it can: a backend, "opencl", or several in order of preference,
                 "opencl,cuda", of which a VM takes the first that its machine has (docs/device.md). on_device says
                 otherwise where it stands. None: the host
    on_placement called with what went where and each copy's reason (a Placement; print it)

    Raises RelayTypeError, WellFormedError, CompileError.
    """
    data = compile_to_bytes(
        mod, params, target, passes_off=passes_off, unbox=unbox, native=native, plan_memory=plan_memory,
        verify=verify, entry_points=entry_points, on_pass=on_pass, progress=progress, weights=weights, tuning=tuning,
        late_bound=late_bound, weights_file=weights_file, external=external, device=device, on_placement=on_placement,
    )  # fmt: skip
    return Executable.from_bytes(data, native=native)


def compile_to_bytes(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    target: str | Sequence[str] = "native",
    *,
    passes_off: Iterable[str] = (),
    unbox: bool = True,
    native: bool = True,
    plan_memory: bool = True,
    verify: bool = False,
    entry_points: Iterable[str] | None = None,
    on_pass: Callable[[str, float], None] | None = None,
    progress: Progress | None = None,
    weights: str = "float32",
    tuning: str | None = None,
    late_bound: bool | Iterable[str] = False,
    weights_file: str = "",
    external: Externals = (),
    device: str | Sequence[str] | None = None,
    on_placement: OnPlacement | None = None,
) -> bytes:
    """As `compile`, but gives the file's bytes and loads nothing (so that it works for other machines)."""
    check_arguments(
        compile, passes_off=passes_off, unbox=unbox, native=native, plan_memory=plan_memory, verify=verify,
        entry_points=entry_points, on_pass=on_pass, progress=progress, tuning=tuning, late_bound=late_bound,
        weights_file=weights_file, on_placement=on_placement,
    )  # fmt: skip
    params = _params(params)
    off = {passes_off} if isinstance(passes_off, str) else set(passes_off)
    if not plan_memory:
        off.add("plan_memory")
    _check_weights(weights)
    choices = tuning_record.from_json(tuning) if tuning is not None else None
    stage = _stages(progress)
    general, own = _device_names(device)
    externals = _externals(external, own)
    if choices is not None:
        asked = {e.name for e in externals}
        more = sorted(set(choices.external.values()) - asked)
        externals = tuned(externals, choices, asked=True)
        externals += tuned(_externals(more), choices, asked=False)
    ctx = PassContext(
        frozenset(off), verify, unbox, evaluate_call, on_pass, stage, KernelCache(unbox), weights, externals,
    )  # fmt: skip
    builder = _native_builder(target, stage, choices) if native else None
    late = _late_names(params, late_bound)
    _check_place(weights_file, late)
    targets = _Targets(general, on_placement)
    return _compiled(mod, params, ctx, entry_points, builder, late, weights_file, targets)


def optimize(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    *,
    passes_off: Iterable[str] = (),
    device: str | Sequence[str] | None = None,
) -> IRModule:
    """The module that `compile` makes instructions of, to look at: kernels are functions of their own, memory is
    explicit. The parameters are those of `compile`; it takes the program itself, not this module."""
    check_arguments(optimize, passes_off=passes_off)
    off = frozenset({passes_off} if isinstance(passes_off, str) else passes_off)
    general, own = _device_names(device)
    ctx = PassContext(off, evaluate=evaluate_call, externals=_externals((), own))
    with gc_paused():
        return _optimized(mod, _params(params), ctx, None, (), _Targets(general)).mod


def _device_names(device: str | Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends that run generated kernels, and those that bring their own code."""
    names = device_targets.parse(device)
    known = backends()
    made = device_targets.generators()
    general = [n for n in names if n in made or (n in known and known[n].host_code)]
    own = tuple([n for n in names if n not in general])
    for name in own:
        try:
            find_external(name)
        except CompileError as error:
            there = sorted({*device_targets.generators(), *known} - {"cpu"})
            close = did_you_mean(name, there)
            raise CompileError(
                f"there is no device {name!r}; devices are {', '.join(there)}{close}; {error}"
            ) from None
    return tuple(general), own


def _externals(wanted: Externals, devices: Sequence[str] = ()) -> tuple[External, ...]:
    """Those that were asked for, then those that `device` names."""
    names = device_targets.externals(wanted)
    asked = {n if isinstance(n, str) else n.name for n in names}
    names += [n for n in devices if n not in asked]
    found = tuple([find_external(n) if isinstance(n, str) else n for n in names])
    if len({e.name for e in found}) < len(found):
        raise ValueError(f"external names a backend twice: {', '.join(e.name for e in found)}")
    return found


def _params(params: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not isinstance(params, Mapping | None):
        raise InvalidInputType(f"params must map names to arrays, not be {shown(params)}")
    return params or {}


def _check_weights(dtype: str) -> None:
    if not isinstance(dtype, str) or dtype not in ("float32", "float16", "bfloat16"):
        raise ValueError(f'weights must be "float32", "float16" or "bfloat16", not {dtype!r}')


def _late_names(params: Mapping[str, Any], late_bound: bool | Iterable[str]) -> tuple[str, ...]:
    if isinstance(late_bound, bool):
        return tuple(params) if late_bound else ()
    return tuple(dict.fromkeys([late_bound] if isinstance(late_bound, str) else late_bound))


def _check_place(weights_file: str, late: Sequence[str]) -> None:
    if weights_file and not late:
        raise ValueError(
            "weights_file says where late-bound weights lie, but late_bound names none"
        )
    if weights_file and any(part in ("", ".", "..") for part in weights_file.split("/")):
        raise ValueError(
            f"weights_file is a path below the executable's folder, without '..', not {weights_file!r}"
        )


@dataclass(frozen=True, slots=True)
class _Targets:
    """Devices that were asked for by name and run generated kernels."""

    names: tuple[str, ...] = ()
    on_placement: OnPlacement | None = None


def _compiled(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    ctx: PassContext,
    entry_points: Iterable[str] | None,
    builder: KernelBuilder | None,
    late: Sequence[str] = (),
    weights_file: str = "",
    targets: _Targets | None = None,
) -> bytes:
    with gc_paused():
        made = _optimized(mod, params, ctx, entry_points, late, targets or _Targets())
        stage = ctx.on_start or (lambda name: None)
        stage("emit")
        producer = {"nimblevm": VERSION}
        if len(made.table) > 1:
            builder = device_targets.with_code(builder, made.devices)
        record = emit(
            made.mod, ctx.unbox, producer, builder, ctx.kernels, made.arrays, weights_file, made.table
        )  # fmt: skip
        stage("file")
        return serialize(record)


@dataclass(frozen=True, slots=True)
class _Optimized:
    """What `emit` makes code of. table: the devices by number, as instructions name them."""

    mod: IRModule
    arrays: list[LateArray]
    devices: Devices
    table: tuple[str, ...]


def _optimized(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    ctx: PassContext,
    entry_points: Iterable[str] | None,
    late: Sequence[str],
    targets: _Targets,
) -> _Optimized:
    stage = ctx.on_start or (lambda name: None)
    mod = _module(mod)
    stage("infer_type")
    arrays: list[LateArray] = []
    if params or late:
        mod, arrays = _bound(mod, params or {}, "main", late, copy=False)  # the file holds the copy
    if any(f.checked_type is None for f in mod.functions.values()):
        check_well_formed(mod)
        mod = infer_type(mod)
    if entry_points is None:
        names = [var.name_hint for var, f in mod.functions.items() if not is_region(f)]
        own = [name for name in names if not from_prelude(mod, mod.get_global_var(name))]
        entry_points = own or names
    elif isinstance(entry_points, str):
        entry_points = (entry_points,)
    mod = unshared(remove_unused(mod, entry_points))
    check_ranks(mod)
    placed: list[Placement] = []
    chosen = {e.name for e in ctx.externals}
    regions = tuple([find_external(n) for n in compilers_of(mod) if n not in chosen])
    backends_ = (*ctx.externals, *regions)
    devices = device_targets.make(targets.names, backends_, entry_points, placed.append)
    mod = PIPELINE(mod, replace(ctx, regions=regions, devices=devices))
    if placed and targets.on_placement is not None:
        targets.on_placement(placed[-1])
    table = placed[-1].devices if placed else devices.names
    return _Optimized(mod, arrays, devices, table)


def tune(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    target: str = "native",
    *,
    weights: str = "float32",
    rows: Sequence[int] = (1, 2, 7, 32),
    external: Externals = (),
    progress: Progress | None = None,
) -> str:
    """Measure on this machine how the program's products with constant weights run best; the text of a record.

    rows      the numbers of rows that matter, at least one, each at least 1
    external  backends that are tried too, such as "blas": where one is faster the record names it, and `compile` with
              the record gives it that product
    progress  called before each product: its sizes, how many of all are done, how many there are

    Weights are measured in panels of 16 columns, also where `compile` gives them panels of 64 (single rows): what is
    found is used for both. The other parameters are those of `compile`, which takes the record as `tuning`. Takes
    seconds a product. Raises CompileError for a target that this machine has no code generator for, ValueError for
    wrong rows or weights.
    """
    _check_weights(weights)
    check_arguments(tune, rows=rows, progress=progress)
    if not len(rows) or min(rows) < 1:
        raise ValueError(f"rows must be numbers of at least 1, not {rows!r}")
    info = llvm.parse_target(target)
    if info is None:
        raise CompileError(f"tuning needs machine code, but target {target!r} has none here")
    found: list[Kernel] = []

    def collect(kernels: KernelTable, builder: ProgramBuilder) -> Mapping[str, int]:
        found.extend(e.lowered.kernel for e in kernels.generated())
        return {}

    ctx = PassContext(evaluate=evaluate_call, kernels=KernelCache(), weights=weights)
    _compiled(mod, _params(params), ctx, None, collect)
    shapes = tuning_record.products_of(found, info.features)
    choices = Choices()
    others = _externals(external)
    for done, shape in enumerate(shapes):
        if progress is not None:
            progress(f"{shape.depth} x {shape.units} {shape.w}", done, len(shapes))
        runners: dict[Variant | str, list[tuning_record.Runner]] = {
            v: _runners(shape, _packed_product(shape, v, target), rows)
            for v in tuning_record.candidates()
        }
        for backend in others:
            blob = _external_product(shape, backend)
            if blob is not None:
                runners[backend.name] = _runners(shape, blob, rows)
        choices.record[shape], name = tuning_record.fastest(tuning_record.scores(runners))
        if name:
            choices.external[shape] = name
    return tuning_record.to_json(info.text, choices)


def _external_product(shape: Shape, backend: External) -> bytes | None:
    """A file with one product by an external backend; None if that does not take it."""
    x = Var("x", TensorType((DimVar("m"), shape.depth), shape.x))
    try:
        weight = Constant(np.ones((shape.units, shape.depth), shape.w))
        product = Function((x,), Call(registry.get("nn.dense"), (x, weight), DenseAttrs()))
        ctx = PassContext(evaluate=evaluate_call, kernels=KernelCache(), externals=(backend,))
        data = _compiled(product, None, ctx, None, None)
    except RelayTypeError:  # 16-bit weights of float32 are a matter of packed products
        return None
    taken = any(entry is not None for entry in ctx.kernels.regions.values())
    return data if taken else None


def _packed_product(shape: Shape, variant: Variant, target: str) -> bytes:
    """A file with one product in one variant."""
    x = Var("x", TensorType((DimVar("m"), shape.depth), shape.x))
    panels = -(-shape.units // LANES)
    weight = Constant(np.ones((panels, shape.depth, LANES), shape.w))
    attrs = DensePackAttrs(NARROW, shape.units)
    product = Function((x,), Call(registry.get("nn.contrib_dense_pack"), (x, weight), attrs))
    builder = _native_builder(target, lambda name: None, Choices({shape: variant}))
    ctx = PassContext(evaluate=evaluate_call, kernels=KernelCache())
    return _compiled(product, None, ctx, None, builder)


def _runners(shape: Shape, data: bytes, rows: Sequence[int]) -> list[tuning_record.Runner]:
    """What times a file with one product, for each number of rows."""
    vm = VirtualMachine(Executable.from_bytes(data))

    def runner(m: int) -> tuning_record.Runner:
        data = np.ones((m, shape.depth), shape.x)
        turns = max(1, min(50, round(2e7 / (m * shape.depth * shape.units))))

        def run() -> float:
            start = time.perf_counter()
            for _ in range(turns):
                vm.run(data)
            return (time.perf_counter() - start) / turns

        run()
        return run

    return [runner(m) for m in rows]


def _module(mod: IRModule | Function) -> IRModule:
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, Function):
        return IRModule.from_expr(mod)
    hint = "wrap it: relay.Function(params, body)" if isinstance(mod, Expr) else ""
    hint = "nvm.relay.parse(text) makes a module of text" if isinstance(mod, str) else hint
    raise TypeError(
        f"compile takes an IRModule or a relay.Function, not {type(mod).__name__}"
        f"{'; ' if hint else ''}{hint}"
    )


def _stages(progress: Progress | None) -> Callable[[str], None]:
    """Tells `progress` which stage begins; passes that run again count once."""
    names = ("infer_type", *PIPELINE.order(), "emit", "machine code", "file")
    done = 0

    def begin(name: str) -> None:
        nonlocal done
        done = max(done, names.index(name))
        if progress is not None:
            progress(name, done, len(names))

    return begin


def _native_builder(
    target: str | Sequence[str], stage: Callable[[str], None], choices: Choices | None
) -> KernelBuilder:
    """Compiles the kernels of a program into a native section for each target."""
    infos = llvm.parse_targets(target)

    def build(kernels: KernelTable, builder: ProgramBuilder) -> Mapping[str, int]:
        stage("machine code")
        entries = kernels.generated()
        codes = llvm.build_all([e.lowered.kernel for e in entries], infos, choices)
        builder.sections += [SectionRecord(NATIVE, code.elf, code.target) for code in codes]
        for code in codes:
            for key, value in code.producer.items():
                old = builder.producer.get(key)
                if old is None or value not in old.split("; "):
                    builder.producer[key] = value if old is None else f"{old}; {value}"
        functions = codes[0].functions if codes else ()
        return {e.name: place for e, place in zip(entries, functions, strict=False)}

    return build


def bind_params(mod: IRModule, params: Mapping[str, Any], name: str = "main") -> IRModule:
    """A module whose function `name` has some parameters replaced by constants. CompileError for an
    unknown name.
    """
    return _bound(mod, _params(params), name, copy=True)[0]


def _bound(
    mod: IRModule, params: Mapping[str, Any], name: str, late: Sequence[str] = (), *, copy: bool
) -> tuple[IRModule, list[LateArray]]:
    """The module with parameters of a function as constants; those in `late` without their elements."""
    function = mod.function(name)
    by_name = {p.name_hint: p for p in function.params}
    names = dict.fromkeys((*params, *late))
    counts = Counter(p.name_hint for p in function.params)
    several = [key for key in names if counts[key] > 1]
    if several:
        raise CompileError(
            f"params names {', '.join(several)}, but @{name} has several parameters of that name; rename them"
        )
    unknown = sorted(map(str, set(names) - set(by_name)))
    if unknown:
        has = f"has the parameters {', '.join(by_name)}" if by_name else "has no parameters"
        raise CompileError(f"params names {', '.join(unknown)}, but @{name} {has}")
    memo: dict[Expr, Expr] = {}
    arrays: list[LateArray] = []
    for key in names:
        value = _constant(by_name[key], params[key], copy) if key in params else None
        if key in late:
            arrays.append(_late(by_name[key], value))
            value = late_constant(arrays[-1], by_name[key].span)
        if value is not None:
            memo[by_name[key]] = value
    body = Rewriter(memo).rewrite(function.body)
    kept = tuple(p for p in function.params if p.name_hint not in names)
    result = mod.shallow_copy()
    result[mod.get_global_var(name)] = Function(
        kept, body, function.ret_type, function.type_params, function.attrs, span=function.span
    )
    return result, arrays


def _late(param: Var, value: Constant | None) -> LateArray:
    """A parameter that is bound when the program is loaded, to anything of its type or to this very value."""
    type_ = value.checked_type if value is not None else param.type_annotation
    place = f"late_bound: %{param.name_hint}"
    shape = [d for d in type_.shape if isinstance(d, int)] if isinstance(type_, TensorType) else []
    if not isinstance(type_, TensorType) or len(shape) != len(type_.shape):
        raise CompileError(
            f"{place} is declared as {param.type_annotation}: a weight is a tensor of static sizes; declare them or "
            "give its value in params"
        )
    if not shape and not dtypes.dtype(type_.dtype).is_float:
        raise CompileError(
            f"{place} is one integer, which the compiler may need to know: give it in params alone"
        )
    digest = hashlib.sha256(value.data.tobytes()).digest() if value is not None else b""
    return LateArray.of(param.name_hint, tuple(shape), type_.dtype, digest)


def _constant(param: Var, value: Any, copy: bool) -> Constant:
    """An array for a parameter: exact dtype, rank and static dims. Python numbers and lists take the dtype."""
    declared: Type | None = param.type_annotation
    plain = isinstance(value, bool | int | float | list | tuple)
    dtype = declared.dtype if plain and isinstance(declared, TensorType) else None
    refuse_mask(value, lambda: f"params: %{param.name_hint}")
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise CompileError(f"params: %{param.name_hint}: no array: {error}") from None
    if isinstance(declared, TensorType):
        static = [d if isinstance(d, int) else None for d in declared.shape]
        fits = len(static) == array.ndim and all(
            d is None or d == n for d, n in zip(static, array.shape, strict=True)
        )
        if array.dtype.name != declared.dtype or not fits:
            cast = fits and array.dtype.name in dtypes.BY_NAME
            raise CompileError(
                f"params: %{param.name_hint} is declared as {declared}, "
                f"but the value is {array.dtype.name} of shape {array.shape}"
                + (f"; value.astype({declared.dtype!r}) casts it" if cast else "")
            )
    if not copy:
        array = array.view()
        array.flags.writeable = False  # Constant copies what may change
    return Constant(array, span=param.span)


def evaluate_call(call: Call, values: tuple[Any, ...]) -> Any:
    """The value of one operator call, an array or a tuple of arrays, by the kernel and instructions
    that a run would use (constant folding).
    """
    args = tuple(
        Tuple(tuple([Constant(v) for v in value])) if isinstance(value, tuple) else Constant(value)
        for value in values
    )
    function = Function((), Call(call.op, args, call.attrs))
    data = compile_to_bytes(
        function,
        native=False,
        passes_off=("fold_constant", "simplify", "cse", "dead_code", "inline"),
    )
    with Executable.from_bytes(data, native=False) as exe, VirtualMachine(exe) as vm:
        result = vm.run()
        if isinstance(result, tuple):
            return tuple([np.array(field.numpy()) for field in result])
        return np.array(result.numpy())


__all__ = [
    "Progress",
    "bind_params",
    "compile",
    "compile_to_bytes",
    "evaluate_call",
    "optimize",
    "tune",
]

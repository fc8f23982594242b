"""Bring your own codegen: what a backend outside of this compiler says of itself.

    relu = is_op("nn.relu")(is_op("nn.dense")(wildcard(), is_constant()))
    register(External("myaccel", (("myaccel.dense_relu", relu, is_float32),), codegen))
    compile(mod, external=["myaccel"])

The operators that a pattern matches become one function, a composite. Composites that are connected become one region
where `merge` allows it, and a region becomes one kernel: `codegen` turns it into bytes, which the file keeps and which
the runtime of that name gets when a VM is made (docs/external-codegen.md). Where `codegen` gives None, the operators
are compiled as if there were no backend.

Source: "Bring Your Own Codegen to Deep Learning Compiler", arXiv 2105.03215, and TVM's relay.op.contrib, whose names of
attributes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nimblevm.arguments import explained, shown
from nimblevm.compiler.kernel_key import composites
from nimblevm.errors import CompileError, InvalidInputType, NimbleError
from nimblevm.relay.dataflow_pattern import DFPattern
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.parse_cursor import did_you_mean
from nimblevm.relay.types import TensorType

Check = Callable[[Expr], bool]
"""Takes the root of what a pattern matched, with types, its operands behind it (through lets of the same block);
says whether the backend wants it: by dtypes, shapes, attributes, constants.
"""
PatternRow = tuple[str, DFPattern] | tuple[str, DFPattern, Check]
PatternTable = Callable[[], Sequence[PatternRow]]


@dataclass(frozen=True, slots=True)
class Region:
    """What a codegen gets: one kernel to be.

    function  fn (inputs, Primitive=1, Compiler=..., global_symbol=...) { body }, typed, without lets. Each match is a
              call of an inner function with the attributes Composite (the pattern's name) and PartitionedFromPattern;
              the result is a tensor or a tuple of tensors. Constants of one element stand in the body, larger ones
              too if the backend owns constants, else they are inputs
    inputs    types of the kernel's input operands, in order
    outputs   types of its outputs
    dims      what the in-dims of a call are, in order, in the function's own dim variables: the numbers that the
              runtime gets as `dims`. Behind them come sizes of scratch that are none of these
    """

    function: Function
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    dims: tuple[Dim, ...]

    @property
    def name(self) -> str:
        """The kernel's name, unique in the program."""
        return str(self.function.attrs["global_symbol"])

    @property
    def matches(self) -> list[Call]:
        """The calls of composites, operands first; `call.op.attrs["Composite"]` says what each is."""
        return composites(self.function)


@dataclass(frozen=True, slots=True)
class Blob:
    """What a codegen gives.

    data      for the runtime; equal regions of one program share it. Compiling is a function of the program, so equal
              regions must give equal bytes
    scratch   tensors (in the region's dim variables) that each call gets as further operands, behind the outputs
    may_fail  the kernel can report an error that depends on its operands' elements
    """

    data: bytes
    scratch: tuple[TensorType, ...] = ()
    may_fail: bool = False


Codegen = Callable[[Region], Blob | None]


@dataclass(frozen=True, slots=True)
class External:
    """A backend.

    name       its name, and the attribute Compiler of its regions
    patterns   (name of the composite, pattern, check) in order of preference
    codegen    Region -> Blob, or None for a region that it will not take
    merge      whether connected matches may become one region
    device     the device backend in whose memory the operands live; None: the host
    constants  "inputs": the kernel takes them as operands; "owned": codegen puts them into its bytes. Weights that are
               bound late are operands always
    runtime    the name of what runs the bytes; "" for `name`
    """

    name: str
    patterns: tuple[tuple[str, DFPattern, Check], ...]
    codegen: Codegen
    merge: bool = False
    device: str | None = None
    constants: Literal["inputs", "owned"] = "inputs"
    runtime: str = ""

    @explained
    def __init__(
        self,
        name: str,
        patterns: Sequence[PatternRow],
        codegen: Codegen,
        merge: bool = False,
        device: str | None = None,
        constants: Literal["inputs", "owned"] = "inputs",
        runtime: str = "",
    ) -> None:
        for one in (name, runtime or name, device or name):
            if not one.replace("_", "").replace(".", "").isalnum():
                raise ValueError(
                    f"an external backend, its runtime and its device are named by letters, digits, '_' and '.', "
                    f"not {one!r}"
                )
        if constants not in ("inputs", "owned"):
            raise ValueError(f'constants must be "inputs" or "owned", not {constants!r}')
        rows = tuple(pattern_row(row) for row in patterns)
        values = (name, rows, codegen, merge, device, constants, runtime or name)
        for field, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, field, value)


def pattern_row(row: PatternRow) -> tuple[str, DFPattern, Check]:
    """A row of a pattern table with its check. TypeError if it has no pattern."""
    if not isinstance(row, tuple | list) or not 2 <= len(row) <= 3:
        raise InvalidInputType(
            f"a row of patterns is (name, pattern) or (name, pattern, check), not {shown(row)}"
        )
    name, pattern, *rest = row
    check: Check = rest[0] if rest else _anything
    if not isinstance(pattern, DFPattern):
        raise TypeError(
            f"pattern {name!r} must be a relay.dataflow_pattern, not {type(pattern).__name__}"
        )
    return name, pattern, check


def _anything(match: Expr) -> bool:
    return True


_REGISTERED: dict[str, External] = {}
_TABLES: dict[str, PatternTable] = {}
_CHECKS: dict[tuple[str, str], Check] = {}


@explained
def register(external: External) -> External:
    """Make a backend known by its name; a second one of that name takes its place."""
    _REGISTERED[external.name] = external
    return external


def registered() -> tuple[str, ...]:
    """The names of all backends that are registered, in order."""
    return tuple(_REGISTERED)


@explained
def find(name: str, others: Sequence[str] = ()) -> External:
    """A registered backend; CompileError, which says what there is. others: names that could be registered."""
    found = _REGISTERED.get(name)
    if found is None:
        known = dict.fromkeys((*_REGISTERED, *others))
        there = f"{', '.join(known) or 'none'}{did_you_mean(name, known)}"
        raise CompileError(f"there is no external backend {name!r}; known are: {there}")
    return found


def register_pattern_table(compiler: str, table: PatternTable | None = None) -> Any:
    """Keep a function that gives a pattern table under a name, as TVM's: called with both, or as a decorator."""
    if table is None:
        return lambda made: register_pattern_table(compiler, made)
    _TABLES[compiler] = table
    return table


@explained
def get_pattern_table(compiler: str) -> list[PatternRow] | None:
    """The rows for MergeComposite: of register_pattern_table, else of the External of that name, else None."""
    table = _TABLES.get(compiler)
    if table is not None:
        return list(table())
    external = _REGISTERED.get(compiler)
    return None if external is None else list(external.patterns)


def register_op_check(op: str, target: str, check: Check) -> None:
    """Say for which calls of an operator AnnotateTarget(target) takes it; the last check counts."""
    _CHECKS[op, target] = check


def is_wanted(check: Check, root: Expr, place: str) -> bool:
    """What a check says of `root`. CompileError with its span and `place` for an exception of the check's own."""
    try:
        return bool(check(root))
    except NimbleError:
        raise
    except Exception as error:
        where = f"{root.span}: " if root.span is not None else ""
        raise CompileError(f"{where}{place}: {type(error).__name__}: {error}") from error


def op_check(op: str, target: str) -> Check | None:
    """What register_op_check was told."""
    return _CHECKS.get((op, target))


__all__ = [
    "Blob", "Check", "Codegen", "External", "PatternRow", "PatternTable", "Region", "find", "get_pattern_table",
    "is_wanted", "op_check", "pattern_row", "register", "register_op_check", "register_pattern_table", "registered",
]  # fmt: skip

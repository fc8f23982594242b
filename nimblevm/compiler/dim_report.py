"""What the compiler knows of every dim of a program: static, equal to another, checked at run time, or free.

    report = dim_report(mod)
    for function in report.functions:
        for line in function.lines: ...

The report reads what inference and insert_checks made: types, entry comparisons (dim_notes.entry_dims, which
emit uses too), and the explicit vm.match_type and vm.check_broadcast. Later passes may drop a check together with
dead code, and inlining may move one; none appears that is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from nimblevm.arguments import explained
from nimblevm.bytecode.dim_lines import DimCheck, DimLine, DimReport, FunctionDims, State
from nimblevm.compiler.dim_notes import demand_text, entry_dims, tensor_paths
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.insert_checks import INSERT_CHECKS, tail_parts
from nimblevm.compiler.passes.name_effects import NAME_EFFECTS
from nimblevm.compiler.rewrite import is_primitive, type_of
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import (
    Call,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Leaf,
    Let,
    Match,
    RefRead,
    Span,
    Var,
    children,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.prelude import from_prelude
from nimblevm.relay.print_names import DefinitionNames
from nimblevm.relay.text import dim_text
from nimblevm.relay.type_context import DimFacts, must_check_broadcast, narrowing
from nimblevm.relay.types import (
    HAS_DIM,
    FuncType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
)
from nimblevm.relay.well_formed import check_well_formed

Path = tuple[int, ...]
_INCOMING = DimVar()
"""A size as it comes in, before it is compared at the entry."""


@dataclass(slots=True)
class _Check:
    """A DimCheck whose dims have no names yet: `actual` must be `expected` (broadcast: or 1; both the same
    expression: its own parts must fit).
    """

    function: str
    span: Span | None
    why: str
    actual: Dim
    expected: Dim
    broadcast: bool = False


@dataclass(slots=True)
class _Line:
    """A DimLine likewise. binds: the dim is a variable that gets its number here; claim: inside of a container."""

    value: str
    part: str
    axis: int
    dim: Dim
    checks: list[_Check] = field(default_factory=list)
    binds: bool = False
    claim: bool = False


@explained
def dim_report(
    mod: IRModule, functions: Iterable[str] | None = None, values: bool = False
) -> DimReport:
    """The dims of the functions of a module (those of the prelude only where named).

    functions   names of functions; None: all that are not the prelude's
    values      also every variable that a let or a pattern binds

    Raises WellFormedError, RelayTypeError; KeyError for a name that the module lacks. Cost: O(nodes).
    """
    if any(f.checked_type is None for f in mod.functions.values()):
        check_well_formed(mod)
        mod = infer_type(mod)
    if functions is None:
        names = [v.name_hint for v in mod.functions if not from_prelude(mod, v)]
    else:
        names = [functions] if isinstance(functions, str) else list(functions)
    context = PassContext()
    checked = INSERT_CHECKS(NAME_EFFECTS(mod, context), context)
    escaping = _escaping(checked)
    found = []
    for name in names:
        function = checked.function(name)
        if not is_primitive(function):
            lines = _FunctionReport(name, values, escaping).of(function)
            found.append(FunctionDims(name, lines))
    return DimReport(tuple(found))


def _escaping(mod: IRModule) -> set[Expr]:
    """Functions and constructors that are used as values: closures, whose entry compares static sizes too."""
    values: set[Expr] = set()
    functions: dict[Expr, Expr] = {}
    seen: set[Expr] = set()
    for var, function in mod.functions.items():
        functions[var] = function
        stack: list[Expr] = [function.body]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            parts = children(node)
            if isinstance(node, Let) and isinstance(node.value, Function):
                functions[node.var] = node.value
                parts = (node.value.body, node.body)
                values.update(parts)
            elif isinstance(node, Call):
                values.update(node.args)
                if isinstance(node.op, Function):
                    parts = (node.op.body, *node.args)
                    values.add(node.op.body)
            else:
                values.update(parts)
            stack.extend(parts)
        values.add(function.body)
    return {functions.get(v, v) for v in values}


class _FunctionReport:
    """Walks one global function in the order of evaluation."""

    def __init__(self, name: str, values: bool, escaping: set[Expr]) -> None:
        self.values = values
        self.escaping = escaping
        self.signature: list[_Line] = []
        self.inner: list[_Line] = []
        self.facts = DimFacts()
        self.origin: dict[DimVar, str] = {}
        self.listed: set[DimVar] = set()  # those that a line introduces: its checks stand there
        self.by_var: dict[DimVar, list[_Check]] = {}
        self.name = f"@{name}"
        self._bindings: list[DimVar] = []
        self._joined: set[Dim] = set()
        self._places: list[str] = [self.name]  # functions that the walk is in, outermost first
        self._labels: dict[Expr, str] = {}
        self._end_of: dict[Expr, Function] = {}
        self._result_checks: dict[tuple[Function, Path, int], list[_Check]] = {}
        self._seen: set[Expr] = set()
        self._todo: list[Callable[[], None]] = []

    def of(self, function: Function) -> tuple[DimLine, ...]:
        self._enter(function, self.signature, "")
        self._do(partial(self._visit, function.body))
        while self._todo:
            self._todo.pop()()
        self._result(function, self.signature, "")
        return _Writer(self).lines([*self.signature, *self.inner])

    def _do(self, *steps: Callable[[], None]) -> None:
        self._todo.extend(reversed(steps))

    # --- dims and where they come from ------------------------------------------------------------

    def _bind(self, dim: DimVar, origin: str) -> None:
        if dim not in self.facts.bound:
            self.facts.bound.add(dim)
            self._bindings.append(dim)
        self.origin.setdefault(dim, origin)

    def _learn(self, type_: Type | None, origin: str) -> None:
        """The tensors of a value give numbers to the variables that are axes of them."""
        if type_ is None or not type_.flags & HAS_DIM:
            return
        for path, tensor in tensor_paths(type_):
            for axis, dim in enumerate(tensor.shape):
                if isinstance(dim, DimVar) and dim not in self.facts.bound:
                    inside = f"field {_fields(path)[1:]} of " if path else ""
                    self._bind(dim, f"axis {axis} of {inside}{origin}")

    def _rollback(self, mark: int) -> None:
        while len(self._bindings) > mark:
            self.facts.bound.discard(self._bindings.pop())

    def _add(self, check: _Check, axis: int) -> None:
        """A check stands with the dims that it is about, where a line introduces them, else in a line of its own."""
        about = [v for v in dims.free_vars(check.actual) if v in self.listed]
        for var in about:
            self.by_var.setdefault(var, []).append(check)
        if not about:
            self.inner.append(_Line(check.why, "", axis, check.actual, [check]))

    # --- signatures -------------------------------------------------------------------------------

    def _enter(self, function: Function, lines: list[_Line], label: str) -> None:
        for entry in list(entry_dims(function.params, self.facts.bound)):
            value = f"{label}parameter %{entry.param.name_hint}"
            line = _Line(value, _fields(entry.path), entry.axis, entry.dim, binds=entry.binds)
            if entry.binds and isinstance(entry.dim, DimVar):
                self._bind(entry.dim, f"axis {entry.axis} of {entry.place}")
                self.listed.add(entry.dim)
            elif not isinstance(entry.dim, int) or function in self.escaping:
                span = entry.param.span or function.span
                why = f"parameter {entry.place} of {self._places[-1]}"
                line.checks.append(_Check(self._places[-1], span, why, _INCOMING, entry.dim))
            lines.append(line)
        for param in function.params:
            lines.extend(_claims(f"{label}parameter %{param.name_hint}", type_of(param)))
        self._note_ends(function)

    def _note_ends(self, function: Function) -> None:
        """Remember the checks of the result that stand at the ends of the body."""
        wheres = (f"result of {self.name}", f"result of a function in {self.name}")
        stack = [function.body]
        while stack:
            node = stack.pop()
            checks = _op_name(node) == "vm.match_type"
            if isinstance(node, Call) and checks and node.attrs.where in wheres:
                self._end_of[node] = function
            stack.extend(tail_parts(node))

    def _result(self, function: Function, lines: list[_Line], label: str) -> None:
        inner = function.body.checked_type  # None for a constructor or function by name
        declared = function.ret_type or inner
        if declared is None:
            return
        found = dict(tensor_paths(inner)) if inner is not None else {}
        for path, tensor in tensor_paths(declared):
            inside = found.get(path)
            for axis, dim in enumerate(tensor.shape):
                if isinstance(dim, DimVar) and dim not in self.facts.bound and inside is not None:
                    # What the function knows and its signature leaves open.
                    dim = inside.shape[axis]
                checks = self._result_checks.get((function, path, axis), [])
                lines.append(_Line(f"{label}result", _fields(path), axis, dim, checks))
        lines.extend(_claims(f"{label}result", declared))

    # --- the walk ---------------------------------------------------------------------------------

    def _visit(self, node: Expr) -> None:
        if node in self._seen:
            return
        self._seen.add(node)
        if isinstance(node, Leaf):
            if isinstance(node, Constructor) and node in self.escaping:
                self._constructor(node)
            return
        match node:
            case Let(var=var, value=value, body=body):
                if isinstance(value, Function):
                    self._labels[value] = f"%{var.name_hint}"
                bound = partial(self._bound, var, not isinstance(value, Function))
                self._do(partial(self._visit, value), bound, partial(self._visit, body))
            case Function():
                self._function(node)
            case If(cond=cond):
                self._do(partial(self._visit, cond), partial(self._branches, node))
            case Match(data=data):
                self._do(partial(self._visit, data), partial(self._branches, node))
            case _:
                parts = [partial(self._visit, c) for c in children(node)]
                self._do(*parts, partial(self._value, node))

    def _function(self, node: Function) -> None:
        mark = len(self._bindings)
        span = f" at {node.span.line}:{node.span.column}" if node.span is not None else ""
        label = self._labels.get(node, f"fn{span}")
        self._places.append(f"{label} in {self.name}")
        self._enter(node, self.inner, f"{label} ")

        def leave() -> None:
            self._result(node, self.inner, f"{label} ")
            self._places.pop()
            self._rollback(mark)

        self._do(partial(self._visit, node.body), leave)

    def _constructor(self, node: Constructor) -> None:
        """A constructor that is used as a function compares what its fields claim."""
        for i, field_type in enumerate(node.inputs):
            value = f"field {i} of {node.name_hint}"
            for path, tensor in tensor_paths(field_type):
                for axis, dim in enumerate(tensor.shape):
                    if isinstance(dim, int):
                        why = f"{value}{_fields(path)}, called as a function"
                        check = _Check(self._places[-1], node.span, why, _INCOMING, dim)
                        self.inner.append(_Line(value, _fields(path), axis, dim, [check]))

    def _branches(self, node: Expr) -> None:
        """What a branch binds ends with it."""
        mark = len(self._bindings)
        steps: list[Callable[[], None]] = []
        if isinstance(node, Match):
            for clause in node.clauses:
                variables = pattern_vars(clause.lhs)
                steps.extend(partial(self._bound, v, is_value=True) for v in variables)
                steps += [partial(self._visit, clause.rhs), partial(self._rollback, mark)]
        else:
            for branch in tail_parts(node):
                steps += [partial(self._visit, branch), partial(self._rollback, mark)]
        self._do(*steps, partial(self._value, node))

    def _bound(self, var: Var, is_value: bool) -> None:
        self._learn(var.checked_type, f"%{var.name_hint}")
        if self.values and is_value:
            for path, tensor in tensor_paths(type_of(var)):
                for axis, dim in enumerate(tensor.shape):
                    binds = isinstance(dim, DimVar) and dim not in self.listed
                    if isinstance(dim, DimVar):
                        self.listed.add(dim)
                    value = f"%{var.name_hint}"
                    self.inner.append(_Line(value, _fields(path), axis, dim, binds=binds))

    def _value(self, node: Expr) -> None:
        """A node whose parts have been walked."""
        name = _op_name(node)
        if isinstance(node, Call) and name == "vm.match_type":
            self._match_type(node)
        elif isinstance(node, Call) and name == "vm.check_broadcast":
            self._check_broadcast(node)
        elif isinstance(node, Call) and name:
            self._joins(node, name)
        self._learn(node.checked_type, _described(node))

    # --- checks -----------------------------------------------------------------------------------

    def _match_type(self, node: Call) -> None:
        function = self._end_of.get(node)
        where = node.attrs.where
        for found in narrowing(type_of(node.args[0]), node.attrs.type, self.facts):
            place = f"{where}{_fields(found.path)}"
            if found.binds:
                if isinstance(found.expected, DimVar):
                    self._bind(found.expected, f"axis {found.axis} of {place}")
                continue
            check = _Check(self._places[-1], node.span, place, found.actual, found.expected)
            if function is None:
                self._add(check, found.axis)
            else:
                key = (function, found.path, found.axis)
                self._result_checks.setdefault(key, []).append(check)

    def _check_broadcast(self, node: Call) -> None:
        type_ = type_of(node.args[0])
        shape = type_.shape if isinstance(type_, TensorType) else ()
        wanted = node.attrs.shape[len(node.attrs.shape) - len(shape) :]
        for axis, (have, want) in enumerate(zip(shape, wanted, strict=True)):
            if not must_check_broadcast(have, want):
                continue
            check = _Check(
                self._places[-1], node.span, node.attrs.where, have, want, broadcast=True
            )
            self._add(check, axis)

    def _joins(self, node: Call, name: str) -> None:
        """Broadcasts of two unknown sizes: to compute the result's size is to check them."""
        for _, tensor in tensor_paths(type_of(node)):
            for axis, dim in enumerate(tensor.shape):
                if isinstance(dim, DimOp) and dim.op == "bcast" and dim not in self._joined:
                    self._joined.add(dim)
                    why = f"axis {axis} of the result of {name}"
                    self._add(
                        _Check(self._places[-1], node.span, why, dim, dim, broadcast=True), axis
                    )


class _Writer:
    """Lines with names for their dims."""

    def __init__(self, report: _FunctionReport) -> None:
        self.report = report
        self.names = DefinitionNames()
        self._shown: set[DimVar] = set()

    def lines(self, lines: list[_Line]) -> tuple[DimLine, ...]:
        checks = {id(c): c for line in lines for c in line.checks}
        checks |= {id(c): c for found in self.report.by_var.values() for c in found}
        self.names.note_dims(line.dim for line in lines)
        for check in checks.values():
            self.names.note_dims(dict.fromkeys((check.actual, check.expected)))
        return tuple([self._line(line) for line in lines])

    def _line(self, line: _Line) -> DimLine:
        dim = line.dim
        checks = list(line.checks)
        if line.binds and isinstance(dim, DimVar):
            checks += self.report.by_var.get(dim, [])
        state, equal = self._state(line)
        written = [self._check(c, dim) for c in checks]
        if line.claim and state != "free":
            why = "claimed: a tensor that comes out is compared"
            written.append(DimCheck(self.report.name, "", 0, 0, why, f"must be {self._text(dim)}"))
        if written:
            equal = "" if state == "free" else equal
            state = "checked"
        return DimLine(
            line.value, line.part, line.axis, self._text(dim), state, equal, tuple(written)
        )

    def _text(self, dim: Dim) -> str:
        return dim_text(dim, self.names)

    def _state(self, line: _Line) -> tuple[State, str]:
        """The state but for checks, and what the dim equals or comes from."""
        dim, report = line.dim, self.report
        if isinstance(dim, int):
            return "static", ""
        if isinstance(dim, DimVar):
            known = not line.binds and (dim in report.listed or dim in self._shown)
            self._shown.add(dim)
            origin = report.origin.get(dim, "")
            own = f"axis {line.axis} of {line.value.rpartition(' ')[2]}{line.part}"
            return "equal to" if known else "free", "" if origin == own else origin
        origins = [report.origin[v] for v in dims.free_vars(dim) if v in report.origin]
        return "equal to", f"computed from {', '.join(origins)}"

    def _check(self, check: _Check, about: Dim) -> DimCheck:
        if check.actual is check.expected:
            parts = check.actual.args if isinstance(check.actual, DimOp) else ()
            texts = " and ".join(self._text(p) for p in parts)
            demand = f"{texts} must be equal, unless one is 1"
        elif check.broadcast:
            demand = f"must be 1 or {self._text(check.expected)}"
        else:
            demand = demand_text(check.actual, check.expected, self.names)
        if check.actual not in (about, _INCOMING) and demand.startswith("must"):
            demand = f"{self._text(check.actual)} {demand}"
        span = check.span
        place = (span.source, span.line, span.column) if span is not None else ("", 0, 0)
        return DimCheck(check.function, *place, check.why, demand)


def _fields(path: Path) -> str:
    return "".join(f".{i}" for i in path)


def _op_name(node: Expr) -> str:
    return node.op.name if isinstance(node, Call) and isinstance(node.op, Op) else ""


def _described(node: Expr) -> str:
    """What a value without a name is, for people."""
    place = f" ({node.span.line}:{node.span.column})" if node.span is not None else ""
    match node:
        case Call(op=Op(name=name)):
            return f"the result of {name}{place}"
        case Call(op=GlobalVar(name_hint=name)):
            return f"the result of @{name}{place}"
        case Call(op=Var(name_hint=name)):
            return f"the result of %{name}{place}"
        case If():
            return f"the value of the if{place}"
        case Match():
            return f"the value of the match{place}"
        case RefRead():
            return f"the content of a reference{place}"
    return f"the value{place}"


def _claims(value: str, root: Type) -> Iterator[_Line]:
    """The dims of tensors inside data types, functions and references: compared when a value comes out."""
    stack: list[tuple[Type, str, bool]] = [(root, "", False)]
    while stack:
        type_, part, inside = stack.pop()
        match type_:
            case TensorType(shape=shape) if inside:
                for axis, dim in enumerate(shape):
                    yield _Line(value, part, axis, dim, claim=True)
            case TupleType(fields=fields):
                found = [(f, f"{part}.{i}", inside) for i, f in enumerate(fields)]
                stack.extend(reversed(found))
            case TypeCall(func=func, args=args):
                found = [(a, f"{part}.{func}[{i}]", True) for i, a in enumerate(args)]
                stack.extend(reversed(found))
            case FuncType(arg_types=args, ret_type=ret):
                stack.append((ret, f"{part}.result", True))
                stack.extend((a, f"{part}.argument {i}", True) for i, a in enumerate(args))
            case RefType(value=content):
                stack.append((content, f"{part}.content", True))


__all__ = ["dim_report"]

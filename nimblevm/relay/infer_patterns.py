"""What binds variables: types of the variables of patterns, dims that parameters must bind."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar
from nimblevm.relay.ir import (
    Expr,
    Function,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.text import dim_text
from nimblevm.relay.type_errors import Note, show, type_error
from nimblevm.relay.types import (
    HAS_DIM,
    IncompleteType,
    TupleType,
    Type,
    TypeCall,
    substitute,
    value_tensors,
)
from nimblevm.relay.unify import Solver, TypeMismatch


class PatternTyper:
    """Binds patterns for inference: `types` receives the variables' types.

    recognise(var, type): the type of an extracted field as an earlier inference or pass has it
    """

    def __init__(
        self,
        module: IRModule,
        solver: Solver,
        types: dict[Expr, Type],
        recognise: Callable[[Expr, Type], Type],
    ) -> None:
        self._module = module
        self._solver = solver
        self._types = types
        self._recognise = recognise
        self._notes: list[Note] = []

    def bind(self, root: Pattern, data: Type, notes: list[Note]) -> None:
        """Type the variables of a clause's pattern; `notes` tell where the matched value comes
        from.
        """
        self._notes = notes
        # The flag: the value comes out of a constructor.
        stack: list[tuple[Pattern, Type, bool]] = [(root, data, False)]
        while stack:
            pattern, type_, inside = stack.pop()
            match pattern:
                case PatternWildcard():
                    pass
                case PatternVar(var=var):
                    self._bind_var(var, type_, inside)
                case PatternTuple(patterns=patterns):
                    fields = self._tuple_fields(pattern, type_, len(patterns))
                    stack.extend((p, f, inside) for p, f in zip(patterns, fields, strict=True))
                case PatternConstructor(patterns=patterns):
                    fields = self._constructor_fields(pattern, type_)
                    stack.extend((p, f, True) for p, f in zip(patterns, fields, strict=True))
                case _:
                    raise TypeError(f"unknown pattern {type(pattern).__name__}")

    def _bind_var(self, var: Var, type_: Type, inside: bool) -> None:
        solver = self._solver
        annotation = var.type_annotation
        if annotation is not None:
            try:
                solver.flow(type_, annotation)
            except TypeMismatch as mismatch:
                raise type_error(
                    f"{mismatch.reason}, for pattern %{var.name_hint}", var.span, self._notes
                ) from None
            self._types[var] = annotation
            solver.add_rigid_of(annotation)
            return
        if inside:
            solver.fresh.clear()
            type_ = self._recognise(var, solver.extract(type_))
            solver.add_rigid_of(type_)
        self._types[var] = type_

    def _tuple_fields(self, pattern: PatternTuple, type_: Type, count: int) -> tuple[Type, ...]:
        type_ = self._solver.prune(type_)
        if isinstance(type_, IncompleteType):
            opened = TupleType([self._solver.hole() for _ in range(count)])
            self._solver.bind(type_, opened)
            return opened.fields
        if not isinstance(type_, TupleType) or len(type_.fields) != count:
            raise type_error(
                f"a pattern of {count} fields can't match a value of type {show(type_)}",
                pattern.span,
                self._notes,
            )
        return type_.fields

    def _constructor_fields(self, pattern: PatternConstructor, type_: Type) -> tuple[Type, ...]:
        constructor = pattern.constructor
        definition = self._module.type_definitions.get(constructor.belong_to)
        if definition is None:
            raise type_error(
                f"the module has no type {constructor.belong_to.name_hint}", pattern.span
            )
        type_ = self._solver.prune(type_)
        if isinstance(type_, IncompleteType):
            opened = TypeCall(
                definition.header, [self._solver.hole() for _ in definition.type_vars]
            )
            self._solver.bind(type_, opened)
            type_ = opened
        if not isinstance(type_, TypeCall) or type_.func is not constructor.belong_to:
            raise type_error(
                f"constructor {constructor.name_hint} of {constructor.belong_to.name_hint} can't "
                f"match "
                f"a value of type {show(type_)}",
                pattern.span,
                self._notes,
            )
        if len(pattern.patterns) != len(constructor.inputs):
            raise type_error(
                f"constructor {constructor.name_hint} has {len(constructor.inputs)} fields, "
                f"the pattern {len(pattern.patterns)}",
                pattern.span,
                self._notes,
            )
        if not definition.type_vars:
            return constructor.inputs
        mapping = dict(zip(definition.type_vars, type_.args, strict=True))
        return tuple(substitute(t, mapping) for t in constructor.inputs)


def check_parameter_dims(
    node: Function, param_types: Sequence[Type], outer: Container[DimVar]
) -> None:
    """A dim that parameters name only inside larger expressions could not be bound: RelayTypeError.

    outer    dims of the code around a local function
    """
    exact: set[DimVar] = set()
    inside: dict[DimVar, tuple[Var, Dim]] = {}
    for param, type_ in zip(node.params, param_types, strict=True):
        if not type_.flags & HAS_DIM:
            continue
        for dim in (dim for tensor in value_tensors(type_) for dim in tensor.shape):
            if isinstance(dim, DimVar):
                exact.add(dim)
            elif isinstance(dim, DimOp):
                inside.update(
                    (var, (param, dim)) for var in dims.free_vars(dim) if var not in inside
                )
    if not inside:
        return
    exact.update(var for _, var in node.attrs.get("dim_params", ()))
    for var, (param, dim) in inside.items():
        if var not in exact and var not in outer:
            raise type_error(
                f"dim {dim_text(var)} of parameter %{param.name_hint} occurs only inside "
                f"{dim_text(dim)}; some parameter must have an axis that is exactly "
                f"{dim_text(var)}",
                param.span or node.span,
            )

"""Calls of signatures: the dims and type parameters that the arguments of one call determine."""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar
from nimblevm.relay.text import dim_text
from nimblevm.relay.types import (
    HAS_DIM,
    HAS_HOLE,
    HAS_TYPE_VAR,
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    free_dims,
    parts,
    substitute,
)
from nimblevm.relay.unify import (
    Path,
    Solver,
    TypeMismatch,
    check_structure,
    flow_tensor,
    part_name,
    within,
)


class Instantiation:
    """One call of a signature: its dims and type parameters, learnt from the arguments.

    mark   dims that the solver introduced before it are the surrounding code's; all others of the
    signature
           belong to the function and are instantiated (0 for a global function: all of them)
    """

    def __init__(
        self,
        solver: Solver,
        signature: FuncType,
        mark: int,
        type_args: Sequence[Type] = (),
    ) -> None:
        self._solver = solver
        self._signature = signature
        self._mark = mark
        self._given = type_args
        self._later: list[tuple[int, int, Dim, Dim]] = []
        self._accepted: list[tuple[int, Type, Type]] = []
        self._contains_binders = HAS_DIM | HAS_HOLE | HAS_TYPE_VAR
        self.dims: dict[DimVar, Dim] = {}
        self.types: dict[Type, Type | None] = dict.fromkeys(signature.type_params)
        self.extracts = False  # whether the result is a claim; set by `result`
        self.source: dict[DimVar, int] = {}

    def bind(self, args: Sequence[Type]) -> None:
        """Learn from argument types; TypeMismatch names the argument."""
        for position, (found, wanted) in enumerate(
            zip(args, self._signature.arg_types, strict=True)
        ):
            if found is wanted and not wanted.flags & self._contains_binders:
                continue
            try:
                self._match(found, wanted, position)
            except TypeMismatch as mismatch:
                raise TypeMismatch(mismatch.reason, position) from None
        self._settle_accepted()
        for position, axis, found_dim, wanted_dim in self._later:
            known = dims.substitute(wanted_dim, self.dims)
            if dims.compare(found_dim, known) is False:
                raise TypeMismatch(
                    f"dim mismatch on axis {axis}: expected {dim_text(wanted_dim)} = "
                    f"{dim_text(known)}, got {dim_text(found_dim)}",
                    position,
                )

    def _settle_accepted(self) -> None:
        """Type parameters met as what a function argument accepts: values decide, if there are
        any.
        """
        for position, var, accepted in self._accepted:
            known = self.types[var]
            try:
                if known is None:
                    self.types[var] = accepted
                else:
                    self._solver.flow(known, accepted)
            except TypeMismatch as mismatch:
                raise TypeMismatch(mismatch.reason, position) from None

    def _match(self, found: Type, wanted: Type, position: int) -> None:
        solver = self._solver
        # `certain`: the value itself or a tuple's field, from where dims are learnt. `accepts`:
        # what a function argument takes instead of what a value is.
        stack: list[tuple[Type, Type, bool, bool, Path]] = [(found, wanted, True, False, ())]
        while stack:
            have, want, certain, accepts, path = stack.pop()
            have, want = solver.prune(have), solver.prune(want)
            if want in self.types and accepts:
                self._accepted.append((position, want, have))
            elif want in self.types:
                known = self.types[want]
                self.types[want] = have if known is None else solver.join(known, have)
            elif isinstance(want, IncompleteType):
                solver.flow(have, want)
                if want in solver.binding:
                    # Its dims are parameters of this call now.
                    stack.append((have, want, certain, accepts, path))
            elif isinstance(have, IncompleteType):
                solver.bind(have, self._as_far_as_known(want))
            elif isinstance(have, TensorType) and isinstance(want, TensorType):
                self._match_tensor(have, want, certain, path, position)
            elif have is not want or want.flags & self._contains_binders:
                if isinstance(have, FuncType) and isinstance(want, FuncType):
                    if have.type_params and not want.type_params:
                        have = solver.open_generic(have)
                    elif want.type_params:
                        solver.flow(have, want)
                        continue
                if have is not want:
                    check_structure(have, want, path)
                if isinstance(have, RefType) and isinstance(want, RefType):
                    content = solver.resolve(have.value)
                    if solver.refs.settle(content, solver.resolve(want.value)):
                        continue
                inside = certain and isinstance(want, TupleType)
                pairs = list(zip(parts(have), parts(want), strict=True))
                # The parts of a function type but the last are parameters.
                flipped = len(pairs) - 1 if isinstance(want, FuncType) else 0
                stack.extend(
                    (*pairs[i], inside, accepts != (i < flipped), (*path, part_name(want, i)))
                    for i in range(len(pairs) - 1, -1, -1)
                )

    def _as_far_as_known(self, want: Type) -> Type:
        """A parameter's type for an argument that is a hole."""
        for var, known in self.types.items():
            if known is None and want.flags & HAS_TYPE_VAR:
                self.types[var] = self._solver.hole()
        known_types = {v: t for v, t in self.types.items() if t is not None}
        return self._solver.forget_dims(substitute(want, known_types), static=False)

    def _match_tensor(
        self, have: TensorType, want: TensorType, certain: bool, path: Path, position: int
    ) -> None:
        if have.dtype != want.dtype or len(have.shape) != len(want.shape):
            flow_tensor(have, want, path)
        for axis, (p, q) in enumerate(zip(have.shape, want.shape, strict=True)):
            if isinstance(q, DimVar) and not self._solver.is_outer(q, self._mark):
                if certain:
                    self._learn(q, p, axis, position)
            elif isinstance(q, DimOp) and any(
                not self._solver.is_outer(v, self._mark) for v in dims.free_vars(q)
            ):
                if certain:
                    self._later.append((position, axis, p, q))
            elif dims.compare(p, q) is False:
                raise TypeMismatch(
                    f"dim mismatch on axis {axis}{within(path)}: expected {dim_text(q)}, got "
                    f"{dim_text(p)}"
                )

    def _learn(self, var: DimVar, dim: Dim, axis: int, position: int) -> None:
        known = self.dims.get(var)
        if known is None:
            self.dims[var] = dim
            self.source[var] = position
        elif known is not dim:
            if dims.compare(known, dim) is False:
                raise TypeMismatch(
                    f"dim mismatch on axis {axis}: {dim_text(var)} is {dim_text(known)} by "
                    f"argument "
                    f"{self.source[var]}, but {dim_text(dim)} here"
                )
            if isinstance(dim, int):
                self.dims[var] = dim

    def type_args(self) -> tuple[Type, ...]:
        """One type a type parameter; what the arguments left open comes from the call, or is a
        hole.
        """
        for index, var in enumerate(self._signature.type_params):
            if self.types[var] is None:
                given = index < len(self._given)
                self.types[var] = self._given[index] if given else self._solver.type_arg_hole()
        return tuple(t for t in self.types.values() if t is not None)

    def expand(self, type_: Type) -> Type:
        """A type of the signature with what was learnt put in; undetermined dims keep their
        variables.
        """
        args = dict(zip(self._signature.type_params, self.type_args(), strict=True))
        return self._solver.resolve(substitute(type_, args, self.dims))

    def result(self, *, claimed: bool) -> Type:
        """The call's type. `claimed`: the callee is not known, its result is a claim (see
        Solver.extract).
        """
        solver = self._solver
        result = self._signature.ret_type
        if result.flags & HAS_HOLE:
            result = solver.instance(result) if isinstance(result, IncompleteType) else result
            result = solver.resolve(result)
        if result.flags & HAS_DIM:
            mapping: dict[DimVar, Dim] = {}
            for var in free_dims(result):
                if not solver.is_outer(var, self._mark):
                    known = self.dims.get(var)
                    mapping[var] = solver.fresh_dim() if known is None else known
            result = substitute(result, None, mapping)
        if self._signature.type_params:
            args = self.type_args()
            generic = isinstance(result, TypeVar | TupleType) and result.flags & HAS_TYPE_VAR
            result = substitute(result, dict(zip(self._signature.type_params, args, strict=True)))
            claimed = claimed or bool(generic)
        self.extracts = claimed
        return solver.extract(result) if claimed else result

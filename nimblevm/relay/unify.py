"""The unifier of type inference: holes, flows, joins and the instantiation of signatures.

Types flow (`Solver.flow`): dtype, rank and structure must agree, and no dim may be refuted. A dim
that can't be decided is allowed everywhere; insert_checks turns it into a run-time check. Where
values of two types meet, `Solver.join` gives a type that both fit: dims that are not provably
equal become a fresh unknown.

Holes are IncompleteType objects, bound at most once. Two kinds forget dims when they are bound,
because what is known of the first type that reaches them need not hold of the next:

    PARAMETER   a parameter without annotation: unknown dims become fresh, static ones stay
    RESULT      the result of a function or operator that is not inferred yet: all dims become fresh

Nothing here recurses on the depth of a type.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.infer_refs import RefClaims
from nimblevm.relay.text import dim_text, type_text
from nimblevm.relay.types import (
    HAS_DIM,
    HAS_HOLE,
    MAX_WRITTEN_OUT,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    holes,
    parts,
    substitute,
    transform_each,
    value_tensors,
    with_parts,
)


class TypeMismatch(Exception):
    """Two types that can't meet; caught by inference, which adds the places.

    `reason` says what differs and where inside the type; `argument` the position of a call's
    argument.
    """

    def __init__(self, reason: str, argument: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.argument = argument


class HoleKind(enum.Enum):
    """What a hole forgets when it is bound (see the module's text)."""

    PLAIN = 0
    PARAMETER = 1
    RESULT = 2


Path = tuple[str, ...]


class Solver:
    """The state of one inference.

    rigid   dims that are one number wherever the current code can run -> position of their
    introduction
    fresh   unknowns made since the caller last cleared the list
    type_arg_holes  type arguments that the arguments of a call left open
    bottom  results of functions whose recursion has no type yet; used_bottom: those asked for
    refs    what refs may claim of their contents
    on_bind called with each hole that is bound
    """

    def __init__(
        self,
        on_bind: Callable[[IncompleteType], None] = lambda hole: None,
        refs: RefClaims | None = None,
    ) -> None:
        self.refs = refs if refs is not None else RefClaims()
        self.binding: dict[Type, Type] = {}
        self.rigid: dict[DimVar, int] = {}
        self.fresh: list[DimVar] = []
        self._rigid_order: list[DimVar] = []
        self._kinds: dict[IncompleteType, HoleKind] = {}
        self._instances: dict[IncompleteType, list[IncompleteType]] = {}
        self._master: dict[IncompleteType, IncompleteType] = {}
        self.type_arg_holes: list[IncompleteType] = []
        self._settled: set[Type] = set()
        self.bottom: set[Type] = set()
        self.used_bottom: set[Type] = set()
        self._on_bind = on_bind

    # --- dims -----------------------------------------------------------------------------------

    def fresh_dim(self, name: str | None = None) -> DimVar:
        """A new unknown; it denotes the size of the value at hand."""
        var = DimVar(name)
        self.fresh.append(var)
        self.add_rigid(var)
        return var

    def add_rigid(self, var: DimVar) -> None:
        """From here on `var` is one number."""
        if var not in self.rigid:
            self.rigid[var] = len(self._rigid_order)
            self._rigid_order.append(var)

    def add_rigid_of(self, type_: Type) -> None:
        """The dims of a value that is in scope from here on are numbers."""
        if type_.flags & HAS_DIM:
            for tensor in value_tensors(type_):
                for dim in tensor.shape:
                    for var in dims.free_vars(dim):
                        self.add_rigid(var)

    def mark(self) -> int:
        """A position to return to with `release`, or to tell outer dims from inner ones."""
        return len(self._rigid_order)

    def release(self, mark: int) -> None:
        """Leave a function: its dims are no longer one number."""
        for var in self._rigid_order[mark:]:
            del self.rigid[var]
        del self._rigid_order[mark:]

    def is_outer(self, var: DimVar, mark: int) -> bool:
        position = self.rigid.get(var)
        return position is not None and position < mark

    # --- holes ------------------------------------------------------------------------------------

    def hole(self, kind: HoleKind = HoleKind.PLAIN) -> IncompleteType:
        made = IncompleteType()
        if kind is not HoleKind.PLAIN:
            self._kinds[made] = kind
        return made

    def parameter(self, annotation: Type | None) -> Type:
        """The type of a parameter before its body is seen: what it is annotated with. A hole for that says no more
        than no annotation."""
        if annotation is None:
            return self.hole(HoleKind.PARAMETER)
        if isinstance(annotation, IncompleteType):
            self._kinds[annotation] = HoleKind.PARAMETER
        return annotation

    def type_arg_hole(self) -> IncompleteType:
        """A hole for a type argument; if nothing ever determines it, any type will do."""
        made = self.hole()
        self.type_arg_holes.append(made)
        return made

    def is_plain(self, hole: IncompleteType) -> bool:
        """Whether a hole is of kind PLAIN."""
        return hole not in self._kinds

    def is_parameter(self, hole: IncompleteType) -> bool:
        """Whether a hole stands for a parameter without annotation."""
        return self._kinds.get(hole) is HoleKind.PARAMETER

    def instance(self, type_: Type) -> Type:
        """The result type of one call of a function whose result may not be inferred yet."""
        result, exact = type_, True
        while result in self.binding:
            exact = exact and result in self._settled
            result = self.binding[result]
        if result in self.bottom:
            self.used_bottom.add(result)
            return self.hole()
        if isinstance(result, IncompleteType):
            made = self.hole(HoleKind.RESULT)
            self._instances.setdefault(result, []).append(made)
            self._master[made] = result
            return made
        return result if exact else self.forget_dims(self.resolve(result), static=True)

    def prune(self, type_: Type) -> Type:
        """`type_` itself, or what it is bound to if it is a hole."""
        binding = self.binding
        while type_ in binding:
            type_ = binding[type_]
        return type_

    def resolve(self, type_: Type) -> Type:
        """`type_` with all bound holes replaced."""
        while type_.flags & HAS_HOLE:
            new = substitute(type_, self.binding)
            if new is type_:
                break
            type_ = new
        return type_

    def bind(self, hole: IncompleteType, type_: Type) -> None:
        """Let an unbound hole stand for `type_` (less the dims that its kind forgets)."""
        type_ = self.resolve(type_)
        if type_ is hole:
            return
        if type_.flags & HAS_HOLE and hole in holes(type_):
            raise TypeMismatch(f"a type would contain itself: {type_text(type_)}")
        kind = self._kinds.get(hole, HoleKind.PLAIN)
        if kind is not HoleKind.PLAIN:
            type_ = self.forget_dims(type_, static=kind is HoleKind.RESULT)
        self.binding[hole] = type_
        self._on_bind(hole)
        master = self._master.pop(hole, None)
        if master is not None and master not in self.binding and self.prune(type_) is not master:
            self.bind(master, self.forget_dims(type_, static=True))
        for made in self._instances.pop(hole, ()):
            if made not in self.binding and self.prune(type_) is not made:
                self._master.pop(made, None)
                self.bind(made, type_)

    def settle(self, hole: IncompleteType, type_: Type) -> None:
        """The exact type of a RESULT hole is known now; what was concluded from others must fit
        it.
        """
        self._settled.add(hole)
        if hole in self.binding:
            self.flow(type_, self.binding[hole])
            if self.prune(type_) is not hole:
                self.binding[hole] = type_
        elif self.prune(type_) is not hole:
            kind = self._kinds.pop(hole, HoleKind.PLAIN)
            self.bind(hole, type_)
            self._kinds[hole] = kind

    def forget_dims(self, type_: Type, *, static: bool) -> Type:
        """`type_` with every unknown dim fresh; with `static` every dim."""

        def leaf(found: Type) -> Type:
            if not isinstance(found, TensorType):
                return found
            return TensorType(
                (self.fresh_dim() if static or isinstance(d, DimExpr) else d for d in found.shape),
                found.dtype,
            )

        try:
            return transform_each(type_, leaf, None if static else HAS_DIM)
        except ValueError as fault:
            raise TypeMismatch(str(fault)) from None

    def extract(self, type_: Type) -> Type:
        """The type of a value that comes out of a container: anonymous dims claim nothing.

        Static and named dims stay (claims, checked at run time); only the value itself and the
        fields of tuples are concerned, what lies in a container inside comes out later.
        """
        type_ = self.resolve(type_)
        if not type_.flags & HAS_DIM:
            return type_
        out: list[Type] = []
        stack: list[tuple[Type, bool]] = [(type_, False)]
        while stack:
            current, ready = stack.pop()
            if len(out) > MAX_WRITTEN_OUT:
                raise TypeMismatch(f"the type has more than {MAX_WRITTEN_OUT} parts")
            if ready:
                count = len(parts(current))
                fields = out[len(out) - count :]
                del out[len(out) - count :]
                out.append(TupleType(fields))
            elif isinstance(current, TupleType) and current.fields and current.flags & HAS_DIM:
                stack.append((current, True))
                stack.extend((f, False) for f in reversed(current.fields))
            elif isinstance(current, TensorType) and current.flags & HAS_DIM:
                out.append(self._extract_tensor(current))
            else:
                out.append(current)
        return out[0]

    def _extract_tensor(self, found: TensorType) -> TensorType:
        shape: list[Dim] = []
        for dim in found.shape:
            anonymous = any(v.name is None for v in dims.free_vars(dim))
            shape.append(self.fresh_dim() if anonymous else dim)
        return TensorType(shape, found.dtype)

    # --- flows ------------------------------------------------------------------------------------

    def flow(self, actual: Type, expected: Type) -> None:
        """A value of type `actual` goes where `expected` is wanted; TypeMismatch if it can't."""
        if actual is expected:
            return
        stack: list[tuple[Type, Type, Path]] = [(actual, expected, ())]
        seen: set[tuple[Type, Type]] = set()
        while stack:
            found, wanted, path = stack.pop()
            found, wanted = self.prune(found), self.prune(wanted)
            if found is wanted or (found, wanted) in seen:
                continue
            seen.add((found, wanted))
            if isinstance(wanted, IncompleteType):
                self.bind(wanted, found)
            elif isinstance(found, IncompleteType):
                self.bind(found, wanted)
            elif isinstance(found, TensorType) and isinstance(wanted, TensorType):
                flow_tensor(found, wanted, path)
            else:
                stack.extend(self._flow_parts(found, wanted, path))

    def _flow_parts(self, found: Type, wanted: Type, path: Path) -> list[tuple[Type, Type, Path]]:
        if isinstance(found, FuncType) and isinstance(wanted, FuncType):
            if found.type_params and not wanted.type_params:
                found = self.open_generic(found)
            elif len(found.type_params) == len(wanted.type_params) and found.type_params:
                renamed = dict(zip(found.type_params, wanted.type_params, strict=True))
                found = FuncType(
                    (substitute(t, renamed) for t in found.arg_types),
                    substitute(found.ret_type, renamed),
                    wanted.type_params,
                )
            check_structure(found, wanted, path)
            pairs = [
                (w, f, (*path, f"parameter {i}"))
                for i, (f, w) in enumerate(zip(found.arg_types, wanted.arg_types, strict=True))
            ]
            pairs.append((found.ret_type, wanted.ret_type, (*path, "result")))
            return pairs
        check_structure(found, wanted, path)
        if isinstance(found, RefType) and isinstance(wanted, RefType):
            content, other = self.resolve(found.value), self.resolve(wanted.value)
            if self.refs.settle(content, other):
                return []
        return [
            (f, w, (*path, part_name(found, i)))
            for i, (f, w) in enumerate(zip(parts(found), parts(wanted), strict=True))
        ]

    def open_generic(self, type_: FuncType) -> FuncType:
        """A generic function type with holes for its type parameters."""
        opened = {p: self.hole() for p in type_.type_params}
        return FuncType(
            (substitute(t, opened) for t in type_.arg_types), substitute(type_.ret_type, opened)
        )

    def join(self, a: Type, b: Type) -> Type:
        """A type that values of both types have; TypeMismatch if there is none."""
        if a is b:
            return a
        done: dict[tuple[Type, Type], Type] = {}
        stack: list[tuple[Type, Type, Path]] = [(a, b, ())]
        while stack:
            left, right, path = stack[-1]
            pair = (left, right)
            if pair in done:
                stack.pop()
                continue
            x, y = self.prune(left), self.prune(right)
            if x is y:
                done[pair] = x
            elif isinstance(x, IncompleteType) or isinstance(y, IncompleteType):
                done[pair] = self._join_hole(x, y)
            elif isinstance(x, TensorType) and isinstance(y, TensorType):
                done[pair] = self._join_tensor(x, y, path)
            else:
                self._join_parts(x, y, pair, path, done, stack)
        return done[(a, b)]

    def _join_parts(
        self,
        x: Type,
        y: Type,
        pair: tuple[Type, Type],
        path: Path,
        done: dict[tuple[Type, Type], Type],
        stack: list[tuple[Type, Type, Path]],
    ) -> None:
        """One step of `join`: combine the parts if they are joined already, else ask for them."""
        check_structure(x, y, path)
        if isinstance(x, RefType) and isinstance(y, RefType):
            contents = self.resolve(x.value), self.resolve(y.value)
            self.refs.settle(*contents)
            self.refs.settle(*reversed(contents))
        below = list(zip(parts(x), parts(y), strict=True))
        waiting = [
            (f, w, (*path, part_name(x, i))) for i, (f, w) in enumerate(below) if (f, w) not in done
        ]
        if waiting:
            stack.extend(reversed(waiting))
        else:
            done[pair] = with_parts(x, tuple(done[p] for p in below))

    def _join_hole(self, x: Type, y: Type) -> Type:
        """One side is a hole: bind it. If the hole forgets dims, so does the join."""
        hole, other = (x, y) if isinstance(x, IncompleteType) else (y, x)
        assert isinstance(hole, IncompleteType)
        forgets = self._kinds.get(hole) is HoleKind.RESULT
        self.bind(hole, other)
        return self.forget_dims(self.resolve(other), static=True) if forgets else other

    def _join_tensor(self, x: TensorType, y: TensorType, path: Path) -> TensorType:
        if x.dtype != y.dtype or len(x.shape) != len(y.shape):
            flow_tensor(x, y, path)
        return TensorType(
            (
                p if dims.compare(p, q) else self.fresh_dim()
                for p, q in zip(x.shape, y.shape, strict=True)
            ),
            x.dtype,
        )


def part_name(type_: Type, index: int) -> str:
    """How a message calls part `index` of a type."""
    match type_:
        case TupleType():
            return f"field {index}"
        case RefType():
            return "content of the ref"
        case TypeCall(func=func):
            return f"type argument {index} of {func.name_hint}"
        case FuncType(arg_types=args):
            return f"parameter {index}" if index < len(args) else "result"
    return f"part {index}"


def within(path: Path) -> str:
    """A path as the end of a sentence."""
    return f" in {' of '.join(reversed(path))}" if path else ""


def flow_tensor(found: TensorType, wanted: TensorType, path: Path) -> None:
    """Dtype and rank must agree, no dim may be refuted."""
    if found.dtype != wanted.dtype:
        raise TypeMismatch(
            f"dtype mismatch{within(path)}: expected {wanted.dtype}, got {found.dtype}"
        )
    if len(found.shape) != len(wanted.shape):
        raise TypeMismatch(
            f"rank mismatch{within(path)}: expected rank {len(wanted.shape)}, "
            f"got rank {len(found.shape)}"
        )
    for axis, (p, q) in enumerate(zip(found.shape, wanted.shape, strict=True)):
        if dims.compare(p, q) is False:
            raise TypeMismatch(
                f"dim mismatch on axis {axis}{within(path)}: expected {dim_text(q)}, got "
                f"{dim_text(p)}"
            )


def kind_text(type_: Type) -> str:
    """What sort of type it is, for a message."""
    match type_:
        case TensorType():
            return "a tensor"
        case TupleType(fields=fields):
            return f"a tuple of {len(fields)}"
        case FuncType(arg_types=args):
            return f"a function of {len(args)} parameter{'' if len(args) == 1 else 's'}"
        case RefType():
            return "a ref"
        case TypeCall(func=func):
            return f"a {func.name_hint}"
        case GlobalTypeVar(name_hint=name):
            return f"the name of type {name}"
        case TypeVar(name_hint=name):
            return f"a value of type parameter {name}"
    return "a value of unknown type"


def check_structure(found: Type, wanted: Type, path: Path) -> None:
    """Both of one kind with as many parts."""
    if type(found) is type(wanted) and len(parts(found)) == len(parts(wanted)):
        match found:
            case TypeCall(func=func) if isinstance(wanted, TypeCall) and wanted.func is not func:
                pass
            case TypeVar() | GlobalTypeVar():
                pass
            case _:
                return
    raise TypeMismatch(
        f"type mismatch{within(path)}: expected {kind_text(wanted)}, got {kind_text(found)}"
    )

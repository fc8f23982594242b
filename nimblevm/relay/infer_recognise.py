"""Recognising the unknowns of an earlier inference, so that inferring again changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar
from nimblevm.relay.types import HAS_DIM, TensorType, TupleType, Type, TypeCall, parts


def same_unknowns(found: Type, old: Type, fresh: set[DimVar]) -> dict[DimVar, DimVar]:
    """For fresh variables of `found`: the variable at the same place of `old`; one to one.

    Empty where the types differ in structure; a variable whose places disagree is left out.
    """
    mapping: dict[DimVar, DimVar] = {}
    taken: set[DimVar] = set()
    stack: list[tuple[Type, Type]] = [(found, old)]
    seen: set[tuple[Type, Type]] = set()
    while stack:
        pair = stack.pop()
        new_type, old_type = pair
        if pair in seen or type(new_type) is not type(old_type) or not new_type.flags & HAS_DIM:
            continue
        seen.add(pair)
        if isinstance(new_type, TensorType) and isinstance(old_type, TensorType):
            if new_type.dtype == old_type.dtype and len(new_type.shape) == len(old_type.shape):
                for new_dim, old_dim in zip(new_type.shape, old_type.shape, strict=True):
                    _match(new_dim, old_dim, fresh, mapping, taken)
        elif len(parts(new_type)) == len(parts(old_type)):
            stack.extend(zip(reversed(parts(new_type)), reversed(parts(old_type)), strict=True))
    return mapping


def _match(
    new: Dim, old: Dim, fresh: set[DimVar], mapping: dict[DimVar, DimVar], taken: set[DimVar]
) -> None:
    stack = [(new, old)]
    while stack:
        a, b = stack.pop()
        if isinstance(a, DimVar) and isinstance(b, DimVar):
            if a in fresh and a not in mapping and b not in taken:
                mapping[a] = b
                taken.add(b)
        elif (
            isinstance(a, DimOp)
            and isinstance(b, DimOp)
            and a.op == b.op
            and len(a.args) == len(b.args)
        ):
            stack.extend(zip(a.args, b.args, strict=True))


def weakened(found: Type, old: Type, usable: Callable[[DimVar], bool]) -> Type:
    """The type of an extracted value where a pass took its claims away.

    insert_checks gives what comes out of a container anonymous dims and an explicit check; a claim of
    `found` that stands where `old` has an anonymous variable is therefore not made again.
    """
    out: list[Type] = []
    stack: list[tuple[Type, Type, bool]] = [(found, old, False)]
    while stack:
        have, before, ready = stack.pop()
        if isinstance(have, TupleType) and isinstance(before, TupleType):
            count = len(have.fields)
            if ready:
                fields = out[len(out) - count :]
                del out[len(out) - count :]
                out.append(TupleType(fields))
                continue
            if count and count == len(before.fields) and have is not before:
                stack.append((have, before, True))
                stack.extend(
                    (f, b, False)
                    for f, b in zip(reversed(have.fields), reversed(before.fields), strict=True)
                )
                continue
        if isinstance(have, TensorType) and isinstance(before, TensorType):
            have = _weakened_tensor(have, before, usable)
        out.append(have)
    return out[0]


def _weakened_tensor(
    found: TensorType, old: TensorType, usable: Callable[[DimVar], bool]
) -> TensorType:
    if found is old or found.dtype != old.dtype or len(found.shape) != len(old.shape):
        return found
    shape: list[Dim] = []
    for p, q in zip(found.shape, old.shape, strict=True):
        claims = isinstance(p, int) or any(v.name is not None for v in dims.free_vars(p))
        weaker = claims and isinstance(q, DimVar) and q.name is None and usable(q)
        shape.append(q if weaker else p)
    return TensorType(shape, found.dtype)


def fits(found: Type, assumed: Type, existential: set[DimVar]) -> bool:
    """Whether `found` proves what `assumed` claims; existential variables may be any dim, each the same one."""
    meaning: dict[DimVar, Dim] = {}
    stack: list[tuple[Type, Type]] = [(found, assumed)]
    seen: set[tuple[Type, Type]] = set()
    while stack:
        pair = stack.pop()
        have, want = pair
        if have is want or pair in seen:
            continue
        seen.add(pair)
        if isinstance(have, TensorType) and isinstance(want, TensorType):
            if not _tensor_fits(have, want, existential, meaning):
                return False
        elif (
            type(have) is not type(want) or not parts(have) or len(parts(have)) != len(parts(want))
        ) or (
            isinstance(have, TypeCall) and isinstance(want, TypeCall) and have.func is not want.func
        ):
            return False
        else:
            stack.extend(zip(parts(have), parts(want), strict=True))
    return True


def _tensor_fits(
    have: TensorType, want: TensorType, existential: set[DimVar], meaning: dict[DimVar, Dim]
) -> bool:
    """`fits` of tensors; `meaning` is what existential variables stand for, and grows."""
    if have.dtype != want.dtype or len(have.shape) != len(want.shape):
        return False
    for p, q in zip(have.shape, want.shape, strict=True):
        claimed = meaning.setdefault(q, p) if isinstance(q, DimVar) and q in existential else q
        if not dims.compare(p, claimed):
            return False
    return True

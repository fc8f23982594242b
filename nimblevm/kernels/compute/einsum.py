"""einsum: a loop over the letters that are summed; products of two operands are tiled as matrix products are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import known, tensor_type, wide
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    several,
)
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.einsum import DOTS, axes_of, parse


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    parts = several(args[0])
    shape, dtype = tensor_type(out).shape, wide(out.dtype)
    equation = parse(attrs.equation)
    axes = [axes_of(t, part.rank) for t, part in zip(equation.operands, parts, strict=True)]
    out_axes = axes_of(equation.result, len(shape))
    dotted = tuple(d for c, d in zip(out_axes, shape, strict=True) if c == DOTS)
    sizes: dict[str, Dim] = {}
    for letters, part in zip(axes, parts, strict=True):
        for letter, size in zip(letters, part.shape, strict=True):
            sizes[letter] = known(sizes.get(letter, size), size)

    def where(letters: tuple[str, ...], own: Any, at: dict[str, Value], dots: Index) -> Index:
        inner = tuple(d for c, d in zip(letters, own, strict=True) if c == DOTS)
        stretched = iter(em.broadcast(inner, dotted, dots))
        return tuple(next(stretched) if c == DOTS else at[c] for c in letters)

    def at(index: Index) -> Steps:
        for part in parts:
            yield from em.cheap(part)
        dots = tuple(i for c, i in zip(out_axes, index, strict=True) if c == DOTS)
        place = {c: i for c, i in zip(out_axes, index, strict=True) if c != DOTS}

        def term(inner: Index) -> Steps:
            here = {**place, **dict(zip(equation.summed, inner, strict=True))}
            found: Value | None = None
            for letters, part in zip(axes, parts, strict=True):
                value = yield part, where(letters, part.shape, here, dots)
                value = em.b.cast(value, dtype)
                found = value if found is None else em.b.mul(found, value)
            assert found is not None
            return found

        if not equation.summed:
            total = yield from term(())
        else:
            extents = tuple(sizes[letter] for letter in equation.summed)
            total = yield from em.accumulate("add", em.b.const(0, dtype), index, extents, term)
        return em.b.cast(total, out.dtype)

    return TensorExpr(shape, out.dtype, at, 1 << 20, costly=True)


register_compute("einsum", _compute)

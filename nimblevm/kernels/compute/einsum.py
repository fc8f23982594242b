"""einsum: a loop over the letters that are summed; products of two operands are tiled as matrix products are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nimblevm.kernels.compute.common import known, tensor_type, wide
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Product,
    Steps,
    TensorExpr,
    Tensors,
    moved,
    register_compute,
    several,
)
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.einsum import (
    DOTS,
    Equation,
    ProductAxes,
    axes_of,
    parse,
    product_axes,
)


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

    tensor = TensorExpr(shape, out.dtype, at, 1 << 20, costly=True)
    product = product_axes(equation)
    return tensor if product is None else _as_product(em, tensor, product, parts, equation)


def _as_product(
    em: Emitter,
    tensor: TensorExpr,
    axes: ProductAxes,
    parts: tuple[TensorExpr, ...],
    equation: Equation,
) -> TensorExpr:
    """The same tensor as one that is moved from a product with its axes in nn.batch_matmul's order."""
    left, right = parts
    to_out = [axes.axes.index(c) for c in equation.result]
    to_product = [equation.result.index(c) for c in axes.axes]

    def out_index(index: Index) -> Index:
        return tuple([index[a] for a in to_out])

    def operand_index(letters: str) -> Callable[[Index, Value], Index]:
        def found(index: Index, inner: Value) -> Index:
            at = {**dict(zip(axes.axes, index, strict=True)), axes.depth: inner}
            return tuple([at[c] for c in letters])

        return found

    sizes = dict(zip(equation.operands[0], left.shape, strict=True))
    other = dict(zip(equation.operands[1], right.shape, strict=True))
    role = Product(
        left,
        right,
        known(sizes[axes.depth], other[axes.depth]),
        operand_index(equation.operands[0]),
        operand_index(equation.operands[1]),
        equation.operands[0][-1] == axes.depth,
    )
    if to_out == list(range(len(to_out))):
        tensor.role = role
        return tensor
    shape = tuple([tensor.shape[a] for a in to_product])
    product = TensorExpr(
        shape,
        tensor.dtype,
        lambda index: tensor.at(out_index(index)),
        tensor.cost,
        costly=True,
        role=role,
    )
    return moved(
        product,
        tensor.shape,
        lambda index: tuple([index[a] for a in to_product]),
        forward=out_index,
        rows=to_out[-2:] == [len(to_out) - 2, len(to_out) - 1],
    )


register_compute("einsum", _compute)

"""einsum(data, equation): sums of products by Einstein's convention.

    "ij,jk->ik":    out[i, k] = sum over j of data[0][i, j] * data[1][j, k]

One term of letters an operand, separated by commas; a letter that the result lacks is summed over; one that occurs
twice in a term takes the diagonal. "..." stands for further axes, which are broadcast. Without "->" the result has
"..." and then the letters that occur once, in alphabetical order. data: a tuple of tensors of one dtype; a letter has
one size. Result: data's dtype; integers wrap; float16 is accumulated in float32. Attrs: equation. Source: Relay's
einsum. Differs from numpy: an axis of size 1 is not stretched under a letter; integers keep their dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    NUMERIC,
    Array,
    Attrs,
    as_wide,
    check_dtype,
    dtype_name,
    require_same,
    rounded,
    tensor_fields,
    unless_one,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

DOTS = "."


@dataclass(frozen=True, slots=True)
class EinsumAttrs(Attrs):
    """equation: the terms of the operands, and of the result behind "->"."""

    equation: str = ""


@dataclass(frozen=True, slots=True)
class Equation:
    """Terms of letters; "." stands for the axes of an ellipsis."""

    operands: tuple[str, ...]
    result: str

    @property
    def summed(self) -> tuple[str, ...]:
        """The letters that are summed over, in order of appearance."""
        return tuple(c for c in dict.fromkeys("".join(self.operands)) if c not in self.result)


@dataclass(frozen=True, slots=True)
class ProductAxes:
    """An equation that is a batch of matrix products: the letters of the batch, of rows, columns and depth."""

    batch: tuple[str, ...]
    rows: str
    columns: str
    depth: str

    @property
    def axes(self) -> tuple[str, ...]:
        """The letters in the order of nn.batch_matmul's result."""
        return (*self.batch, self.rows, self.columns)


def product_axes(equation: Equation) -> ProductAxes | None:
    """How two operands are multiplied, if each has an axis of its own and they share the one that is summed over."""
    letters = "".join(equation.operands)
    plain = DOTS not in letters and all(len(set(t)) == len(t) for t in equation.operands)
    if len(equation.operands) != 2 or len(equation.summed) != 1 or not plain:
        return None
    left, right = equation.operands
    depth = equation.summed[0]
    batch = tuple(c for c in equation.result if c in left and c in right)
    rows = [c for c in equation.result if c in left and c not in right]
    columns = [c for c in equation.result if c in right and c not in left]
    if len(rows) != 1 or len(columns) != 1 or depth not in left or depth not in right:
        return None
    return ProductAxes(batch, rows[0], columns[0], depth)


def parse(equation: str) -> Equation:
    """The terms of an equation; ValueError says what is wrong."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = tuple(_term(term) for term in left.split(","))
    letters = "".join(terms)
    if not arrow:
        once = sorted(c for c in set(letters) - {DOTS} if letters.count(c) == 1)
        return Equation(terms, DOTS * (DOTS in letters) + "".join(once))
    result = _term(right)
    if len(set(result)) != len(result):
        raise ValueError(f"a letter occurs twice in the result {right!r}")
    unknown = sorted(set(result) - set(letters))
    if unknown:
        raise ValueError(f"the result's {unknown[0]!r} is in no operand")
    if DOTS in letters and DOTS not in result:
        raise ValueError("the result lacks the operands' ellipsis")
    return Equation(terms, result)


def _term(text: str) -> str:
    """A term with one character an axis, the ellipsis as one "."."""
    short = text.replace("...", DOTS)
    if not all(c == DOTS or (c.isascii() and c.isalpha()) for c in short) or short.count(DOTS) > 1:
        raise ValueError(f"a term has letters and at most one '...', not {text!r}")
    return short


def axes_of(term: str, rank: int) -> tuple[str, ...]:
    """Per axis its letter, or "." for one of the ellipsis; ValueError if the rank does not fit."""
    more = rank - len(term.replace(DOTS, ""))
    if more < 0 or (more and DOTS not in term):
        raise ValueError(f"the term {term.replace(DOTS, '...')!r} does not fit rank {rank}")
    found: list[str] = []
    for letter in term:
        found += [DOTS] * more if letter == DOTS else [letter]
    return tuple(found)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: EinsumAttrs) -> Type:
    parts = tensor_fields(ctx, arg_types)
    check_dtype(ctx, parts[0], NUMERIC, 0)
    try:
        equation = parse(attrs.equation)
        if len(equation.operands) != len(parts):
            raise ValueError(f"{len(equation.operands)} terms for {len(parts)} operands")
        axes = [axes_of(t, len(p.shape)) for t, p in zip(equation.operands, parts, strict=True)]
    except ValueError as error:
        raise ctx.fail(f"equation {attrs.equation!r}: {error}", 0) from None
    known: dict[str, tuple[tuple[int, int], int, Dim]] = {}
    dotted: list[list[tuple[tuple[int, int], int, Dim]]] = []
    for field, (letters, part) in enumerate(zip(axes, parts, strict=True)):
        dotted.append([])
        for axis, (letter, size) in enumerate(zip(letters, part.shape, strict=True)):
            here = ((0, field), axis, size)
            if letter == DOTS:
                dotted[-1].append(here)
            elif letter in known:
                first = known[letter]
                known[letter] = (*first[:2], require_same(ctx, first, here))
            else:
                known[letter] = here
    found: list[Dim] = []
    for letter in equation.result:
        if letter == DOTS:
            found.extend(_stretched(ctx, dotted))
        else:
            found.append(known[letter][2])
    return TensorType(tuple(found), parts[0].dtype)


def _stretched(
    ctx: TypeContext, dotted: list[list[tuple[tuple[int, int], int, Dim]]]
) -> tuple[Dim, ...]:
    """The axes of the ellipsis, broadcast; `dotted`: an operand's (argument, axis, size) of each."""
    rank = max(map(len, dotted))
    result: list[Dim] = [1] * rank
    for part in dotted:
        for axis, here in enumerate(part, rank - len(part)):
            result[axis] = _joined(ctx, result[axis], here)
    return tuple(result)


def _joined(ctx: TypeContext, first: Dim, here: tuple[tuple[int, int], int, Dim]) -> Dim:
    """The broadcast of a size and that of an axis: equal, or one of them is 1."""
    arg, axis, second = here
    if first is second or first == second or second == 1:
        return first
    if first == 1:
        return second
    if isinstance(first, int) and isinstance(second, int):
        raise ctx.fail(f"field {arg[1]}: sizes {first} and {second} under '...'", 0)
    ctx.require_dim(arg, axis, dims.add(second, unless_one(first, second)))
    return first if isinstance(first, int) else dims.bcast(first, second)


def _reference(inputs: tuple[tuple[Array, ...]], attrs: EinsumAttrs, result: Type) -> Array:
    (parts,) = inputs
    dtype = dtype_name(parts[0])
    try:
        with np.errstate(all="ignore"):
            found = np.einsum(attrs.equation, *(as_wide(part) for part in parts))
            return rounded(np.array(found), dtype)
    except ValueError as error:
        raise ShapeMismatch(f"einsum: {error}") from None


register(
    Op(
        name="einsum",
        args=("data",),
        attrs=EinsumAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(NUMERIC,),
        doc=__doc__,
        variadic=True,
        tolerance=ACCUMULATED,
    )
)

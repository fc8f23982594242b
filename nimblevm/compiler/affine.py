"""Quantized tensors in the place of float ones: what the integer forms of operators are made of.

A tensor q with a scale s and a zero point z stands for s * (q - z). Rules (integer_rules.py) take the forms of a call's
operands and give the form of its result. What they widen and join has zero point 0 and an exact or finer scale, so that
nothing is rounded but sums of products to their own steps, and everything once where a region ends.

Zero points lie in the range of their dtype, scales are positive and finite; of constants that is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.qnn_terms import Terms, is_zero
from nimblevm.compiler.rewrite import type_of, typed
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Constant, Expr, TupleGetItem, is_known
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType, Type

WIDE = 22
"""Bits of magnitude to which narrow tensors are widened: a product with bytes still fits 31."""
MOST = 31


class Refused(Exception):
    """Why a call has no integer form."""


@dataclass(frozen=True, slots=True)
class AffineType:
    """scale, zero_point: scalars, or vectors along `axis` (from 0), each its own. dtype: of the integers."""

    scale: Expr
    zero_point: Expr
    dtype: str
    axis: int = 0

    @property
    def is_scalar(self) -> bool:
        return not _rank(self.scale) and not _rank(self.zero_point)

    @property
    def axis_attr(self) -> int:
        """The axis for an attribute: its default where it says nothing."""
        return -1 if self.is_scalar else self.axis

    def same(self, other: AffineType) -> bool:
        """Whether both are known to be one type. Scales that are neighbours in float32 are one scale."""
        return (
            self.dtype == other.dtype
            and (self.is_scalar or self.axis == other.axis)
            and _equal(self.scale, other.scale, 2.0**-23)
            and _equal(self.zero_point, other.zero_point, 0)
        )


@dataclass(frozen=True, slots=True)
class Quantized:
    """An integer tensor. bits: abs(value - zero_point) <= 2**bits, as far as that is known. fine: rounding to its steps
    is what products do anyway.
    """

    value: Expr
    type: AffineType
    bits: int
    fine: bool = False

    @property
    def shape(self) -> tuple[Dim, ...]:
        return _tensor(self.value).shape

    def like(self, value: Expr, type_: AffineType | None = None) -> Quantized:
        """Other numbers that are as large and as fine."""
        return replace(self, value=value, type=type_ or self.type)

    @property
    def is_plain(self) -> bool:
        """Whether it is int32 with the zero point 0."""
        return self.type.dtype == "int32" and is_zero(self.type.zero_point)


@dataclass(frozen=True, slots=True)
class Known:
    """A float constant."""

    value: Constant

    @property
    def data(self) -> np.ndarray:
        return np.asarray(self.value.data).astype("float64")


@dataclass(frozen=True, slots=True)
class Other:
    """An operand that is no float: an index, a condition."""

    value: Expr


Form = Quantized | Known | Other | tuple["Form", ...]


def _tensor(expr: Expr) -> TensorType:
    found = type_of(expr)
    if not isinstance(found, TensorType):
        raise Refused("it reads no tensor")
    return found


def _shape_of(type_: Type) -> tuple[Dim, ...]:
    assert isinstance(type_, TensorType)
    return type_.shape


def _rank(expr: Expr) -> int:
    return len(_tensor(expr).shape)


def _equal(one: Expr, other: Expr, tolerance: float) -> bool:
    if one is other:
        return True
    if not is_known(one) or not is_known(other) or one.data.shape != other.data.shape:
        return False
    return bool(np.allclose(one.data, other.data, rtol=tolerance, atol=0))


def bits_of(dtype: str, zero_point: Expr) -> int:
    """How large value - zero_point of a dtype may be, as a power of two."""
    if dtype == "int32":
        return MOST
    width = dtypes.dtype(dtype).itemsize * 8
    return width - 1 if dtype.startswith("int") and is_zero(zero_point) else width


class Site(Terms):
    """A call to be written in integers. forms: those of its operands. wanted: the type in which all of its readers want
    the result, if there is one; without vectors.
    """

    def __init__(self, call: Call, forms: Sequence[Form], wanted: AffineType | None) -> None:
        super().__init__(call)
        self.forms = tuple(forms)
        self.wanted = wanted

    @property
    def name(self) -> str:
        """The operator's."""
        assert isinstance(self.call.op, Op)
        return self.call.op.name

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's."""
        return self.type(self.call).shape

    def operand(self, index: int = 0) -> Quantized:
        return quantized(self.forms[index])

    def result(self, name: str, *args: Expr, **attrs: object) -> Expr:
        """A call of an operator in the place of the call's: of its shape."""
        made = self(name, *args, **attrs)
        if not isinstance(made, Constant):
            typed(made, TensorType(self.shape, self.dtype(made)))
        return made

    def again(self, args: Sequence[Expr], dtype: str) -> Expr:
        """The call with other operands, of the call's shape."""
        return typed(replace_args(self.call, args), TensorType(self.shape, dtype))

    def parts(self, args: Sequence[Expr], dtype: str) -> list[Expr]:
        """As `again`, of a call whose result is a tuple: its fields."""
        found = type_of(self.call)
        assert isinstance(found, TupleType)
        fields = [TensorType(_shape_of(field), dtype) for field in found.fields]
        made = typed(replace_args(self.call, args), TupleType(fields))
        return [
            typed(TupleGetItem(made, index, span=self.call.span), field)
            for index, field in enumerate(fields)
        ]

    # --- from one type to another -------------------------------------------------------------------

    def moved(
        self, form: Quantized, to: AffineType, bits: int | None = None, fine: bool = False
    ) -> Quantized:
        """In another type, rounded to it and saturated."""
        if form.type.same(to):
            return form
        old = form.type
        if not old.is_scalar and not to.is_scalar and old.axis != to.axis:
            raise Refused("its scales are along one axis and those of the result along another")
        axis = to.axis_attr if old.is_scalar else old.axis
        given = (old.scale, old.zero_point, to.scale, to.zero_point)
        value = self("qnn.requantize", form.value, *given, axis=axis, out_dtype=to.dtype)
        bits = bits_of(to.dtype, to.zero_point) if bits is None else bits
        return Quantized(value, to, bits, fine)

    def plain(self, form: Quantized) -> Quantized:
        """In int32 with the zero point 0 and the same scale."""
        if form.is_plain:
            return form
        zero_point = self.along(form.type.zero_point, len(form.shape), form.type.axis)
        value = self.shifted(form.value, zero_point)
        return form.like(value, self.plain_type(form.type.scale, form.type.axis))

    def wide(self, form: Quantized) -> Quantized:
        """In int32 with the zero point 0 and a scale so fine that rounding to it means nothing, where there is room."""
        if form.fine or form.bits >= WIDE:
            return self.plain(form)
        to = self.plain_type(self.fine(form), form.type.axis)
        return self.moved(form, to, WIDE, fine=True)

    def fine(self, form: Quantized) -> Expr:
        """The scale of `wide`."""
        if form.fine or form.bits >= WIDE:
            return form.type.scale
        return self("multiply", form.type.scale, self.number(2.0 ** (form.bits - WIDE), "float32"))

    def flat(self, form: Quantized, commutes: bool = False) -> Quantized:
        """In a type without vectors: int32 with the coarsest of the scales. commutes: the operator may as well be of
        rounded and saturated numbers, so that the wanted type will do.
        """
        if form.type.is_scalar:
            return form
        if commutes and self.wanted is not None:
            return self.moved(form, self.wanted)
        to = self.plain_type(self.coarsest(self.fine(form)))
        return self.moved(form, to, max(form.bits, WIDE), fine=True)

    def coarsest(self, scale: Expr) -> Expr:
        if not _rank(scale):
            return scale
        if not is_known(scale) or not scale.data.size:
            raise Refused("its scales are along an axis, and the run decides them")
        return self("max", scale)

    def plain_type(self, scale: Expr, axis: int = 0) -> AffineType:
        return AffineType(scale, self.number(0, "int32"), "int32", axis)

    # --- axes ---------------------------------------------------------------------------------------

    def axis_in_result(self, form: Quantized) -> int:
        """The axis of an operand's scales in a result to which it is broadcast."""
        axis = len(self.shape) - len(form.shape) + form.type.axis
        if self.shape[axis] != form.shape[form.type.axis]:
            raise Refused("it repeats an axis that scales are along")
        return axis


def quantized(form: Form) -> Quantized:
    """The form, which must be a quantized tensor."""
    if not isinstance(form, Quantized):
        raise Refused("an operand that must be quantized is a float constant")
    return form


def replace_args(call: Call, args: Sequence[Expr]) -> Call:
    """The call with other operands, without a type."""
    return Call(call.op, tuple(args), call.attrs, span=call.span)


def affine_type(
    t: Terms, scale: Expr, zero_point: Expr, dtype: str, axis: int, rank: int
) -> AffineType:
    """The type that qnn.quantize or qnn.dequantize names for a tensor of a rank."""
    scale, zero_point = (_scalar_if_one(t, given) for given in (scale, zero_point))
    if is_known(zero_point):
        info = np.iinfo(dtypes.dtype(dtype).numpy)
        if bool(((zero_point.data < info.min) | (zero_point.data > info.max)).any()):
            raise Refused(f"a zero point is no {dtype}")
    if is_known(scale) and not bool((np.isfinite(scale.data) & (scale.data > 0)).all()):
        raise Refused("a scale is not positive and finite")
    return AffineType(scale, zero_point, dtype, axis % rank if rank else 0)


def _scalar_if_one(t: Terms, given: Expr) -> Expr:
    """A scalar in the place of a vector whose elements are known to be one number."""
    shape = _tensor(given).shape
    if not shape:
        return given
    if is_known(given) and given.data.size and bool((given.data == given.data[0]).all()):
        return t.number(given.data[0], given.data.dtype.name)
    return t("reshape", given, newshape=()) if shape == (1,) else given


def dequantized_form(call: Call) -> Quantized:
    """What a qnn.dequantize stands for."""
    data, scale, zero_point = call.args
    t, found = Terms(call), _tensor(data)
    type_ = affine_type(t, scale, zero_point, found.dtype, call.attrs.axis, len(found.shape))
    bits = bits_of(found.dtype, type_.zero_point)
    if is_known(data) and is_known(type_.zero_point) and data.data.size:
        zero = t.along(type_.zero_point, len(found.shape), type_.axis)
        assert isinstance(zero, Constant)
        most = int(np.abs(data.data.astype("int64") - zero.data).max())
        bits = min(bits, max(most - 1, 0).bit_length())
    return Quantized(data, type_, bits)


__all__ = [
    "MOST", "WIDE", "AffineType", "Form", "Known", "Other", "Quantized", "Refused", "Site", "affine_type", "bits_of",
    "dequantized_form", "quantized", "replace_args",
]  # fmt: skip

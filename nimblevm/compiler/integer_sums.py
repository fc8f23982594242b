"""Integer forms of operators of several tensors: sums, products, the greater of two, joins.

Where all of one dtype meet at a wanted type of that dtype, sums, products and joins of quantized tensors are qnn.add,
qnn.subtract, qnn.mul and qnn.concatenate. Elsewhere sums are of int32 with one scale, which is so fine that rounding to
it means nothing, and products are exact: in 31 bits, or refused. A constant factor, of all or of an axis, goes into the
scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nimblevm.compiler.affine import (
    MOST,
    WIDE,
    AffineType,
    Form,
    Known,
    Quantized,
    Refused,
    Site,
    bits_of,
    quantized,
)
from nimblevm.relay.ir import Constant, Expr, is_known

LEAST_BITS = 12
"""What a constant factor that differs everywhere is rounded to at least."""


# --- tensors of one type ----------------------------------------------------------------------------


def joined(s: Site, forms: Sequence[Form]) -> list[Quantized]:
    """The operands of a monotone operator in one type: the wanted one, their own, or a common fine one."""
    found = [form for form in forms if isinstance(form, Quantized)]
    if len(found) == len(forms) and found[0].type.is_scalar and _all_same(found):
        return found
    if s.wanted is not None:
        return [_wanted(s, form, s.wanted) for form in forms]
    return common(s, forms)


def _wanted(s: Site, form: Form, to: AffineType) -> Quantized:
    if isinstance(form, Known):
        value = s("cast", form.value, dtype="float32")
        made = s("qnn.quantize", value, to.scale, to.zero_point, out_dtype=to.dtype)
        return Quantized(made, to, bits_of(to.dtype, to.zero_point))
    return s.moved(quantized(form), to)


def common(s: Site, forms: Sequence[Form], flat: bool = False) -> list[Quantized]:
    """The operands in int32 of one scale with the zero point 0; flat: of one scalar scale."""
    scale, after = _common_scale(s, forms, flat)
    return [_at(s, form, scale, after) for form in forms]


def _common_scale(s: Site, forms: Sequence[Form], flat: bool) -> tuple[Expr, int]:
    """The greatest of the operands' fine scales, and for a vector the axes behind its own.

    What may be as large as int32 is a bias of the run, or is used as one: it is brought to the scale of the others.
    """
    sure = [form for form in forms if not _is_bias(form)] or forms
    scales = [_fine(s, form) for form in sure]
    places = {
        len(form.shape) - form.type.axis - 1
        for form, scale in zip(sure, scales, strict=True)
        if isinstance(form, Quantized) and s.rank(scale)
    }
    after = min(places, default=0)
    if flat or len(places) > 1 or not all(_reaches(s, f, scales, after) for f in forms):
        scales, after = [s.coarsest(scale) for scale in scales], 0
    greatest = scales[0]
    for scale in scales[1:]:
        if scale is not greatest:
            greatest = s("maximum", greatest, scale)
    return greatest, after


def _is_bias(form: Form) -> bool:
    return isinstance(form, Quantized) and form.bits == MOST and not form.fine


def _fine(s: Site, form: Form) -> Expr:
    if not isinstance(form, Known):
        return s.fine(quantized(form))
    data = np.abs(form.data)
    if not bool(np.isfinite(data).all()):
        raise Refused("a constant is not finite")
    most = float(data.max(initial=0))
    return s.number(max(most * 2.0**-WIDE, 2.0**-120), "float32")


def _reaches(s: Site, form: Form, scales: Sequence[Expr], after: int) -> bool:
    """Whether an operand has the axis of the scales that are vectors; a constant is spread along it."""
    vectors = [scale for scale in scales if s.rank(scale)]
    if not vectors or isinstance(form, Known):
        return True
    shape = quantized(form).shape
    return len(shape) > after and shape[-1 - after] == s.type(vectors[0]).shape[0]


def _at(s: Site, form: Form, scale: Expr, after: int) -> Quantized:
    """An operand in int32 of that scale."""
    if isinstance(form, Quantized):
        to = s.plain_type(scale, max(len(form.shape) - after - 1, 0))
        bits = max(form.bits, WIDE)
        made = s.moved(form, to, bits, fine=True)
        if made is form or not _is_bias(form):
            return replace(made, fine=True)
        # Saturated, so that a sum with it does not wrap.
        most = float(2 ** (MOST - 1))
        return Quantized(s("clip", made.value, a_min=-most, a_max=most), to, MOST - 1, fine=True)
    assert isinstance(form, Known)
    if is_known(scale):
        step = scale.data.reshape(-1, *(1,) * after) if scale.data.ndim else scale.data
        value: Expr = Constant(np.asarray(np.rint(form.data / step)).astype("int32"))
    else:
        steps = s.along(scale, after + 1, 0)
        value = s("round", s("divide", s("cast", form.value, dtype="float32"), steps))
        value = s("cast", value, dtype="int32")
    type_ = s.plain_type(scale, max(s.rank(value) - after - 1, 0))
    return Quantized(value, type_, WIDE, fine=True)


# --- sums -------------------------------------------------------------------------------------------


def total(s: Site) -> Quantized:
    """add, subtract."""
    return _total(s, s.forms, s.name)


def bias_add(s: Site) -> Quantized:
    """nn.bias_add, a sum with a vector along an axis."""
    data, bias = s.operand(), s.forms[1]
    count = len(data.shape) - s.call.attrs.axis % len(data.shape) - 1
    if count and isinstance(bias, Quantized):
        spread = s("expand_dims", bias.value, axis=1, num_newaxis=count)
        bias = bias.like(spread)
    elif count and isinstance(bias, Known):
        bias = Known(Constant(bias.value.data.reshape(-1, *(1,) * count)))
    return _total(s, (data, bias), "add")


def _total(s: Site, forms: Sequence[Form], name: str) -> Quantized:
    to = s.wanted
    if to is not None and all(isinstance(f, Quantized) and f.type.dtype == to.dtype for f in forms):
        return _of_two(s, f"qnn.{name}", [quantized(form) for form in forms], to)
    lhs, rhs = common(s, forms)
    value = s.result(name, lhs.value, rhs.value)
    bits = min(max(lhs.bits, rhs.bits) + 1, MOST)
    return Quantized(value, _result_type(s, lhs, rhs), bits, fine=True)


def _result_type(s: Site, lhs: Quantized, rhs: Quantized) -> AffineType:
    """Of operands that have one scale."""
    for side in (lhs, rhs):
        if not side.type.is_scalar:
            return s.plain_type(side.type.scale, s.axis_in_result(side))
    return lhs.type


def _of_two(s: Site, name: str, forms: Sequence[Quantized], to: AffineType) -> Quantized:
    """A quantized operator of two tensors."""
    given = [part for f in forms for part in (f.type.scale, f.type.zero_point)]
    axes = dict(zip(("lhs_axis", "rhs_axis"), (f.type.axis_attr for f in forms), strict=True))
    tensors = [form.value for form in forms]
    value = s.result(name, *tensors, *given, to.scale, to.zero_point, **axes)
    return Quantized(value, to, bits_of(to.dtype, to.zero_point))


# --- products ---------------------------------------------------------------------------------------


def product(s: Site) -> Quantized:
    """multiply."""
    lhs, rhs = s.forms
    if isinstance(lhs, Known):
        lhs, rhs = rhs, lhs
    data = quantized(lhs)
    if isinstance(rhs, Known):
        return _with_constant(s, data, rhs.data)
    other = quantized(rhs)
    if data.bits + other.bits > MOST:
        raise Refused("its product needs more than 31 bits; quantize an operand before")
    to = s.wanted
    if to is not None and data.type.dtype == other.type.dtype == to.dtype:
        return _of_two(s, "qnn.mul", (data, other), to)
    one, two = s.plain(data), s.plain(other)
    value = s.result("multiply", one.value, two.value)
    axes = {s.axis_in_result(side) for side in (one, two) if not side.type.is_scalar}
    if len(axes) > 1:
        raise Refused("its operands have scales along two axes")
    scale = s("multiply", one.type.scale, two.type.scale)
    return Quantized(
        value, s.plain_type(scale, min(axes, default=0)), one.bits + two.bits, fine=True
    )


def quotient(s: Site) -> Quantized:
    """divide by a constant."""
    if not isinstance(s.forms[1], Known):
        raise Refused("its divisor is no constant")
    divisor = s.forms[1].data
    if not bool(divisor.all()):
        raise Refused("its divisor may be 0")
    return _with_constant(s, s.operand(), 1 / divisor)


def _with_constant(s: Site, data: Quantized, factor: np.ndarray) -> Quantized:
    """A product with a float constant: one of scales where it differs along one axis at most."""
    if not bool(np.isfinite(factor).all()):
        raise Refused("a constant is not finite")
    long = [axis for axis, size in enumerate(factor.shape) if size != 1]
    axis = len(s.shape) - factor.ndim + long[0] if long else data.type.axis
    across = not data.type.is_scalar and axis != data.type.axis
    if data.shape != s.shape or len(long) > 1 or across:
        return _with_tensor(s, data, factor)
    sizes = factor.reshape(factor.shape[long[0]] if long else ())
    magnitude = np.where(sizes == 0, 1, np.abs(sizes)).astype("float32")
    scale = s("multiply", data.type.scale, Constant(magnitude))
    if is_known(scale):
        least, most = np.finfo("float32").smallest_normal, np.finfo("float32").max
        if not bool(((scale.data >= least) & (scale.data <= most)).all()):
            raise Refused("a factor makes a scale that is no normal number")
    if bool((sizes > 0).all()):
        type_ = AffineType(scale, data.type.zero_point, data.type.dtype, axis)
        return data.like(data.value, type_)
    plain = s.plain(data)
    signs = s.along(Constant(np.sign(sizes).astype("int32")), len(s.shape), axis)
    return plain.like(s.result("multiply", plain.value, signs), s.plain_type(scale, axis))


def _with_tensor(s: Site, data: Quantized, factor: np.ndarray) -> Quantized:
    """A product with a constant tensor, rounded to as many bits as there are."""
    bits = min(WIDE, MOST - data.bits)
    if bits < LEAST_BITS:
        raise Refused("its product needs more than 31 bits; quantize an operand before")
    plain = s.plain(data)
    most = float(np.abs(factor).max(initial=0)) or 1.0
    step = np.float32(most * 2.0**-bits)
    rounded = Constant(np.rint(factor / step).astype("int32"))
    value = s.result("multiply", plain.value, rounded)
    axis = 0 if plain.type.is_scalar else s.axis_in_result(plain)
    scale = s("multiply", plain.type.scale, s.number(step, "float32"))
    return Quantized(value, s.plain_type(scale, axis), plain.bits + bits, fine=True)


def negative(s: Site) -> Quantized:
    """negative: of the number without its zero point."""
    form = s.plain(s.operand())
    return form.like(s.again([form.value], "int32"))


# --- the greater of two, joins ----------------------------------------------------------------------


def extremum(s: Site) -> Quantized:
    """maximum, minimum, and where of a condition that is no float."""
    floats = [i for i, form in enumerate(s.forms) if isinstance(form, Quantized | Known)]
    if len(floats) != 2:
        raise Refused("its condition is a float")
    sides = joined(s, [s.forms[i] for i in floats])
    args = list(s.call.args)
    for index, side in zip(floats, sides, strict=True):
        args[index] = side.value
    type_ = _result_type(s, *sides) if not sides[0].type.is_scalar else sides[0].type
    bits = max(side.bits for side in sides)
    return Quantized(s.again(args, type_.dtype), type_, bits, all(side.fine for side in sides))


def concatenated(s: Site) -> Quantized:
    """concatenate, stack."""
    (fields,) = s.forms
    assert isinstance(fields, tuple)
    to = s.wanted
    name = s.name
    quantized_ones = [field for field in fields if isinstance(field, Quantized)]
    if (
        to is not None and name == "concatenate" and len(quantized_ones) == len(fields)
        and all(f.type.is_scalar and f.type.dtype == to.dtype for f in quantized_ones)
        and not all(f.type.same(to) for f in quantized_ones)
    ):  # fmt: skip
        tensors = s.tuple([field.value for field in quantized_ones])
        scales = s.tuple([field.type.scale for field in quantized_ones])
        zero_points = s.tuple([field.type.zero_point for field in quantized_ones])
        value = s.result(
            "qnn.concatenate",
            tensors,
            scales,
            zero_points,
            to.scale,
            to.zero_point,
            axis=s.attrs.axis,
        )
        return Quantized(value, to, bits_of(to.dtype, to.zero_point))
    parts = joined(s, fields) if to is not None else _same(s, fields)
    type_ = parts[0].type
    value = s.again([s.tuple([part.value for part in parts])], type_.dtype)
    bits = max(part.bits for part in parts)
    return Quantized(value, type_, bits, all(part.fine for part in parts))


def _same(s: Site, fields: Sequence[Form]) -> list[Quantized]:
    found = [field for field in fields if isinstance(field, Quantized)]
    if len(found) == len(fields) and found[0].type.is_scalar and _all_same(found):
        return found
    return common(s, fields, flat=True)


def _all_same(forms: Sequence[Quantized]) -> bool:
    return all(form.type.same(forms[0].type) for form in forms)


__all__ = [
    "bias_add", "common", "concatenated", "extremum", "joined", "negative", "product", "quotient", "total",
]  # fmt: skip

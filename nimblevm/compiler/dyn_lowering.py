"""dyn.* operators as static ones on dims that scalar instructions compute.

    dyn.zeros(%s, dtype)    let %d = vm.bind_dim(vm.read_int(%s, index=0), dim=?d); zeros(shape=[?d], dtype)

A dim that is bound is checked not to be negative; that is also how other demands on the values are
written (`Sizes.guard`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nimblevm.compiler.rewrite import dim_value, fresh_var, op_call, type_of
from nimblevm.compiler.shape_values import INT, ShapeValues, dim_of, number, scalar
from nimblevm.errors import CompileError
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Call, Constant, Expr, Leaf, Let, Var, is_known
from nimblevm.relay.op.dyn_image import roi_of, static_attrs
from nimblevm.relay.op.registry import Op, get
from nimblevm.relay.types import TensorType, scalar_type

ZERO: Expr = number(0)
ONE: Expr = number(1)
MINUS: Expr = number(-1)
MOST: Expr = number(2**63 - 1)


def add(a: Expr, b: Expr) -> Expr:
    return scalar("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return scalar("subtract", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return scalar("multiply", a, b)


def low(a: Expr, b: Expr) -> Expr:
    return scalar("minimum", a, b)


def high(a: Expr, b: Expr) -> Expr:
    return scalar("maximum", a, b)


def less(a: Expr, b: Expr) -> Expr:
    return scalar("less", a, b)


def equal(a: Expr, b: Expr) -> Expr:
    return scalar("equal", a, b)


def choose(cond: Expr, a: Expr, b: Expr) -> Expr:
    if isinstance(cond, Constant):
        return a if bool(cond.data) else b
    return scalar("where", cond, a, b)


def truth(cond: Expr) -> Expr:
    """1 or 0."""
    return scalar("cast", cond, dtype="int64")


def total(values: Sequence[Expr]) -> Expr:
    return functools.reduce(add, values, ZERO)


def product(values: Sequence[Expr]) -> Expr:
    return functools.reduce(mul, values, ONE)


class Sizes:
    """The lets of one lowering: operands get names, values become dims."""

    def __init__(self, call: Call, values: ShapeValues) -> None:
        type_ = type_of(call)
        if not isinstance(call.op, Op) or not isinstance(type_, TensorType):
            raise CompileError("a dyn operator gives a tensor")
        self.call = call
        self.attrs = call.attrs
        self.name = call.op.name
        self.type = type_
        self.values = values
        self.lets: list[tuple[Var, Expr]] = []
        # A shape whose elements are known is not needed itself.
        self.args = [a if values.of(a) is not None else self.named(a) for a in call.args]

    def named(self, value: Expr) -> Expr:
        """An atom with the value."""
        if isinstance(value, Leaf):
            return value
        var = fresh_var("a", type_of(value))
        self.lets.append((var, value))
        return var

    def operand(self, index: int) -> list[Expr]:
        """The values of an operand, int64."""
        return [self.named(e) for e in self.values.elements(self.args[index])]

    def sizes(self, index: int = 0) -> list[Expr]:
        """The sizes of an operand, int64."""
        type_ = type_of(self.args[index])
        rank = len(type_.shape) if isinstance(type_, TensorType) else 0
        return [self.named(dim_of(self.args[index], axis)) for axis in range(rank)]

    def bind(self, value: Expr, dim: Dim, what: str) -> None:
        """From here on `dim` is the value, which must not be negative."""
        if not isinstance(dim, DimVar):
            return
        where = f"{self.name}, {what}"
        if isinstance(value, Constant):
            value = dim_value(int(value.data))  # bind_dim names a variable
        atom = self.named(value)
        bound = op_call("vm.bind_dim", (atom,), INT, self.call.span, dim=dim, where=where)
        self.lets.append((fresh_var("d", INT), bound))

    def dim(self, value: Expr, what: str) -> Dim:
        """A dim that is the value."""
        if isinstance(value, Constant) and int(value.data) >= 0:
            return int(value.data)
        found = DimVar()
        self.bind(value, found, what)
        return found

    def guard(self, value: Expr, what: str) -> None:
        """Fail unless the value is >= 0."""
        self.dim(value, what)

    def bind_result(self, values: Sequence[Expr], by: str = "") -> None:
        """The sizes of the result; `by`: where they come from, for errors."""
        for axis, (value, dim) in enumerate(zip(values, self.type.shape, strict=True)):
            self.bind(value, dim, f"axis {axis} of the result{by}")

    def static(
        self,
        name: str,
        args: tuple[Expr, ...],
        attrs: Mapping[str, object],
        shape: Sequence[Dim] | None = None,
    ) -> Expr:
        """The static operator, of the call's type; `shape` where it has expressions of its own."""
        type_ = self.type if shape is None else TensorType(shape, self.type.dtype)
        made = op_call(name, args, type_, self.call.span, **attrs)
        if type_ is self.type:
            return made
        var = fresh_var("a", type_)
        self.lets.append((var, made))
        return op_call("vm.match_type", (var,), self.type, type=self.type, where=self.name)

    def reshaped(self, values: Sequence[Expr], by: str = "") -> Expr:
        """The first operand as a view with these sizes."""
        self.bind_result(values, by)
        return self.static("vm.reshape_tensor", (self.args[0],), {"shape": self.type.shape})

    def finish(self, body: Expr) -> Expr:
        for var, value in reversed(self.lets):
            body = Let(var, value, body, span=self.call.span, checked_type=self.type)
        return body


def _may_be(value: Expr, wanted: int) -> bool:
    """Whether a value may be a negative number: not if it is another constant, or the size of an axis."""
    while isinstance(value, Call) and value.op is get("cast"):
        value = value.args[0]
    if isinstance(value, Constant):
        return int(value.data) == wanted
    return not (isinstance(value, Call) and value.op is get("vm.dim_of"))


def _both(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Constant) and bool(a.data):
        return b
    return scalar("logical_and", a, b)


class _Entries:
    """newshape beside data's axes, as the static reshape reads it: -3 takes two axes, each other entry one.

    `shift`, how many axes further than the entries the reading is, depends on the values where an entry may be -3; it
    is at most `most`, and constant 0 where none may.
    """

    def __init__(self, s: Sizes, sizes: list[Expr]) -> None:
        self.s = s
        self.sizes = sizes
        self.left = list(sizes)  # 1 where an axis is copied or merged
        self.shift, self.most = ZERO, 0

    def at(self, found: Sequence[Expr], place: int) -> Expr:
        """The value for the axis that the entry reads; behind the last -2, which is refused as a size."""
        values = [
            found[place + k] if place + k < len(found) else number(-2) for k in range(self.most + 1)
        ]
        chosen = values[-1]
        for k, value in reversed(list(enumerate(values[:-1]))):
            chosen = choose(equal(self.shift, number(k)), value, chosen)
        return chosen

    def take(self, place: int, width: int, cond: Expr) -> None:
        """The entry takes over axes where `cond` holds."""
        for k in range(self.most + 1):
            here = _both(equal(self.shift, number(k)), cond)
            for axis in range(place + k, min(place + k + width, len(self.left))):
                self.left[axis] = choose(here, ONE, self.left[axis])

    def read(self, place: int, entry: Expr, merges: bool) -> tuple[Expr, Expr]:
        """(the size that the entry stands for, its factor among the sizes that are given)."""
        size = given = entry
        if not self.s.attrs.allowzero:
            copied = self.s.named(equal(entry, ZERO))
            size, given = (
                choose(copied, self.at(self.sizes, place), size),
                choose(copied, ONE, given),
            )
            self.take(place, 1, copied)
        if merges:
            merged = self.s.named(equal(entry, number(-3)))
            pairs = [mul(a, b) for a, b in itertools.pairwise(self.sizes)]
            size, given = choose(merged, self.at(pairs, place), size), choose(merged, ONE, given)
            self.take(place, 2, merged)
            self.shift = self.s.named(add(self.shift, truth(merged)))
            self.most += 1
        return self.s.named(size), given


def _reshape(s: Sizes) -> Expr:
    merges = [_may_be(e, -3) for e in s.values.elements(s.args[1])]
    entries, walk = s.operand(1), _Entries(s, s.sizes())
    read = [walk.read(i, e, m) for i, (e, m) in enumerate(zip(entries, merges, strict=True))]
    free = [equal(e, MINUS) for e in entries]
    # -1 is found from the axes and entries that are neither copied nor merged.
    known = s.named(product([choose(f, ONE, g) for f, (_, g) in zip(free, read, strict=True)]))
    number_free = s.named(total([truth(f) for f in free]))
    s.guard(sub(ONE, number_free), "newshape has more than one -1")
    s.guard(
        sub(choose(equal(number_free, ZERO), ONE, known), ONE), "newshape has a size of 0 beside -1"
    )
    rest = s.named(scalar("floor_divide", product(walk.left), high(known, ONE)))
    found = [choose(f, rest, size) for f, (size, _) in zip(free, read, strict=True)]
    return s.reshaped(found, " by newshape, which takes sizes, 0, -1 and -3")


def _broadcast_to(s: Sizes) -> Expr:
    s.bind_result(s.operand(1))
    shape = s.type.shape
    checked = op_call(
        "vm.check_broadcast", (s.args[0],), type_of(s.args[0]), s.call.span, shape=shape, where=s.name
    )  # fmt: skip
    return s.static("broadcast_to", (s.named(checked),), {"shape": shape})


def _init(name: str, at: int) -> Callable[[Sizes], Expr]:
    def lower(s: Sizes) -> Expr:
        s.bind_result(s.operand(at))
        return s.static(name, tuple(s.args[:at]), {"shape": s.type.shape, "dtype": s.type.dtype})

    return lower


def _tile(s: Sizes) -> Expr:
    data, reps = type_of(s.args[0]), s.operand(1)
    times = [s.dim(r, f"entry {at} of reps") for at, r in enumerate(reps)]
    rank = len(s.type.shape)
    sizes = data.shape if isinstance(data, TensorType) else ()
    sizes = (*(1,) * (rank - len(sizes)), *sizes)
    padded = (*(1,) * (rank - len(times)), *times)
    return s.static(
        "tile", (s.args[0],), {"reps": tuple(times)}, list(map(dims.mul, sizes, padded))
    )


def _one_hot(s: Sizes) -> Expr:
    (depth,) = s.operand(3)
    axis = s.attrs.axis % len(s.type.shape)
    s.bind(depth, s.type.shape[axis], "depth")
    attrs = {"depth": s.type.shape[axis], "axis": s.attrs.axis, "dtype": s.attrs.dtype}
    return s.static("one_hot", tuple(s.args[:3]), attrs)


def _bound(value: Expr, size: Expr, forward: Expr) -> Expr:
    """A begin or end as Python reads it."""
    clamped = high(value, sub(MINUS, size))
    place = choose(less(clamped, ZERO), add(clamped, size), clamped)
    least, most = choose(forward, ZERO, MINUS), choose(forward, size, sub(size, ONE))
    return low(high(place, least), most)


def _slice_axis(
    s: Sizes, size: Expr, begin: Expr, end: Expr, stride: Expr
) -> tuple[Expr, Expr, Expr]:
    """(first position, number of elements, stride) of one axis."""
    if s.attrs.slice_mode == "size":
        first = low(begin, size)
        stop = add(first, low(end, sub(MOST, high(first, ZERO))))
        whole = scalar("logical_and", less(begin, ZERO), less(MINUS, stop))
        whole = scalar("logical_or", less(end, ZERO), whole)
        start = s.named(_bound(begin, size, equal(ZERO, ZERO)))
        last = choose(whole, size, _bound(stop, size, equal(ZERO, ZERO)))
        return start, high(sub(last, start), ZERO), ONE
    longest = s.named(high(size, ONE))  # as good as longer ones, of which multiples overflow
    stride = s.named(low(high(stride, sub(ZERO, longest)), longest))
    s.guard(sub(scalar("abs", stride), ONE), "a stride is 0")
    forward = s.named(less(ZERO, stride))
    start, last = s.named(_bound(begin, size, forward)), s.named(_bound(end, size, forward))
    span = choose(forward, sub(last, start), sub(start, last))
    step = s.named(high(scalar("abs", stride), ONE))
    count = scalar("floor_divide", add(span, sub(step, ONE)), step)
    return start, high(count, ZERO), stride


def _strided_slice(s: Sizes) -> Expr:
    sizes, begin, end, strides = s.sizes(), *(s.operand(index) for index in (1, 2, 3))
    rank, starts, up, down = len(sizes), list[Dim](), list[Dim](), list[Dim]()
    for axis in range(rank):
        if axis >= len(begin):
            starts.append(0)
            up.append(1)
            down.append(0)
            continue
        start, count, stride = _slice_axis(s, sizes[axis], begin[axis], end[axis], strides[axis])
        s.bind(count, s.type.shape[axis], f"axis {axis} of the result")
        starts.append(s.dim(high(start, ZERO), "begin"))
        up.append(s.dim(high(stride, ZERO), "strides"))
        down.append(s.dim(high(sub(ZERO, stride), ZERO), "strides"))
    attrs = {
        "starts": tuple(starts),
        "up": tuple(up),
        "down": tuple(down),
        "shape": s.type.shape,
    }
    return s.static("dyn.window", (s.args[0],), attrs)


def _squeeze(s: Sizes) -> Expr:
    sizes, axes = s.sizes(), s.operand(1)
    rank = len(sizes)
    axes = [s.named(choose(less(a, ZERO), add(a, number(rank)), a)) for a in axes]
    gone: list[Expr] = []
    for axis, size in enumerate(sizes):
        hits = [truth(equal(a, number(axis))) for a in axes]
        gone.append(s.named(total(hits)))
        s.guard(
            mul(gone[-1], sub(ZERO, scalar("abs", sub(size, ONE)))), f"axis {axis} must have size 1"
        )
        s.guard(sub(ONE, gone[-1]), "an axis occurs twice")
    s.guard(sub(total(gone), number(len(axes))), "an axis is out of range")
    result: list[Expr] = [ZERO for _ in s.type.shape]
    place: Expr = ZERO
    for size, away in zip(sizes, gone, strict=True):
        here = [
            scalar("logical_and", equal(away, ZERO), equal(place, number(j)))
            for j in range(len(result))
        ]
        result = [choose(h, size, r) for h, r in zip(here, result, strict=True)]
        place = s.named(add(place, sub(ONE, away)))
    return s.reshaped(result)


def _expand_dims(s: Sizes) -> Expr:
    sizes, (axis,) = s.sizes(), s.operand(1)
    rank, count = len(sizes), s.attrs.num_newaxis
    axis = s.named(choose(less(axis, ZERO), add(axis, number(rank + 1)), axis))
    s.guard(low(axis, sub(number(rank), axis)), "axis is out of range")
    result: list[Expr] = []
    for place in range(rank + count):
        size: Expr = ONE
        if place - count >= 0:
            after = less(axis, number(place - count + 1))
            size = choose(after, sizes[place - count], ONE)
        if place < rank:
            size = choose(less(number(place), axis), sizes[place], size)
        result.append(size)
    return s.reshaped(result)


def _pad(s: Sizes) -> Expr:
    sizes, flat = s.sizes(), s.operand(1)
    data = type_of(s.args[0])
    width: list[tuple[Dim, Dim]] = []
    shape: list[Dim] = []
    for axis, size in enumerate(data.shape if isinstance(data, TensorType) else ()):
        before, after = flat[2 * axis : 2 * axis + 2]
        pair = (s.dim(before, "pad_width"), s.dim(after, "pad_width"))
        if s.attrs.pad_mode != "constant":
            larger = high(before, after)
            spare = 1 if s.attrs.pad_mode == "reflect" else 0
            need = add(larger, number(spare)) if spare else low(larger, ONE)
            asked = choose(equal(larger, ZERO), ZERO, sub(sizes[axis], need))
            s.guard(asked, f"axis {axis} has too few elements for the pads")
        width.append(pair)
        shape.append(dims.add(dims.add(pair[0], size), pair[1]))
    args = (s.args[0], s.args[2])
    attrs = {"pad_width": tuple(width), "pad_mode": s.attrs.pad_mode}
    return s.static("nn.pad", args, attrs, shape)


def _sampled(s: Sizes, sizes: Sequence[Expr], roi: Expr | None) -> Expr:
    """image.resize2d of the first operand to (height, width)."""
    places = [s.attrs.layout.index(letter) for letter in "HW"]
    for place, size in zip(places, sizes, strict=True):
        atom = s.named(size)
        s.guard(sub(atom, ONE), "a size is less than 1")
        s.bind(atom, s.type.shape[place], f"axis {place} of the result")
    numbers = roi_of(roi.data) if is_known(roi) else None
    static = static_attrs(s.attrs, tuple(s.type.shape[place] for place in places), numbers)
    attrs = {f.name: getattr(static, f.name) for f in dataclasses.fields(static)}
    return s.static("image.resize2d", (s.args[0],), attrs)


def _resize2d(s: Sizes) -> Expr:
    cropped = s.attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    if cropped and not is_known(s.args[2]):
        raise CompileError(
            f"{s.call.span or 'dyn.image.resize2d'}: tf_crop_and_resize needs a roi that is a constant"
        )
    return _sampled(s, s.operand(1), s.args[2])


def _upsampling(s: Sizes) -> Expr:
    wide, sizes = scalar_type("float64"), s.sizes()
    half = Constant(np.asarray(0.5))
    found: list[Expr] = []
    for index, letter in ((1, "H"), (2, "W")):
        size: Expr = op_call("cast", (sizes[s.attrs.layout.index(letter)],), wide, dtype="float64")
        scale: Expr = op_call("cast", (s.args[index],), wide, dtype="float64")
        exact = op_call("add", (op_call("multiply", (size, scale), wide), half), wide)
        whole: Expr = op_call("cast", (op_call("floor", (exact,), wide),), INT, dtype="int64")
        found.append(s.named(whole))
        s.guard(sub(number(2**62 - 1), found[-1]), f"the scale of {letter} is too large")
    return _sampled(s, found, None)


LOWERINGS: dict[str, Callable[[Sizes], Expr]] = {
    "dyn.reshape": _reshape, "dyn.broadcast_to": _broadcast_to, "dyn.zeros": _init("zeros", 0),
    "dyn.ones": _init("ones", 0), "dyn.full": _init("full", 1), "dyn.tile": _tile, "dyn.one_hot": _one_hot,
    "dyn.strided_slice": _strided_slice, "dyn.squeeze": _squeeze, "dyn.expand_dims": _expand_dims,
    "dyn.nn.pad": _pad, "dyn.image.resize2d": _resize2d, "dyn.nn.upsampling": _upsampling,
}  # fmt: skip


def lower_dyn(call: Call, values: ShapeValues) -> Expr:
    """The lets and the static operator for a dyn.* call (types inferred)."""
    if not isinstance(call.op, Op):
        raise CompileError("no operator")
    sizes = Sizes(call, values)
    body = LOWERINGS[call.op.name](sizes)
    return sizes.finish(body)

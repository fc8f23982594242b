"""Put a scale of channels into the weight of the convolution or product before it. A pass that users call.

before:  nn.relu(nn.conv2d(%x, %w) + %b) * %s             (%s: a constant of shape (8, 1, 1), all of it more than 0)
after:   nn.relu(nn.conv2d(%x, %w * %t) + %b * %s)        (%t: %s of shape (8, 1, 1, 1))

The scale may be any float expression of one element, or of one for each channel, and a product or a quotient. It goes
through add, subtract and nn.bias_add, whose other operand it scales unless that has a weight, too, and through
nn.relu and nn.leaky_relu if it is known to be positive. What it goes through may have no other reader. Of nn.conv1d,
nn.conv2d, nn.conv3d and nn.dense. A constant weight that would overflow stays. Results differ by rounding.

The products of constants that it leaves are FoldConstant's.

Needs: inferred types. Keeps: them. Cost: O(nodes). Source: TVM's BackwardFoldScaleAxis, which knows no quotients, no
nn.bias_add and no conv1d, and folds one of several scales in a row.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nimblevm.compiler.channel_scale import (
    CLAMPS,
    CONSUMERS,
    SUMS,
    Scale,
    is_along,
    keeps_finite,
    out_channels,
    rank_of,
    scaled,
    with_scales,
)
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, postorder, type_of, with_body
from nimblevm.relay.ir import Call, Expr, Function, Leaf, children
from nimblevm.relay.module import IRModule


@dataclass(frozen=True, slots=True)
class _Room:
    """What a value takes: a scale along this axis, only a positive one if `positive`. `ends`: the calls whose weights
    it gets to. `through`: the operands by which it gets there.
    """

    axis: int
    positive: bool
    ends: tuple[Call, ...]
    through: tuple[int, ...] = ()


class _Folder(Rewriter):
    def __init__(self, root: Expr) -> None:
        super().__init__()
        self.order = postorder(root)
        self.reads: dict[Expr, int] = {root: 1}
        for node in self.order:
            for child in () if isinstance(node, Leaf) else children(node):
                self.reads[child] = self.reads.get(child, 0) + 1
        self.rooms: dict[Expr, _Room] = {}
        for node in self.order:
            room = self._room(node) if isinstance(node, Call) else None
            if room is not None and self.reads.get(node) == 1:
                self.rooms[node] = room
        self.taken: dict[Expr, tuple[Scale, ...]] = {}
        self.folded: dict[Expr, int] = {}
        self._hand_down()

    def _room(self, call: Call) -> _Room | None:
        if is_op(call, *CONSUMERS):
            axis = out_channels(call)
            return None if axis is None else _Room(axis, positive=False, ends=(call,))
        rooms = [self.rooms.get(arg) for arg in call.args]
        same = [
            r is not None and type_of(a) is type_of(call)
            for r, a in zip(rooms, call.args, strict=True)
        ]
        first = next((r for r, ok in zip(rooms, same, strict=True) if ok), None)
        if first is None:
            return None
        if is_op(call, *CLAMPS):
            return dataclasses.replace(first, positive=True, through=(0,))
        if is_op(call, "multiply", "divide"):
            own = scaled(call, first.axis)
            return dataclasses.replace(first, through=(own[0],)) if own and same[own[0]] else None
        if is_op(call, "nn.bias_add"):
            return (
                dataclasses.replace(first, through=(0,))
                if call.attrs.axis % rank_of(call) == first.axis
                else None
            )
        if not is_op(call, *SUMS):
            return None
        if all(same):
            one, other = (r for r in rooms if r is not None)
            if one.axis == other.axis:
                positive = one.positive or other.positive
                return _Room(one.axis, positive, one.ends + other.ends, (0, 1))
        for at, ok in enumerate(same):
            room = rooms[at]
            if ok and room is not None and is_along(call.args[1 - at], call, room.axis):
                return dataclasses.replace(room, through=(at,))
        return None

    def _hand_down(self) -> None:
        """Decide which products go, from the result to the weights."""
        for node in reversed(self.order):
            passed = self.taken.get(node, ())
            if isinstance(node, Call) and is_op(node, "multiply", "divide"):
                passed += self._own(node, passed)
            if not passed or (isinstance(node, Call) and is_op(node, *CONSUMERS)):
                continue
            assert isinstance(node, Call)
            through = (self.folded[node],) if node in self.folded else self.rooms[node].through
            for at in through:
                self.taken[node.args[at]] = passed

    def _own(self, call: Call, passed: tuple[Scale, ...]) -> tuple[Scale, ...]:
        """The scale that a product or quotient is, if it goes beside those that pass it."""
        for arg in call.args:
            room = self.rooms.get(arg)
            own = scaled(call, room.axis) if room is not None else None
            if room is None or own is None or call.args[own[0]] is not arg:
                continue
            at, scale = own
            if room.positive and not scale.is_positive():
                continue
            if all(keeps_finite(end, (*passed, scale), outer=True) for end in room.ends):
                self.folded[call] = at
                return (scale,)
        return ()

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call):
            return new
        if node in self.folded:
            return new.args[self.folded[node]]
        scales = self.taken.get(node)
        if scales is None:
            return new
        if is_op(new, *CONSUMERS):
            return with_scales(new, scales, outer=True)
        if not is_op(new, *SUMS, "nn.bias_add"):
            return new
        room, args = self.rooms[node], list(new.args)
        after = 0 if is_op(new, "nn.bias_add") else rank_of(new) - room.axis - 1
        for at in {0, 1} - set(room.through):
            for scale in scales:
                args[at] = scale.apply(args[at], after)
        return dataclasses.replace(new, args=tuple(args))


def backward_fold_scale_axis(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def fold(function: Function) -> Function:
        return with_body(function, _Folder(function.body).rewrite(function.body))

    return map_functions(mod, fold)


BACKWARD_FOLD_SCALE_AXIS = Pass("backward_fold_scale_axis", backward_fold_scale_axis)

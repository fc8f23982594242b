"""Put a scale of channels into the weights of the convolutions or products that read it. A pass that users call.

before:  nn.conv2d(nn.relu(%x * %s + %b), %w)             (%s: a constant of shape (8, 1, 1), all of it more than 0)
after:   nn.conv2d(nn.relu(%x + %b / %s), %w * %t)        (%t: %s of shape (1, 8, 1, 1))

The scale may be any float expression of one element, or of one for each channel, and a product or a quotient. It goes
through nn.relu and nn.leaky_relu if it is known to be positive, and through add, subtract and nn.bias_add, whose other
operand it divides, if it is known to have a reciprocal. All readers of what it goes through must take it: data of
nn.conv1d, nn.conv2d, nn.conv3d and nn.dense, of one group or with a group for each channel. A constant weight that
would overflow stays. Results differ by rounding.

The products of constants that it leaves are FoldConstant's.

Needs: inferred types. Keeps: them. Cost: O(nodes). Source: TVM's ForwardFoldScaleAxis, which knows no quotients, no
nn.bias_add and no conv1d, and divides by scales of 0, too.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nimblevm.compiler.channel_scale import (
    CLAMPS,
    CONSUMERS,
    SUMS,
    Scale,
    in_channels,
    is_along,
    keeps_finite,
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
class _Demand:
    """What all readers of a value take: a scale along this axis, a positive one, one with a reciprocal, into the
    weights of `ends`.
    """

    axis: int
    positive: bool = False
    inverse: bool = False
    ends: tuple[Call, ...] = ()

    def with_(self, other: _Demand | None) -> _Demand | None:
        """The demand of the readers of both; None if they agree on none."""
        if other is None or self.axis != other.axis:
            return None
        positive, inverse = self.positive or other.positive, self.inverse or other.inverse
        return _Demand(self.axis, positive, inverse, self.ends + other.ends)


class _Folder(Rewriter):
    def __init__(self, root: Expr) -> None:
        super().__init__()
        self.demands: dict[Expr, _Demand | None] = {root: None}
        order = postorder(root)
        for node in reversed(order):
            if not isinstance(node, Leaf):
                self._ask(node)
        self.given: dict[Expr, tuple[Scale, ...]] = {}
        self.folded: dict[Expr, int] = {}
        for node in order:
            if isinstance(node, Call) and self.demands.get(node) is not None:
                self._give(node)

    def _ask(self, node: Expr) -> None:
        asked = self._asked(node) if isinstance(node, Call) else None
        for at, child in enumerate(children(node)):
            demand = asked[1] if asked is not None and asked[0] + 1 == at else None
            if child in self.demands:
                before = self.demands[child]
                demand = None if before is None else before.with_(demand)
            self.demands[child] = demand

    def _asked(self, call: Call) -> tuple[int, _Demand] | None:
        """(operand, what a reader asks of it)."""
        if is_op(call, *CONSUMERS):
            axis = in_channels(call)
            return None if axis is None else (0, _Demand(axis, ends=(call,)))
        demand = self.demands.get(call)
        if demand is None:
            return None
        if is_op(call, *CLAMPS):
            return 0, dataclasses.replace(demand, positive=True)
        if is_op(call, "multiply", "divide"):
            own = scaled(call, demand.axis)
            return None if own is None else (own[0], demand)
        if is_op(call, "nn.bias_add"):
            same = call.attrs.axis % rank_of(call) == demand.axis
            return (0, dataclasses.replace(demand, inverse=True)) if same else None
        if is_op(call, *SUMS):
            for at in (0, 1):
                same = type_of(call.args[at]) is type_of(call)
                if same and is_along(call.args[1 - at], call, demand.axis):
                    return at, dataclasses.replace(demand, inverse=True)
        return None

    def _give(self, call: Call) -> None:
        """Note the scales that a value whose readers take some is without from now on."""
        asked = self._asked(call)
        if asked is None or is_op(call, *CONSUMERS):
            return
        at, _ = asked
        given = self.given.get(call.args[at], ())
        demand = self.demands[call]
        assert demand is not None
        own = scaled(call, demand.axis)
        if own is not None and own[0] == at:
            scale = own[1]
            fits = scale.is_positive() or not demand.positive
            fits = fits and (scale.has_inverse() or not demand.inverse)
            if fits and all(keeps_finite(end, (*given, scale), outer=False) for end in demand.ends):
                self.folded[call] = at
                given += (scale,)
        if given:
            self.given[call] = given

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(node, Call):
            return new
        if node in self.folded:
            return new.args[self.folded[node]]
        if is_op(new, *CONSUMERS):
            scales = self.given.get(node.args[0], ())
            return with_scales(new, scales, outer=False) if scales else new
        scales = self.given.get(node, ())
        if not scales or not is_op(new, *SUMS, "nn.bias_add"):
            return new
        demand, asked = self.demands[node], self._asked(node)
        assert demand is not None
        assert asked is not None
        after = 0 if is_op(new, "nn.bias_add") else rank_of(new) - demand.axis - 1
        args = list(new.args)
        for scale in scales:
            args[1 - asked[0]] = scale.inverse.apply(args[1 - asked[0]], after)
        return dataclasses.replace(new, args=tuple(args))


def forward_fold_scale_axis(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def fold(function: Function) -> Function:
        return with_body(function, _Folder(function.body).rewrite(function.body))

    return map_functions(mod, fold)


FORWARD_FOLD_SCALE_AXIS = Pass("forward_fold_scale_axis", forward_fold_scale_axis)

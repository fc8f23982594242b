"""Writing operators in the layout NHWC where what they read is there in it: the rewriting part of pack_convolutions.

A value of rank 4 may be known in two forms: as the program has it (NCHW) and channels-last. `known` makes the first of
the second, as a transpose that goes away where nothing reads it; operators that read a known value are written anew
for the channels-last forms of their operands, and what they give is known in turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from nimblevm.compiler.constants import late_constant
from nimblevm.compiler.rewrite import TupleRewriter, op_call, type_of, typed
from nimblevm.relay.ir import Call, Constant, Expr, Let, Tuple, TupleGetItem, late_array
from nimblevm.relay.op import adaptive_pool, binary, compare, pool, unary
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType, Type

TO_LAST = (0, 2, 3, 1)
TO_FIRST = (0, 3, 1, 2)
PLACE = (0, 3, 1, 2)
"""The axis of NHWC that an axis of NCHW is."""

ELEMENTWISE = frozenset(
    {row.name for table in (unary.TABLE, binary.TABLE, compare.TABLE) for row in table}
    | {"cast", "clip", "nn.leaky_relu", "where"}
)
POOLS = frozenset(
    row.name for table in (pool.TABLE, adaptive_pool.TABLE) for row in table if row.rank == 2
)
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod"})
RESIZES = frozenset({"image.resize2d", "nn.upsampling"})


class ChannelsLast(TupleRewriter):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[Expr, Expr] = {}
        self.norms: dict[Expr, Call] = {}

    # --- what is known --------------------------------------------------------------------------

    def turned(self, type_: TensorType) -> TensorType:
        """The type of the channels-last form."""
        return TensorType(tuple(type_.shape[a] for a in TO_LAST), type_.dtype)

    def last_of(self, expr: Expr) -> Expr | None:
        """The channels-last form of a value, if it is known."""
        return self.last.get(expr)

    def known(self, last: Expr, type_: Type) -> Expr:
        """The value of `type_` (NCHW) whose channels-last form is `last`."""
        assert isinstance(type_, TensorType)
        of_last = type_of(last)
        assert isinstance(of_last, TensorType)
        if of_last.shape[1] == 1 and of_last.shape[2] == 1:
            # The same elements in the same order: views.
            flat = TensorType((of_last.shape[0], of_last.shape[3]), of_last.dtype)
            found = op_call("squeeze", (last,), flat, axis=(1, 2))
            found = op_call("expand_dims", (found,), type_, last.span, axis=2, num_newaxis=2)
        else:
            found = op_call("transpose", (last,), type_, last.span, axes=TO_FIRST)
        self.last[found] = last
        return found

    def bind(self, let: Let, value: Expr) -> None:
        super().bind(let, value)
        if value in self.last:
            self.last[let.var] = self.last[value]
        if value in self.norms:
            self.norms[let.var] = self.norms[value]

    # --- operators ------------------------------------------------------------------------------

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, TupleGetItem):
            norm = self.norms.get(new.tuple_value)
            if norm is None:
                return new
            types = type_of(norm)
            assert isinstance(types, TupleType)
            field = typed(TupleGetItem(norm, new.index, span=new.span), types.fields[new.index])
            return self.known(field, type_of(new)) if new.index == 0 else field
        if not isinstance(new, Call) or not isinstance(new.op, Op) or not new.args:
            return new
        rule = self._rule(new.op.name)
        return new if rule is None else rule(new)

    def _rule(self, name: str) -> Callable[[Call], Expr] | None:
        if name in ELEMENTWISE:
            return self._elementwise
        if name in POOLS or name in RESIZES:
            return self._by_layout
        if name in REDUCTIONS:
            return self._reduction
        return {
            "nn.bias_add": self._along_axis, "nn.prelu": self._along_axis, "nn.batch_norm": self._norm,
            "concatenate": self._concatenate, "nn.pad": self._pad, "transpose": self._transpose,
            "nn.batch_flatten": self._flatten, "vm.match_type": self._checked, "vm.check_broadcast": self._checked,
        }.get(name)  # fmt: skip

    def _again(self, call: Call, args: tuple[Expr, ...], **changed: object) -> Call:
        """The operator on other operands, its result channels-last."""
        type_ = type_of(call)
        assert isinstance(type_, TensorType)
        attrs = dataclasses.replace(call.attrs, **changed) if changed else call.attrs
        return typed(Call(call.op, args, attrs, span=call.span), self.turned(type_))

    def _elementwise(self, call: Call) -> Expr:
        type_ = type_of(call)
        if not any(arg in self.last for arg in call.args):
            return call
        if not isinstance(type_, TensorType) or len(type_.shape) != 4:
            return call
        args = [self._operand(arg) for arg in call.args]
        return self.known(self._again(call, tuple(args)), type_)

    def _operand(self, arg: Expr) -> Expr:
        """An operand, whose axes are aligned right with NCHW, for NHWC."""
        found = self.last.get(arg)
        if found is not None:
            return found
        type_ = type_of(arg)
        assert isinstance(type_, TensorType)
        shape = type_.shape
        if all(size == 1 for size in shape):
            return arg
        missing = 4 - len(shape)
        late = late_array(arg)
        if late is not None:
            turned = late.with_rank(len(TO_LAST)).transposed(*TO_LAST).without_leading_ones()
            return late_constant(turned, arg.span)
        if isinstance(arg, Constant):
            data = np.transpose(arg.data.reshape((1,) * missing + arg.data.shape), TO_LAST)
            while data.ndim and data.shape[0] == 1:
                data = data[0]
            return Constant(np.ascontiguousarray(data), span=arg.span)
        if missing:
            whole = TensorType((1,) * missing + shape, type_.dtype)
            arg = op_call("expand_dims", (arg,), whole, axis=0, num_newaxis=missing)
            type_ = whole
        return op_call("transpose", (arg,), self.turned(type_), axes=TO_LAST)

    def _by_layout(self, call: Call) -> Expr:
        data, layout = call.args[0], call.attrs.layout
        same_out = getattr(call.attrs, "out_layout", "") in ("", layout)
        if data not in self.last or layout != "NCHW" or not same_out:
            return call
        return self.known(
            self._again(call, (self.last[data], *call.args[1:]), layout="NHWC"), type_of(call)
        )

    def _along_axis(self, call: Call) -> Expr:
        data = self.last.get(call.args[0])
        if data is None:
            return call
        axis = PLACE[call.attrs.axis % 4]
        return self.known(self._again(call, (data, *call.args[1:]), axis=axis), type_of(call))

    def _norm(self, call: Call) -> Expr:
        data, type_ = self.last.get(call.args[0]), type_of(call)
        if data is None or not isinstance(type_, TupleType):
            return call
        image = type_.fields[0]
        assert isinstance(image, TensorType)
        attrs = dataclasses.replace(call.attrs, axis=PLACE[call.attrs.axis % 4])
        self.norms[call] = typed(
            Call(call.op, (data, *call.args[1:]), attrs, span=call.span),
            TupleType((self.turned(image), *type_.fields[1:])),
        )
        return call

    def _concatenate(self, call: Call) -> Expr:
        parts = self.tuple_of(call.args[0])
        if parts is None or not all(part in self.last for part in parts.fields):
            return call
        fields = tuple(self.last[part] for part in parts.fields)
        tuple_ = typed(Tuple(fields), TupleType([type_of(f) for f in fields]))
        axis = PLACE[call.attrs.axis % 4]
        return self.known(self._again(call, (tuple_,), axis=axis), type_of(call))

    def _pad(self, call: Call) -> Expr:
        data = self.last.get(call.args[0])
        if data is None:
            return call
        width = tuple(call.attrs.pad_width[a] for a in TO_LAST)
        return self.known(self._again(call, (data, *call.args[1:]), pad_width=width), type_of(call))

    def _reduction(self, call: Call) -> Expr:
        data, type_ = self.last.get(call.args[0]), type_of(call)
        if data is None or not isinstance(type_, TensorType):
            return call
        axes = {a % 4 for a in call.attrs.axis} if call.attrs.axis else {0, 1, 2, 3}
        if call.attrs.exclude and call.attrs.axis:
            axes = {0, 1, 2, 3} - axes
        places = tuple(sorted(PLACE[a] for a in axes))
        if call.attrs.keepdims:
            return self.known(self._again(call, (data,), axis=places, exclude=False), type_)
        kept = [a for a in TO_LAST if a not in axes]
        if kept != sorted(kept) or not axes:
            return call
        attrs = dataclasses.replace(call.attrs, axis=places, exclude=False)
        return typed(Call(call.op, (data,), attrs, span=call.span), type_)

    def _transpose(self, call: Call) -> Expr:
        data, type_ = self.last.get(call.args[0]), type_of(call)
        if data is None:
            return call
        order = call.attrs.axes or (3, 2, 1, 0)
        axes = tuple(PLACE[a % 4] for a in order)
        if axes == (0, 1, 2, 3):
            return data
        return op_call("transpose", (data,), type_, axes=axes)

    def _checked(self, call: Call) -> Expr:
        """A check of sizes: of the same sizes in the other order."""
        data, type_ = self.last.get(call.args[0]), type_of(call)
        if data is None or not isinstance(type_, TensorType):
            return call
        if call.op.name == "vm.match_type":  # type: ignore[attr-defined]
            changed: dict[str, object] = {"type": self.turned(call.attrs.type)}
        elif len(call.attrs.shape) == 4:
            changed = {"shape": tuple(call.attrs.shape[a] for a in TO_LAST)}
        else:
            return call
        return self.known(self._again(call, (data,), **changed), type_)

    def _flatten(self, call: Call) -> Expr:
        data = self.last.get(call.args[0])
        if data is None:
            return call
        type_ = type_of(data)
        assert isinstance(type_, TensorType)
        if type_.shape[1:3] != (1, 1):
            return call
        return typed(Call(call.op, (data,), call.attrs, span=call.span), type_of(call))


__all__ = ["ChannelsLast"]

"""Turn dyn.* operators whose sizes are constants into static ones. A pass that users call.

before:  def @main(%x: Tensor[(4, 6), float32]) { dyn.reshape(%x, shape_of(%x) / 2 * 3 - 2) }
after:   def @main(%x: Tensor[(4, 6), float32]) { reshape(%x, newshape=[4, 7]) }

Rounds of folding constants, sizes of static shapes among them, and rewriting, as TVM's pass of this name
does it, until nothing changes. Types are inferred anew after each round: sizes become known. The result
type of a function that no other one refers to is forgotten for that, so that it follows its body.

Needs: inferred types. Keeps: them. Cost: O(nodes) a round, at most MAX_ROUNDS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.fold_constant import fold_constant
from nimblevm.compiler.rewrite import Rewriter, map_functions, postorder, type_of, with_body
from nimblevm.errors import NimbleError
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Call, Constant, Expr, Function, GlobalVar, Let, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.dyn import STATIC, Static
from nimblevm.relay.op.dyn_image import roi_of, scaled, static_attrs
from nimblevm.relay.op.registry import Op, get
from nimblevm.relay.op.topk import TopkAttrs
from nimblevm.relay.types import TensorType

MAX_ROUNDS = 16


def _topk(args: tuple[Any, ...], attrs: Any) -> Static:
    """TVM's k < 1 means the whole axis, for both forms."""
    found = TopkAttrs(int(args[1].item()), attrs.axis, attrs.ret_type, attrs.is_ascend, attrs.dtype)
    return Static("topk", args[:1], found)


def _resize2d(args: tuple[Any, ...], attrs: Any) -> Static:
    size = tuple(int(v) for v in args[1])
    return Static("image.resize2d", args[:1], static_attrs(attrs, size, roi_of(args[2])))


_FORMS: dict[str, Callable[[tuple[Any, ...], Any], Static]] = {
    **STATIC,
    "dyn.topk": _topk,
    "dyn.image.resize2d": _resize2d,
}


class _Rewriter(Rewriter):
    changed = False

    def bind(self, let: Let, value: Expr) -> None:
        if isinstance(value, Constant) and value.checked_type is let.var.checked_type:
            self.memo[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        if new.op.name == "shape_of":
            return self._sizes(new)
        form = _FORMS.get(new.op.name)
        if new.op.name == "dyn.nn.upsampling":
            return self._upsampling(new)
        if form is None:
            return new
        sized = new.op.shape_values
        if not all(is_known(new.args[index]) for index in sized):
            return new
        args = tuple([a.data if i in sized and is_known(a) else a for i, a in enumerate(new.args)])
        try:
            static = form(args, new.attrs)
        except (NimbleError, ValueError):
            return new  # the error belongs to the run
        self.changed = True
        return Call(get(static.name), static.args, static.attrs, span=new.span)

    def _upsampling(self, call: Call) -> Expr:
        """Its sizes are known where the scales and the image's own sizes are."""
        data, scales, attrs = call.args[0].checked_type, call.args[1:], call.attrs
        if not isinstance(data, TensorType):
            return call
        sizes = [data.shape[attrs.layout.index(letter)] for letter in "HW"]
        found = [
            scaled(size, scale.data)
            for size, scale in zip(sizes, scales, strict=True)
            if isinstance(size, int) and is_known(scale)
        ]
        if len(found) != 2:
            return call
        self.changed = True
        static = static_attrs(attrs, tuple(found), None)
        return Call(get("image.resize2d"), call.args[:1], static, span=call.span)

    def _sizes(self, call: Call) -> Expr:
        data = type_of(call.args[0]) if call.args[0].checked_type is not None else None
        if not isinstance(data, TensorType) or not all(isinstance(d, int) for d in data.shape):
            return call
        self.changed = True
        return Constant(np.asarray(data.shape, call.attrs.dtype), span=call.span)


def _referred(mod: IRModule) -> set[GlobalVar]:
    return {
        node
        for function in mod.functions.values()
        for node in postorder(function.body)
        if isinstance(node, GlobalVar)
    }


def dynamic_to_static(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    for _ in range(MAX_ROUNDS):
        mod = fold_constant(mod, ctx)
        changed: set[int] = set()

        def rewrite(function: Function, changed: set[int] = changed) -> Function:
            rewriter = _Rewriter()
            new = with_body(function, rewriter.rewrite(function.body))
            if rewriter.changed:
                changed.add(id(new))
            return new

        mod = map_functions(mod, rewrite)
        if not changed:
            break
        called = _referred(mod)
        result = mod.shallow_copy()
        for var, function in mod.functions.items():
            if var not in called and id(function) in changed:
                result[var] = dataclasses.replace(function, ret_type=None, checked_type=None)
        mod = infer_type(result)
    return mod


DYNAMIC_TO_STATIC = Pass("dynamic_to_static", dynamic_to_static)

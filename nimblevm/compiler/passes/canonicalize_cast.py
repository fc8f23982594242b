"""Give each elementwise reader of a cast to a wider dtype a cast of its own. A pass that users call.

before:  let %y = cast(%x, dtype="float32"); (exp(%y), tanh(%y))               (%x: Tensor[(?n, 4), int8])
after:   (exp(cast(%x, dtype="float32")), tanh(cast(%x, dtype="float32")))

Kernels that the readers become then read the narrow tensor. Readers are operators that fuse elementwise or with
broadcasts; a reader of another kind keeps the cast that it has, and shares it with one of these at most.

Needs: inferred types, graph form. Keeps: both. Cost: one walk, O(nodes). Source: TVM's CanonicalizeCast.
"""

from __future__ import annotations

import dataclasses

from nimblevm import dtypes
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, type_of, with_body
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op, OpPattern
from nimblevm.relay.types import TensorType


class _Copier(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.used: set[Expr] = set()

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        if new.op.pattern not in (OpPattern.ELEMWISE, OpPattern.BROADCAST):
            return new
        own = {arg: self._own(arg) for arg in dict.fromkeys(new.args)}
        args = tuple([own[arg] for arg in new.args])
        same = all(a is b for a, b in zip(args, new.args, strict=True))
        return new if same else dataclasses.replace(new, args=args)

    def _own(self, arg: Expr) -> Expr:
        """A cast that no other elementwise reader has; what is no cast to a wider dtype as it is."""
        if not isinstance(arg, Call) or not is_op(arg, "cast"):
            return arg
        one, other = type_of(arg.args[0]), type_of(arg)
        assert isinstance(one, TensorType)
        assert isinstance(other, TensorType)
        if dtypes.dtype(one.dtype).itemsize >= dtypes.dtype(other.dtype).itemsize:
            return arg
        if arg in self.used:
            # A chain of casts whole: no longer than there are sizes of dtypes.
            arg = dataclasses.replace(arg, args=(self._own(arg.args[0]),))
        self.used.add(arg)
        return arg


def canonicalize_cast(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        return with_body(function, _Copier().rewrite(function.body))

    return map_functions(mod, change)


CANONICALIZE_CAST = Pass("canonicalize_cast", canonicalize_cast)

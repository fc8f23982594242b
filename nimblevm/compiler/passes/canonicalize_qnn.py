"""Write the operators of quantized tensors (qnn.*) in operators that have kernels.

before:  qnn.dense(%x, %w, 3, 0, 0.5f, 0.25f, units=4)           (%x: Tensor[(?n, 8), uint8], %w: Tensor[(4, 8), int8])
after:   nn.dense(%x, %w, units=4, out_dtype="int32") - sum(cast(%w, dtype="int32"), axis=[1]) * 3

Every other pass and all kernels then know nothing of them: products of bytes, elementwise arithmetic of integers and
tables (compiler/qnn_lowering.py). Scales and zero points that are constants become constants of the integer arithmetic.

Needs: inferred types, checks (types are facts: what an operator demands of its operands has been checked). Keeps: both.
Cost: O(nodes), and sums over constant weights. Source: TVM's qnn.CanonicalizeOps; B. Jacob et al., "Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", arXiv 1712.05877.
"""

from __future__ import annotations

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.qnn_lowering import LOWERINGS, lower_qnn
from nimblevm.compiler.rewrite import Rewriter, map_functions, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, Let
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op


class _Canonicalizer(Rewriter):
    def bind(self, let: Let, value: Expr) -> None:
        if isinstance(value, Constant) and value.checked_type is let.var.checked_type:
            self.memo[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and isinstance(new.op, Op) and new.op.name in LOWERINGS:
            return lower_qnn(new, new.op.name)
        return new


def canonicalize_qnn(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def rewrite(function: Function) -> Function:
        return with_body(function, _Canonicalizer().rewrite(function.body))

    return map_functions(mod, rewrite)


CANONICALIZE_QNN = Pass("canonicalize_qnn", canonicalize_qnn, required=True)

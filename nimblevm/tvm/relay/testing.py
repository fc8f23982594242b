"""tvm.relay.testing: what scripts use of it."""

from __future__ import annotations

from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.ir import Expr, IRModule
from nimblevm.tvm.transform import Pass


def run_infer_type(expr: Expr) -> Expr:
    """The expression with types."""
    return infer_expr(expr)


def run_opt_pass(expr: Expr, opt_pass: Pass) -> Expr:
    """What a pass makes of an expression."""
    main = opt_pass(IRModule.from_expr(expr)).function("main")
    return main if isinstance(expr, type(main)) else main.body


__all__ = ["run_infer_type", "run_opt_pass"]

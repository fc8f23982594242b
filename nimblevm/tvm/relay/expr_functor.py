"""tvm.relay.expr_functor: walks over expressions."""

from nimblevm.relay.visitor import ExprFunctor, ExprMutator, ExprVisitor

__all__ = ["ExprFunctor", "ExprMutator", "ExprVisitor"]

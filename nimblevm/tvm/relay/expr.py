"""tvm.relay.expr: nodes."""

from nimblevm.relay.builder import bind, const, var
from nimblevm.relay.call import TupleWrapper
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)

__all__ = [
    "Call", "Constant", "Expr", "GlobalVar", "If", "Let", "RefCreate", "RefRead", "RefWrite", "Tuple",
    "TupleGetItem", "TupleWrapper", "Var", "bind", "const", "var",
]  # fmt: skip

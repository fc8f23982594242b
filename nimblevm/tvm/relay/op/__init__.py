"""tvm.relay.op: the functions that build calls of operators, and the operators by name (get)."""

from nimblevm import relay as _language
from nimblevm.relay import *  # noqa: F403 - whatever operators there are
from nimblevm.relay.op import Op, get
from nimblevm.tvm.absent import OP, explain_absent
from nimblevm.tvm.relay.op import contrib

__all__ = [*(name for name in _language.__all__ if name != "op"), "Op", "contrib", "get"]

__getattr__ = explain_absent(__name__, OP, __all__)

"""tvm.relay.op.contrib: pattern tables of external backends."""

from nimblevm.tvm.absent import EXTERNAL, explain_absent
from nimblevm.tvm.relay.op.contrib import register
from nimblevm.tvm.relay.op.contrib.register import get_pattern_table, register_pattern_table

__all__ = ["get_pattern_table", "register", "register_pattern_table"]

__getattr__ = explain_absent(__name__, EXTERNAL, __all__)

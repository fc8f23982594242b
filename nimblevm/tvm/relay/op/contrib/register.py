"""tvm.relay.op.contrib.register: pattern tables by name."""

from nimblevm.compiler.external import get_pattern_table, register_pattern_table

__all__ = ["get_pattern_table", "register_pattern_table"]

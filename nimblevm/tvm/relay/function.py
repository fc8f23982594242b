"""tvm.relay.function."""

from nimblevm.relay.ir import Function

__all__ = ["Function"]

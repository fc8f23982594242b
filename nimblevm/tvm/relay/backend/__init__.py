"""tvm.relay.backend: the virtual machine's compiler, and values of data types."""

from nimblevm.tvm.relay.backend import interpreter, vm

__all__ = ["interpreter", "vm"]

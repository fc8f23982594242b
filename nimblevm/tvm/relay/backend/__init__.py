"""tvm.relay.backend: the virtual machine's compiler, and values of data types."""

from nimblevm.tvm.absent import BACKEND, explain_absent
from nimblevm.tvm.relay.backend import interpreter, vm

__all__ = ["interpreter", "vm"]

__getattr__ = explain_absent(__name__, BACKEND, __all__)

"""tvm.runtime.container: values of data types that a virtual machine returns."""

from nimblevm.bytecode.adt import ADTValue as ADT

__all__ = ["ADT"]

"""tvm.te: the names of sizes. Kernels are generated from the program, so that there is nothing else of it."""

from nimblevm.arguments import explain_arguments
from nimblevm.relay.dims import DimVar
from nimblevm.tvm.absent import TE, explain_absent


def var(name: str = "tindex", dtype: str = "int32") -> DimVar:
    """A size that a run decides, the same wherever it stands; `dtype` decides nothing."""
    return DimVar(name)


def size_var(name: str = "size", dtype: str = "int32") -> DimVar:
    """As var: no size is negative."""
    return DimVar(name)


__all__ = ["size_var", "var"]

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, TE, __all__)

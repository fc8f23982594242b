"""tvm.relay.qnn.transform."""

from nimblevm.arguments import explain_missing
from nimblevm.compiler import transform as passes
from nimblevm.compiler.passes.canonicalize_qnn import CANONICALIZE_QNN
from nimblevm.compiler.transform import Pass

_canonicalize = passes.builtin("qnn.CanonicalizeOps", 1, [CANONICALIZE_QNN])


def CanonicalizeOps() -> Pass:
    """Operators of quantized tensors in integer operators."""
    return _canonicalize()


__all__ = ["CanonicalizeOps"]

__getattr__ = explain_missing(__name__, __all__)

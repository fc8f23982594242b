"""tvm.relay.qnn: operators of quantized tensors, here and in `op`, and the pass that writes them out."""

from nimblevm.arguments import explain_missing
from nimblevm.relay import qnn as _origin
from nimblevm.relay.qnn import *  # noqa: F403
from nimblevm.tvm.relay.qnn import op, transform

__all__ = [*_origin.__all__, "op", "transform"]

__getattr__ = explain_missing(__name__, __all__)

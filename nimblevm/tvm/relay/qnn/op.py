"""tvm.relay.qnn.op."""

from nimblevm.arguments import explain_missing
from nimblevm.relay import qnn as _origin
from nimblevm.relay.qnn import *  # noqa: F403

__all__ = [*_origin.__all__]

__getattr__ = explain_missing(__name__, __all__)

"""tvm.relay.vision."""

from nimblevm.arguments import explain_missing
from nimblevm.relay import vision as _origin
from nimblevm.relay.vision import *  # noqa: F403

__all__ = [*_origin.__all__]

__getattr__ = explain_missing(__name__, __all__)

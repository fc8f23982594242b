"""tvm.relay.loops."""

from nimblevm.arguments import explain_missing
from nimblevm.relay import loops as _origin
from nimblevm.relay.loops import *  # noqa: F403

__all__ = [*_origin.__all__]

__getattr__ = explain_missing(__name__, __all__)

"""tvm.relay.random."""

from nimblevm.arguments import explain_missing
from nimblevm.relay import random as _origin
from nimblevm.relay.random import *  # noqa: F403

__all__ = [*_origin.__all__]

__getattr__ = explain_missing(__name__, __all__)

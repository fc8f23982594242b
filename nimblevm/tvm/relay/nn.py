"""tvm.relay.nn."""

from nimblevm.relay import nn as _origin
from nimblevm.relay.nn import *  # noqa: F403

__all__ = [*_origin.__all__]

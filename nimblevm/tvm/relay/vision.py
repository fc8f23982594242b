"""tvm.relay.vision."""

from nimblevm.relay import vision as _origin
from nimblevm.relay.vision import *  # noqa: F403

__all__ = [*_origin.__all__]

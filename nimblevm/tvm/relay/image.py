"""tvm.relay.image."""

from nimblevm.relay import image as _origin
from nimblevm.relay.image import *  # noqa: F403

__all__ = [*_origin.__all__]

"""tvm.relay.loops."""

from nimblevm.relay import loops as _origin
from nimblevm.relay.loops import *  # noqa: F403

__all__ = [*_origin.__all__]

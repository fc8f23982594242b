"""tvm.relay.annotation."""

from nimblevm.relay import annotation as _origin
from nimblevm.relay.annotation import *  # noqa: F403

__all__ = [*_origin.__all__]

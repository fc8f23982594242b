"""tvm.relay.prelude."""

from nimblevm.relay import prelude as _origin
from nimblevm.relay.prelude import *  # noqa: F403

__all__ = [*_origin.__all__]

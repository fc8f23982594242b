"""tvm.relay.scope_builder."""

from nimblevm.relay import scope_builder as _origin
from nimblevm.relay.scope_builder import *  # noqa: F403

__all__ = [*_origin.__all__]

"""tvm.relay.dataflow_pattern."""

from nimblevm.relay import dataflow_pattern as _origin
from nimblevm.relay.dataflow_pattern import *  # noqa: F403

__all__ = [*_origin.__all__]

"""tvm.relay.dataflow_pattern."""

from nimblevm.arguments import explain_arguments
from nimblevm.relay import dataflow_pattern as _origin
from nimblevm.relay.dataflow_pattern import *  # noqa: F403

__all__ = [*_origin.__all__]

explain_arguments(globals(), __all__)

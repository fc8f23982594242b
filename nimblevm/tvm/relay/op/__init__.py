"""tvm.relay.op: the operators' records."""

from nimblevm.arguments import explain_arguments
from nimblevm.relay import op as _origin
from nimblevm.relay.op import *  # noqa: F403 - whatever operators there are
from nimblevm.tvm.relay.op import contrib

__all__ = [*_origin.__all__, "contrib"]

explain_arguments(globals(), __all__)

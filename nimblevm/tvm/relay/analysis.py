"""tvm.relay.analysis: questions about programs."""

from nimblevm.relay.analysis import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    free_vars,
    unmatched_cases,
)
from nimblevm.relay.kinds import Feature, check_kind, detect_feature, list_op_freqs
from nimblevm.relay.visitor import post_order_visit
from nimblevm.relay.well_formed import well_formed

__all__ = [
    "Feature", "all_type_vars", "all_vars", "bound_type_vars", "bound_vars", "check_kind", "detect_feature",
    "free_type_vars", "free_vars", "list_op_freqs", "post_order_visit", "unmatched_cases", "well_formed",
]  # fmt: skip

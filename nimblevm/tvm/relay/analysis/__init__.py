"""tvm.relay.analysis: questions about programs."""

from nimblevm.arguments import explain_arguments
from nimblevm.compiler.passes.to_basic_block import check_basic_block_normal_form
from nimblevm.relay import measure
from nimblevm.relay.analysis import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    free_vars,
    unmatched_cases,
)
from nimblevm.relay.ir import Function
from nimblevm.relay.kinds import (
    Feature,
    check_kind,
    detect_feature,
    list_fake_quantized_op_freqs,
    list_op_freqs,
)
from nimblevm.relay.measure import (
    CallGraph,
    count_layers,
    extract_intermdeiate_expr,
    get_total_mac_number,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.visitor import post_order_visit
from nimblevm.relay.well_formed import well_formed
from nimblevm.tvm.absent import ANALYSIS, explain_absent
from nimblevm.tvm.relay.transform import FuseOps


def extract_fused_functions(mod: IRModule) -> dict[int, Function]:
    """The groups of FuseOps by structural hash, each body once; FuseOps makes them where a module has none yet."""
    return measure.extract_fused_functions(mod) or measure.extract_fused_functions(FuseOps()(mod))


__all__ = [
    "CallGraph", "Feature", "all_type_vars", "all_vars", "bound_type_vars", "bound_vars",
    "check_basic_block_normal_form", "check_kind", "count_layers", "detect_feature", "extract_fused_functions",
    "extract_intermdeiate_expr", "free_type_vars", "free_vars", "get_total_mac_number",
    "list_fake_quantized_op_freqs", "list_op_freqs", "post_order_visit", "unmatched_cases", "well_formed",
]  # fmt: skip

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, ANALYSIS, __all__)

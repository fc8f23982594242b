"""The default sequence of passes, and nothing else."""

from nimblevm.compiler.pass_base import FixedPoint, Sequential
from nimblevm.compiler.passes.batch_leaves import BATCH_LEAVES
from nimblevm.compiler.passes.batch_levels import BATCH_LEVELS
from nimblevm.compiler.passes.canonicalize_qnn import CANONICALIZE_QNN
from nimblevm.compiler.passes.combine_parallel_dense import COMBINE_PARALLEL_DENSE
from nimblevm.compiler.passes.cse import CSE
from nimblevm.compiler.passes.dead_code import DEAD_CODE
from nimblevm.compiler.passes.find_appends import FIND_APPENDS
from nimblevm.compiler.passes.fold_batch_norm import FOLD_BATCH_NORM
from nimblevm.compiler.passes.fold_constant import FOLD_CONSTANT
from nimblevm.compiler.passes.fuse_levels import FUSE_LEVELS
from nimblevm.compiler.passes.fuse_loops import FUSE_LOOPS
from nimblevm.compiler.passes.fuse_ops import FUSE_OPS
from nimblevm.compiler.passes.hoist_projection import HOIST_PROJECTION
from nimblevm.compiler.passes.inline import INLINE
from nimblevm.compiler.passes.insert_checks import INSERT_CHECKS
from nimblevm.compiler.passes.join_inputs import JOIN_INPUTS
from nimblevm.compiler.passes.lambda_lift import LAMBDA_LIFT
from nimblevm.compiler.passes.manifest_alloc import MANIFEST_ALLOC
from nimblevm.compiler.passes.move_projections import MOVE_PROJECTIONS
from nimblevm.compiler.passes.name_effects import NAME_EFFECTS
from nimblevm.compiler.passes.open_regions import OPEN_REGIONS
from nimblevm.compiler.passes.order_weights import ORDER_WEIGHTS
from nimblevm.compiler.passes.pack_convolutions import PACK_CONVOLUTIONS
from nimblevm.compiler.passes.pack_weights import PACK_WEIGHTS
from nimblevm.compiler.passes.partition import PARTITION
from nimblevm.compiler.passes.plan_devices import PLAN_DEVICES
from nimblevm.compiler.passes.plan_memory import PLAN_MEMORY
from nimblevm.compiler.passes.project_tables import PROJECT_TABLES
from nimblevm.compiler.passes.shape_functions import SHAPE_FUNCTIONS
from nimblevm.compiler.passes.simplify import SIMPLIFY
from nimblevm.compiler.passes.specialize_loops import SPECIALIZE_LOOPS
from nimblevm.compiler.passes.split_calls import SPLIT_CALLS
from nimblevm.compiler.passes.split_inputs import SPLIT_INPUTS
from nimblevm.compiler.passes.split_loops import SPLIT_LOOPS
from nimblevm.compiler.passes.split_products import SPLIT_PRODUCTS
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.compiler.passes.winograd import WINOGRAD

PIPELINE = Sequential(
    (
        # What the program leaves unsaid: effects in order, sizes to be checked, integers of quantized layers.
        OPEN_REGIONS,
        NAME_EFFECTS,
        INSERT_CHECKS,
        CANONICALIZE_QNN,
        # The same with less to do.
        FixedPoint((INLINE, SIMPLIFY, FOLD_CONSTANT, SPECIALIZE_LOOPS, CSE, DEAD_CODE), rounds=3),
        # Loops and trees: what does not depend on their turns leaves them, as large products.
        SPLIT_INPUTS,
        SPLIT_LOOPS,
        HOIST_PROJECTION,
        BATCH_LEVELS,
        JOIN_INPUTS,
        BATCH_LEAVES,
        PROJECT_TABLES,
        # Products and convolutions, in the form in which they run best; weights in their layouts.
        SPLIT_PRODUCTS,
        COMBINE_PARALLEL_DENSE,
        DEAD_CODE,
        SHAPE_FUNCTIONS,
        FOLD_BATCH_NORM,
        PARTITION,
        PACK_CONVOLUTIONS,
        WINOGRAD,
        ORDER_WEIGHTS,
        SPLIT_CALLS,
        DEAD_CODE,
        PACK_WEIGHTS,
        # Kernels, and where they run.
        TO_ANF,
        LAMBDA_LIFT,
        FIND_APPENDS,
        FUSE_OPS,
        PLAN_DEVICES,
        # Memory, made explicit; then whole loops become kernels.
        MANIFEST_ALLOC,
        FUSE_LOOPS,
        MOVE_PROJECTIONS,
        FUSE_LEVELS,
        PLAN_MEMORY,
    )
)

"""tvm.relay.transform: the passes that users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nimblevm.arguments import explain_arguments
from nimblevm.compiler import transform as passes
from nimblevm.compiler.external import PatternRow
from nimblevm.compiler.pass_base import Pass as CompilerPass
from nimblevm.compiler.passes.annotate_target import annotate_target_pass
from nimblevm.compiler.passes.backward_fold_scale_axis import BACKWARD_FOLD_SCALE_AXIS
from nimblevm.compiler.passes.canonicalize_cast import CANONICALIZE_CAST
from nimblevm.compiler.passes.canonicalize_ops import CANONICALIZE_OPS
from nimblevm.compiler.passes.combine_parallel import (
    combine_batch_matmul_pass,
    combine_conv2d_pass,
    combine_dense_pass,
)
from nimblevm.compiler.passes.cse import CSE, cse_pass
from nimblevm.compiler.passes.dead_code import DEAD_CODE
from nimblevm.compiler.passes.defunctionalization import defunctionalize
from nimblevm.compiler.passes.defuse_ops import DEFUSE_OPS
from nimblevm.compiler.passes.div_to_mul import DIV_TO_MUL
from nimblevm.compiler.passes.dynamic_to_static import DYNAMIC_TO_STATIC
from nimblevm.compiler.passes.eta_expand import eta_expand_pass
from nimblevm.compiler.passes.fake_quantization_to_integer import fake_quantization_pass
from nimblevm.compiler.passes.fast_math import FAST_MATH
from nimblevm.compiler.passes.flatten_atrous_conv import FLATTEN_ATROUS_CONV
from nimblevm.compiler.passes.fold_constant import FOLD_CONSTANT
from nimblevm.compiler.passes.fold_explicit_padding import FOLD_EXPLICIT_PADDING
from nimblevm.compiler.passes.forward_fold_scale_axis import FORWARD_FOLD_SCALE_AXIS
from nimblevm.compiler.passes.fuse_ops import FUSE_OPS
from nimblevm.compiler.passes.inline import INLINE
from nimblevm.compiler.passes.lambda_lift import LAMBDA_LIFT
from nimblevm.compiler.passes.merge_compiler_regions import MERGE_COMPILER_REGIONS
from nimblevm.compiler.passes.merge_composite import merge_composite_pass
from nimblevm.compiler.passes.partial_eval import PARTIAL_EVAL
from nimblevm.compiler.passes.partition_graph import partition_graph_pass
from nimblevm.compiler.passes.remove_unused import remove_unused_pass
from nimblevm.compiler.passes.simplify import SIMPLIFY
from nimblevm.compiler.passes.simplify_inference import SIMPLIFY_INFERENCE
from nimblevm.compiler.passes.split_args import split_args_pass
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.compiler.passes.to_basic_block import TO_BASIC_BLOCK
from nimblevm.compiler.passes.to_graph import TO_GRAPH
from nimblevm.compiler.passes.to_mixed_precision import to_mixed_precision_pass
from nimblevm.compiler.transform import (
    KEEP_ORIG_OUTPUT_DTYPE,
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    Sequential,
    build_config,
    function_pass,
    module_pass,
)
from nimblevm.driver import evaluate_call
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import Type
from nimblevm.tvm.absent import TRANSFORM, explain_absent

# TVM's names of what compile() may leave out.
_PIPELINE = {
    "DeadCodeElimination": "dead_code",
    "EliminateCommonSubexpr": "cse",
    "FoldConstant": "fold_constant",
    "Inline": "inline",
    "SimplifyExpr": "simplify",
}


def passes_off() -> tuple[str, ...]:
    """The compiler's names of the passes that the current context disables."""
    off = PassContext.current().disabled_pass
    return tuple(_PIPELINE[name] for name in off if name in _PIPELINE)


_fold = passes.builtin("FoldConstant", 2, [FOLD_CONSTANT], evaluate_call)
_to_static = passes.builtin("DynamicToStatic", 2, [DYNAMIC_TO_STATIC], evaluate_call)
_evaluate = passes.builtin("PartialEvaluate", 1, [PARTIAL_EVAL], evaluate_call)
_infer = passes.builtin("InferType", 0, [])
_cse = passes.builtin("EliminateCommonSubexpr", 3, [CSE])
_dead = passes.builtin("DeadCodeElimination", 1, [DEAD_CODE])
_inline = passes.builtin("Inline", 1, [INLINE])
_simplify = passes.builtin("SimplifyExpr", 0, [SIMPLIFY])
_inference = passes.builtin("SimplifyInference", 0, [SIMPLIFY_INFERENCE])
_anf = passes.builtin("ToANormalForm", 1, [TO_ANF])
_graph = passes.builtin("ToGraphNormalForm", 1, [TO_GRAPH])
_lift = passes.builtin("LambdaLift", 1, [TO_ANF, LAMBDA_LIFT])
_merge_regions = passes.builtin("MergeCompilerRegions", 0, [MERGE_COMPILER_REGIONS])
_fuse = passes.builtin("FuseOps", 0, [TO_ANF, FUSE_OPS])
_defuse = passes.builtin("DefuseOps", 3, [DEFUSE_OPS])
_blocks = passes.builtin("ToBasicBlockNormalForm", 1, [TO_BASIC_BLOCK])
_canonical = passes.builtin("CanonicalizeOps", 3, [CANONICALIZE_OPS])
_reciprocal = passes.builtin("DivToMul", 0, [DIV_TO_MUL])
_fast = passes.builtin("FastMath", 4, [FAST_MATH])
_scale_back = passes.builtin("BackwardFoldScaleAxis", 3, [TO_GRAPH, BACKWARD_FOLD_SCALE_AXIS])
_scale_on = passes.builtin("ForwardFoldScaleAxis", 3, [TO_GRAPH, FORWARD_FOLD_SCALE_AXIS])
_scale = passes.builtin(
    "FoldScaleAxis", 3, [TO_GRAPH, BACKWARD_FOLD_SCALE_AXIS, FORWARD_FOLD_SCALE_AXIS]
)
_cast = passes.builtin("CanonicalizeCast", 3, [TO_GRAPH, CANONICALIZE_CAST])
_atrous = passes.builtin("FlattenAtrousConv", 0, [TO_GRAPH, FLATTEN_ATROUS_CONV])
_padding = passes.builtin("FoldExplicitPadding", 0, [FOLD_EXPLICIT_PADDING])


def InferType() -> Pass:
    """Fill in all types."""
    return _infer()


def InferTypeLocal(expr: Expr) -> Type:
    """The type of an expression, without its module."""
    found = infer_expr(expr).checked_type
    if found is None:
        raise TypeError(f"{expr} has no type")
    return found


def FoldConstant(fold_qnn: bool = False) -> Pass:
    """Evaluate operators on constants. `fold_qnn` decides nothing: qnn operators are folded too."""
    return _fold()


def SimplifyExpr() -> Pass:
    """Algebraic rewrites that change no bit."""
    return _simplify()


def SimplifyInference() -> Pass:
    """batch_norm as multiply and add, no dropout."""
    return _inference()


def EliminateCommonSubexpr(fskip: Callable[[Call], bool] | None = None) -> Pass:
    """Compute equal expressions once, but for the calls for which `fskip` is true."""
    if fskip is None:
        return _cse()
    return passes.of_steps("EliminateCommonSubexpr", 3, [cse_pass(fskip)])


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:
    """Drop lets that nothing reads. Flags must be False: a call may write or never return."""
    if inline_once or ignore_impurity:
        raise ValueError(
            "DeadCodeElimination keeps calls, and lets that are read once: no flags here"
        )
    return _dead()


def Inline() -> Pass:
    """Small functions in the place of their calls; the attribute "Inline" is not asked for."""
    return _inline()


def ToANormalForm() -> Pass:
    """A let for each intermediate value."""
    return _anf()


def ToGraphNormalForm() -> Pass:
    """Values in the place of let variables."""
    return _graph()


def MergeComposite(pattern_table: Sequence[PatternRow]) -> Pass:
    """Functions with the attribute Composite around what the rows (name, pattern, check) match."""
    return passes.of_steps("MergeComposite", 0, [merge_composite_pass(pattern_table)])


def AnnotateTarget(targets: str | Sequence[str], include_non_call_ops: bool = True) -> Pass:
    """annotation.compiler_begin and compiler_end around what external backends take."""
    step = annotate_target_pass(targets, include_non_call_ops)
    return passes.of_steps("AnnotateTarget", 0, [step])


def MergeCompilerRegions() -> Pass:
    """One region of annotated ones that are connected."""
    return _merge_regions()


def PartitionGraph(mod_name: str = "default", bind_constants: bool = True) -> Pass:
    """A global function with the attribute Compiler of each annotated region."""
    step = partition_graph_pass(mod_name, bind_constants)
    return passes.of_steps("PartitionGraph", 0, [step])


def LambdaLift() -> Pass:
    """Local functions as global ones; makes A-normal form."""
    return _lift()


def EtaExpand(expand_constructor: bool = False, expand_global_var: bool = False) -> Pass:
    """Function literals around constructors and globals that are used as values."""
    step = eta_expand_pass(expand_constructor, expand_global_var)
    return passes.of_steps("EtaExpand", 1, [step])


def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """Operators in groups, one kernel each; makes A-normal form. 0: no groups (the module as it is, typed)."""
    return _infer() if fuse_opt_level == 0 else _fuse()


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> Pass:
    """Products of one input as one: a batch of them, else one with all columns."""
    step = combine_dense_pass(min_num_branches, to_batch)
    return passes.of_steps("CombineParallelDense", 4, [step])


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> Pass:
    """Batches of products with one first operand as one with all columns."""
    step = combine_batch_matmul_pass(min_num_branches)
    return passes.of_steps("CombineParallelBatchMatmul", 4, [step])


def CombineParallelConv2D(min_num_branches: int = 3) -> Pass:
    """Convolutions of one input as one with all channels."""
    return passes.of_steps("CombineParallelConv2d", 4, [combine_conv2d_pass(min_num_branches)])


def DefuseOps() -> Pass:
    """The operators of fused groups in the place of the groups' calls."""
    return _defuse()


def ToBasicBlockNormalForm() -> Pass:
    """A let for what several blocks read; analysis.check_basic_block_normal_form tells."""
    return _blocks()


def CanonicalizeOps() -> Pass:
    """nn.bias_add as an addition."""
    return _canonical()


def DivToMul() -> Pass:
    """Products with the reciprocal in the place of divisions by a constant."""
    return _reciprocal()


def FastMath() -> Pass:
    """nn.fast_softmax in the place of nn.softmax; other operators have one form."""
    return _fast()


def FoldExplicitPadding() -> Pass:
    """nn.pad as padding of the convolution or pool that reads it."""
    return _padding()


def BackwardFoldScaleAxis() -> Pass:
    """Scales of channels in the weights of the convolutions and products before them; makes graph form."""
    return _scale_back()


def ForwardFoldScaleAxis() -> Pass:
    """Scales of channels in the weights of the convolutions and products that read them; makes graph form."""
    return _scale_on()


def FoldScaleAxis() -> Pass:
    """BackwardFoldScaleAxis, then ForwardFoldScaleAxis."""
    return _scale()


def FlattenAtrousConv() -> Pass:
    """Convolutions of blocks of space as dilated ones; makes graph form."""
    return _atrous()


def CanonicalizeCast() -> Pass:
    """A cast to a wider dtype for each of its elementwise readers; makes graph form."""
    return _cast()


def Defunctionalization(func: Function, mod: IRModule) -> Function:
    """The function without functions as values; data types and functions that it needs then are added to `mod`."""
    return defunctionalize(func, mod)


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:
    """Products in float16, and what follows them; sums and steep functions in float32. The context's config
    "relay.ToMixedPrecision.keep_orig_output_dtype" lets the program's results keep their dtypes.
    """
    makes = [
        to_mixed_precision_pass(mixed_precision_type, missing_op_mode, keep)
        for keep in (False, True)
    ]

    def steps(ctx: PassContext) -> list[CompilerPass]:
        return [makes[bool(ctx.config.get(KEEP_ORIG_OUTPUT_DTYPE, False))]]

    return passes.of_steps("ToMixedPrecision", 0, steps)


def FakeQuantizationToInteger(
    hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Sequence[str] | None = None
) -> Pass:
    """What lies between qnn.dequantize and qnn.quantize in integers; makes graph form.

    hard_fail          a CompileError for what can't be written so, which stays as it is else
    use_qat            also what follows a qnn.dequantize and reaches no qnn.quantize
    optional_qnn_ops   operators that are left alone otherwise: nn.softmax
    """
    step = fake_quantization_pass(hard_fail, use_qat, optional_qnn_ops)
    return passes.of_steps("FakeQuantizationToInteger", 0, [TO_GRAPH, step])


def SplitArgs(max_function_args: int) -> Pass:
    """concatenate in steps, each a kernel of at most so many parameters, the result's one among them; 0: in one."""
    return passes.of_steps("SplitArgs", 1, [split_args_pass(max_function_args)])


def DynamicToStatic() -> Pass:
    """dyn operators of constant sizes as static ones."""
    return _to_static()


def PartialEvaluate() -> Pass:
    """Run what is known at compile time."""
    return _evaluate()


def RemoveUnusedFunctions(entry_functions: Sequence[str] | None = None) -> Pass:
    """Drop functions that `entry_functions` (main) don't reach."""
    step = remove_unused_pass(entry_functions or ["main"])
    return passes.of_steps("RemoveUnusedFunctions", 1, [step])


__all__ = [
    "AnnotateTarget", "BackwardFoldScaleAxis", "CanonicalizeCast", "CanonicalizeOps", "CombineParallelBatchMatmul",
    "CombineParallelConv2D", "CombineParallelDense", "DeadCodeElimination", "Defunctionalization", "DefuseOps",
    "DivToMul", "DynamicToStatic", "EliminateCommonSubexpr", "EtaExpand", "FakeQuantizationToInteger", "FastMath",
    "FlattenAtrousConv", "FoldConstant", "FoldExplicitPadding", "FoldScaleAxis", "ForwardFoldScaleAxis",
    "FunctionPass", "FuseOps", "InferType", "InferTypeLocal", "Inline", "LambdaLift", "MergeCompilerRegions",
    "MergeComposite", "ModulePass", "PartialEvaluate", "PartitionGraph", "Pass", "PassContext",
    "RemoveUnusedFunctions", "Sequential", "SimplifyExpr", "SimplifyInference", "SplitArgs", "ToANormalForm",
    "ToBasicBlockNormalForm", "ToGraphNormalForm", "ToMixedPrecision", "build_config", "function_pass", "module_pass",
    "passes_off",
]  # fmt: skip

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, TRANSFORM, __all__)

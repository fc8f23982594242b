"""Which operators are computed in a narrower float dtype: a category for every operator, for ToMixedPrecision.

Lists of TVM 0.18 where it has the operator; an operator that it leaves out has the category of its like. A test
fails for an operator without a category.
"""

from __future__ import annotations

import enum

from nimblevm.relay.op.registry import Op


class Precision(enum.Enum):
    """What becomes of a call's float operands.

    ALWAYS    the narrow dtype: products, which gain most and sum in float32
    FOLLOW    the narrow dtype if all of them have it already or may have it for free, else float32
    NEVER     float32: large sums, steep functions, positions and sizes
    READ      as they come: what the result is does not depend on how precise they are, or not by choice
    WRITTEN   the dtype that the program has: their bits are read, or the operator is made by the compiler
    """

    ALWAYS = "always"
    FOLLOW = "follow"
    NEVER = "never"
    READ = "read"
    WRITTEN = "written"


_NAMES: dict[Precision, str] = {
    Precision.ALWAYS: """
        nn.batch_matmul nn.conv1d nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d
        nn.conv3d_transpose nn.dense nn.matmul
    """,
    Precision.FOLLOW: """
        abs add adv_index all annotation.checkpoint annotation.compiler_begin annotation.compiler_end
        annotation.stop_fusion any argmax argmin argwhere bitwise_and bitwise_not bitwise_or bitwise_xor
        broadcast_to broadcast_to_like ceil clip concatenate contrib_reverse_reshape copy device_copy divide
        dyn.broadcast_to dyn.expand_dims dyn.full dyn.nn.pad dyn.ones dyn.reshape dyn.squeeze dyn.strided_slice
        dyn.tile dyn.zeros einsum equal expand_dims fixed_point_multiply floor full full_like gather gather_nd
        greater greater_equal image.dilation2d image.resize1d image.resize2d image.resize3d invert_permutation
        layout_transform left_shift less less_equal logical_and logical_not logical_or logical_xor
        matrix_set_diag max maximum meshgrid min minimum multiply negative nn.adaptive_max_pool1d
        nn.adaptive_max_pool2d nn.adaptive_max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.batch_flatten
        nn.batch_norm nn.batch_to_space_nd nn.bias_add nn.deformable_conv2d nn.depth_to_space nn.dilate
        nn.dropout nn.fifo_buffer nn.global_max_pool1d nn.global_max_pool2d nn.global_max_pool3d nn.leaky_relu
        nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.mirror_pad nn.pad nn.prelu nn.relu nn.space_to_batch_nd
        nn.space_to_depth nn.sparse_add nn.sparse_dense nn.sparse_transpose nn.upsampling nn.upsampling3d
        not_equal on_device ones ones_like repeat reshape reshape_like reverse reverse_sequence right_shift
        round scatter_elements scatter_nd sequence_mask sigmoid sign slice_like sliding_window
        sparse_fill_empty_rows sparse_reshape sparse_to_dense split sqrt squeeze stack strided_set strided_slice
        subtract take tanh tile transpose trilu trunc unravel_index vision.yolo_reorg where zeros zeros_like
    """,
    Precision.NEVER: """
        acos acosh arange asin asinh atan atanh collapse_sum_like collapse_sum_to cos cosh cumprod cumsum dft
        dyn.image.resize2d dyn.nn.upsampling dyn.one_hot erf exp floor_divide floor_mod image.affine_grid
        image.crop_and_resize image.grid_sample log log10 log2 mean mod nn.adaptive_avg_pool1d
        nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.avg_pool2d_grad nn.contrib_conv2d_pack
        nn.contrib_conv2d_winograd_pack nn.contrib_dense_pack nn.conv2d_backward_weight nn.correlation
        nn.cross_entropy nn.cross_entropy_with_logits nn.fast_softmax nn.global_avg_pool1d nn.global_avg_pool2d
        nn.global_avg_pool3d nn.group_norm nn.instance_norm nn.l2_normalize nn.layer_norm nn.log_softmax nn.lrn
        nn.max_pool2d_grad nn.nll_loss nn.softmax one_hot power prod qnn.abs qnn.add qnn.avg_pool2d
        qnn.batch_matmul qnn.concatenate qnn.contrib_dense_pack qnn.conv2d qnn.conv2d_transpose qnn.dense
        qnn.dequantize qnn.erf qnn.exp qnn.hardswish qnn.leaky_relu qnn.log qnn.mul qnn.quantize qnn.requantize
        qnn.rsqrt qnn.sigmoid qnn.simulated_dequantize qnn.simulated_quantize qnn.softmax qnn.sqrt qnn.subtract
        qnn.tanh random.multinomial random.normal random.threefry_generate random.threefry_split random.uniform
        rsqrt searchsorted sin sinh stft sum tan trunc_divide trunc_mod variance
        vision.all_class_non_max_suppression vision.get_valid_counts vision.multibox_prior
        vision.multibox_transform_loc vision.non_max_suppression vision.proposal
        vision.regular_non_max_suppression vision.roi_align vision.roi_pool
    """,
    Precision.READ: """
        argsort cast cast_like dyn.topk isfinite isinf isnan ndarray_size shape_of sort topk unique
    """,
    Precision.WRITTEN: """
        dyn.window memory.alloc_storage memory.alloc_tensor memory.kill reinterpret vm.append vm.bind_dim
        vm.call_kernel vm.check_broadcast vm.device_copy vm.dim_of vm.dim_value vm.linearize vm.match_type
        vm.read_at vm.read_int vm.reshape_tensor vm.rows vm.shrink
    """,
}

CATEGORIES: dict[str, Precision] = {
    name: category for category, names in _NAMES.items() for name in names.split()
}
"""The category of each operator, by name."""

if len(CATEGORIES) != sum(len(names.split()) for names in _NAMES.values()):
    raise ValueError("relay/op/mixed_precision.py: an operator occurs twice")

RESULT_DTYPE: dict[str, str] = {
    **dict.fromkeys(_NAMES[Precision.ALWAYS].split(), "out_dtype"),
    "nn.deformable_conv2d": "out_dtype",
    **dict.fromkeys(("zeros", "ones", "full", "dyn.zeros", "dyn.ones", "dyn.full"), "dtype"),
}
"""The attribute that decides the result's dtype, of operators that may be computed in the narrow one."""


def category(op: Op) -> Precision | None:
    """The category of an operator; None for one that has none."""
    return CATEGORIES.get(op.name)

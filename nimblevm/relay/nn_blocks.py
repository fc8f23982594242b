"""relay.nn: blocks of space moved to channels or the batch, and streams, with TVM's argument order and defaults."""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.relay import ir, op
from nimblevm.relay.builder_sizes import given, ints_of
from nimblevm.relay.call import Operand, call_op


def depth_to_space(
    data: Operand, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> ir.Call:
    """Channels to squares of space, block_size wide."""
    attrs = op.blocks.DepthToSpaceAttrs(block_size, layout, mode)
    return call_op("nn.depth_to_space", data, attrs=attrs)


def space_to_depth(data: Operand, block_size: int, layout: str = "NCHW") -> ir.Call:
    """Squares of space, block_size wide, to channels."""
    attrs = op.blocks.SpaceToDepthAttrs(block_size, layout)
    return call_op("nn.space_to_depth", data, attrs=attrs)


def space_to_batch_nd(
    data: Operand,
    block_shape: Sequence[int],
    paddings: Sequence[Sequence[int]],
    pad_value: float = 0,
) -> ir.Call:
    """Blocks of the padded space to the batch."""
    shape = ints_of("space_to_batch_nd", block_shape)
    attrs = op.blocks.SpaceToBatchNDAttrs(shape, given(paddings), float(pad_value))
    return call_op("nn.space_to_batch_nd", data, attrs=attrs)


def batch_to_space_nd(
    data: Operand, block_shape: Sequence[int], crops: Sequence[Sequence[int]]
) -> ir.Call:
    """Blocks of the batch to space, of which the crops are cut off."""
    shape = ints_of("batch_to_space_nd", block_shape)
    attrs = op.blocks.BatchToSpaceNDAttrs(shape, given(crops))
    return call_op("nn.batch_to_space_nd", data, attrs=attrs)


def dilate(data: Operand, strides: Sequence[int], dilation_value: float = 0.0) -> ir.Call:
    """dilation_value between the elements."""
    attrs = op.dilate.DilateAttrs(ints_of("dilate", strides), float(dilation_value))
    return call_op("nn.dilate", data, attrs=attrs)


def fifo_buffer(data: Operand, buffer: Operand, axis: int) -> ir.Call:
    """The newest elements of a stream along an axis: buffer without its oldest, then data."""
    return call_op("nn.fifo_buffer", data, buffer, attrs=op.fifo_buffer.FIFOBufferAttrs(axis))


__all__ = [
    "batch_to_space_nd",
    "depth_to_space",
    "dilate",
    "fifo_buffer",
    "space_to_batch_nd",
    "space_to_depth",
]

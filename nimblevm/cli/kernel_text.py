"""Kernel IR of a file as text. The loop IR is the compiler's; it is loaded only when it is asked for."""

from __future__ import annotations

from nimblevm import dtypes
from nimblevm.abi import DimWord
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.describe import signature_text
from nimblevm.bytecode.records import axis_size


def kernel_text(kernel: s.KernelRecord) -> str:
    """Name, signature and body; of a kernel without IR the signature alone."""
    if kernel.kind != s.KERNEL_LOOP_IR:
        kind = "in C" if kernel.kind == s.KERNEL_C else "external"
        return f"kernel {kernel.name}, {kind}: {signature_text(kernel)}\n"
    from nimblevm.kernels import loop_ir as ir  # noqa: PLC0415 - not for the other commands
    from nimblevm.kernels.loop_ir_form import deserialize  # noqa: PLC0415
    from nimblevm.kernels.loop_ir_text import to_text  # noqa: PLC0415

    def constant(value: int) -> ir.Value:
        return ir.Const("int64", value)

    def dim(index: int) -> ir.Value:
        return ir.DimRef("int64", index)

    def operation(op: DimWord, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        return ir.Binary("int64", op.name.lower(), lhs, rhs)

    counts = [0, 0, 0]
    buffers: list[ir.Buffer] = []
    for operand in kernel.operands:
        role = ir.OPERAND_ROLES[operand.role]
        name = f"{role}{counts[operand.role]}"
        counts[operand.role] += 1
        axes = tuple(
            ir.Axis(axis_size(kernel.exprs, axis, constant, dim, operation), axis.broadcast)
            for axis in operand.axes
        )
        buffers.append(ir.Buffer(name, dtypes.BY_NUMBER[operand.dtype].name, role, axes))
    alias = tuple((i, o.alias - 1) for i, o in enumerate(kernel.operands) if o.alias)
    dims = (*kernel.dims, *(str(value) for value in kernel.attrs))
    head = ir.Kernel(kernel.name, tuple(buffers), dims, (), kernel.out_dims, alias)
    return to_text(deserialize(kernel.ir, head))


__all__ = ["kernel_text"]

"""Kernel IR of a file as text. The loop IR is the compiler's; it is loaded only when it is asked for."""

from __future__ import annotations

from nimblevm import dtypes
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.describe import signature_text

_ROLES = ("in", "out", "scratch")


def kernel_text(kernel: s.KernelRecord) -> str:
    """Name, signature and body; of a kernel without IR the signature alone."""
    if kernel.kind != s.KERNEL_LOOP_IR:
        kind = "in C" if kernel.kind == s.KERNEL_C else "external"
        return f"kernel {kernel.name}, {kind}: {signature_text(kernel)}\n"
    from nimblevm.kernels import loop_ir as ir  # noqa: PLC0415 - not for the other commands
    from nimblevm.kernels.loop_ir_form import deserialize  # noqa: PLC0415
    from nimblevm.kernels.loop_ir_text import to_text  # noqa: PLC0415

    def size(axis: s.AxisRecord) -> ir.Value:
        if axis.kind == s.AXIS_CONST:
            return ir.Const("int64", axis.value)
        if axis.kind == s.AXIS_DIM:
            return ir.DimRef("int64", axis.value)
        stack: list[ir.Value] = []
        at = axis.value
        while kernel.exprs[at] != len(_OPERATIONS) + 2:
            op, at = kernel.exprs[at], at + 1
            if op <= 1:
                word, at = kernel.exprs[at], at + 1
                stack.append(ir.DimRef("int64", word) if op else ir.Const("int64", word))
                continue
            rhs, lhs = stack.pop(), stack.pop()
            stack.append(ir.Binary("int64", _OPERATIONS[op - 2], lhs, rhs))
        return stack[0]

    counts = [0, 0, 0]
    buffers: list[ir.Buffer] = []
    for operand in kernel.operands:
        name = f"{_ROLES[operand.role]}{counts[operand.role]}"
        counts[operand.role] += 1
        axes = tuple(ir.Axis(size(axis), axis.broadcast) for axis in operand.axes)
        role = _ROLES[operand.role]
        buffers.append(ir.Buffer(name, dtypes.BY_NUMBER[operand.dtype].name, role, axes))  # type: ignore[arg-type]
    alias = tuple((i, o.alias - 1) for i, o in enumerate(kernel.operands) if o.alias)
    dims = (*kernel.dims, *(str(value) for value in kernel.attrs))
    head = ir.Kernel(kernel.name, tuple(buffers), dims, (), kernel.out_dims, alias)
    return to_text(deserialize(kernel.ir, head))


_OPERATIONS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")
"""Numbers 2 and up of a dim program; 9 ends it (docs/format.md)."""

__all__ = ["kernel_text"]

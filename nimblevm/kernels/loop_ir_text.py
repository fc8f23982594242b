"""Loop IR as text for people: one line a statement; an expression used more than once in a statement is named first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.loop_ir_form import operands, postorder, roots

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<",
    "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


class _Printer:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.names: dict[int, str] = {}
        self.taken: Counter[str] = Counter()

    def name(self, node: ir.LoopVar | ir.Local) -> str:
        if id(node) not in self.names:
            self.taken[node.name] += 1
            count = self.taken[node.name]
            self.names[id(node)] = node.name if count == 1 else f"{node.name}_{count}"
        return self.names[id(node)]

    def buffer(self, number: int) -> str:
        known = number < len(self.kernel.buffers)
        return self.kernel.buffers[number].name if known else f"buffer{number}"

    def text(self, value: ir.Value, done: dict[int, str]) -> str:
        args = [done[id(operand)] for operand in operands(value)]
        match value:
            case ir.Const(value=literal):
                suffix = {"int64": "", "bool": ""}.get(value.dtype, f":{value.dtype}")
                return f"{literal}{suffix}"
            case ir.LoopVar() | ir.Local():
                return self.name(value)
            case ir.DimRef(index=index):
                dims = self.kernel.dims
                return dims[index] if index < len(dims) else f"dims[{index}]"
            case ir.Load(buffer=buffer):
                return f"{self.buffer(buffer)}[{', '.join(args)}]"
            case ir.Unary(op=op):
                return f"{op}({args[0]})"
            case ir.Binary(op=op) | ir.Compare(op=op):
                return (
                    f"({args[0]} {_INFIX[op]} {args[1]})"
                    if op in _INFIX
                    else f"{op}({args[0]}, {args[1]})"
                )
            case ir.Select():
                return f"({args[0]} ? {args[1]} : {args[2]})"
            case ir.Cast():
                return f"{value.dtype}({args[0]})"
            case ir.CheckIndex(operand=number):
                return f"check({args[0]} < {args[1]}, {self.buffer(number)})"
            case _:
                raise TypeError(f"loop IR: not an expression: {type(value).__name__}")

    def expressions(self, statement: ir.Statement) -> tuple[list[str], dict[int, str]]:
        """Lines that name shared expressions, and the text of every expression by id."""
        order = list(postorder(roots(statement), set()))
        uses = Counter(id(operand) for value in order for operand in operands(value))
        uses.update(id(root) for root in roots(statement))
        lines: list[str] = []
        done: dict[int, str] = {}
        for value in order:
            text = self.text(value, done)
            if uses[id(value)] > 1 and operands(value):
                name = f"%{len(lines)}"
                lines.append(f"{name} = {text}")
                text = name
            done[id(value)] = text
        return lines, done

    def head(self, statement: ir.Statement, done: dict[int, str]) -> str:
        match statement:
            case ir.For(var=var, extent=extent, parallel=parallel):
                return (
                    f"{'parallel ' if parallel else ''}for {self.name(var)} < {done[id(extent)]}:"
                )
            case ir.Store(buffer=buffer, indices=indices, value=value):
                place = ", ".join(done[id(index)] for index in indices)
                return f"{self.buffer(buffer)}[{place}] = {done[id(value)]}"
            case ir.SetLocal(local=local, value=value):
                return f"{self.name(local)} = {done[id(value)]}"
            case ir.Accumulate(local=local, op=op, value=value):
                sign = _INFIX.get(op, op)
                return f"{self.name(local)} {sign}= {done[id(value)]}"
            case ir.If(cond=cond):
                return f"if {done[id(cond)]}:"
            case ir.SetDim(index=index, value=value):
                return f"out_dims[{index}] = {done[id(value)]}"
            case _:
                raise TypeError(f"loop IR: not a statement: {type(statement).__name__}")

    def body(self) -> Iterator[str]:
        stack: list[tuple[ir.Statement | str, int]] = [(s, 1) for s in reversed(self.kernel.body)]
        while stack:
            item, depth = stack.pop()
            indent = "  " * depth
            if isinstance(item, str):
                yield indent + item
                continue
            lines, done = self.expressions(item)
            yield from (indent + line for line in lines)
            yield indent + self.head(item, done)
            if isinstance(item, ir.For):
                stack.extend((inner, depth + 1) for inner in reversed(item.body))
            elif isinstance(item, ir.If):
                if item.otherwise:
                    stack.extend((inner, depth + 1) for inner in reversed(item.otherwise))
                    stack.append(("else:", depth))
                stack.extend((inner, depth + 1) for inner in reversed(item.then))

    def size(self, axis: ir.Axis) -> str:
        done: dict[int, str] = {}
        for value in postorder((axis.size,), set()):
            done[id(value)] = self.text(value, done)
        return done[id(axis.size)] + (" or 1" if axis.broadcast else "")


def to_text(kernel: ir.Kernel) -> str:
    """The kernel as text. Not read back: serialize() is the form for machines."""
    printer = _Printer(kernel)
    lines = [f"kernel {kernel.name}({', '.join(kernel.dims)}):"]
    alias = dict(kernel.alias)
    for number, buffer in enumerate(kernel.buffers):
        axes = ", ".join(printer.size(axis) for axis in buffer.axes)
        shares = f" may share {printer.buffer(alias[number])}" if number in alias else ""
        lines.append(f"  {buffer.role} {buffer.name}: {buffer.dtype}[{axes}]{shares}")
    return "\n".join([*lines, *printer.body(), ""])

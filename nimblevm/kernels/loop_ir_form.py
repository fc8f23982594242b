"""The serialized form of a loop-IR body (docs/format.md, "Serialized loop IR"), and the structural hash on top of it.

A body is written as three flat arrays: expressions in postorder (equal ones once), statements in preorder, and lists
of indices. Buffers, dims and alias pairs are not in it: they are the signature, which the file's kernel table holds.
Nothing recurses, so depth is limited by memory alone.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from functools import partial

from nimblevm.abi import MAX_DIMS, MAX_OPERANDS
from nimblevm.dtypes import BY_NAME, BY_NUMBER, DType
from nimblevm.kernels import loop_ir as ir

MAGIC = b"NLIR"
VERSION = 1
HEADER = struct.Struct("<4s7I")
RECORD = struct.Struct("<4B3I")
MAX_NODES, MAX_STATEMENTS, MAX_NESTING, MAX_LOCALS = 1 << 20, 1 << 16, 32, 4096

# Numbers in files: what came later stands at the end.
_LATER = ir.UNARY_FLOAT[ir.UNARY_FLOAT.index("log2") :]
UNARY_OPS = (
    *ir.UNARY_FLOAT[: -len(_LATER)],
    "bitnot",
    *ir.UNARY_BOOL,
    *ir.UNARY_TEST,
    *_LATER,
    *ir.UNARY_BITS,
)
NODE_KINDS = ("Const", "LoopVar", "Local", "DimRef", "Load", "Unary", "Binary", "Compare", "Select",
              "Cast", "CheckIndex")  # fmt: skip
STATEMENT_KINDS = ("For", "Store", "SetLocal", "Accumulate", "If", "SetDim")
_KIND = {name: number for number, name in enumerate(NODE_KINDS)}
_STATEMENT = {name: number for number, name in enumerate(STATEMENT_KINDS)}


def operands(value: ir.Value) -> tuple[ir.Value, ...]:
    """The expressions that `value` is computed from, in order of evaluation."""
    match value:
        case ir.Load(indices=indices):
            return indices
        case ir.Unary(operand=operand) | ir.Cast(operand=operand):
            return (operand,)
        case ir.Binary(lhs=lhs, rhs=rhs) | ir.Compare(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
        case ir.Select(cond=cond, if_true=if_true, if_false=if_false):
            return (cond, if_true, if_false)
        case ir.CheckIndex(index=index, bound=bound):
            return (index, bound)
        case ir.Const() | ir.LoopVar() | ir.Local() | ir.DimRef():
            return ()
        case _:
            raise TypeError(f"loop IR: not an expression: {type(value).__name__}")


def roots(statement: ir.Statement) -> tuple[ir.Value, ...]:
    """The expressions that stand in the statement itself (not in statements inside it)."""
    match statement:
        case ir.For(extent=extent):
            return (extent,)
        case ir.Store(indices=indices, value=value):
            return (*indices, value)
        case ir.SetLocal(value=value) | ir.Accumulate(value=value) | ir.SetDim(value=value):
            return (value,)
        case ir.If(cond=cond):
            return (cond,)
        case _:
            raise TypeError(f"loop IR: not a statement: {type(statement).__name__}")


def postorder(values: tuple[ir.Value, ...], seen: set[int]) -> Iterator[ir.Value]:
    """Every expression under `values` that is not in `seen` (ids), operands first; adds what it yields."""
    stack: list[tuple[ir.Value, bool]] = [(value, False) for value in reversed(values)]
    while stack:
        value, ready = stack.pop()
        if id(value) in seen:
            continue
        if ready:
            seen.add(id(value))
            yield value
            continue
        stack.append((value, True))
        stack.extend((operand, False) for operand in reversed(operands(value)))


def const_bits(dtype: DType, value: bool | int | float) -> int:
    """The 64 bits that a Const record holds: integers sign-extended, floats as their IEEE bits."""
    if dtype.is_float:
        code = {2: ("<e", "<H"), 4: ("<f", "<I"), 8: ("<d", "<Q")}[dtype.itemsize]
        return int(struct.unpack(code[1], struct.pack(code[0], float(value)))[0])
    return int(value) & (1 << 64) - 1


def const_value(dtype: DType, bits: int) -> bool | int | float:
    """Inverse of const_bits."""
    if dtype.is_float:
        code = {2: ("<e", "<H"), 4: ("<f", "<I"), 8: ("<d", "<Q")}[dtype.itemsize]
        return float(struct.unpack(code[0], struct.pack(code[1], bits))[0])
    if dtype.is_bool:
        return bool(bits)
    return bits - (1 << 64) if dtype.is_signed and bits >> 63 else bits


class _Writer:
    """Collects the arrays. Equal records share one number, so equal expressions do too."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, int] = {}
        self.records: list[bytes] = []
        self.statements: list[bytes] = []
        self.indices: list[int] = []
        self.index_lists: dict[tuple[int, ...], int] = {}
        self.loop_vars: dict[int, int] = {}
        self.locals: dict[int, int] = {}
        self.local_dtypes: list[int] = []
        self.number: dict[int, int] = {}
        self.seen: set[int] = set()

    def index_list(self, indices: tuple[ir.Value, ...]) -> int:
        numbers = tuple(self.number[id(index)] for index in indices)
        if numbers not in self.index_lists:
            self.index_lists[numbers] = len(self.indices)
            self.indices.extend(numbers)
        return self.index_lists[numbers]

    def local(self, local: ir.Local) -> int:
        if id(local) not in self.locals:
            self.locals[id(local)] = len(self.local_dtypes)
            self.local_dtypes.append(BY_NAME[local.dtype].number)
        return self.locals[id(local)]

    def loop_var(self, var: ir.LoopVar) -> int:
        return self.loop_vars.setdefault(id(var), len(self.loop_vars))

    def fields(self, value: ir.Value) -> tuple[int, int, int, int, int]:
        """op, rank, a, b, c of a record."""
        number = self.number
        match value:
            case ir.Const(value=literal):
                bits = const_bits(BY_NAME[value.dtype], literal)
                return 0, 0, 0, bits & 0xFFFFFFFF, bits >> 32
            case ir.LoopVar():
                return 0, 0, self.loop_var(value), 0, 0
            case ir.Local():
                return 0, 0, self.local(value), 0, 0
            case ir.DimRef(index=index):
                return 0, 0, index, 0, 0
            case ir.Load(buffer=buffer, indices=indices):
                return 0, len(indices), buffer, self.index_list(indices), 0
            case ir.Unary(op=op, operand=operand):
                return UNARY_OPS.index(op), 0, number[id(operand)], 0, 0
            case ir.Binary(op=op, lhs=lhs, rhs=rhs):
                return ir.BINARY.index(op), 0, number[id(lhs)], number[id(rhs)], 0
            case ir.Compare(op=op, lhs=lhs, rhs=rhs):
                return ir.COMPARE.index(op), 0, number[id(lhs)], number[id(rhs)], 0
            case ir.Select(cond=cond, if_true=if_true, if_false=if_false):
                return 0, 0, number[id(cond)], number[id(if_true)], number[id(if_false)]
            case ir.Cast(operand=operand):
                return 0, 0, number[id(operand)], 0, 0
            case ir.CheckIndex(index=index, bound=bound, operand=operand_number):
                return 0, 0, number[id(index)], number[id(bound)], operand_number
            case _:
                raise TypeError(f"loop IR: not an expression: {type(value).__name__}")

    def expressions(self, values: tuple[ir.Value, ...]) -> None:
        for value in postorder(values, self.seen):
            op, rank, a, b, c = self.fields(value)
            kind = _KIND[type(value).__name__]
            record = RECORD.pack(kind, BY_NAME[value.dtype].number, op, rank, a, b, c)
            known = self.nodes.setdefault(record, len(self.records))
            if known == len(self.records):
                self.records.append(record)
            self.number[id(value)] = known


def _close(writer: _Writer, place: int, field: int) -> None:
    """Write the number of the next statement into field b (2) or c (3) of an earlier one."""
    record = writer.statements[place]
    at = 4 + 4 * (field - 1)
    writer.statements[place] = (
        record[:at] + struct.pack("<I", len(writer.statements)) + record[at + 4 :]
    )


def _statement(writer: _Writer, statement: ir.Statement) -> bytes:
    writer.expressions(roots(statement))
    number = writer.number
    op = rank = a = b = c = 0
    match statement:
        case ir.For(var=var, extent=extent, parallel=parallel):
            op, a, b = int(parallel), writer.loop_var(var), number[id(extent)]
        case ir.Store(buffer=buffer, indices=indices, value=value):
            rank, a, b, c = len(indices), buffer, writer.index_list(indices), number[id(value)]
        case ir.SetLocal(local=local, value=value):
            a, b = writer.local(local), number[id(value)]
        case ir.Accumulate(local=local, op=name, value=value):
            op, a, b = ir.ACCUMULATE.index(name), writer.local(local), number[id(value)]
        case ir.If(cond=cond):
            a = number[id(cond)]
        case ir.SetDim(index=index, value=value):
            a, b = index, number[id(value)]
        case _:
            raise TypeError(f"loop IR: not a statement: {type(statement).__name__}")
    return RECORD.pack(_STATEMENT[type(statement).__name__], 0, op, rank, a, b, c)


def beyond_limits(kernel: ir.Kernel) -> str:
    """What of a kernel is more than a file holds, "" if nothing. Cost: O(statements)."""
    deepest = count = 0
    local_vars: set[int] = set()
    stack = [(statement, 1) for statement in kernel.body]
    while stack:
        statement, depth = stack.pop()
        count += 1
        match statement:
            case ir.For(body=body):
                stack += [(inner, depth + 1) for inner in body]
            case ir.If(then=then, otherwise=otherwise):
                stack += [(inner, depth + 1) for inner in (*then, *otherwise)]
            case _:
                if isinstance(statement, ir.SetLocal):
                    local_vars.add(id(statement.local))
                continue
        deepest = max(deepest, depth)
    strides = sum(axis.broadcast for buffer in kernel.buffers for axis in buffer.axes)
    sizes = len(kernel.dims) + kernel.out_dims + strides
    found = (
        ("operands and results", len(kernel.buffers), MAX_OPERANDS),
        ("sizes and strides", sizes, MAX_DIMS),
        ("loops and branches in each other", deepest, MAX_NESTING),
        ("statements", count, MAX_STATEMENTS),
        ("local variables", len(local_vars), MAX_LOCALS),
    )
    return next(
        (
            f"{n:,} {what}, where a kernel has at most {most:,}"
            for what, n, most in found
            if n > most
        ),
        "",
    )


def serialize(kernel: ir.Kernel) -> bytes:
    """The body as bytes, a multiple of 8. The kernel must be valid (loop_ir_validate.validate)."""
    writer = _Writer()
    todo: list[ir.Statement | Callable[[], None]] = list(reversed(kernel.body))
    while todo:
        item = todo.pop()
        if not isinstance(item, ir.Statement):
            item()
            continue
        place = len(writer.statements)
        record = _statement(writer, item)
        writer.statements.append(record)
        if isinstance(item, ir.For):
            todo.append(partial(_close, writer, place, 3))
            todo.extend(reversed(item.body))
        elif isinstance(item, ir.If):
            todo.append(partial(_close, writer, place, 3))
            todo.extend(reversed(item.otherwise))
            todo.append(partial(_close, writer, place, 2))
            todo.extend(reversed(item.then))
    counts = (len(writer.records), len(writer.statements), len(writer.indices))
    data = HEADER.pack(
        MAGIC,
        VERSION,
        *counts,
        len(writer.local_dtypes),
        len(writer.loop_vars),
        len(kernel.buffers),
    )
    data += b"".join(writer.records) + b"".join(writer.statements)
    data += struct.pack(f"<{len(writer.indices)}I", *writer.indices) + bytes(writer.local_dtypes)
    return data + bytes(-len(data) % 8)


def structural_hash(kernel: ir.Kernel) -> str:
    """Hex digest that two kernels share if they compute the same from the same signature; names do not count."""
    digest = hashlib.sha256(serialize(kernel))
    for buffer in kernel.buffers:
        axes = tuple(ir.SetDim(0, axis.size) for axis in buffer.axes)
        sizes = serialize(ir.Kernel("", (), kernel.dims, axes))
        flags = bytes(axis.broadcast for axis in buffer.axes)
        digest.update(f"{buffer.dtype} {buffer.role} {len(flags)} {len(sizes)}".encode())
        digest.update(flags + sizes)
    digest.update(f"{len(kernel.dims)} {kernel.out_dims} {kernel.alias}".encode())
    return digest.hexdigest()


class _Reader:
    """Rebuilds nodes from the arrays; for tests and tools, so it trusts `data` (C checks it)."""

    def __init__(self, data: bytes) -> None:
        magic, version, n_nodes, n_statements, n_indices, n_locals, n_vars, self.n_buffers = (
            HEADER.unpack_from(data)
        )
        if magic != MAGIC or version != VERSION:
            raise ValueError(
                f"loop IR: expected {MAGIC!r} version {VERSION}, got {magic!r} {version}"
            )
        at = HEADER.size
        size = at + RECORD.size * (n_nodes + n_statements) + 4 * n_indices + n_locals
        if len(data) != size + -size % 8:
            raise ValueError(f"loop IR: expected {size + -size % 8} bytes, got {len(data)}")
        nodes = list(RECORD.iter_unpack(data[at : at + RECORD.size * n_nodes]))
        at += RECORD.size * n_nodes
        self.statements = list(RECORD.iter_unpack(data[at : at + RECORD.size * n_statements]))
        at += RECORD.size * n_statements
        self.indices = struct.unpack_from(f"<{n_indices}I", data, at)
        at += 4 * n_indices
        self.locals = [
            ir.Local(BY_NUMBER[number].name, f"t{k}")
            for k, number in enumerate(data[at : at + n_locals])
        ]
        self.vars = [ir.LoopVar("int64", f"i{k}") for k in range(n_vars)]
        self.values: list[ir.Value] = []
        for record in nodes:
            self.values.append(self.value(*record))

    def list(self, first: int, rank: int) -> tuple[ir.Value, ...]:
        return tuple(self.values[number] for number in self.indices[first : first + rank])

    def value(self, kind: int, dtype: int, op: int, rank: int, a: int, b: int, c: int) -> ir.Value:
        row, values = BY_NUMBER[dtype], self.values
        match NODE_KINDS[kind]:
            case "Const":
                return ir.Const(row.name, const_value(row, b | c << 32))
            case "LoopVar":
                return self.vars[a]
            case "Local":
                return self.locals[a]
            case "DimRef":
                return ir.DimRef(row.name, a)
            case "Load":
                return ir.Load(row.name, a, self.list(b, rank))
            case "Unary":
                return ir.Unary(row.name, UNARY_OPS[op], values[a])
            case "Binary":
                return ir.Binary(row.name, ir.BINARY[op], values[a], values[b])
            case "Compare":
                return ir.Compare(row.name, ir.COMPARE[op], values[a], values[b])
            case "Select":
                return ir.Select(row.name, values[a], values[b], values[c])
            case "Cast":
                return ir.Cast(row.name, values[a])
            case _:
                return ir.CheckIndex(row.name, values[a], values[b], c)

    def body(self) -> tuple[ir.Statement, ...]:
        """Statements rebuilt from the last to the first, each taking what it encloses from `done`."""
        done: dict[int, tuple[ir.Statement, int]] = {}
        count = len(self.statements)

        def block(first: int, end: int) -> tuple[ir.Statement, ...]:
            found: list[ir.Statement] = []
            while first < end:
                statement, first = done[first]
                found.append(statement)
            return tuple(found)

        for place in range(count - 1, -1, -1):
            kind, _, op, rank, a, b, c = self.statements[place]
            end = place + 1
            statement: ir.Statement
            match STATEMENT_KINDS[kind]:
                case "For":
                    end = c
                    statement = ir.For(
                        self.vars[a], self.values[b], block(place + 1, c), parallel=bool(op)
                    )
                case "Store":
                    statement = ir.Store(a, self.list(b, rank), self.values[c])
                case "SetLocal":
                    statement = ir.SetLocal(self.locals[a], self.values[b])
                case "Accumulate":
                    statement = ir.Accumulate(self.locals[a], ir.ACCUMULATE[op], self.values[b])
                case "If":
                    end = c
                    statement = ir.If(self.values[a], block(place + 1, b), block(b, c))
                case _:
                    statement = ir.SetDim(a, self.values[b])
            done[place] = (statement, end)
        return block(0, count)


def deserialize(data: bytes, signature: ir.Kernel) -> ir.Kernel:
    """The kernel of `data` under the name, buffers and dims of `signature` (whose body is ignored).

    Raises ValueError for bytes that are no body of this version or do not fit the number of buffers.
    """
    reader = _Reader(data)
    if reader.n_buffers != len(signature.buffers):
        raise ValueError(
            f"loop IR: expected {len(signature.buffers)} buffers, got {reader.n_buffers}"
        )
    return ir.Kernel(
        signature.name,
        signature.buffers,
        signature.dims,
        reader.body(),
        signature.out_dims,
        signature.alias,
    )


def emit_c_header() -> str:
    """native/include/generated/nvm_loop_ir.h: the numbers of the serialized form as C enums."""
    lines = [
        "/* generated by native/gen_tables.py from kernels/loop_ir_form.py, do not edit */",
        "/* clang-format off */",
        "#ifndef NVM_LOOP_IR_H",
        "#define NVM_LOOP_IR_H",
        "",
    ]
    lines.append(f"#define NVM_IR_VERSION {VERSION}u")
    lines += ["", "/* Limits of a body; a larger one is refused. */"]
    limits = (("NODES", f"{MAX_NODES}u"), ("STATEMENTS", f"{MAX_STATEMENTS}u"), ("NESTING", MAX_NESTING),
              ("LOCALS", MAX_LOCALS))  # fmt: skip
    lines += [f"#define NVM_IR_MAX_{name} {limit}" for name, limit in limits]
    families = (("NODE", NODE_KINDS), ("STMT", STATEMENT_KINDS), ("UNARY", UNARY_OPS), ("BINARY", ir.BINARY),
                ("COMPARE", ir.COMPARE), ("ACC", ir.ACCUMULATE))  # fmt: skip
    for family, names in families:
        rows = [f"  NVM_IR_{family}_{name.upper()} = {k}," for k, name in enumerate(names)]
        lines += ["", f"enum nvm_ir_{family.lower()} {{", *rows]
        lines += [f"  NVM_IR_{family}_COUNT = {len(names)}", "};"]
    return "\n".join([*lines, "", "#endif", ""])

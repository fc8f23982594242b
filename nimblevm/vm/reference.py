"""The rows of the instruction set that call no kernel, in Python: the oracle of native/src/interp.c.

Written for clarity, not speed. Values: tensors are numpy arrays (they share memory where the VM's do), ADT values,
closures, refs and storage blocks are the small classes below. Calls use an explicit stack.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm.bytecode import isa
from nimblevm.bytecode.serialize import (
    TYPE_ADT,
    TYPE_TENSOR,
    ConstructorRecord,
    FunctionRecord,
    ProgramRecord,
)
from nimblevm.errors import (
    DimOverflow,
    DivisionByZero,
    FunctionNotFound,
    IndexOutOfRange,
    InstructionLimit,
    MatchFailure,
    MemoryLimit,
    NullValue,
    OperandMismatch,
    ShapeMismatch,
    Unsupported,
    ValueKindError,
)

INT64_MAX = (1 << 63) - 1
APPENDED_BYTES = (
    1 << 28
)  # that Append may make in one run: a loop that doubles would take all memory
MAX_NODES = 1 << 15  # of Linearize: a value that holds another one twice has more than memory


@dataclass(eq=False, slots=True)
class Storage:
    """A block of memory; `memory` is a uint8 array."""

    memory: np.ndarray[Any, Any]


@dataclass(eq=False, slots=True)
class Adt:
    """ctor is an index into the program's constructors, 0 = tuple."""

    ctor: int
    fields: tuple[Any, ...]


@dataclass(eq=False, slots=True)
class Closure:
    func: int
    captures: tuple[Any, ...]


@dataclass(eq=False, slots=True)
class Ref:
    value: Any


@dataclass(eq=False, slots=True)
class _Frame:
    function: FunctionRecord
    ints: list[int]
    objs: list[Any]
    pc: int = 0
    target: int = 0  # where the value of the call under way goes: an ANY_OUT word
    decoded: dict[int, tuple[isa.Row, list[Any], int]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Node:
    """A node of a tree; level: 0 without children, else one more than the highest of them."""

    value: Adt
    ctor: ConstructorRecord
    children: dict[int, _Node] = field(default_factory=dict)
    level: int = 0


def extend(dtype: int, value: int) -> int:
    """Cut to the dtype's width and re-extend to int64; bool: value != 0."""
    row = dtypes.BY_NUMBER[dtype]
    if row.is_bool:
        return int(value != 0)
    value &= (1 << row.bits) - 1
    return value - (1 << row.bits) if row.is_signed and value >> (row.bits - 1) else value


def _truncated(a: int, b: int) -> int:
    return -(-a // b) if (a < 0) != (b < 0) else a // b


def _divide(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def divide(a: int, b: int) -> int:
        if b == 0:
            raise DivisionByZero("integer division by zero")
        return function(a, b)

    return divide


INT_ROWS: dict[str, Callable[[int, int], int]] = {
    "IntAdd": operator.add,
    "IntSub": operator.sub,
    "IntMul": operator.mul,
    "IntDiv": _divide(_truncated),
    "IntMod": _divide(lambda a, b: a - b * _truncated(a, b)),
    "IntFloorDiv": _divide(operator.floordiv),
    "IntFloorMod": _divide(operator.mod),
    "IntMin": min,
    "IntMax": max,
    "IntAnd": operator.and_,
    "IntOr": operator.or_,
    "IntXor": operator.xor,
}
COMPARE_ROWS: dict[str, Callable[[int, int], bool]] = {
    "IntEq": operator.eq,
    "IntNe": operator.ne,
    "IntLt": operator.lt,
    "IntLe": operator.le,
}
DIM_ROWS: dict[str, Callable[[int, int], int]] = {
    "DimAdd": operator.add,
    "DimSub": operator.sub,
    "DimMul": operator.mul,
    "DimFloorDiv": _divide(operator.floordiv),
    "DimFloorMod": _divide(operator.mod),
    "DimMin": min,
    "DimMax": max,
}


def _shape(dims: Sequence[int], itemsize: int) -> int:
    """Elements of a tensor of these dims; DimOverflow for a negative dim or a size beyond int64."""
    elements, bound = 1, itemsize
    for dim in dims:
        if dim < 0:
            raise DimOverflow(f"an axis of a tensor would have size {dim}")
        elements *= dim
        bound *= dim or 1
    if bound > INT64_MAX and elements:
        raise DimOverflow("a tensor is too large")
    return elements


class ReferenceVM:
    """Runs functions of a program. Only rows without kernels: CallKernel raises Unsupported."""

    def __init__(self, program: ProgramRecord) -> None:
        self.program = program
        self.functions = {f.name: f for f in program.functions}
        self.frames: list[_Frame] = []
        self.result: Any = None
        self.appended = 0
        self._code: dict[int, dict[int, tuple[isa.Row, list[Any], int]]] = {}
        self.constants = [
            np.frombuffer(bytes(c.data), dtypes.BY_NUMBER[c.dtype].numpy).reshape(c.dims)
            for c in program.constants
        ]

    def run(self, name: str, *args: Any, steps: int = 10_000_000) -> Any:
        """The result of a function (an int if it returns in an int register). Object arguments are numpy arrays or
        values of this module, int arguments ints. Raises what the VM raises; InstructionLimit after `steps` rows,
        MemoryLimit when appends have made APPENDED_BYTES."""
        if name not in self.functions:
            raise FunctionNotFound(f"there is no function @{name}")
        self.frames = []
        self.appended = 0
        self._push(self.functions[name], args)
        for _ in range(steps):
            if not self.frames:
                return self.result
            frame = self.frames[-1]
            row, operands, frame.pc = self._decode(frame)
            self._execute(frame, row.mnemonic, operands)
        raise InstructionLimit(f"more than {steps} instructions")

    # --- frames and operands ---

    def _push(self, f: FunctionRecord, args: Sequence[Any]) -> None:
        frame = _Frame(f, [0] * f.ints, [None] * f.objs)
        frame.decoded = self._code.setdefault(id(f), {})
        ints = objs = 0
        for param, value in zip(f.params, args, strict=True):
            if param.is_int:
                frame.ints[ints] = value
                ints += 1
            else:
                frame.objs[objs] = value
                objs += 1
        self.frames.append(frame)

    @staticmethod
    def _decode(frame: _Frame) -> tuple[isa.Row, list[Any], int]:
        known = frame.decoded.get(frame.pc)
        if known is not None:
            return known
        code, at = frame.function.code, frame.pc + 1
        row = isa.BY_NUMBER[code[frame.pc]]
        operands: list[Any] = []
        for operand in row.operands:
            if operand.kind is isa.Kind.IMM64:
                value = code[at] | code[at + 1] << 32
                operands.append(value - (1 << 64) if value >> 63 else value)
                at += 2
            elif operand.kind in isa.LIST_ELEMENT:
                operands.append(tuple(code[at + 1 : at + 1 + code[at]]))
                at += 1 + code[at]
            else:
                operands.append(code[at])
                at += 1
        frame.decoded[frame.pc] = row, operands, at
        return row, operands, at

    @staticmethod
    def _obj(frame: _Frame, index: int, kind: type | None = None) -> Any:
        value = frame.objs[index]
        if value is None:
            raise NullValue(f"register r{index} holds nothing")
        if kind is not None and not isinstance(value, kind):
            raise ValueKindError(f"register r{index}: expected a {kind.__name__}")
        return value

    def _any(self, frame: _Frame, word: int) -> Any:
        return frame.ints[word & ~isa.INT_BIT] if word & isa.INT_BIT else self._obj(frame, word)

    @staticmethod
    def _dim(frame: _Frame, word: int) -> int:
        return frame.ints[word & ~isa.INT_BIT] if word & isa.INT_BIT else word

    def _dims(self, frame: _Frame, words: Sequence[int]) -> tuple[int, ...]:
        if len(words) > 8:
            raise OperandMismatch(f"a tensor of rank {len(words)}")
        return tuple(self._dim(frame, w) for w in words)

    def _note(self, index: int, text: str) -> str:
        note = self.program.notes[index].text
        return f"{text}: {note}" if note else text

    # --- rows ---

    def _execute(self, frame: _Frame, mnemonic: str, operands: list[Any]) -> None:
        if mnemonic in INT_ROWS:
            dst, a, b, dtype = operands
            frame.ints[dst] = extend(dtype, INT_ROWS[mnemonic](frame.ints[a], frame.ints[b]))
        elif mnemonic in COMPARE_ROWS:
            dst, a, b = operands
            frame.ints[dst] = int(COMPARE_ROWS[mnemonic](frame.ints[a], frame.ints[b]))
        elif mnemonic in DIM_ROWS:
            dst, a, b = operands
            value = DIM_ROWS[mnemonic](self._dim(frame, a), self._dim(frame, b))
            if not -INT64_MAX - 1 <= value <= INT64_MAX:
                raise DimOverflow(f"dim arithmetic: {value} exceeds int64")
            frame.ints[dst] = value
        else:
            getattr(self, f"row_{mnemonic}")(frame, *operands)

    def row_Move(self, frame: _Frame, dst: int, src: int) -> None:
        frame.objs[dst] = self._obj(frame, src)

    def row_MoveInt(self, frame: _Frame, dst: int, src: int) -> None:
        frame.ints[dst] = frame.ints[src]

    def row_Ret(self, frame: _Frame, src: int) -> None:
        value = self._any(frame, src)
        self.frames.pop()
        if not self.frames:
            self.result = value
            return
        caller = self.frames[-1]
        target = caller.target
        if target & isa.INT_BIT:
            caller.ints[target & ~isa.INT_BIT] = value
        else:
            caller.objs[target] = value

    def row_Invoke(self, frame: _Frame, dst: int, func: int, args: tuple[int, ...]) -> None:
        values = [self._any(frame, a) for a in args]
        frame.target = dst
        self._push(self.program.functions[func], values)

    def row_InvokeTail(self, frame: _Frame, func: int, args: tuple[int, ...]) -> None:
        values = [self._any(frame, a) for a in args]
        self.frames.pop()
        self._push(self.program.functions[func], values)

    def _closure(
        self, frame: _Frame, closure: int, args: tuple[int, ...]
    ) -> tuple[FunctionRecord, list[Any]]:
        value = self._obj(frame, closure, Closure)
        callee = self.program.functions[value.func]
        if len(value.captures) + len(args) != len(callee.params):
            raise ValueKindError(f"a closure of @{callee.name} takes another number of arguments")
        return callee, [*value.captures, *(self._obj(frame, a) for a in args)]

    def row_InvokeClosure(
        self, frame: _Frame, dst: int, closure: int, args: tuple[int, ...]
    ) -> None:
        callee, values = self._closure(frame, closure, args)
        frame.target = dst
        self._push(callee, values)

    def row_InvokeClosureTail(self, frame: _Frame, closure: int, args: tuple[int, ...]) -> None:
        callee, values = self._closure(frame, closure, args)
        self.frames.pop()
        self._push(callee, values)

    def row_If(self, frame: _Frame, cond: int, otherwise: int) -> None:
        if frame.ints[cond] == 0:
            frame.pc = otherwise

    def row_Goto(self, frame: _Frame, target: int) -> None:
        frame.pc = target

    def row_Switch(self, frame: _Frame, tag: int, targets: tuple[int, ...]) -> None:
        if not 0 <= frame.ints[tag] < len(targets):
            raise MatchFailure(f"no case for tag {frame.ints[tag]}")
        frame.pc = targets[frame.ints[tag]]

    def row_Fatal(self, frame: _Frame, note: int) -> None:
        raise MatchFailure(self._note(note, "no clause of a match applies"))

    def row_LoadConst(self, frame: _Frame, dst: int, const: int) -> None:
        frame.objs[dst] = self.constants[const]

    def row_LoadConsti(self, frame: _Frame, dst: int, value: int) -> None:
        frame.ints[dst] = value

    def row_Box(self, frame: _Frame, dst: int, src: int, dtype: int) -> None:
        name = dtypes.BY_NUMBER[dtype].numpy
        frame.objs[dst] = np.array(extend(dtype, frame.ints[src]), name)

    def row_Unbox(self, frame: _Frame, dst: int, src: int, dtype: int) -> None:
        tensor = self._obj(frame, src, np.ndarray)
        if tensor.ndim != 0 or tensor.dtype != dtypes.BY_NUMBER[dtype].numpy:
            raise ValueKindError(
                f"register r{src}: expected a scalar {dtypes.BY_NUMBER[dtype].name}"
            )
        frame.ints[dst] = int(tensor)

    def row_DimOf(self, frame: _Frame, dst: int, src: int, axis: int) -> None:
        tensor = self._obj(frame, src, np.ndarray)
        if axis >= tensor.ndim:
            raise IndexOutOfRange(f"axis {axis} of a tensor of rank {tensor.ndim}")
        frame.ints[dst] = tensor.shape[axis]

    def row_CheckDim(self, frame: _Frame, actual: int, expected: int, note: int) -> None:
        got, wanted = self._dim(frame, actual), self._dim(frame, expected)
        if got != wanted:
            raise ShapeMismatch(self._note(note, f"dim mismatch: expected {wanted}, got {got}"))

    def row_Broadcast(self, frame: _Frame, dst: int, a: int, b: int, note: int) -> None:
        one, two = self._dim(frame, a), self._dim(frame, b)
        if one != two and 1 not in (one, two):
            raise ShapeMismatch(self._note(note, f"dims {one} and {two} can't be broadcast"))
        frame.ints[dst] = two if one == 1 else one

    def _vector(self, dims: Sequence[int], dtype: int) -> np.ndarray[Any, Any]:
        for dim in dims:
            if extend(dtype, dim) != dim:
                raise DimOverflow(f"dim {dim} does not fit {dtypes.BY_NUMBER[dtype].name}")
        return np.array(dims, dtypes.BY_NUMBER[dtype].numpy)

    def row_ShapeOf(self, frame: _Frame, dst: int, src: int, dtype: int) -> None:
        frame.objs[dst] = self._vector(self._obj(frame, src, np.ndarray).shape, dtype)

    def row_PackShape(self, frame: _Frame, dst: int, dims: tuple[int, ...], dtype: int) -> None:
        frame.objs[dst] = self._vector([self._dim(frame, d) for d in dims], dtype)

    def row_ReadInt(self, frame: _Frame, dst: int, src: int, index: int) -> None:
        tensor, at = self._obj(frame, src, np.ndarray), self._dim(frame, index)
        if tensor.dtype.kind == "f":
            raise ValueKindError(f"register r{src}: expected an integer or bool tensor")
        if not 0 <= at < tensor.size:
            raise IndexOutOfRange(f"index {at} is outside of a tensor of {tensor.size} elements")
        value = int(tensor.flat[at])
        frame.ints[dst] = value - (1 << 64) if value > INT64_MAX else value

    def row_AllocStorage(
        self, frame: _Frame, dst: int, size: int, _alignment: int, _device: int
    ) -> None:
        n_bytes = self._dim(frame, size)
        if n_bytes < 0:
            raise DimOverflow(f"a storage block would have {n_bytes} bytes")
        frame.objs[dst] = Storage(np.zeros(n_bytes, np.uint8))

    def row_AllocTensor(
        self, frame: _Frame, dst: int, storage: int, offset: int, dims: tuple[int, ...], dtype: int,
        _device: int,
    ) -> None:  # fmt: skip
        row = dtypes.BY_NUMBER[dtype]
        shape = self._dims(frame, dims)
        if storage == isa.NO_REGISTER:
            _shape(shape, row.itemsize)
            frame.objs[dst] = np.zeros(shape, row.numpy)
            return
        block = self._obj(frame, storage, Storage).memory
        start = self._dim(frame, offset)
        count = _shape(shape, row.itemsize)
        if start < 0 or start + count * row.itemsize > block.size or start % row.itemsize:
            raise IndexOutOfRange(f"a tensor at byte {start} does not fit a block of {block.size}")
        data = block[start : start + count * row.itemsize]
        frame.objs[dst] = data.view(row.numpy).reshape(shape)

    def row_View(
        self, frame: _Frame, dst: int, src: int, offset: int, dims: tuple[int, ...]
    ) -> None:
        tensor = self._obj(frame, src, np.ndarray)
        shape, start = self._dims(frame, dims), self._dim(frame, offset)
        count = _shape(shape, tensor.itemsize)
        if start < 0 or start + count > tensor.size:
            raise IndexOutOfRange(f"a view at element {start} reaches outside of its tensor")
        frame.objs[dst] = tensor.reshape(-1)[start : start + count].reshape(shape)

    def row_ReshapeTensor(
        self, frame: _Frame, dst: int, src: int, dims: tuple[int, ...], note: int
    ) -> None:
        tensor = self._obj(frame, src, np.ndarray)
        shape = self._dims(frame, dims)
        if _shape(shape, tensor.itemsize) != tensor.size:
            raise ShapeMismatch(self._note(note, "reshape to another number of elements"))
        frame.objs[dst] = tensor.reshape(shape)

    def row_Shrink(self, frame: _Frame, dst: int, src: int, size: int) -> None:
        tensor, first = self._obj(frame, src, np.ndarray), self._dim(frame, size)
        if tensor.ndim == 0 or not 0 <= first <= tensor.shape[0]:
            raise IndexOutOfRange(f"a first axis can't shrink to {first}")
        frame.objs[dst] = tensor[:first]

    def row_Append(self, frame: _Frame, dst: int, src: int, tail: int, axis: int) -> None:
        first, second = self._obj(frame, src, np.ndarray), self._obj(frame, tail, np.ndarray)
        if first.dtype != second.dtype or first.ndim != second.ndim:
            raise ValueKindError(f"a {second.dtype} can't be appended to a {first.dtype} tensor")
        if axis >= first.ndim:
            raise IndexOutOfRange(f"axis {axis} of a tensor of rank {first.ndim}")
        one, two = list(first.shape), list(second.shape)
        if one[:axis] != [1] * axis or two[:axis] + two[axis + 1 :] != one[:axis] + one[axis + 1 :]:
            raise ShapeMismatch(f"{two} can't be appended to {one} along axis {axis}")
        self.appended += first.nbytes + second.nbytes
        if self.appended > APPENDED_BYTES:
            raise MemoryLimit(f"appends made more than {APPENDED_BYTES} bytes")
        frame.objs[dst] = np.concatenate((first, second), axis)

    def row_Linearize(self, frame: _Frame, dst: int, src: int, type_: int) -> None:
        root, adt = self._obj(frame, src, Adt), self.program.constructors[type_].adt
        if adt < 0:
            raise ValueKindError("tuples have no nodes of one type")
        frame.objs[dst] = Adt(0, tuple(self._tables(self._nodes(root, adt), adt)))

    def _field_kind(self, type_: int, adt: int) -> str:
        number, *rest = self.program.types[type_]
        if number == TYPE_ADT and rest == [adt]:
            return "child"
        static = number == TYPE_TENSOR and len(rest) < 9 and all(d >= 0 for d in rest[1:])
        return "table" if static else ""

    def _nodes(self, root: Any, adt: int) -> list[_Node]:
        """The nodes breadth first, with their levels."""
        nodes: list[_Node] = []
        waiting: list[tuple[Any, _Node | None, int]] = [(root, None, 0)]
        for value, parent, field_ in waiting:  # grows
            if not isinstance(value, Adt) or self.program.constructors[value.ctor].adt != adt:
                raise ValueKindError(f"expected a value of type {self.program.adts[adt].name}")
            node = _Node(value, self.program.constructors[value.ctor])
            nodes.append(node)
            if parent is not None:
                parent.children[field_] = node
            for index, type_ in enumerate(node.ctor.fields):
                if self._field_kind(type_, adt) == "child":
                    waiting.append((value.fields[index], node, index))
            if len(nodes) > MAX_NODES:
                raise InstructionLimit(f"a tree of more than {MAX_NODES} nodes")
        for node in reversed(nodes):
            node.level = 1 + max((c.level for c in node.children.values()), default=-1)
        return nodes

    def _tables(self, nodes: list[_Node], adt: int) -> list[np.ndarray[Any, Any]]:
        ordered = sorted(nodes, key=lambda n: (n.level, n.ctor.tag))
        rows = {id(node): row for row, node in enumerate(ordered)}
        first = self.program.adts[adt].first
        tables: list[np.ndarray[Any, Any]] = []
        for ctor in self.program.constructors[first : first + self.program.adts[adt].count]:
            own = [n for n in ordered if n.ctor is ctor]
            levels = range(nodes[0].level + 1)
            tables.append(np.array([sum(n.level == i for n in own) for i in levels], "int32"))
            for index, type_ in enumerate(ctor.fields):
                kind = self._field_kind(type_, adt)
                if kind == "child":
                    tables.append(np.array([rows[id(n.children[index])] for n in own], "int32"))
                elif kind:
                    tables.append(self._stacked([n.value.fields[index] for n in own], type_))
        return tables

    def _stacked(self, values: list[Any], type_: int) -> np.ndarray[Any, Any]:
        _, dtype, *dims = self.program.types[type_]
        table = np.empty((len(values), *dims), dtypes.BY_NUMBER[dtype].numpy)
        for row, value in enumerate(values):
            if not isinstance(value, np.ndarray) or value.dtype != table.dtype:
                raise ValueKindError("expected a tensor of the field's type")
            if value.ndim != len(dims):
                raise ValueKindError("expected a tensor of the field's rank")
            if value.shape != tuple(dims):
                raise ShapeMismatch(f"dim mismatch: expected {dims}, got {value.shape}")
            table[row] = value
        return table

    def row_CallKernel(self, frame: _Frame, kernel: int, *_: object) -> None:
        raise Unsupported(f"kernel {self.program.kernels[kernel].name}: the reference has none")

    def row_DeviceCopy(self, frame: _Frame, dst: int, src: int, _device: int) -> None:
        frame.objs[dst] = self._obj(frame, src, np.ndarray).copy()

    def row_KillRegister(self, frame: _Frame, reg: int) -> None:
        frame.objs[reg] = None

    def row_AllocADT(self, frame: _Frame, dst: int, ctor: int, fields: tuple[int, ...]) -> None:
        frame.objs[dst] = Adt(ctor, tuple(self._obj(frame, f) for f in fields))

    def row_AllocClosure(
        self, frame: _Frame, dst: int, func: int, captures: tuple[int, ...]
    ) -> None:
        frame.objs[dst] = Closure(func, tuple(self._obj(frame, c) for c in captures))

    def row_AllocRef(self, frame: _Frame, dst: int, value: int) -> None:
        frame.objs[dst] = Ref(self._obj(frame, value))

    def row_ReadRef(self, frame: _Frame, dst: int, ref: int) -> None:
        frame.objs[dst] = self._obj(frame, ref, Ref).value

    def row_WriteRef(self, frame: _Frame, ref: int, value: int) -> None:
        cell = self._obj(frame, ref, Ref)
        cell.value = self._obj(frame, value)

    def row_GetField(self, frame: _Frame, dst: int, src: int, index: int) -> None:
        fields = self._obj(frame, src, Adt).fields
        if index >= len(fields):
            raise IndexOutOfRange(f"field {index} of a value with {len(fields)} fields")
        frame.objs[dst] = fields[index]

    def row_GetTag(self, frame: _Frame, dst: int, src: int) -> None:
        frame.ints[dst] = self.program.constructors[self._obj(frame, src, Adt).ctor].tag

    def row_IntCast(self, frame: _Frame, dst: int, src: int, dtype: int) -> None:
        frame.ints[dst] = extend(dtype, frame.ints[src])


__all__ = ["Adt", "Closure", "Ref", "ReferenceVM", "Storage", "extend"]

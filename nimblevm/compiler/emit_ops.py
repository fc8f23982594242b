"""Operator calls that are left after manifest_alloc: checks, dims, memory, kernels, scalar
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nimblevm import dtypes
from nimblevm.bytecode.isa import NO_REGISTER
from nimblevm.compiler.code_buffer import Label
from nimblevm.compiler.dim_notes import entry_dims, named
from nimblevm.compiler.emit_dims import INT_BIT
from nimblevm.compiler.liveness import never_read
from nimblevm.compiler.op_class import ARITHMETIC, COMPARISON, OpClass, class_of
from nimblevm.compiler.rewrite import type_of
from nimblevm.errors import CompileError
from nimblevm.kernels.lowered import STEPS, IntParam
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple, Var
from nimblevm.relay.op.registry import Op
from nimblevm.relay.steps import StepLoop
from nimblevm.relay.types import TensorType, TupleType, Type, value_tensors

if TYPE_CHECKING:
    from nimblevm.compiler.emit_function import FunctionEmitter, Place


def emit_alias(fe: FunctionEmitter, value: Expr) -> None:
    """A value that is another name of its operand: only its checks are code."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return
    operand = value.args[0]
    if not isinstance(operand, Var):
        raise CompileError(f"{value.op.name} needs a variable as operand")
    if value.op.name == "vm.match_type":
        _match_type(fe, operand, value)
    elif value.op.name == "vm.bind_dim":
        register = fe.ints.take()
        fe.code.emit("MoveInt", register, fe.integer(operand))
        if value.attrs.where:
            _check_not_negative(fe, register, value)
        fe.dims.bind(value.attrs.dim, register)
    else:
        _check_broadcast(fe, operand, value)


def _match_type(fe: FunctionEmitter, operand: Var, value: Call) -> None:
    note = 0
    stack: list[tuple[Type, Type, tuple[int, ...]]] = [(type_of(operand), value.attrs.type, ())]
    while stack:
        have, want, path = stack.pop()
        if isinstance(have, TupleType) and isinstance(want, TupleType):
            pairs = list(enumerate(zip(have.fields, want.fields, strict=True)))
            stack.extend((h, w, (*path, i)) for i, (h, w) in reversed(pairs))
        elif isinstance(have, TensorType) and isinstance(want, TensorType):
            for axis, (old, new) in enumerate(zip(have.shape, want.shape, strict=True)):
                if old is new or old == new:
                    continue
                if isinstance(new, DimVar) and new not in fe.dims.known:
                    if new in fe.live.needed:
                        register = fe.ints.take()
                        fe.code.emit("DimOf", register, fe.field_at(operand, path), axis)
                        fe.dims.bind(new, register)
                    continue
                field = "".join(f".{i}" for i in path)
                where = f"{value.attrs.where}{field}, axis {axis}{named(new)}"
                note = fe.program.note(where, value.span)
                _check_dim(fe, _axis(fe, operand, path, axis, old), new, note)


def _check_not_negative(fe: FunctionEmitter, register: int, value: Call) -> None:
    """ShapeMismatch for a size below 0: its larger neighbour 0 is what it had to be."""
    least = fe.temp(True)
    note = fe.program.note(value.attrs.where, value.span)
    fe.code.emit("DimMax", least, register | INT_BIT, 0)
    fe.code.emit("CheckDim", register | INT_BIT, least | INT_BIT, note)


def check_params(fe: FunctionEmitter, params: Sequence[Var], closure: bool) -> None:
    """Entry of a function: bind the needed dims of the parameters, compare those that occur again.

    `closure`: the caller is not known, so static sizes are compared too. Else the caller has done
    that.
    """
    later = [
        entry
        for entry in entry_dims(params, fe.dims.known)
        if not entry.binds and (closure or not isinstance(entry.dim, int))
    ]
    # A dim that is only compared is needed too.
    fe.live.needed.update(v for entry in later for v in dims.free_vars(entry.dim))
    for param in params:
        fe.bind_dims(param)
    for entry in later:
        param, dim = entry.param, entry.dim
        span = param.span or fe.fn.span
        note = fe.program.note(
            f"parameter {entry.place} of @{fe.name}, axis {entry.axis}{named(dim)}", span
        )
        fe.code.at(span)
        register = fe.temp(True)
        fe.code.emit("DimOf", register, fe.field_at(param, entry.path), entry.axis)
        _check_dim(fe, register | INT_BIT, dim, note)


def has_static_claims(params: Sequence[Var]) -> bool:
    """Whether the entry that closures call has more to compare than the one of direct calls."""
    return any(
        isinstance(dim, int)
        for p in params
        for tensor in value_tensors(type_of(p))
        for dim in tensor.shape
    )


def _axis(fe: FunctionEmitter, operand: Var, path: tuple[int, ...], axis: int, dim: Dim) -> int:
    """A DIM word with the size of an axis of a value."""
    if isinstance(dim, DimExpr) and dim in fe.dims.known:
        return fe.dims.known[dim]
    register = fe.temp(True)
    fe.code.emit("DimOf", register, fe.field_at(operand, path), axis)
    return register | INT_BIT


def _check_dim(fe: FunctionEmitter, actual: int, expected: Dim, note: int) -> None:
    fe.code.emit("CheckDim", actual, fe.dims.word(expected), note)


def _check_broadcast(fe: FunctionEmitter, operand: Var, value: Call) -> None:
    type_ = type_of(operand)
    if not isinstance(type_, TensorType):
        raise CompileError("vm.check_broadcast needs a tensor")
    wanted = value.attrs.shape[len(value.attrs.shape) - len(type_.shape) :]
    for axis, (old, new) in enumerate(zip(type_.shape, wanted, strict=True)):
        if dims.compare(old, new) or old == 1:
            continue
        note = fe.program.note(f"{value.attrs.where}, axis {axis}", value.span)
        actual = _axis(fe, operand, (), axis, old)
        word = fe.dims.word(new)
        joined = fe.temp(True)
        fe.code.emit("Broadcast", joined, word, actual, note)
        if not (isinstance(new, int) and new != 1):
            # A wanted size of 1 would let any size pass above.
            fe.code.emit("CheckDim", joined | INT_BIT, word, note)


def emit_effect_only(fe: FunctionEmitter, value: Expr, var: Var) -> bool:
    """Calls whose result is no register of its own; True if `value` was one of them."""
    if isinstance(value, Tuple) and never_read(var, fe.live):
        return True  # its fields are read under their own names
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return False
    match value.op.name:
        case "vm.call_kernel" if never_read(var, fe.live):
            _call_kernel(fe, value)
        case "memory.kill":
            place = fe.place_of(value.args[0]) if isinstance(value.args[0], Var) else (True, 0)
            if not place[0]:
                fe.code.emit("KillRegister", place[1])
        case "memory.alloc_storage" if fe.live.count.get(var, 0) <= 1:
            fe.own_storage[var] = value.attrs.device
        case "memory.alloc_tensor" if value.args[0] in fe.own_storage:
            device = fe.own_storage[value.args[0]]
            _alloc_tensor(fe, fe.define(var, in_object=True)[1], NO_REGISTER, value, device)
        case "memory.alloc_tensor":
            _alloc_tensor(fe, fe.define(var, in_object=True)[1], fe.obj(value.args[0]), value, 0)
        case "vm.device_copy":
            _device_copy(fe, value, fe.define(var, in_object=True)[1])
        case _:
            return False
    return True


def _device_copy(fe: FunctionEmitter, value: Call, dst: int) -> None:
    """Of a constant: a constant of that device."""
    source, device = value.args[0], value.attrs.device
    if isinstance(source, Constant):
        fe.code.emit("LoadConst", dst, fe.constant(source, device))
    else:
        fe.code.emit("DeviceCopy", dst, fe.obj(source), device)


def _alloc_tensor(fe: FunctionEmitter, dst: int, storage: int, value: Call, device: int) -> None:
    """device: of a tensor that allocates its storage itself."""
    attrs = value.attrs
    shape = [fe.dims.word(d) for d in attrs.shape]
    offset = fe.dims.word(attrs.offset)
    number = dtypes.dtype(attrs.dtype).number
    fe.code.emit("AllocTensor", dst, storage, offset, shape, number, device)


def _flat_operands(fe: FunctionEmitter, atom: Expr, found: list[int | Expr]) -> None:
    """The tensors of an operand, tuples opened from left to right: an atom, or an object register."""
    type_ = type_of(atom)
    if isinstance(type_, TensorType):
        found.append(atom)
        return
    stack: list[tuple[Type, int]] = [(type_, fe.obj(atom))]
    while stack:
        current, register = stack.pop()
        if isinstance(current, TupleType):
            inner: list[tuple[Type, int]] = []
            for index, field in enumerate(current.fields):
                target = fe.temp(False)
                fe.code.emit("GetField", target, register, index)
                inner.append((field, target))
            stack.extend(reversed(inner))
        else:
            found.append(register)


def _call_kernel(fe: FunctionEmitter, value: Call) -> None:
    function, ins, outs = value.args
    if (
        not isinstance(function, Function)
        or not isinstance(ins, Tuple)
        or not isinstance(outs, Tuple)
    ):
        raise CompileError("vm.call_kernel takes a function and two tuples")
    index, call = fe.program.kernels.find(function)
    ints = fe.program.kernels.cache.int_params(function)
    flat: list[int | Expr] = []
    for atom in ins.fields:
        _flat_operands(fe, atom, flat)
    inputs = [a for i, a in enumerate(flat) if i not in ints]
    operands = [a if isinstance(a, int) else fe.obj(a) for a in (*inputs, *outs.fields)]
    words: list[int] = []
    for dim in call.in_dims:
        if isinstance(dim, IntParam):
            words.append(_int_operand(fe, flat[dim.index]))
        else:
            words.append(fe.dims.word(dim))
    atoms = (*inputs, *outs.fields)
    for position, view in enumerate(call.views):
        operands[position] = _viewed(fe, operands[position], atoms[position], view)
    first_scratch = len(operands)
    steps = StepLoop.of(function)
    for tensor in call.scratch:
        register = fe.temp(False)
        shape = [
            _int_operand(fe, flat[steps.count]) if steps and d is STEPS else fe.dims.word(d)
            for d in tensor.shape
        ]
        number = dtypes.dtype(tensor.dtype).number
        device = function.attrs.get("device", 0)
        fe.code.emit("AllocTensor", register, NO_REGISTER, 0, shape, number, device)
        operands.append(register)
    found = [fe.ints.take() for _ in value.attrs.dims]
    fe.code.emit("CallKernel", index, operands, words, found)
    for dim, register in zip(value.attrs.dims, found, strict=True):
        fe.dims.bind(dim, register)
    for register in operands[first_scratch:]:
        fe.code.emit("KillRegister", register)


def _viewed(fe: FunctionEmitter, register: int, atom: int | Expr, shape: tuple[Dim, ...]) -> int:
    """A tensor in another shape, for a kernel of fixed rank."""
    type_ = None if isinstance(atom, int) else type_of(atom)
    if isinstance(type_, TensorType) and type_.shape == shape:
        return register
    target = fe.temp(False)
    fe.code.emit("View", target, register, 0, [fe.dims.word(d) for d in shape])
    return target


def _int_operand(fe: FunctionEmitter, operand: int | Expr) -> int:
    """A DIM word for a rank-0 integer."""
    if isinstance(operand, int):
        raise CompileError("a field of a tuple can't be passed as an in-dim")
    if isinstance(operand, Constant) and 0 <= int(operand.data) < INT_BIT:
        return int(operand.data)
    return fe.integer(operand) | INT_BIT


def emit_op(fe: FunctionEmitter, call: Call, dst: Place) -> None:
    """An operator call with a result register."""
    if class_of(call, fe.unbox) is OpClass.SCALAR:
        fe.into(dst, type_of(call), True, lambda r: _scalar(fe, call, r))
        return
    code, type_ = fe.code, type_of(call)
    name = call.op.name if isinstance(call.op, Op) else ""
    match name:
        case "vm.dim_of":
            source = fe.obj(call.args[0])
            fe.into(dst, type_, True, lambda r: code.emit("DimOf", r, source, call.attrs.axis))
        case "vm.read_int":
            source = fe.obj(call.args[0])
            fe.into(dst, type_, True, lambda r: code.emit("ReadInt", r, source, call.attrs.index))
        case "vm.dim_value":
            fe.into(dst, type_, True, lambda r: _dim_value(fe, call.attrs.dim, r))
        case "vm.reshape_tensor":
            source = fe.obj(call.args[0])
            note = fe.program.note("reshape", call.span)
            shape = [fe.dims.word(d) for d in call.attrs.shape]
            fe.into(dst, type_, False, lambda r: code.emit("ReshapeTensor", r, source, shape, note))
        case "vm.rows":
            _rows(fe, call, dst)
        case "vm.read_at":
            source, index = fe.obj(call.args[0]), fe.integer(call.args[1]) | INT_BIT
            fe.into(dst, type_, True, lambda r: code.emit("ReadInt", r, source, index))
        case "vm.linearize":
            source = fe.obj(call.args[0])
            code.emit(
                "Linearize", dst[1], source, fe.program.first_constructor(type_of(call.args[0]))
            )
        case "vm.device_copy":
            fe.into(dst, type_, False, lambda r: _device_copy(fe, call, r))
        case "vm.append":
            source, tail = (fe.obj(a) for a in call.args)
            fe.code.emit("Append", dst[1], source, tail, call.attrs.axis)
        case "vm.shrink":
            source = fe.obj(call.args[0])
            fe.code.emit("Shrink", dst[1], source, fe.dims.word(call.attrs.shape[0]))
        case "shape_of":
            source = fe.obj(call.args[0])
            if not isinstance(type_, TensorType):
                raise CompileError("shape_of gives a tensor")
            code.emit("ShapeOf", dst[1], source, dtypes.dtype(type_.dtype).number)
        case "memory.alloc_storage":
            size = fe.dims.word(call.attrs.size)
            code.emit("AllocStorage", dst[1], size, call.attrs.alignment, call.attrs.device)
        case "vm.call_kernel":
            _call_kernel(fe, call)
            outs = call.args[2]
            fields = outs.fields if isinstance(outs, Tuple) else ()
            code.emit("AllocADT", dst[1], 0, [fe.obj(f) for f in fields])
        case _:
            raise CompileError(f"operator {name} reached code generation outside of a fused group")


def _rows(fe: FunctionEmitter, call: Call, dst: Place) -> None:
    """A view at an element offset: the row times its size."""
    data, shape = type_of(call.args[0]), [fe.dims.word(d) for d in call.attrs.shape]
    size = 1
    for dim in data.shape[1:] if isinstance(data, TensorType) else ():
        if not isinstance(dim, int):
            raise CompileError("vm.rows needs rows of known size")
        size *= dim
    source, offset = fe.obj(call.args[0]), fe.integer(call.args[1])
    if size != 1:
        row, offset = offset, fe.temp(True)
        fe.code.emit("DimMul", offset, row | INT_BIT, size)
    fe.into(
        dst,
        type_of(call),
        False,
        lambda r: fe.code.emit("View", r, source, offset | INT_BIT, shape),
    )


def _dim_value(fe: FunctionEmitter, dim: Dim, register: int) -> None:
    if isinstance(dim, int):
        fe.code.emit_imm64(register, dim)
        return
    fe.code.emit("MoveInt", register, fe.dims.word(dim) & ~INT_BIT)


def _scalar(fe: FunctionEmitter, call: Call, dst: int) -> None:
    """Rank-0 integer and bool arithmetic."""
    op = call.op
    type_ = type_of(call)
    if not isinstance(op, Op) or not isinstance(type_, TensorType):
        raise CompileError("a scalar operator gives a tensor of rank 0")
    dtype = dtypes.dtype(type_.dtype).number
    args = [fe.integer(a) for a in call.args] if op.name not in ("where", "copy") else []
    code = fe.code
    if op.name in ARITHMETIC:
        code.emit(ARITHMETIC[op.name], dst, args[0], args[1], dtype)
    elif op.name in COMPARISON:
        mnemonic, swapped = COMPARISON[op.name]
        left, right = (args[1], args[0]) if swapped else (args[0], args[1])
        code.emit(mnemonic, dst, left, right)
    elif op.name == "where":
        _where(fe, call, dst)
    elif op.name == "cast":
        code.emit("IntCast", dst, args[0], dtype)
    elif op.name == "logical_not":
        code.emit("IntEq", dst, args[0], _constant(fe, 0))
    elif op.name == "bitwise_not":
        ones = 1 if type_.dtype == "bool" else -1
        code.emit("IntXor", dst, args[0], _constant(fe, ones), dtype)
    elif op.name == "negative":
        code.emit("IntSub", dst, _constant(fe, 0), args[0], dtype)
    elif op.name == "abs":
        negated = fe.temp(True)
        code.emit("IntSub", negated, _constant(fe, 0), args[0], dtype)
        # abs(MIN) wraps to MIN: -MIN is MIN, and so is the larger of the two.
        if dtypes.dtype(type_.dtype).is_signed:
            code.emit("IntMax", dst, args[0], negated, dtype)
        else:
            code.emit("IntMin", dst, args[0], args[0], dtype)
    elif isinstance(call.args[0], Var) and not fe.place_of(call.args[0])[0]:
        fe.unbox_into(dst, call.args[0])
    else:  # copy, floor, ceil, round, trunc of an integer
        code.emit("MoveInt", dst, fe.integer(call.args[0]))


def _constant(fe: FunctionEmitter, value: int) -> int:
    register = fe.temp(True)
    fe.code.emit_imm64(register, value)
    return register


def _where(fe: FunctionEmitter, call: Call, dst: int) -> None:
    """dst := cond ? a : b, by a branch."""
    from_label = Label()
    cond, if_true, if_false = (fe.integer(a) for a in call.args)
    middle = fe.temp(True)
    fe.code.emit("MoveInt", middle, if_true)
    skip = Label()
    fe.code.emit("If", cond, from_label)
    fe.code.emit("Goto", skip)
    fe.code.place(from_label)
    fe.code.emit("MoveInt", middle, if_false)
    fe.code.place(skip)
    fe.code.emit("MoveInt", dst, middle)

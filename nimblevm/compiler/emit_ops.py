"""Operator calls that are left after manifest_alloc: checks, dims, memory, kernels, scalar
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm import dtypes
from nimblevm.bytecode.isa import NO_REGISTER
from nimblevm.compiler.code_buffer import Label
from nimblevm.compiler.dim_notes import entry_dims, named
from nimblevm.compiler.emit_dims import INT_BIT
from nimblevm.compiler.emit_frame import Frame, Place
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
from nimblevm.relay.types import TensorType, TupleType, Type, paired_tensors, value_tensors


def emit_alias(frame: Frame, value: Expr) -> None:
    """A value that is another name of its operand: only its checks are code."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return
    operand = value.args[0]
    if not isinstance(operand, Var):
        raise CompileError(f"{value.op.name} needs a variable as operand")
    if value.op.name == "vm.match_type":
        _match_type(frame, operand, value)
    elif value.op.name == "vm.bind_dim":
        _bind_dim(frame, value)
    else:
        _check_broadcast(frame, operand, value)


def _bind_dim(frame: Frame, call: Call) -> int:
    """The register of the dim, which is its own: the operand may die before the dim."""
    register = frame.ints.take()
    frame.code.emit("MoveInt", register, frame.integer(call.args[0]))
    if call.attrs.where:
        _check_not_negative(frame, register, call)
    frame.dims.bind(call.attrs.dim, register)
    return register


def _match_type(frame: Frame, operand: Var, value: Call) -> None:
    for have, want, path in paired_tensors(type_of(operand), value.attrs.type):
        for axis, (old, new) in enumerate(zip(have.shape, want.shape, strict=True)):
            if old is not new and old != new:
                _narrow(frame, operand, value, path, axis, old, new)


def _narrow(
    frame: Frame, operand: Var, value: Call, path: tuple[int, ...], axis: int, old: Dim, new: Dim
) -> None:
    """A new variable gets its number if something needs it; any other dim is compared."""
    if isinstance(new, DimVar) and new not in frame.dims.known:
        if new in frame.live.needed:
            register = frame.ints.take()
            frame.code.emit("DimOf", register, frame.field_at(operand, path), axis)
            frame.dims.bind(new, register)
        return
    field = "".join(f".{i}" for i in path)
    where = f"{value.attrs.where}{field}, axis {axis}{named(new)}"
    note = frame.program.note(where, value.span)
    try:
        _check_dim(frame, _axis(frame, operand, path, axis, old), new, note)
    except CompileError as error:  # a variable of `new` that nothing binds
        place = f"{value.span}: " if value.span is not None else ""
        raise CompileError(f"{place}{where}: {error}") from None


def _check_not_negative(frame: Frame, register: int, value: Call) -> None:
    """ShapeMismatch for a size below 0: its larger neighbour 0 is what it had to be."""
    least = frame.int_temp()
    note = frame.program.note(value.attrs.where, value.span)
    frame.code.emit("DimMax", least, register | INT_BIT, 0)
    frame.code.emit("CheckDim", register | INT_BIT, least | INT_BIT, note)


def check_params(frame: Frame, params: Sequence[Var], closure: bool) -> None:
    """Entry of a function: bind the needed dims of the parameters, compare those that occur again.

    `closure`: the caller is not known, so static sizes are compared too. Else the caller has done
    that.
    """
    later = [
        entry
        for entry in entry_dims(params, frame.dims.known)
        if not entry.binds and (closure or not isinstance(entry.dim, int))
    ]
    # A dim that is only compared is needed too.
    frame.live.needed.update(v for entry in later for v in dims.free_vars(entry.dim))
    for param in params:
        frame.bind_dims(param)
    for entry in later:
        param, dim = entry.param, entry.dim
        span = param.span or frame.fn.span
        note = frame.program.note(
            f"parameter {entry.place} of @{frame.name}, axis {entry.axis}{named(dim)}", span
        )
        frame.code.at(span)
        register = frame.int_temp()
        frame.code.emit("DimOf", register, frame.field_at(param, entry.path), entry.axis)
        _check_dim(frame, register | INT_BIT, dim, note)


def has_static_claims(params: Sequence[Var]) -> bool:
    """Whether the entry that closures call has more to compare than the one of direct calls."""
    return any(
        isinstance(dim, int)
        for p in params
        for tensor in value_tensors(type_of(p))
        for dim in tensor.shape
    )


def _axis(frame: Frame, operand: Var, path: tuple[int, ...], axis: int, dim: Dim) -> int:
    """A DIM word with the size of an axis of a value."""
    if isinstance(dim, DimExpr) and dim in frame.dims.known:
        return frame.dims.known[dim]
    register = frame.int_temp()
    frame.code.emit("DimOf", register, frame.field_at(operand, path), axis)
    return register | INT_BIT


def _check_dim(frame: Frame, actual: int, expected: Dim, note: int) -> None:
    frame.code.emit("CheckDim", actual, frame.dims.word(expected), note)


def _check_broadcast(frame: Frame, operand: Var, value: Call) -> None:
    type_ = type_of(operand)
    if not isinstance(type_, TensorType):
        raise CompileError("vm.check_broadcast needs a tensor")
    wanted = value.attrs.shape[len(value.attrs.shape) - len(type_.shape) :]
    for axis, (old, new) in enumerate(zip(type_.shape, wanted, strict=True)):
        if dims.compare(old, new) or old == 1:
            continue
        note = frame.program.note(f"{value.attrs.where}, axis {axis}", value.span)
        actual = _axis(frame, operand, (), axis, old)
        word = frame.dims.word(new)
        joined = frame.int_temp()
        frame.code.emit("Broadcast", joined, word, actual, note)
        if not (isinstance(new, int) and new != 1):
            # A wanted size of 1 would let any size pass above.
            frame.code.emit("CheckDim", joined | INT_BIT, word, note)


def emit_effect_only(frame: Frame, value: Expr, var: Var) -> bool:
    """Calls whose result is no register of its own; True if `value` was one of them."""
    if isinstance(value, Tuple) and never_read(var, frame.live):
        return True  # its fields are read under their own names
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return False
    match value.op.name:
        case "vm.call_kernel" if never_read(var, frame.live):
            _call_kernel(frame, value)
        case "memory.kill":
            place = frame.place_of(value.args[0]) if isinstance(value.args[0], Var) else (True, 0)
            if not place[0]:
                frame.code.emit("KillRegister", place[1])
        case "memory.alloc_storage" if frame.live.count.get(var, 0) <= 1:
            frame.own_storage[var] = value.attrs.device
        case "memory.alloc_tensor" if value.args[0] in frame.own_storage:
            device = frame.own_storage[value.args[0]]
            _alloc_tensor(frame, frame.define(var, in_object=True)[1], NO_REGISTER, value, device)
        case "memory.alloc_tensor":
            _alloc_tensor(
                frame, frame.define(var, in_object=True)[1], frame.obj(value.args[0]), value, 0
            )
        case "vm.device_copy":
            _device_copy(frame, value, frame.define(var, in_object=True)[1])
        case _:
            return False
    return True


def _device_copy(frame: Frame, value: Call, dst: int) -> None:
    """Of a constant: a constant of that device."""
    source, device = value.args[0], value.attrs.device
    if isinstance(source, Constant):
        frame.code.emit("LoadConst", dst, frame.constant(source, device))
    else:
        frame.code.emit("DeviceCopy", dst, frame.obj(source), device)


def _alloc_tensor(frame: Frame, dst: int, storage: int, value: Call, device: int) -> None:
    """device: of a tensor that allocates its storage itself."""
    attrs = value.attrs
    shape = [frame.dims.word(d) for d in attrs.shape]
    offset = frame.dims.word(attrs.offset)
    number = dtypes.dtype(attrs.dtype).number
    frame.code.emit("AllocTensor", dst, storage, offset, shape, number, device)


def _flat_operands(frame: Frame, atom: Expr, found: list[int | Expr]) -> None:
    """The tensors of an operand, tuples opened from left to right: an atom, or an object register."""
    type_ = type_of(atom)
    if isinstance(type_, TensorType):
        found.append(atom)
        return
    stack: list[tuple[Type, int]] = [(type_, frame.obj(atom))]
    while stack:
        current, register = stack.pop()
        if isinstance(current, TupleType):
            inner: list[tuple[Type, int]] = []
            for index, field in enumerate(current.fields):
                target = frame.obj_temp()
                frame.code.emit("GetField", target, register, index)
                inner.append((field, target))
            stack.extend(reversed(inner))
        else:
            found.append(register)


def _call_kernel(frame: Frame, value: Call) -> None:
    function, ins, outs = value.args
    if (
        not isinstance(function, Function)
        or not isinstance(ins, Tuple)
        or not isinstance(outs, Tuple)
    ):
        raise CompileError("vm.call_kernel takes a function and two tuples")
    index, call = frame.program.kernels.find(function)
    ints = frame.program.kernels.cache.int_params(function)
    flat: list[int | Expr] = []
    for atom in ins.fields:
        _flat_operands(frame, atom, flat)
    inputs = [a for i, a in enumerate(flat) if i not in ints]
    operands = [a if isinstance(a, int) else frame.obj(a) for a in (*inputs, *outs.fields)]
    words: list[int] = []
    for dim in call.in_dims:
        if isinstance(dim, IntParam):
            words.append(_int_operand(frame, flat[dim.index]))
        else:
            words.append(frame.dims.word(dim))
    atoms = (*inputs, *outs.fields)
    for position, view in enumerate(call.views):
        operands[position] = _viewed(frame, operands[position], atoms[position], view)
    first_scratch = len(operands)
    steps = StepLoop.of(function)
    for tensor in call.scratch:
        register = frame.obj_temp()
        shape = [
            _int_operand(frame, flat[steps.count]) if steps and d is STEPS else frame.dims.word(d)
            for d in tensor.shape
        ]
        number = dtypes.dtype(tensor.dtype).number
        device = function.attrs.get("device", 0)
        frame.code.emit("AllocTensor", register, NO_REGISTER, 0, shape, number, device)
        operands.append(register)
    found = [frame.ints.take() for _ in value.attrs.dims]
    frame.code.emit("CallKernel", index, operands, words, found)
    for dim, register in zip(value.attrs.dims, found, strict=True):
        frame.dims.bind(dim, register)
    for register in operands[first_scratch:]:
        frame.code.emit("KillRegister", register)


def _viewed(frame: Frame, register: int, atom: int | Expr, shape: tuple[Dim, ...]) -> int:
    """A tensor in another shape, for a kernel of fixed rank."""
    type_ = None if isinstance(atom, int) else type_of(atom)
    if isinstance(type_, TensorType) and type_.shape == shape:
        return register
    target = frame.obj_temp()
    frame.code.emit("View", target, register, 0, [frame.dims.word(d) for d in shape])
    return target


def _int_operand(frame: Frame, operand: int | Expr) -> int:
    """A DIM word for a rank-0 integer."""
    if isinstance(operand, int):
        raise CompileError("a field of a tuple can't be passed as an in-dim")
    if isinstance(operand, Constant) and 0 <= int(operand.data) < INT_BIT:
        return int(operand.data)
    return frame.integer(operand) | INT_BIT


def emit_op(frame: Frame, call: Call, dst: Place) -> None:
    """An operator call with a result register."""
    if class_of(call, frame.program.unbox) is OpClass.SCALAR:
        frame.int_into(dst, type_of(call), lambda r: _scalar(frame, call, r))
        return
    code, type_ = frame.code, type_of(call)
    name = call.op.name if isinstance(call.op, Op) else ""
    match name:
        case "vm.dim_of":
            source = frame.obj(call.args[0])
            frame.int_into(dst, type_, lambda r: code.emit("DimOf", r, source, call.attrs.axis))
        case "vm.read_int":
            source = frame.obj(call.args[0])
            frame.int_into(dst, type_, lambda r: code.emit("ReadInt", r, source, call.attrs.index))
        case "vm.bind_dim":  # of a constant: of a variable it is another name
            register = _bind_dim(frame, call)
            frame.int_into(dst, type_, lambda r: code.emit("MoveInt", r, register))
        case "vm.dim_value":
            frame.int_into(dst, type_, lambda r: _dim_value(frame, call.attrs.dim, r))
        case "vm.reshape_tensor":
            source = frame.obj(call.args[0])
            note = frame.program.note("reshape", call.span)
            shape = [frame.dims.word(d) for d in call.attrs.shape]
            frame.obj_into(dst, type_, lambda r: code.emit("ReshapeTensor", r, source, shape, note))
        case "vm.rows":
            _rows(frame, call, dst)
        case "vm.read_at":
            source, index = frame.obj(call.args[0]), frame.integer(call.args[1]) | INT_BIT
            frame.int_into(dst, type_, lambda r: code.emit("ReadInt", r, source, index))
        case "vm.linearize":
            source = frame.obj(call.args[0])
            code.emit(
                "Linearize", dst[1], source, frame.program.first_constructor(type_of(call.args[0]))
            )
        case "vm.device_copy":
            frame.obj_into(dst, type_, lambda r: _device_copy(frame, call, r))
        case "vm.append":
            source, tail = (frame.obj(a) for a in call.args)
            frame.code.emit("Append", dst[1], source, tail, call.attrs.axis)
        case "vm.shrink":
            source = frame.obj(call.args[0])
            frame.code.emit("Shrink", dst[1], source, frame.dims.word(call.attrs.shape[0]))
        case "shape_of":
            source = frame.obj(call.args[0])
            if not isinstance(type_, TensorType):
                raise CompileError("shape_of gives a tensor")
            code.emit("ShapeOf", dst[1], source, dtypes.dtype(type_.dtype).number)
        case "memory.alloc_storage":
            size = frame.dims.word(call.attrs.size)
            code.emit("AllocStorage", dst[1], size, call.attrs.alignment, call.attrs.device)
        case "vm.call_kernel":
            _call_kernel(frame, call)
            outs = call.args[2]
            fields = outs.fields if isinstance(outs, Tuple) else ()
            code.emit("AllocADT", dst[1], 0, [frame.obj(f) for f in fields])
        case _:
            raise CompileError(f"operator {name} reached code generation outside of a fused group")


def _rows(frame: Frame, call: Call, dst: Place) -> None:
    """A view at an element offset: the row times its size."""
    data, shape = type_of(call.args[0]), [frame.dims.word(d) for d in call.attrs.shape]
    size = 1
    for dim in data.shape[1:] if isinstance(data, TensorType) else ():
        if not isinstance(dim, int):
            raise CompileError("vm.rows needs rows of known size")
        size *= dim
    source, offset = frame.obj(call.args[0]), frame.integer(call.args[1])
    if size != 1:
        row, offset = offset, frame.int_temp()
        frame.code.emit("DimMul", offset, row | INT_BIT, size)
    frame.obj_into(
        dst,
        type_of(call),
        lambda r: frame.code.emit("View", r, source, offset | INT_BIT, shape),
    )


def _dim_value(frame: Frame, dim: Dim, register: int) -> None:
    if isinstance(dim, int):
        frame.code.emit_imm64(register, dim)
        return
    frame.code.emit("MoveInt", register, frame.dims.word(dim) & ~INT_BIT)


def _scalar(frame: Frame, call: Call, dst: int) -> None:
    """Rank-0 integer and bool arithmetic."""
    op = call.op
    type_ = type_of(call)
    if not isinstance(op, Op) or not isinstance(type_, TensorType):
        raise CompileError("a scalar operator gives a tensor of rank 0")
    dtype = dtypes.dtype(type_.dtype).number
    args = [frame.integer(a) for a in call.args] if op.name not in ("where", "copy") else []
    code = frame.code
    if op.name in ARITHMETIC:
        code.emit(ARITHMETIC[op.name], dst, args[0], args[1], dtype)
    elif op.name in COMPARISON:
        mnemonic, swapped = COMPARISON[op.name]
        left, right = (args[1], args[0]) if swapped else (args[0], args[1])
        code.emit(mnemonic, dst, left, right)
    elif op.name == "where":
        _where(frame, call, dst)
    elif op.name == "cast":
        code.emit("IntCast", dst, args[0], dtype)
    elif op.name == "logical_not":
        code.emit("IntEq", dst, args[0], _constant(frame, 0))
    elif op.name == "bitwise_not":
        ones = 1 if type_.dtype == "bool" else -1
        code.emit("IntXor", dst, args[0], _constant(frame, ones), dtype)
    elif op.name == "negative":
        code.emit("IntSub", dst, _constant(frame, 0), args[0], dtype)
    elif op.name == "abs":
        negated = frame.int_temp()
        code.emit("IntSub", negated, _constant(frame, 0), args[0], dtype)
        # abs(MIN) wraps to MIN: -MIN is MIN, and so is the larger of the two.
        if dtypes.dtype(type_.dtype).is_signed:
            code.emit("IntMax", dst, args[0], negated, dtype)
        else:
            code.emit("IntMin", dst, args[0], args[0], dtype)
    elif isinstance(call.args[0], Var) and not frame.place_of(call.args[0])[0]:
        frame.unbox_into(dst, call.args[0])
    else:  # copy, floor, ceil, round, trunc of an integer
        code.emit("MoveInt", dst, frame.integer(call.args[0]))


def _constant(frame: Frame, value: int) -> int:
    register = frame.int_temp()
    frame.code.emit_imm64(register, value)
    return register


def _where(frame: Frame, call: Call, dst: int) -> None:
    """dst := cond ? a : b, by a branch."""
    from_label = Label()
    cond, if_true, if_false = (frame.integer(a) for a in call.args)
    middle = frame.int_temp()
    frame.code.emit("MoveInt", middle, if_true)
    skip = Label()
    frame.code.emit("If", cond, from_label)
    frame.code.emit("Goto", skip)
    frame.code.place(from_label)
    frame.code.emit("MoveInt", middle, if_false)
    frame.code.place(skip)
    frame.code.emit("MoveInt", dst, middle)

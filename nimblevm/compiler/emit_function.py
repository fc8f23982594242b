"""One ANF function -> the words of its code.

A value lives in an int register if its type is a rank-0 integer or bool and the program is compiled
with unboxing, else in an object register; Box and Unbox appear wherever the two meet, decided by
types alone. Nothing recurses: nested blocks wait on a work stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from nimblevm import dtypes
from nimblevm.bytecode.serialize import ProgramBuilder
from nimblevm.compiler import emit_ops
from nimblevm.compiler.code_buffer import CodeBuffer, Label, Registers
from nimblevm.compiler.emit_dims import INT_BIT, DimEmitter
from nimblevm.compiler.emit_match import emit_match
from nimblevm.compiler.kernel_table import KernelTable
from nimblevm.compiler.liveness import (
    Block,
    Item,
    aliased,
    analyse,
    linearize,
    never_read,
    worth_killing,
)
from nimblevm.compiler.op_class import is_int
from nimblevm.compiler.rewrite import type_of
from nimblevm.errors import CompileError
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Match,
    RefCreate,
    RefRead,
    RefWrite,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    late_array,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType, Type

Place = tuple[bool, int]
"""(True: int register, its number)."""


class Program(Protocol):
    """What the code of a function asks of the program around it (emit.py)."""

    builder: ProgramBuilder
    kernels: KernelTable
    unbox: bool
    mod: IRModule

    def function(self, var: GlobalVar, closure: bool, boxed_result: bool) -> int:
        """Index of a variant of a global function."""
        ...

    def definition(self, var: GlobalVar) -> Function:
        """The global function."""
        ...

    def constructor(self, constructor: Constructor) -> int:
        """Index of a constructor in the file."""
        ...

    def first_constructor(self, type_: Type) -> int:
        """Index of the first constructor of a data type."""
        ...

    def constructor_count(self, constructor: Constructor) -> int:
        """How many constructors its type has."""
        ...

    def note(self, text: str, span: Span | None) -> int:
        """Index of a note."""
        ...


class FunctionEmitter:
    """State while the code of one variant of a function is written."""

    def __init__(
        self,
        program: Program,
        function: Function,
        name: str,
        closure: bool,
        boxed_result: bool,
    ) -> None:
        self.program = program
        self.fn = function
        self.name = name
        self.closure = closure
        self.unbox = program.unbox
        self.code = CodeBuffer(program.builder)
        self.param_is_int = tuple(
            self.unbox and not closure and is_int(type_of(p)) for p in function.params
        )
        self.result_type = function.ret_type or type_of(function.body)
        self.result_is_int = self.unbox and not boxed_result and is_int(self.result_type)
        self.ints = Registers(sum(self.param_is_int))
        self.objs = Registers(len(function.params) - self.ints.count)
        self.dims = DimEmitter(self.code, self.ints)
        self.where: dict[Var, Place] = {}
        self.pinned: set[Var] = set()
        # Storages that a tensor allocates together with itself, and their devices.
        self.own_storage: dict[Expr, int] = {}
        self.temps: list[Place] = []
        self.work: list[Callable[[], None]] = []
        self.order = linearize(function.body)
        self.live = analyse(function, self.order, program.kernels)
        self.dims.defined = self.live.defined
        self.span: Span | None = function.span

    # --- the whole function ---------------------------------------------------------------------

    def run(self) -> None:
        self.code.at(self.fn.span)
        self._enter_params()
        self.work.append(partial(self.block, self.order[0], None))
        while self.work:
            self.work.pop()()

    def _enter_params(self) -> None:
        number = {True: 0, False: 0}
        dim_of = dict(self.fn.attrs.get("dim_params", ()))
        for index, (param, in_int) in enumerate(
            zip(self.fn.params, self.param_is_int, strict=True)
        ):
            place = (in_int, number[in_int])
            number[in_int] += 1
            self.where[param] = place
            if self._kind(type_of(param)) and not in_int:
                self._bind_boxed_param(param, place[1], index in dim_of)
            if index in dim_of:
                self._bind_dim_param(dim_of[index], param)
        captures = self.fn.attrs.get("captures", 0)
        for param in self.fn.params[:captures]:
            self.bind_dims(param)
        emit_ops.check_params(self, self.fn.params[captures:], self.closure)
        self.free_temps()
        self._expire(0)

    def _bind_boxed_param(self, param: Var, register: int, is_dim: bool) -> None:
        if never_read(param, self.live) and not is_dim:
            return
        place = (True, self.ints.take())
        self._unbox(place[1], register, type_of(param))
        self.where[param] = place
        self.objs.give(register)

    def _bind_dim_param(self, dim: DimVar, param: Var) -> None:
        in_int, register = self.where[param]
        if not in_int:
            unboxed = self.ints.take()
            self._unbox(unboxed, register, type_of(param))
            register = unboxed
        else:
            self.pinned.add(param)
        self.dims.bind(dim, register, owned=False)

    # --- registers ------------------------------------------------------------------------------

    def _kind(self, type_: Type) -> bool:
        return self.unbox and is_int(type_)

    def take(self, in_int: bool) -> Place:
        return (in_int, (self.ints if in_int else self.objs).take())

    def give(self, place: Place) -> None:
        (self.ints if place[0] else self.objs).give(place[1])

    def temp(self, in_int: bool) -> int:
        """A register until the end of the item."""
        place = self.take(in_int)
        self.temps.append(place)
        return place[1]

    def free_temps(self) -> None:
        for place in reversed(self.temps):
            self.give(place)
        self.temps.clear()

    def root(self, var: Var) -> Var:
        return self.live.root.get(var, var)

    def place_of(self, var: Var) -> Place:
        found = self.where.get(self.root(var))
        if found is None:
            raise CompileError(
                f"variable %{var.name_hint} of @{self.name} has no value where it is used"
            )
        return found

    def _expire(self, position: int, kill: bool = True) -> None:
        """Free the registers of the variables whose last use was at `position`."""
        for var in self.live.expire.get(position, ()):
            place = self.where.get(var)
            if place is None or var in self.pinned:
                continue
            if kill and not place[0] and worth_killing(type_of(var)):
                self.code.emit("KillRegister", place[1])
            self.give(place)

    def bind_dims(self, var: Var) -> None:
        """DimOf for the needed dims that are axes of a variable's tensors and have no number yet."""
        needed, known = self.live.needed, self.dims.known
        stack: list[tuple[Type, tuple[int, ...]]] = [(type_of(var), ())]
        while stack:
            type_, path = stack.pop()
            if isinstance(type_, TensorType):
                for axis, dim in enumerate(type_.shape):
                    if isinstance(dim, DimVar) and dim in needed and dim not in known:
                        register = self.ints.take()
                        self.code.emit("DimOf", register, self.field_at(var, path), axis)
                        self.dims.bind(dim, register)
            elif isinstance(type_, TupleType):
                stack.extend((f, (*path, i)) for i, f in reversed(list(enumerate(type_.fields))))

    def field_at(self, var: Var, path: Sequence[int]) -> int:
        """An object register with a field of nested tuples."""
        register = self.obj(var)
        for index in path:
            inner = self.temp(False)
            self.code.emit("GetField", inner, register, index)
            register = inner
        return register

    # --- operands -------------------------------------------------------------------------------

    def obj(self, atom: Expr) -> int:
        """An object register that holds an atom."""
        if isinstance(atom, Var):
            in_int, register = self.place_of(atom)
            if not in_int:
                return register
            boxed = self.temp(False)
            self._box(boxed, register, type_of(atom))
            return boxed
        made = self.temp(False)
        self._load(atom, (False, made))
        return made

    def integer(self, atom: Expr) -> int:
        """An int register that holds an atom."""
        if isinstance(atom, Var):
            in_int, register = self.place_of(atom)
            if in_int:
                return register
            unboxed = self.temp(True)
            self._unbox(unboxed, register, type_of(atom))
            return unboxed
        made = self.temp(True)
        self._load(atom, (True, made))
        return made

    def constant(self, atom: Constant, device: int = 0) -> int:
        """Index of a constant of the file, or of one that is bound late, on a device."""
        late, builder = late_array(atom), self.program.builder
        if late is None:
            return builder.constant(atom.data.dtype.name, atom.data.shape, atom.data, device)
        builder.weight(late.name, late.weight_dtype.name, late.weight_shape, late.digest)
        return builder.late_constant(late.dtype.name, late.shape, late.name, late.layout, device)

    def _load(self, atom: Expr, place: Place) -> None:
        """A constant or global function into a register."""
        match atom:
            case Constant() if place[0]:
                self.code.emit_imm64(place[1], int(atom.data))
            case Constant():
                index = self.constant(atom)
                self.code.emit("LoadConst", place[1], index)
            case GlobalVar():
                index = self.program.function(atom, True, True)
                self.code.emit("AllocClosure", place[1], index, [])
            case _:
                raise CompileError(f"{type(atom).__name__} is no value: {atom!r}")

    def _dtype(self, type_: Type) -> int:
        if not isinstance(type_, TensorType):
            raise CompileError(f"{type_!r} is no scalar")
        return dtypes.dtype(type_.dtype).number

    def _box(self, dst: int, src: int, type_: Type) -> None:
        self.code.emit("Box", dst, src, self._dtype(type_))

    def _unbox(self, dst: int, src: int, type_: Type) -> None:
        self.code.emit("Unbox", dst, src, self._dtype(type_))

    def unbox_into(self, dst: int, var: Var) -> None:
        """Unbox a variable that lives in an object register."""
        self._unbox(dst, self.place_of(var)[1], type_of(var))

    def any(self, atom: Expr, in_int: bool) -> int:
        """An ANY_IN word for an atom of the wanted kind."""
        return self.integer(atom) | INT_BIT if in_int else self.obj(atom)

    def into(
        self, dst: Place, type_: Type, produced_int: bool, write: Callable[[int], None]
    ) -> None:
        """Run `write(register)` for a result of kind `produced_int` so that it ends in `dst`."""
        if dst[0] == produced_int:
            write(dst[1])
            return
        middle = self.temp(produced_int)
        write(middle)
        if dst[0]:
            self._unbox(dst[1], middle, type_)
        else:
            self._box(dst[1], middle, type_)

    # --- blocks ---------------------------------------------------------------------------------

    def block(self, block: Block, dst: Place | None) -> None:
        """Write a block; dst None: its value is returned."""
        mark = self.dims.mark()
        self._expire(block.entry)
        self.work.append(partial(self.dims.rollback, mark))
        self._items(block, 0, dst)

    def kill_dead(self, block: Block) -> None:
        """Free what an earlier sibling branch used last, before anything of this one takes its
        register.
        """
        for var in self.live.kills.get(block.number, ()):
            place = self.where.get(var)
            if place is not None and not place[0]:
                self.code.emit("KillRegister", place[1])

    def _items(self, block: Block, index: int, dst: Place | None) -> None:
        items = block.items
        while index < len(items):
            item = items[index]
            self.code.at(item.span)
            self.span = item.span or self.span
            index += 1
            if item.var is None:
                self._tail(item, dst)
            elif item.blocks:
                place = self.define(item.var)
                self.work.append(partial(self._items, block, index, dst))
                self.work.append(partial(self._bound, item.var, item.position))
                self._branch(item, place)
                return
            else:
                self._let(item, item.var)

    def define(self, var: Var, in_object: bool = False) -> Place:
        """Give a variable its register. in_object: even if its type could be unboxed (a kernel's
        output).
        """
        place = self.where[var] = self.take(not in_object and self._kind(type_of(var)))
        return place

    def _bound(self, var: Var, position: int) -> None:
        self.bind_dims(var)
        self.free_temps()
        if var in self.live.expire.get(position, ()):
            self._expire_one(var)

    def _expire_one(self, var: Var) -> None:
        place = self.where[var]
        if not place[0] and worth_killing(type_of(var)):
            self.code.emit("KillRegister", place[1])
        self.give(place)

    def _let(self, item: Item, var: Var) -> None:
        if aliased(item.value) is not None:
            emit_ops.emit_alias(self, item.value)
        elif isinstance(item.value, Constant | GlobalVar):
            self._load(item.value, self.define(var))
        elif not emit_ops.emit_effect_only(self, item.value, var):
            self.value(item.value, self.define(var))
        if self.root(var) in self.where:
            self.bind_dims(var)
        self.free_temps()
        self._expire(item.position)

    def _branch(self, item: Item, dst: Place | None) -> None:
        """Write an If or Match whose blocks deliver into `dst` (None: return)."""
        end = Label()
        if dst is not None:
            self.work.append(partial(self.code.place, end))
        if isinstance(item.value, If):
            self._if(item, item.value, dst, end)
        elif isinstance(item.value, Match):
            emit_match(self, item, item.value, dst, end)
        else:
            raise CompileError(f"{type(item.value).__name__} with blocks is not in ANF")

    def _if(self, item: Item, value: If, dst: Place | None, end: Label) -> None:
        otherwise = Label()
        self.code.emit("If", self.integer(value.cond), otherwise)
        self.free_temps()
        self.expire_before_branches(item)
        self.work += [
            partial(self.block, item.blocks[1], dst),
            partial(self.kill_dead, item.blocks[1]),
            partial(self.code.place, otherwise),
            partial(self._skip_to, end, dst),
            partial(self.block, item.blocks[0], dst),
        ]

    def _skip_to(self, end: Label, dst: Place | None) -> None:
        if dst is not None:
            self.code.emit("Goto", end)

    def expire_before_branches(self, item: Item) -> None:
        """Operands that die with the branch itself; the item's own variable is handled after it."""
        for var in self.live.expire.get(item.position, ()):
            if var is item.var or var not in self.where or var in self.pinned:
                continue
            self.give(self.where[var])

    # --- values ---------------------------------------------------------------------------------

    def _tail(self, item: Item, dst: Place | None) -> None:
        value = item.value
        if item.blocks:
            self._branch(item, dst)
            return
        other = aliased(value)
        if other is not None and other is not value:
            emit_ops.emit_alias(self, value)
            value = other
        if dst is None:
            self._return(value)
        elif isinstance(value, Var):
            self._move(value, dst)
        elif isinstance(value, Constant | GlobalVar):
            self._load(value, dst)
        else:
            self.value(value, dst)
        self.free_temps()
        self._expire(item.position, kill=dst is not None)

    def _move(self, var: Var, dst: Place) -> None:
        in_int, register = self.place_of(var)
        if in_int != dst[0]:
            convert = self._unbox if dst[0] else self._box
            convert(dst[1], register, type_of(var))
        elif register != dst[1]:
            self.code.emit("MoveInt" if in_int else "Move", dst[1], register)

    def _return(self, value: Expr) -> None:
        kind = self.result_is_int
        if isinstance(value, Var | Constant | GlobalVar):
            self.code.emit("Ret", self.any(value, kind))
        elif not (isinstance(value, Call) and self._tail_call(value)):
            register = self.temp(kind)
            self.value(value, (kind, register))
            self.code.emit("Ret", register | INT_BIT if kind else register)

    def _tail_call(self, call: Call) -> bool:
        """Write a call in tail position as one, if its result has the kind that this function
        returns.
        """
        if isinstance(call.op, GlobalVar):
            callee = self.program.definition(call.op)
            if "Closure" in callee.attrs:
                return False
            if self.result_is_int and not self._returns_int(callee):
                return False
            index = self.program.function(call.op, False, not self.result_is_int)
            self.code.emit("InvokeTail", index, self._arguments(callee, call))
            return True
        if isinstance(call.op, Op | Constructor) or self.result_is_int:
            return False
        closure = self.obj(call.op)
        self.code.emit("InvokeClosureTail", closure, [self.obj(a) for a in call.args])
        return True

    def _returns_int(self, callee: Function) -> bool:
        return self._kind(callee.ret_type or type_of(callee.body))

    def _arguments(self, callee: Function, call: Call) -> list[int]:
        pairs = zip(call.args, callee.params, strict=True)
        return [self.any(a, self._kind(type_of(p))) for a, p in pairs]

    def value(self, value: Expr, dst: Place) -> None:
        """Write a simple expression without blocks; its value ends in `dst`."""
        code = self.code
        type_ = type_of(value)
        match value:
            case Call():
                self._call(value, dst)
            case Tuple():
                fields = [self.obj(f) for f in value.fields]
                code.emit("AllocADT", dst[1], 0, fields)
            case TupleGetItem():
                source = self.obj(value.tuple_value)
                self.into(
                    dst, type_, False, lambda r: code.emit("GetField", r, source, value.index)
                )
            case RefCreate():
                code.emit("AllocRef", dst[1], self.obj(value.value))
            case RefRead():
                ref = self.obj(value.ref)
                self.into(dst, type_, False, lambda r: code.emit("ReadRef", r, ref))
            case RefWrite():
                code.emit("WriteRef", self.obj(value.ref), self.obj(value.value))
                code.emit("AllocADT", dst[1], 0, [])
            case _:
                raise CompileError(
                    f"{type(value).__name__} is not in the form that emit takes: {value!r}"
                )

    def _call(self, call: Call, dst: Place) -> None:
        code, type_ = self.code, type_of(call)
        match call.op:
            case Op():
                emit_ops.emit_op(self, call, dst)
            case Constructor():
                fields = [self.obj(a) for a in call.args]
                code.emit("AllocADT", dst[1], self.program.constructor(call.op), fields)
            case GlobalVar():
                callee = self.program.definition(call.op)
                if "Closure" in callee.attrs:
                    self._closure(callee, call, dst)
                    return
                produced = self._returns_int(callee)
                index = self.program.function(call.op, False, False)
                args = self._arguments(callee, call)
                bit = INT_BIT if produced else 0
                self.into(dst, type_, produced, lambda r: code.emit("Invoke", r | bit, index, args))
            case _:
                closure = self.obj(call.op)
                operands = [self.obj(a) for a in call.args]
                self.into(
                    dst, type_, False, lambda r: code.emit("InvokeClosure", r, closure, operands)
                )

    def _closure(self, maker: Function, call: Call, dst: Place) -> None:
        """A call of a function that makes a closure (lambda_lift): its captures are the call's
        arguments.
        """
        inner = maker.body
        target = (
            inner.body.op if isinstance(inner, Function) and isinstance(inner.body, Call) else None
        )
        if not isinstance(target, GlobalVar):
            raise CompileError(
                "a function with attribute Closure must return a function that calls a global"
            )
        captures = [self.obj(a) for a in call.args]
        self.code.emit("AllocClosure", dst[1], self.program.function(target, True, True), captures)

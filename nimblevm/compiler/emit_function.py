"""One ANF function -> the words of its code: blocks, branches, calls, returns.

The registers are emit_frame.py's, operators emit_ops.py's. Nothing recurses: nested blocks wait on a
work stack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nimblevm.compiler import emit_ops
from nimblevm.compiler.code_buffer import Label
from nimblevm.compiler.emit_dims import INT_BIT
from nimblevm.compiler.emit_frame import Frame, Place, Program
from nimblevm.compiler.emit_match import MatchArms
from nimblevm.compiler.liveness import Block, Item, aliased, never_read, worth_killing
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
    Tuple,
    TupleGetItem,
    Var,
)
from nimblevm.relay.op.registry import Op


class FunctionEmitter(Frame):
    """Writes the code of one variant of a function.

    closure: it is entered from closures, which know nothing of its parameters but their number.
    boxed_result: an integer is returned as an object.
    """

    def __init__(
        self, program: Program, function: Function, name: str, closure: bool, boxed_result: bool
    ) -> None:
        super().__init__(program, function, name, closure, boxed_result)
        self.closure = closure
        self.work: list[Callable[[], None]] = []

    # --- the whole function ---------------------------------------------------------------------

    def run(self) -> None:
        self.code.at(self.fn.span)
        self._enter_params()
        self.work.append(partial(self._block, self.blocks[0], None))
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
            if self.is_unboxed(type_of(param)) and not in_int:
                self._bind_boxed_param(param, place[1], index in dim_of)
            if index in dim_of:
                self._bind_dim_param(dim_of[index], param)
        captures = self.fn.attrs.get("captures", 0)
        for param in self.fn.params[:captures]:
            self.bind_dims(param)
        emit_ops.check_params(self, self.fn.params[captures:], self.closure)
        self.free_temps()
        self.expire(0)

    def _bind_boxed_param(self, param: Var, register: int, is_dim: bool) -> None:
        if never_read(param, self.live) and not is_dim:
            return
        place = (True, self.ints.take())
        self.unbox(place[1], register, type_of(param))
        self.where[param] = place
        self.objs.give(register)

    def _bind_dim_param(self, dim: DimVar, param: Var) -> None:
        in_int, register = self.where[param]
        if not in_int:
            unboxed = self.ints.take()
            self.unbox(unboxed, register, type_of(param))
            register = unboxed
        else:
            self.pinned.add(param)
        self.dims.bind(dim, register, owned=False)

    # --- blocks ---------------------------------------------------------------------------------

    def _block(self, block: Block, dst: Place | None) -> None:
        """Write a block; dst None: its value is returned."""
        mark = self.dims.mark()
        self.expire(block.entry)
        self.work.append(partial(self.dims.rollback, mark))
        self._items(block, 0, dst)

    def _kill_dead(self, block: Block) -> None:
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
            self.load(item.value, self.define(var))
        elif not emit_ops.emit_effect_only(self, item.value, var):
            self.value(item.value, self.define(var))
        if self.root(var) in self.where:
            self.bind_dims(var)
        self.free_temps()
        self.expire(item.position)

    def _branch(self, item: Item, dst: Place | None) -> None:
        """Write an If or Match whose blocks deliver into `dst` (None: return)."""
        end = Label()
        if dst is not None:
            self.work.append(partial(self.code.place, end))
        if isinstance(item.value, If):
            self._if(item, item.value, dst, end)
        elif isinstance(item.value, Match):
            self._match(item, item.value, dst, end)
        else:
            raise CompileError(f"{type(item.value).__name__} with blocks is not in ANF")

    def _if(self, item: Item, value: If, dst: Place | None, end: Label) -> None:
        otherwise = Label()
        self.code.emit("If", self.integer(value.cond), otherwise)
        self.free_temps()
        self._expire_before_branches(item)
        self.work += [
            partial(self._block, item.blocks[1], dst),
            partial(self._kill_dead, item.blocks[1]),
            partial(self.code.place, otherwise),
            partial(self._skip_to, end, dst),
            partial(self._block, item.blocks[0], dst),
        ]

    def _match(self, item: Item, value: Match, dst: Place | None, end: Label) -> None:
        arms = MatchArms(self, value)
        arms.select()
        self.free_temps()
        self._expire_before_branches(item)
        work: list[Callable[[], None]] = []
        for index, block in enumerate(item.blocks):
            work += [
                partial(arms.begin, index),
                partial(self._kill_dead, block),
                partial(arms.bind, index),
                partial(self._block, block, dst),
                arms.leave,
            ]
            if index < len(item.blocks) - 1:
                work.append(partial(self._skip_to, end, dst))
        work.append(partial(self._match_failure, arms, dst, end))
        self.work += reversed(work)

    def _match_failure(self, arms: MatchArms, dst: Place | None, end: Label) -> None:
        if arms.may_fail():
            self._skip_to(end, dst)
            arms.fail()

    def _skip_to(self, end: Label, dst: Place | None) -> None:
        if dst is not None:
            self.code.emit("Goto", end)

    def _expire_before_branches(self, item: Item) -> None:
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
            self.load(value, dst)
        else:
            self.value(value, dst)
        self.free_temps()
        self.expire(item.position, kill=dst is not None)

    def _move(self, var: Var, dst: Place) -> None:
        in_int, register = self.place_of(var)
        if in_int != dst[0]:
            convert = self.unbox if dst[0] else self.box
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
            index = self.program.function(call.op, boxed_result=not self.result_is_int)
            self.code.emit("InvokeTail", index, self._arguments(callee, call))
            return True
        if isinstance(call.op, Op | Constructor) or self.result_is_int:
            return False
        closure = self.obj(call.op)
        self.code.emit("InvokeClosureTail", closure, [self.obj(a) for a in call.args])
        return True

    def _returns_int(self, callee: Function) -> bool:
        return self.is_unboxed(callee.ret_type or type_of(callee.body))

    def _arguments(self, callee: Function, call: Call) -> list[int]:
        pairs = zip(call.args, callee.params, strict=True)
        return [self.any(a, self.is_unboxed(type_of(p))) for a, p in pairs]

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
                self.obj_into(dst, type_, lambda r: code.emit("GetField", r, source, value.index))
            case RefCreate():
                code.emit("AllocRef", dst[1], self.obj(value.value))
            case RefRead():
                ref = self.obj(value.ref)
                self.obj_into(dst, type_, lambda r: code.emit("ReadRef", r, ref))
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
                index = self.program.function(call.op)
                args = self._arguments(callee, call)
                if self._returns_int(callee):
                    self.int_into(
                        dst, type_, lambda r: code.emit("Invoke", r | INT_BIT, index, args)
                    )
                else:
                    self.obj_into(dst, type_, lambda r: code.emit("Invoke", r, index, args))
            case _:
                closure = self.obj(call.op)
                operands = [self.obj(a) for a in call.args]
                self.obj_into(
                    dst, type_, lambda r: code.emit("InvokeClosure", r, closure, operands)
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
        self.code.emit(
            "AllocClosure",
            dst[1],
            self.program.function(target, closure=True, boxed_result=True),
            captures,
        )

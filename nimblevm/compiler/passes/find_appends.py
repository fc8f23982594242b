"""Append to growing tensors instead of joining them anew.

before:  def @grow(%acc: Tensor[(?n, 4), float32], %x: Tensor[(1, 4), float32]) {
           let %y = concatenate((%acc, %x), axis=0); %y }
after:   def @grow(%acc: Tensor[(?n, 4), float32], %x: Tensor[(1, 4), float32]) {
           let %y = vm.append(%acc, %x, axis=0); %y }

The VM writes the tail behind the first operand where its block has room (docs/adr/0008), so that what
grows in a loop or from call to call costs what is added, not what is there. As a kernel of its own an
append can't be fused, so it is used only where something grows: the first operand comes from outside of
the block's operators (a parameter, a field, the result of a call, another append), its size on the axis
is unknown, and the result goes somewhere else than to operators of the block. All axes before `axis`
have size 1.

Needs: ANF, inferred types. Keeps: both. Cost: O(nodes). Removable.
"""

from __future__ import annotations

from nimblevm.compiler.liveness import aliased, operand_vars
from nimblevm.compiler.op_class import OpClass, class_of
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    fresh_var,
    is_primitive,
    let_chain,
    make_lets,
    map_functions,
    op_call,
    sub_blocks,
    type_of,
    with_body,
    with_children,
)
from nimblevm.relay import dims
from nimblevm.relay.ir import Call, Expr, Function, Let, Tuple, TupleGetItem, Var, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import registry
from nimblevm.relay.types import TensorType, Type

CONCATENATE = registry.get("concatenate")


def _axis(call: Call, parts: Tuple) -> int | None:
    """The axis along which a concatenation adds behind its first operand, whose size there is unknown."""
    first, result = type_of(parts.fields[0]), type_of(call)
    if not isinstance(first, TensorType) or not isinstance(result, TensorType):
        return None
    axis: int = call.attrs.axis % len(result.shape)
    before = result.shape[:axis]
    if isinstance(first.shape[axis], int) or any(d != 1 for d in before):
        return None
    return axis


def _values(block: Expr) -> list[Expr]:
    lets, tail = let_chain(block)
    return [*(let.value for let in lets), tail]


class _Finder:
    """Marks the variables of one function, then rewrites its blocks, inner ones first."""

    def __init__(self, unbox: bool) -> None:
        self.unbox = unbox
        self.tuples: dict[Var, Tuple] = {}
        self.reads: dict[Var, int] = {}
        self.escaping: set[Var] = set()  # read by something else than operators of the same block
        self.computed: set[Var] = set()  # made by operators other than appends
        self.done: dict[int, Expr] = {}
        self.found = False

    def run(self, function: Function) -> Function:
        order: list[Expr] = []
        stack = [function.body]
        while stack:
            block = stack.pop()
            order.append(block)
            for value in _values(block):
                stack.extend(sub_blocks(value))
        self._find_tuples(order)
        if not any(self._joined(value) for block in order for value in _values(block)):
            return function
        for block in order:
            for value in _values(block):
                for var in operand_vars(value):
                    self.reads[var] = self.reads.get(var, 0) + 1
        self._find_nested_reads(order)
        for block in order:
            self._find_escaping(*let_chain(block))
        for block in reversed(order):
            self.done[id(block)] = self._block(block)
        return with_body(function, self.done[id(function.body)]) if self.found else function

    def _find_tuples(self, order: list[Expr]) -> None:
        for block in order:
            for let in let_chain(block)[0]:
                if isinstance(let.value, Tuple):
                    self.tuples[let.var] = let.value

    def _joined(self, value: Expr) -> Tuple | None:
        """The operands of a concatenation of several tensors along an axis that can grow."""
        if not isinstance(value, Call) or value.op is not CONCATENATE:
            return None
        data = value.args[0]
        parts = (
            data
            if isinstance(data, Tuple)
            else self.tuples.get(data)
            if isinstance(data, Var)
            else None
        )
        if parts is None or len(parts.fields) < 2 or _axis(value, parts) is None:
            return None
        return parts

    def _is_operator(self, value: Expr) -> bool:
        return class_of(value, self.unbox) in (OpClass.KERNEL, OpClass.SCALAR)

    def _find_nested_reads(self, order: list[Expr]) -> None:
        home: dict[Var, int] = {}
        for number, block in enumerate(order):
            home.update((let.var, number) for let in let_chain(block)[0])
        for number, block in enumerate(order):
            for value in _values(block):
                self.escaping.update(
                    v for v in operand_vars(value) if home.get(v, number) != number
                )

    def _find_escaping(self, lets: list[Let], tail: Expr) -> None:
        """Backwards, because a tuple hands on what its reader does, and an append what becomes of it."""
        values = [(let.value, let.var) for let in lets]
        for value, var in reversed([*values, (tail, None)]):
            escapes = var is None or var in self.escaping
            parts = self._joined(value)
            if parts is not None:
                first = parts.fields[0]
                if escapes and isinstance(first, Var):
                    self.escaping.add(first)
            elif escapes if isinstance(value, Tuple) else not self._is_operator(value):
                self.escaping.update(operand_vars(value))

    def _block(self, block: Expr) -> Expr:
        lets, tail = let_chain(block)
        bindings: list[tuple[Var, Expr]] = []
        for let in lets:
            appended = self._appended(let.value, bindings) if let.var in self.escaping else None
            if appended is None and self._is_computed(let.value):
                self.computed.add(let.var)
            bindings.append((let.var, appended or self._value(let.value)))
        end = self._appended(tail, bindings) or self._value(tail)
        # A tuple that nothing else reads would count as a reader of its fields.
        left = [(v, x) for v, x in bindings if v not in self.tuples or self.reads.get(v)]
        return make_lets(left if self.found else bindings, end)

    def _appended(self, value: Expr, bindings: list[tuple[Var, Expr]]) -> Expr | None:
        """A concatenation whose result goes elsewhere as appends; None for anything else."""
        parts = self._joined(value)
        if parts is None or not isinstance(value, Call):
            return None
        first = parts.fields[0]
        if not isinstance(first, Var) or first in self.computed:
            return None
        self.found = True
        if isinstance(value.args[0], Var):
            self.reads[value.args[0]] -= 1
        return _appends(value, parts, bindings)

    def _is_computed(self, value: Expr) -> bool:
        if self._is_operator(value):
            return True
        of = value.tuple_value if isinstance(value, TupleGetItem) else aliased(value)
        if of is None and class_of(value, self.unbox) is OpClass.VIEW and isinstance(value, Call):
            of = value.args[0] if isinstance(value.args[0], Var) else None
        return of in self.computed

    def _value(self, value: Expr) -> Expr:
        if not sub_blocks(value):
            return value
        return with_children(value, tuple([self.done.get(id(c), c) for c in children(value)]))


def _appends(call: Call, parts: Tuple, bindings: list[tuple[Var, Expr]]) -> Expr:
    """The last of the appends that make a concatenation; those before it are bound."""
    result = type_of(call)
    axis = _axis(call, parts)
    whole, type_ = parts.fields[0], type_of(parts.fields[0])
    for index, part in enumerate(parts.fields[1:], 2):
        last = index == len(parts.fields)
        type_ = result if last else _longer(type_, type_of(part), axis)
        made = op_call("vm.append", (whole, part), type_, call.span, axis=axis)
        if last:
            return made
        whole = fresh_var("grown", type_)
        bindings.append((whole, made))
    raise ValueError("a concatenation of one tensor")


def _longer(type_: Type, added: Type, axis: int | None) -> Type:
    if not isinstance(type_, TensorType) or not isinstance(added, TensorType) or axis is None:
        raise TypeError(f"{type_!r} is no tensor")
    shape = list(type_.shape)
    shape[axis] = dims.add(shape[axis], added.shape[axis])
    return TensorType(shape, type_.dtype)


def find_appends(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def rewrite(function: Function) -> Function:
        return function if is_primitive(function) else _Finder(ctx.unbox).run(function)

    return map_functions(mod, rewrite)


FIND_APPENDS = Pass("find_appends", find_appends)

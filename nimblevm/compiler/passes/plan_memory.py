"""Let tensors share storage: in place where a kernel allows it, else where lifetimes do not meet.

before:  let %s0 = memory.alloc_storage(size=64); let %a = memory.alloc_tensor(%s0, ...); <kernel
writes %a>;
         let %s1 = memory.alloc_storage(size=64); let %b = memory.alloc_tensor(%s1, ...); <kernel
         reads %a, writes %b>; %b
after:   let %s0 = memory.alloc_storage(size=64); let %a = memory.alloc_tensor(%s0, ...); <kernel
writes %a>;
         let %b = memory.alloc_tensor(%s0, ...); <kernel reads %a, writes %b>; %b

Only inside one block, and only storage that the block itself allocated for a tensor that nothing
but kernels of that block touches, or vm.append, which copies its tail: a tensor that is returned,
called with, stored, viewed, appended to or read in a nested block keeps its storage for itself, and so does the last one to share a storage keep it to
the end. A later tensor takes the storage of a dead one if its size is provably not larger. Sizes
that mention dims are compared by the dim algebra. In place: the kernel's signature lets the output
alias the input, which dies at that very call.

Needs: the form of manifest_alloc. Keeps: types. Cost: O(n) with at most MAX_FREE candidates looked
at. Removable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.liveness import operand_vars
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
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
from nimblevm.errors import CompileError
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Function, IRModule, Leaf, Let, Tuple, Var, children
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, Type, free_dims

MAX_FREE = 8


def _is_op(value: Expr, name: str) -> bool:
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == name


def _computable(size: Dim, type_: Type) -> bool:
    """Whether a size can be computed from the shape; one that grew too large became an unknown of
    its own.
    """
    return set(dims.free_vars(size)) <= set(free_dims(type_))


@dataclass(eq=False, slots=True)
class _Tensor:
    """A tensor that a block allocates: its storage, the bytes of it, where it is used last, whether
    only kernels touch it.
    """

    var: Var
    storage: Var
    size: Dim
    last: int = -1
    private: bool = True


@dataclass(slots=True)
class _Plan:
    """storage variable -> the one that takes its place."""

    replaced: dict[Var, Var] = field(default_factory=dict)
    gone: set[Var] = field(default_factory=set)


class _BlockPlanner:
    def __init__(self, lets: list[Let], tail: Expr, kernels: KernelCache, nested: set[Var]) -> None:
        self.lets = lets
        self.tail = tail
        self.kernels = kernels
        self.nested = nested
        self.tensors: dict[Var, _Tensor] = {}
        self.plan = _Plan()

    def run(self) -> _Plan:
        self._find_tensors()
        if len(self.tensors) > 1:
            self._share()
        return self.plan

    def _find_tensors(self) -> None:
        sizes: dict[Var, Dim] = {}
        for index, let in enumerate(self.lets):
            value = let.value
            if _is_op(value, "memory.alloc_storage") and isinstance(value, Call):
                sizes[let.var] = value.attrs.size
            elif _is_op(value, "memory.alloc_tensor") and isinstance(value, Call):
                storage = value.args[0]
                type_ = type_of(value)
                if (
                    isinstance(storage, Var)
                    and storage in sizes
                    and _computable(sizes[storage], type_)
                ):
                    private = let.var not in self.nested
                    self.tensors[let.var] = _Tensor(
                        let.var, storage, sizes[storage], index, private
                    )
            elif _is_op(value, "vm.append") and isinstance(value, Call):
                whole, tail = value.args
                for var in operand_vars(
                    value
                ):  # the tail is copied, the result is on whole's memory
                    self._touch(var, index, var is tail and var is not whole)
            else:
                kernel = _is_op(value, "vm.call_kernel")
                for var in operand_vars(value):
                    self._touch(var, index, kernel)
        for var in operand_vars(self.tail):
            self._touch(var, len(self.lets), False)

    def _touch(self, var: Var, index: int, by_kernel: bool) -> None:
        tensor = self.tensors.get(var)
        if tensor is not None:
            tensor.last = index
            tensor.private = tensor.private and by_kernel

    def _share(self) -> None:
        """Walk the block once, with the storages that are free at each place."""
        free: list[tuple[Var, Dim]] = []
        dying: dict[int, list[_Tensor]] = {}
        for tensor in self.tensors.values():
            if tensor.private:
                dying.setdefault(tensor.last, []).append(tensor)
        calls = self._calls_by_output()
        for index, let in enumerate(self.lets):
            made = self.tensors.get(let.var)
            if made is not None:
                self._place(made, free, calls.get(let.var))
            for dead in dying.get(index, ()):
                if dead.var not in self.plan.gone and len(free) < MAX_FREE:
                    free.append((self._storage(dead), dead.size))

    def _storage(self, tensor: _Tensor) -> Var:
        return self.plan.replaced.get(tensor.storage, tensor.storage)

    def _calls_by_output(self) -> dict[Var, tuple[int, Call]]:
        found: dict[Var, tuple[int, Call]] = {}
        for index, let in enumerate(self.lets):
            if _is_op(let.value, "vm.call_kernel") and isinstance(let.value, Call):
                outs = let.value.args[2]
                for field_ in outs.fields if isinstance(outs, Tuple) else ():
                    if isinstance(field_, Var):
                        found[field_] = (index, let.value)
        return found

    def _place(
        self, tensor: _Tensor, free: list[tuple[Var, Dim]], call: tuple[int, Call] | None
    ) -> None:
        if call is not None:
            source = self._in_place(tensor, *call)
            if source is not None:
                self.plan.replaced[tensor.storage] = self._storage(source)
                self.plan.gone.add(source.var)  # its storage lives on in this tensor
                return
        if not tensor.private:
            return  # what leaves the block keeps no larger block alive
        for position, (storage, size) in enumerate(free):
            if dims.at_least(size, tensor.size):
                del free[position]
                self.plan.replaced[tensor.storage] = storage
                return

    def _in_place(self, tensor: _Tensor, index: int, call: Call) -> _Tensor | None:
        """An operand of the call that dies there and whose storage the output may take."""
        function, ins, outs = call.args
        if (
            not isinstance(function, Function)
            or not isinstance(ins, Tuple)
            or not isinstance(outs, Tuple)
        ):
            raise CompileError("vm.call_kernel takes a function and two tuples")
        if any(not isinstance(type_of(a), TensorType) for a in ins.fields):
            return None
        ints = self.kernels.int_params(function)
        operands = [a for i, a in enumerate(ins.fields) if i not in ints] + list(outs.fields)
        for out, source in self.kernels.find(function)[1].alias:
            if operands[out] is not tensor.var:
                continue
            candidate = operands[source]
            found = self.tensors.get(candidate) if isinstance(candidate, Var) else None
            if found is None or not found.private or found.last != index:
                continue
            alone = found.var not in self.plan.gone and operands.count(found.var) == 1
            if alone and dims.at_least(found.size, tensor.size):
                return found
        return None


class _Planner:
    """All blocks of one function."""

    def __init__(self, kernels: KernelCache) -> None:
        self.kernels = kernels
        self.nested: set[Var] = set()  # read in a block inside the one that binds them
        self.done: dict[int, Expr] = {}

    def run(self, function: Function) -> Function:
        order: list[Expr] = []
        stack = [function.body]
        while stack:
            block = stack.pop()
            order.append(block)
            lets, tail = let_chain(block)
            for value in (*(let.value for let in lets), tail):
                stack.extend(sub_blocks(value))
        self._find_nested_reads(order)
        for block in reversed(order):
            if not isinstance(block, Leaf):
                self.done[id(block)] = self._block(block)
        return with_body(function, self.done.get(id(function.body), function.body))

    def _find_nested_reads(self, order: list[Expr]) -> None:
        home: dict[Var, int] = {}
        for number, block in enumerate(order):
            for let in let_chain(block)[0]:
                home[let.var] = number
        for number, block in enumerate(order):
            lets, tail = let_chain(block)
            for value in (*(let.value for let in lets), tail):
                self.nested.update(v for v in operand_vars(value) if home.get(v, number) != number)

    def _block(self, block: Expr) -> Expr:
        lets, tail = let_chain(block)
        planner = _BlockPlanner(lets, tail, self.kernels, self.nested)
        plan = planner.run()
        bindings: list[tuple[Var, Expr]] = []
        for let in lets:
            if let.var in plan.replaced:
                continue
            bindings.append((let.var, self._value(let.value, plan)))
        return make_lets(bindings, self._value(tail, plan))

    def _value(self, value: Expr, plan: _Plan) -> Expr:
        if _is_op(value, "memory.alloc_tensor") and isinstance(value, Call):
            storage = value.args[0]
            other = plan.replaced.get(storage) if isinstance(storage, Var) else None
            if other is not None:
                attrs = value.attrs
                return op_call(
                    "memory.alloc_tensor", (other,), type_of(value),
                    shape=attrs.shape, dtype=attrs.dtype, offset=attrs.offset,
                )  # fmt: skip
        if not sub_blocks(value):
            return value
        return with_children(value, tuple([self.done.get(id(c), c) for c in children(value)]))


def plan_memory(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def plan(function: Function) -> Function:
        return function if is_primitive(function) else _Planner(ctx.kernels).run(function)

    return map_functions(mod, plan)


PLAN_MEMORY = Pass("plan_memory", plan_memory)

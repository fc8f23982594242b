"""Let tensors share storage: in place where a kernel allows it, else where lifetimes do not meet.

before:  let %s0 = memory.alloc_storage(size=64); let %a = memory.alloc_tensor(%s0, ...); <kernel writes %a>;
         let %s1 = memory.alloc_storage(size=64); let %b = memory.alloc_tensor(%s1, ...); <kernel reads %a, writes %b>;
         let %s2 = memory.alloc_storage(size=64); let %c = memory.alloc_tensor(%s2, ...); <kernel reads %b, writes %c>;
         ...
after:   let %s0 = memory.alloc_storage(size=64); let %a = memory.alloc_tensor(%s0, ...); <kernel writes %a>;
         let %s1 = memory.alloc_storage(size=64); let %b = memory.alloc_tensor(%s1, ...); <kernel reads %a, writes %b>;
         <kernel reads %b, writes %a>;
         ...

Only inside one block, and only storage that the block itself allocated for a tensor that nothing but kernels of that
block touches, under its own name or as a view, and vm.append, which copies its tail: a tensor that is returned, called
with, stored, appended to or read in a nested block keeps its storage for itself, and so does the last one to share a
storage keep it to the end. Which storage serves which tensors: compiler/storage.py. A tensor of the same type as an
earlier one on its storage is that one's object again, which costs nothing at run time. In place: the kernel's signature
lets the output alias the input, which dies at that very call. Sizes that mention dims are compared by the dim algebra.

Needs: the form of manifest_alloc. Keeps: types. Cost: O(n log n). Removable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.liveness import ALIASES, operand_vars
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    is_primitive,
    let_chain,
    make_lets,
    map_functions,
    op_call,
    sub_blocks,
    type_of,
    typed,
    with_body,
    with_children,
)
from nimblevm.compiler.storage import Request, assign
from nimblevm.errors import CompileError
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Function, Leaf, Let, Tuple, Var, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, Type, free_dims

_VIEWS = ALIASES | {"vm.reshape_tensor", "vm.shrink", "vm.rows"}


def _op_name(value: Expr) -> str:
    return value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else ""


def _computable(size: Dim, type_: Type) -> bool:
    """Whether a size can be computed from the shape; one that grew too large became an unknown of
    its own.
    """
    return set(dims.free_vars(size)) <= set(free_dims(type_))


@dataclass(eq=False, slots=True)
class _Tensor:
    """A tensor that a block allocates: its storage, the bytes of it, first and last use, whether only kernels touch
    it; the tensor it overwrites in place, and whether another overwrites it.
    """

    var: Var
    storage: Var
    size: Dim
    first: int
    last: int = -1
    private: bool = True
    source: _Tensor | None = None
    gone: bool = False


@dataclass(slots=True)
class _Plan:
    """storage: allocated tensor -> its storage. sizes: storages that stay -> their bytes. same: tensor -> the earlier
    one that it is.
    """

    storage: dict[Var, Var] = field(default_factory=dict)
    sizes: dict[Var, Dim] = field(default_factory=dict)
    same: dict[Var, Var] = field(default_factory=dict)


class _BlockPlanner:
    def __init__(self, lets: list[Let], tail: Expr, kernels: KernelCache, nested: set[Var]) -> None:
        self.lets = lets
        self.tail = tail
        self.kernels = kernels
        self.nested = nested
        self.tensors: dict[Var, _Tensor] = {}  # by its own name and by those of its views
        self.devices: dict[Var, int] = {}  # of storages
        # Views that may start elsewhere than their tensor: never overwritten.
        self.parts: set[Var] = set()

    def run(self) -> _Plan | None:
        """None if there is nothing to share."""
        self._find_tensors()
        if len(self.tensors) < 2:
            return None
        self._overwrite()
        plan = _Plan()
        chains = self._chains()
        by_device: dict[int, list[list[_Tensor]]] = {}
        for chain in chains:
            if chain[-1].private:
                by_device.setdefault(self.devices[chain[0].storage], []).append(chain)
        for shared in by_device.values():
            requests = [
                Request(c[0].size, c[0].first, c[-1].last, frozenset(free_dims(type_of(c[0].var))))
                for c in shared
            ]
            for slot in assign(requests):
                members = [tensor for i in slot.members for tensor in shared[i]]
                self._place(members, slot.size, plan)
        for chain in chains:
            if not chain[-1].private:
                self._place(chain, chain[0].size, plan)
        return plan

    def _find_tensors(self) -> None:
        sizes: dict[Var, Dim] = {}
        for index, let in enumerate(self.lets):
            value = let.value
            name = _op_name(value)
            if name == "memory.alloc_storage" and isinstance(value, Call):
                sizes[let.var] = value.attrs.size
                self.devices[let.var] = value.attrs.device
            elif name == "memory.alloc_tensor" and isinstance(value, Call):
                storage = value.args[0]
                if not isinstance(storage, Var) or storage not in sizes:
                    continue
                if _computable(sizes[storage], type_of(value)):
                    self.tensors[let.var] = _Tensor(
                        let.var, storage, sizes[storage], index, index, let.var not in self.nested
                    )
            elif name == "vm.append" and isinstance(value, Call):
                whole, tail = value.args  # the tail is copied, the result is on whole's memory
                for var in operand_vars(value):
                    self._touch(var, index, var is tail and var is not whole)
            else:
                view = name in _VIEWS or isinstance(value, Var)
                for var in operand_vars(value):
                    self._touch(var, index, view or name == "vm.call_kernel")
                viewed = self._viewed(value) if view else None
                if viewed is not None:
                    self.tensors[let.var] = viewed
                    viewed.private = viewed.private and let.var not in self.nested
                    if name == "vm.rows" or self._source(value) in self.parts:
                        self.parts.add(let.var)
        for var in operand_vars(self.tail):
            self._touch(var, len(self.lets), harmless=False)

    @staticmethod
    def _source(value: Expr) -> Expr:
        """What a view is of."""
        return value.args[0] if isinstance(value, Call) else value

    def _viewed(self, value: Expr) -> _Tensor | None:
        source = self._source(value)
        return self.tensors.get(source) if isinstance(source, Var) else None

    def _touch(self, var: Var, index: int, harmless: bool) -> None:
        tensor = self.tensors.get(var)
        if tensor is not None:
            tensor.last = index
            tensor.private = tensor.private and harmless

    def _overwrite(self) -> None:
        """Outputs that take the storage of an operand."""
        for index, let in enumerate(self.lets):
            call = let.value
            if _op_name(call) != "vm.call_kernel" or not isinstance(call, Call):
                continue
            function, ins, outs = call.args
            if (
                not isinstance(function, Function)
                or not isinstance(ins, Tuple)
                or not isinstance(outs, Tuple)
            ):
                raise CompileError("vm.call_kernel takes a function and two tuples")
            if any(not isinstance(type_of(a), TensorType) for a in ins.fields):
                continue
            ints = self.kernels.int_params(function)
            inputs = [a for i, a in enumerate(ins.fields) if i not in ints]
            operands = [
                self.tensors.get(a) if isinstance(a, Var) else None for a in (*inputs, *outs.fields)
            ]
            for out, source in self.kernels.find(function)[1].alias:
                made, found = operands[out], operands[source]
                if source < len(inputs) and inputs[source] in self.parts:
                    continue
                if made is None or found is None or not self._dies(found, index, operands):
                    continue
                if made.source is None and dims.at_least(found.size, made.size):
                    made.source, found.gone = found, True

    def _dies(self, found: _Tensor, index: int, operands: list[_Tensor | None]) -> bool:
        if not found.private or found.gone or found.last != index:
            return False
        return operands.count(found) == 1

    def _chains(self) -> list[list[_Tensor]]:
        """Tensors that follow each other in place, in order of time."""
        chain_of: dict[_Tensor, list[_Tensor]] = {}
        chains: list[list[_Tensor]] = []
        for var, tensor in self.tensors.items():
            if tensor.var is not var:
                continue  # a view
            chain = chain_of[tensor.source] if tensor.source is not None else []
            if not chain:
                chains.append(chain)
            chain.append(tensor)
            chain_of[tensor] = chain
        return chains

    def _place(self, tensors: list[_Tensor], size: Dim, plan: _Plan) -> None:
        """All of them, in order of time, on the first one's storage."""
        storage = tensors[0].storage
        plan.sizes[storage] = size
        objects: dict[Type, Var] = {}
        for tensor in tensors:
            plan.storage[tensor.var] = storage
            if not tensor.private:
                continue
            earlier = objects.setdefault(type_of(tensor.var), tensor.var)
            if earlier is not tensor.var:
                plan.same[tensor.var] = earlier


class _Planner:
    """All blocks of one function."""

    def __init__(self, kernels: KernelCache) -> None:
        self.kernels = kernels
        self.read: set[Var] = set()
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
                used = list(operand_vars(value))
                self.read.update(used)
                self.nested.update(v for v in used if home.get(v, number) != number)

    def _block(self, block: Expr) -> Expr:
        lets, tail = let_chain(block)
        lets = [
            let for let in lets if not (isinstance(let.value, Tuple) and let.var not in self.read)
        ]
        plan = _BlockPlanner(lets, tail, self.kernels, self.nested).run() or _Plan()
        shared = {
            let.value.args[0]
            for let in lets
            if let.var in plan.storage and isinstance(let.value, Call)
        }
        bindings: list[tuple[Var, Expr]] = []
        for let in lets:
            dropped = let.var in shared and let.var not in plan.sizes
            if not dropped and let.var not in plan.same:
                bindings.append((let.var, self._value(let, plan)))
        return make_lets(bindings, self._inner(tail))

    def _value(self, let: Let, plan: _Plan) -> Expr:
        value = let.value
        size = plan.sizes.get(let.var)
        if size is not None and isinstance(value, Call) and size != value.attrs.size:
            attrs = value.attrs
            return op_call(
                "memory.alloc_storage", (), type_of(value),
                size=size, alignment=attrs.alignment, device=attrs.device,
            )  # fmt: skip
        storage = plan.storage.get(let.var)
        if storage is not None and isinstance(value, Call) and value.args[0] is not storage:
            attrs = value.attrs
            return op_call(
                "memory.alloc_tensor", (storage,), type_of(value),
                shape=attrs.shape, dtype=attrs.dtype, offset=attrs.offset,
            )  # fmt: skip
        return _renamed(self._inner(value), plan.same)

    def _inner(self, value: Expr) -> Expr:
        if not sub_blocks(value):
            return value
        return with_children(value, tuple([self.done.get(id(c), c) for c in children(value)]))


def _renamed(value: Expr, same: dict[Var, Var]) -> Expr:
    """A kernel call, view or variable with other names of its operands."""
    if not same or all(var not in same for var in operand_vars(value)):
        return value
    if isinstance(value, Var):
        return same[value]
    return with_children(value, tuple([_atom(child, same) for child in children(value)]))


def _atom(value: Expr, same: dict[Var, Var]) -> Expr:
    if isinstance(value, Var):
        return same.get(value, value)
    if isinstance(value, Tuple):
        fields = tuple([_atom(f, same) for f in value.fields])
        return typed(Tuple(fields, span=value.span), value.checked_type)
    return value


def plan_memory(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def plan(function: Function) -> Function:
        return function if is_primitive(function) else _Planner(ctx.kernels).run(function)

    return map_functions(mod, plan)


PLAN_MEMORY = Pass("plan_memory", plan_memory)

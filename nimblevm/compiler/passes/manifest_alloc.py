"""Make every allocation of a kernel's result a binding of its own: destination-passing style.

before:  let %y = fn (%p: Tensor[(?n, 4), float32], Primitive=1) { tanh(%p) }(%x);
after:   let %s = memory.alloc_storage(size=16*?n);
         let %y = memory.alloc_tensor(%s, shape=[?n, 4], dtype="float32");
         let %k = vm.call_kernel(fn (...) {...}, (%x,), (%y,));

A group with several results allocates each of them and then makes the tuple. An operator whose
result is a view of its operand (reshape, expand_dims, squeeze) becomes vm.reshape_tensor.

A result whose size only the kernel finds is allocated at its bound (Op.bound) and cut:

before:  let %y = fn (%p: Tensor[(?n), bool], Primitive=1) { argwhere(%p) }(%x);   (type: [(?d, 1)])
after:   let %out = memory.alloc_tensor(%s, shape=[?n, 1], dtype="int32");
         let %k = vm.call_kernel(fn (...) {...}, (%x,), (%out,), dims=[?d]);
         let %y = vm.shrink(%out, shape=[?d, 1]);

Needs: ANF, groups of fuse_ops. Keeps: both; arguments of vm.call_kernel are tuples of atoms. Cost:
O(nodes).
"""

from __future__ import annotations

from nimblevm import dtypes
from nimblevm.compiler.op_class import OpClass, class_of, is_int
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
    typed,
    with_body,
    with_children,
)
from nimblevm.errors import CompileError
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Call, Expr, Function, Tuple, TupleGetItem, TypeData, Var, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.op.vm import STORAGE
from nimblevm.relay.types import TensorType, TupleType, Type

ALIGNMENT = 64


def byte_size(type_: TensorType) -> Dim:
    """Bytes of a compact tensor."""
    size: Dim = dtypes.dtype(type_.dtype).itemsize
    for dim in type_.shape:
        size = dims.mul(size, dim)
    return size


def _bounds(value: Call) -> tuple[TensorType, ...] | None:
    """What to allocate for a fused call whose results are found by the kernel; None for any other."""
    call = value.op.body if isinstance(value.op, Function) else None
    if not isinstance(call, Call) or not isinstance(call.op, Op) or call.op.bound is None:
        return None
    return call.op.bound(tuple(type_of(a) for a in call.args), call.attrs)


def _device(function: Expr) -> int:
    """Where plan_devices put a kernel."""
    return int(function.attrs.get("device", 0)) if isinstance(function, Function) else 0


def _first_dim(var: Var) -> DimVar:
    """The unknown that the kernel finds."""
    type_ = type_of(var)
    dim = type_.shape[0] if isinstance(type_, TensorType) and type_.shape else None
    if not isinstance(dim, DimVar):
        raise CompileError(f"a result of type {type_!r} has no size that its kernel could find")
    return dim


class _Manifest:
    """Rewrites the blocks of one function, inner ones first."""

    def __init__(self, unbox: bool) -> None:
        self.unbox = unbox
        self.done: dict[int, Expr] = {}
        self.count = 0
        self.fields: dict[Var, tuple[Var, ...]] = {}  # tuples that a kernel gave

    def run(self, function: Function) -> Function:
        order: list[Expr] = []
        stack = [function.body]
        while stack:
            block = stack.pop()
            order.append(block)
            lets, tail = let_chain(block)
            for value in (*(let.value for let in lets), tail):
                stack.extend(sub_blocks(value))
        for block in reversed(order):
            self.done[id(block)] = self._block(block)
        return with_body(function, self.done[id(function.body)])

    def _fresh(self, wish: str, type_: Type | None = None) -> Var:
        self.count += 1
        return fresh_var(f"{wish}{self.count - 1}", STORAGE if type_ is None else type_)

    def _block(self, block: Expr) -> Expr:
        lets, tail = let_chain(block)
        bindings: list[tuple[Var, Expr]] = []
        for let in lets:
            self._binding(let.var, let.value, bindings)
        if isinstance(tail, Call) and is_primitive(tail.op):
            var = fresh_var("out", type_of(tail))
            self._binding(var, tail, bindings)
            return make_lets(bindings, var)
        return make_lets(bindings, self._simple(tail))

    def _simple(self, value: Expr) -> Expr:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
            known = self.fields.get(value.tuple_value)
            if known is not None:
                field = known[value.index]
                boxed = self.unbox and is_int(type_of(field))
                return op_call("copy", (field,), type_of(field)) if boxed else field
        if class_of(value, self.unbox) is OpClass.VIEW and isinstance(value, Call):
            result = type_of(value)
            if isinstance(result, TensorType):
                return op_call(
                    "vm.reshape_tensor", value.args[:1], result, value.span, shape=result.shape
                )
        if not sub_blocks(value):
            return value
        return with_children(value, tuple(self.done.get(id(c), c) for c in children(value)))

    def _binding(self, var: Var, value: Expr, bindings: list[tuple[Var, Expr]]) -> None:
        if not (isinstance(value, Call) and is_primitive(value.op)):
            bindings.append((var, self._simple(value)))
            return
        result = type_of(value)
        device = _device(value.op)
        if isinstance(result, TupleType):
            outs = tuple(self._fresh("out", t) for t in result.fields if isinstance(t, TensorType))
        elif (self.unbox or device) and is_int(result):
            outs = (
                self._fresh("out", result),
            )  # a kernel writes an object; the variable is unboxed
        else:
            outs = (var,)
        results = outs
        bounds = _bounds(value)
        if bounds is not None:
            outs = tuple(
                out if type_of(out) == bound else self._fresh("out", bound)
                for out, bound in zip(results, bounds, strict=True)
            )
        for out in outs:
            self._allocate(out, value, bindings)
        ins = typed(Tuple(value.args), TupleType(type_of(a) for a in value.args))
        tensors = typed(Tuple(outs), TupleType(type_of(o) for o in outs))
        cut = [(r, o) for r, o in zip(results, outs, strict=True) if r is not o]
        found = tuple(dict.fromkeys(_first_dim(r) for r, _ in cut))
        call = op_call(
            "vm.call_kernel", (value.op, ins, tensors), type_of(tensors), value.span, dims=found
        )
        bindings.append((self._fresh("k", TupleType(type_of(o) for o in outs)), call))
        if device:
            results = tuple([self._on_host(r, bindings) for r in results])
        for small, large in cut:
            type_ = type_of(small)
            shape = type_.shape if isinstance(type_, TensorType) else ()
            view = op_call("vm.shrink", (large,), type_, value.span, shape=shape)
            bindings.append((small, view))
        outs = results
        if isinstance(result, TupleType):
            self.fields[var] = outs
            bindings.append((var, typed(Tuple(outs, span=value.span), result)))
        elif outs[0] is not var:
            bindings.append((var, op_call("copy", outs, result) if self.unbox else outs[0]))

    def _on_host(self, out: Var, bindings: list[tuple[Var, Expr]]) -> Var:
        """A number that a kernel on a device found, where the host can read it; anything else stays."""
        if not is_int(type_of(out)):
            return out
        copy = self._fresh("out", type_of(out))
        bindings.append((copy, op_call("vm.device_copy", (out,), type_of(out), device=0)))
        return copy

    def _allocate(self, out: Var, value: Expr, bindings: list[tuple[Var, Expr]]) -> None:
        type_ = type_of(out)
        if not isinstance(type_, TensorType):
            raise TypeError(f"a kernel gives tensors, not {type_!r}")
        storage = self._fresh("s")
        device = _device(value.op) if isinstance(value, Call) else 0
        size = op_call(
            "memory.alloc_storage", (), STORAGE, value.span,
            size=byte_size(type_), alignment=ALIGNMENT, device=device,
        )  # fmt: skip
        tensor = op_call(
            "memory.alloc_tensor", (storage,), type_, value.span, shape=type_.shape, dtype=type_.dtype
        )  # fmt: skip
        bindings += ((storage, size), (out, tensor))


def manifest_alloc(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def rewrite(function: Function) -> Function:
        return function if is_primitive(function) else _Manifest(ctx.unbox).run(function)

    result = map_functions(mod, rewrite)
    if result is not mod and STORAGE.func not in result.type_definitions:
        result.add_type(TypeData(STORAGE.func, (), ()))  # so that the text names what it uses
    return result


MANIFEST_ALLOC = Pass("manifest_alloc", manifest_alloc, required=True)

"""Fused Relay function -> loop IR kernel.

    fn (%x: Tensor[(?n, 300)], %w: Tensor[(512, 300)], %b: Tensor[(512)], Primitive=1) {
      tanh(nn.dense(%x, %w) + %b)
    }

becomes one kernel: buffers x, w, b, out; in-dim n;

    for i < n: for j < 512: { acc = 0; for k < 300: acc += x[i,k] * w[j,k]; out[i,j] = tanh(acc + b[j]) }

Every distinct dim expression of the function's types that the body or a signature needs is an
in-dim: the caller computes it, so index expressions stay short.

Outputs of one shape share a nest of loops; products of a softmax of products have loops of their own
(attention.py). A concatenate that reaches an output through elementwise operators gives one nest a
part. Values that loops would compute again and again are stored in scratch buffers (see
tensor_expr.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.abi import MAX_OPERANDS
from nimblevm.errors import CompileError
from nimblevm.kernels import compute  # noqa: F401  fills the table of computes
from nimblevm.kernels.attention import attention_kernel, find_attention
from nimblevm.kernels.c_calls import CCall, c_calls
from nimblevm.kernels.c_rules import calls_c_only
from nimblevm.kernels.facts import aliases, loads_of, may_fail
from nimblevm.kernels.loop_ir import (
    Axis,
    Buffer,
    DimRef,
    Kernel,
    Load,
    Statement,
    Store,
    Value,
    operand_roles,
)
from nimblevm.kernels.lower_loops import all_levels, repeated
from nimblevm.kernels.lowered import InDim, IntParam, LoweredKernel
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values, values_of
from nimblevm.kernels.tensor_expr import (
    INDEX,
    Emitter,
    Index,
    Moved,
    Steps,
    TensorExpr,
    Tensors,
    find_compute,
    ready,
)
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Let,
    Span,
    Tuple,
    TupleGetItem,
    Var,
)
from nimblevm.relay.levels import LevelLoop
from nimblevm.relay.op.registry import Op
from nimblevm.relay.steps import StepLoop
from nimblevm.relay.types import TensorType, TupleType, Type


def flat_types(type_: Type | None) -> tuple[TensorType, ...]:
    """The tensors of a type of nested tuples, from left to right; CompileError for anything else."""
    found: list[TensorType] = []
    stack: list[Type | None] = [type_]
    while stack:
        match stack.pop():
            case TensorType() as tensor:
                found.append(tensor)
            case TupleType(fields=fields):
                stack.extend(reversed(fields))
            case other:
                raise CompileError(
                    f"a kernel takes and gives tensors and tuples of them, not {other!r}"
                )
    return tuple(found)


def lower_primitive(
    fn: Function, name: str = "kernel", int_params: frozenset[int] = frozenset()
) -> LoweredKernel:
    """Lower a fused function (types inferred).

    int_params: positions among the flat parameters of rank-0 integers that are passed as in-dims
    instead of buffers. Raises CompileError, with the place, for what has no lowering (ask
    `has_compute` first).
    """
    if calls_c_only(fn):
        return _c_only(fn, name)
    steps, levels = StepLoop.of(fn), LevelLoop.of(fn)
    lowered = _Lowering(fn, name, int_params, steps).run()
    if levels is not None:
        return all_levels(lowered, levels, fn, int_params)
    if steps is None:
        return lowered
    found = repeated(lowered, steps, int_params)
    if len(found.kernel.buffers) <= MAX_OPERANDS:
        return found
    return repeated(_Lowering(fn, name, int_params).run(), steps, int_params)


def _c_only(fn: Function, name: str) -> LoweredKernel:
    """A function that only a C kernel computes."""
    found = c_calls(fn)
    if not found:
        place = f"{fn.body.span}: " if isinstance(fn.body.span, Span) else ""
        raise CompileError(f"{place}kernel {name}: no C kernel takes operands of these types")
    params = tuple(t for p in fn.params for t in flat_types(p.checked_type or p.type_annotation))
    outs = flat_types(_result_type(fn))
    return LoweredKernel(Kernel(name, (), (), ()), (), params, outs, (), found, may_fail=True)


class _Lowering:
    def __init__(
        self, fn: Function, name: str, int_params: frozenset[int], steps: StepLoop | None = None
    ) -> None:
        self.fn = fn
        self.steps = steps
        self.name = name
        self.int_params = int_params
        self.all_levels = LevelLoop.of(fn) is not None
        self.em = Emitter()
        self.values: dict[Expr, Tensors] = {}
        self.param_types: list[TensorType] = []
        self.names: list[str] = []
        self.users: dict[TensorExpr, list[TensorExpr]] = {}
        self.order: list[TensorExpr] = []

    def run(self) -> LoweredKernel:
        self._bind_params()
        out_types = flat_types(_result_type(self.fn))
        n_in = len(self.param_types)
        self.em.first_scratch = n_in + len(out_types)
        outputs = self._flat(self._body())
        if self.steps is not None:
            self._mark_ahead(self.steps, set(outputs))
        groups = self._emit_outputs(outputs)
        return self._finish(out_types, groups)

    # --- the function's values ------------------------------------------------------------------

    def _bind_params(self) -> None:
        position = 0
        for param in self.fn.params:
            type_ = param.checked_type or param.type_annotation
            count = len(flat_types(type_))
            leaves = iter(
                [self._param(t, param, position + i) for i, t in enumerate(flat_types(type_))]
            )
            position += count
            self.values[param] = _shaped(type_, leaves)

    def _param(self, type_: TensorType, param: Var, position: int) -> TensorExpr:
        if position in self.int_params:
            value = self.em.b.cast(self.em.in_dim(IntParam(position)), type_.dtype)
            return TensorExpr(type_.shape, type_.dtype, lambda index: ready(value))
        self.param_types.append(type_)
        self.names.append(param.name_hint)
        return self._buffer(type_, len(self.param_types) - 1)

    def _buffer(self, type_: TensorType, number: int) -> TensorExpr:
        def at(index: Index) -> Steps:
            return self.em.b.load(number, type_.dtype, index)
            yield

        return TensorExpr(type_.shape, type_.dtype, at, storage=number)

    def _body(self) -> Tensors:
        """Every expression of the body, operands first; iterative."""
        todo: list[Expr | _Bind | _Ready] = [self.fn.body]
        while todo:
            task = todo.pop()
            match task:
                case _Bind(var=var, value=value):
                    self.values[var] = self.values[value]
                case _Ready(expr=expr):
                    if expr not in self.values:
                        self.values[expr] = self._value(expr)
                case expr if expr in self.values:
                    pass
                case Let(var=var, value=value, body=body):
                    todo.extend((_Ready(task), body, _Bind(var, value), value))
                case Call(args=args) | Tuple(fields=args):
                    todo.append(_Ready(task))
                    todo.extend(reversed(args))
                case TupleGetItem(tuple_value=value):
                    todo.extend((_Ready(task), value))
                case _:
                    self.values[task] = self._value(task)
        return self.values[self.fn.body]

    def _value(self, expr: Expr) -> Tensors:
        match expr:
            case Let(body=body):
                return self.values[body]
            case Constant():
                return self._literal(expr)
            case Tuple(fields=fields):
                return tuple(self.values[f] for f in fields)  # type: ignore[misc]
            case TupleGetItem(tuple_value=value, index=index):
                fields_ = self.values[value]
                if isinstance(fields_, TensorExpr):
                    raise self._refuse(expr, "a field of a tensor")
                return fields_[index]
            case Call(op=Op() as op):
                return self._call(expr, op)
        raise self._refuse(expr, f"{type(expr).__name__} inside a fused function")

    def _call(self, expr: Call, op: Op) -> Tensors:
        compute_ = find_compute(op.name)
        if compute_ is None:
            raise self._refuse(expr, f"operator {op.name} has no lowering")
        args = [self.values[arg] for arg in expr.args]
        if self.all_levels and op.name == "nn.contrib_dense_pack":
            # Register tiles want rows in memory, where a kernel of its own would have put them.
            data = self._flat(args[0])[0]
            data.stored = data.storage is None
        result = compute_(self.em, args, expr.attrs, expr.checked_type)
        for operand in self._flat(tuple(args)):  # type: ignore[arg-type]
            self.users.setdefault(operand, []).extend(self._flat(result))
        for tensor in self._flat(result):
            if isinstance(tensor.role, Moved) and tensor.role.source not in self._flat(tuple(args)):  # type: ignore[arg-type]
                # Made for this call alone, as the product that einsum moves.
                self.order.append(tensor.role.source)
                self.users[tensor.role.source] = [tensor]
            self.order.append(tensor)
        return result

    def _literal(self, expr: Constant) -> TensorExpr:
        data = expr.data
        if data.size == 0 or not (bool((data == data.flat[0]).all()) or _all_nan(data)):
            raise self._refuse(
                expr, "a constant with several values must be a parameter of the fused function"
            )
        value = self.em.b.const(data.flat[0].item(), data.dtype.name)
        return TensorExpr(data.shape, data.dtype.name, lambda index: ready(value))

    def _refuse(self, expr: Expr, what: str) -> CompileError:
        place = f"{expr.span}: " if isinstance(expr.span, Span) else ""
        return CompileError(f"{place}kernel {self.name}: {what}")

    def _flat(self, value: Tensors) -> list[TensorExpr]:
        found: list[TensorExpr] = []
        stack: list[Tensors] = [value]
        while stack:
            top = stack.pop()
            if isinstance(top, TensorExpr):
                found.append(top)
            else:
                stack.extend(reversed(top))
        return found

    # --- steps ----------------------------------------------------------------------------------

    def _mark_ahead(self, steps: StepLoop, outputs: set[TensorExpr]) -> None:
        """Store what is costly and waits for no step before, with what is made of it alone: ahead.py computes it for
        all steps at once.
        """
        waiting: set[TensorExpr] = set()
        todo = [t for p, _ in steps.carried for t in self._flat(self.values[self.fn.params[p]])]
        while todo:
            tensor = todo.pop()
            if tensor not in waiting:
                waiting.add(tensor)
                todo += self.users.get(tensor, ())
        for tensor in self.order:
            if not tensor.costly or tensor in waiting:
                continue
            last: TensorExpr | None = None
            while tensor not in outputs and tensor not in waiting:
                if all(isinstance(size, int) for size in tensor.shape):
                    last = tensor
                users = set(self.users.get(tensor, ()))
                if len(users) != 1:
                    break
                tensor = users.pop()
            if last is not None:
                last.stored = True

    # --- outputs --------------------------------------------------------------------------------

    def _mark_stored(self, groups: list[list[int]], outputs: list[TensorExpr]) -> None:
        """Costly tensors that several nests need, or one nest at different indices, are stored first."""
        reached: dict[TensorExpr, int] = {}
        for bit, group in enumerate(groups):
            for position in group:
                reached[outputs[position]] = reached.get(outputs[position], 0) | 1 << bit
        for tensor in reversed(self.order):
            users = self.users.get(tensor, ())
            for user in users:
                reached[tensor] = reached.get(tensor, 0) | reached.get(user, 0)
            moved_ = len(users) > 1 and any(tensor not in user.same for user in users)
            if tensor.costly and (reached.get(tensor, 0).bit_count() > 1 or moved_):
                tensor.stored = True
        for position, tensor in enumerate(outputs):
            if tensor.stored and tensor.target is None:
                tensor.target = len(self.param_types) + position

    def _emit_outputs(self, outputs: list[TensorExpr]) -> list[list[int]]:
        attention = find_attention(outputs[0], self.users) if len(outputs) == 1 else None
        if attention is not None:
            self.em.evaluate(attention_kernel(self.em, attention, len(self.param_types)), ())
            return [[0]]
        groups: list[list[int]] = []
        by_shape: dict[tuple[Dim, ...], list[int]] = {}
        for position, tensor in enumerate(outputs):
            group = by_shape.setdefault(tensor.shape, [])
            if not group:
                groups.append(group)
            group.append(position)
        self._mark_stored(groups, outputs)
        for group in groups:
            self._emit_group([(len(self.param_types) + p, outputs[p]) for p in group])
        return groups

    def _emit_group(self, group: list[tuple[int, TensorExpr]]) -> None:
        """One nest of loops, or one a part of a concatenate, that stores outputs of one shape."""
        em = self.em
        for buffer, tensor in group:
            if tensor.target == buffer and tensor.storage is None:
                em.evaluate(_effect(em, tensor), ())
        group = [(buffer, tensor) for buffer, tensor in group if tensor.storage != buffer]
        if not group:
            return
        shape = group[0][1].shape
        joined = _joined(tensor for _, tensor in group)
        if joined is None or joined.pieces is None:
            with em.loops(shape, parallel=True) as index:
                self._store_all(group, index)
            return
        axis, parts = joined.pieces
        offset = em.b.i64(0)
        for number, part in enumerate(parts):
            extents = (*shape[:axis], part.shape[axis], *shape[axis + 1 :])
            with em.loops(extents, parallel=True) as inside:
                where = (*inside[:axis], em.b.add(offset, inside[axis]), *inside[axis + 1 :])
                em.chosen[joined] = (number, where, inside)
                self._store_all(group, where)
            offset = em.b.add(offset, em.dim(part.shape[axis]))

    def _store_all(self, group: list[tuple[int, TensorExpr]], index: Index) -> None:
        # All values first: an output may share the storage of an input that a later value reads.
        values = [self.em.evaluate(tensor, index) for _, tensor in group]
        for (buffer, _), value in zip(group, values, strict=True):
            self.em.emit(Store(buffer, index, value))

    # --- the kernel -----------------------------------------------------------------------------

    def _finish(self, out_types: tuple[TensorType, ...], groups: list[list[int]]) -> LoweredKernel:
        em = self.em
        n_in = len(self.param_types)
        stretched = _stretched_axes(em, self.param_types)
        body = _unstretch(em, stretched) if stretched else tuple(em.body)
        scratch = tuple(TensorType(t.shape, t.dtype) for t in em.scratch)
        types = (*self.param_types, *out_types, *scratch)
        axes = [
            [
                Axis(em.dim(stretched.get((i, a), d)), (i, a) in stretched)
                for a, d in enumerate(t.shape)
            ]
            for i, t in enumerate(types)
        ]
        body, axes, in_dims = _used_dims(em, body, axes)
        names = [
            *self.names,
            *(f"out{i}" for i in range(len(out_types))),
            *(f"scratch{i}" for i in range(len(scratch))),
        ]
        roles = operand_roles(n_in, len(out_types), len(scratch))
        buffers = tuple(
            Buffer(n, t.dtype, r, tuple(a))
            for n, t, r, a in zip(names, types, roles, axes, strict=True)
        )
        single_nest = len(groups) == 1 and not scratch
        alias = aliases(body, self.param_types, out_types, [g[-1] for g in groups], single_nest)
        kernel = Kernel(self.name, buffers, tuple(map(_dim_name, in_dims)), body, alias=alias)
        return LoweredKernel(
            kernel,
            in_dims,
            tuple(self.param_types),
            out_types,
            scratch,
            c_calls(self.fn),
            may_fail(kernel),
        )


@dataclass(frozen=True, slots=True)
class _Bind:
    """Task of the walk: a let's variable gets its value."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class _Ready:
    """Task of the walk: the operands of `expr` are there."""

    expr: Expr


def _result_type(fn: Function) -> Type | None:
    if fn.body.checked_type is not None:
        return fn.body.checked_type
    return fn.ret_type


def _all_nan(data: np.ndarray[Any, Any]) -> bool:
    """All elements NaN: one value, though not `==`."""
    return bool((data != data).all())


def _shaped(type_: Type | None, leaves: Iterator[TensorExpr]) -> Tensors:
    """Tensors arranged as the type is. Types nest as deep as they are written, so this recurses."""
    if isinstance(type_, TupleType):
        return tuple(_shaped(field, leaves) for field in type_.fields)  # type: ignore[misc]
    return next(leaves)


def _effect(em: Emitter, tensor: TensorExpr) -> TensorExpr:
    """A tensor whose evaluation stores another one."""

    def at(index: Index) -> Steps:
        yield from em.store(tensor)
        return em.b.i64(0)

    return TensorExpr((), INDEX, at)


def _joined(tensors: Iterable[TensorExpr]) -> TensorExpr | None:
    """The first concatenate that the tensors reach at their own index."""
    todo = list(tensors)
    seen: set[TensorExpr] = set()
    while todo:
        tensor = todo.pop()
        if tensor in seen or tensor.storage is not None or tensor.stored:
            continue
        seen.add(tensor)
        if tensor.pieces is not None:
            return tensor
        todo.extend(reversed(tensor.same))
    return None


def _stretched_axes(em: Emitter, params: Sequence[TensorType]) -> dict[tuple[int, int], Dim]:
    """Axes of inputs of unknown size that every load stretches to one size: they get the broadcast flag."""
    found: dict[tuple[int, int], Dim | None] = {}
    for load in loads_of(em.body):
        if load.buffer >= len(params):
            continue
        for axis, index in enumerate(load.indices):
            stretch = em.stretch_of(index)
            key = (load.buffer, axis)
            size = stretch[1] if stretch is not None else None
            found[key] = size if found.get(key, size) is size else None
    return {key: size for key, size in found.items() if size is not None}


def _unstretch(em: Emitter, stretched: dict[tuple[int, int], Dim]) -> tuple[Statement, ...]:
    """The body with plain indices on the flagged axes."""

    def replace(value: Value) -> Value | None:
        if not isinstance(value, Load):
            return None
        indices = [
            plain[0]
            if (value.buffer, axis) in stretched and (plain := em.stretch_of(index))
            else index
            for axis, index in enumerate(value.indices)
        ]
        return Load(value.dtype, value.buffer, tuple(map(rewriter.value, indices)))

    rewriter = Rewriter(replace)
    return rewriter.block(em.body)


def _used_dims(
    em: Emitter, body: tuple[Statement, ...], axes: list[list[Axis]]
) -> tuple[tuple[Statement, ...], list[list[Axis]], tuple[InDim, ...]]:
    """Drop in-dims that nothing reads and number the others anew."""
    used: set[int] = set()
    seen: set[Value] = set()
    sizes = [axis.size for buffer in axes for axis in buffer]
    for values in (sizes, *(values_of(s) for s in all_statements(body))):
        used.update(v.index for v in all_values(values, seen) if isinstance(v, DimRef))
    keys = list(em.in_dims)
    kept = [i for i in range(len(keys)) if i in used]
    in_dims: tuple[InDim, ...] = tuple(keys[i] for i in kept)  # type: ignore[misc]
    if len(kept) == len(keys):
        return body, axes, in_dims
    number = {old: DimRef(INDEX, new) for new, old in enumerate(kept)}
    rewriter = Rewriter(lambda v: number[v.index] if isinstance(v, DimRef) else None)
    new_axes = [[Axis(rewriter.value(a.size), a.broadcast) for a in buffer] for buffer in axes]
    return rewriter.block(body), new_axes, in_dims


def _dim_name(dim: InDim) -> str:
    return f"%{dim.index}" if isinstance(dim, IntParam) else repr(dim)


__all__ = ["CCall", "InDim", "IntParam", "LoweredKernel", "flat_types", "lower_primitive"]

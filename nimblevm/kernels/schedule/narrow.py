"""Scratch that holds widened bytes holds the bytes, for the products of bytes.

before:  for o < O: for i < I: s[o, i] = int32(w[i, o]);    .. += int32(d[i, q]) * s[o, i]           (s: int32 scratch)
after:   for o < O: for i < I: s[o, i] = w[i, o];           .. += int32(d[i, q]) * int32(s[o, i])    (s: int8 scratch)

Where that is a copy of an operand in its own order there is none, and the operand is read. Kernels widen what they
read often, as most CPUs multiply int32 numbers; those with an instruction for bytes need not. The caller's buffer is
then larger than what lies in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nimblevm.kernels.loop_ir import (
    BYTES,
    Buffer,
    Cast,
    Const,
    For,
    Load,
    LoopVar,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_statements


def narrowed(
    buffers: tuple[Buffer, ...], body: Sequence[Statement]
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers and body of an unscheduled kernel with such scratch narrowed, or what was given if there is none."""
    stores: dict[int, list[Store]] = {}
    for statement in all_statements(body):
        if isinstance(statement, Store):
            stores.setdefault(statement.buffer, []).append(statement)
    dtypes = {
        number: dtype
        for number, found in stores.items()
        if (dtype := _bytes_in(buffers[number], found)) is not None
    }
    if not dtypes:
        return buffers, tuple(body)
    copies = {
        statement: (target, source)
        for statement in body
        if (copy := _copy_of(statement, buffers)) is not None
        for target, source in (copy,)
        if target in dtypes and len(stores[target]) == 1
    }
    kept = [s for s in body if s not in copies]
    new = _Narrowing(dtypes, dict(copies.values())).block(kept)
    return tuple(
        replace(buffer, dtype=dtypes.get(number, buffer.dtype))
        for number, buffer in enumerate(buffers)
    ), new


def _bytes_in(buffer: Buffer, stores: Sequence[Store]) -> str | None:
    """The dtype of the bytes that all elements of scratch are widened from; None if there is none."""
    if buffer.role != "scratch" or buffer.dtype != "int32":
        return None
    dtypes = {s.value.operand.dtype if isinstance(s.value, Cast) else "" for s in stores}
    dtype = dtypes.pop()
    return dtype if not dtypes and dtype in BYTES else None


def _copy_of(statement: Statement, buffers: Sequence[Buffer]) -> tuple[int, int] | None:
    """(target, operand) of a nest that copies elements of an operand to the places that they have there, widened."""
    while isinstance(statement, For) and len(statement.body) == 1:
        statement = statement.body[0]
    if not isinstance(statement, Store) or not isinstance(statement.value, Cast):
        return None
    source = statement.value.operand
    if not isinstance(source, Load) or buffers[source.buffer].role != "in":
        return None
    pairs = list(zip(statement.indices, source.indices, strict=False))
    same = len(statement.indices) == len(source.indices) and all(_same(a, b) for a, b in pairs)
    stretched = any(axis.broadcast for axis in buffers[source.buffer].axes)
    return (statement.buffer, source.buffer) if same and not stretched else None


def _same(a: Value, b: Value) -> bool:
    if isinstance(a, Const) and isinstance(b, Const):
        return a.value == b.value
    return a is b and isinstance(a, LoopVar)


class _Narrowing(Rewriter):
    """dtypes: of buffers that hold bytes now. sources: the operands that take the places of copies."""

    def __init__(self, dtypes: Mapping[int, str], sources: Mapping[int, int]) -> None:
        super().__init__(self._bytes)
        self.dtypes, self.sources = dtypes, sources

    def _bytes(self, value: Value) -> Value | None:
        if not isinstance(value, Load) or value.buffer not in self.dtypes:
            return None
        indices = tuple(map(self.value, value.indices))
        buffer = self.sources.get(value.buffer, value.buffer)
        return Cast(value.dtype, Load(self.dtypes[value.buffer], buffer, indices))

    def statement(self, statement: Statement) -> Statement:
        match statement:
            case Store(buffer=buffer, indices=indices, value=Cast(operand=operand)) if (
                buffer in self.dtypes
            ):
                return Store(buffer, tuple(map(self.value, indices)), self.value(operand))
        return super().statement(statement)


__all__ = ["narrowed"]

"""A relation that is asked by another operator's: the context with arguments and axes as the other one numbers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import Array
from nimblevm.relay.op.registry import TypeContext

Argument = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class OtherContext:
    """`ctx` for a relation whose argument a, axis b is argument arg(a), axis axis(b) of the call."""

    ctx: TypeContext
    arg: Callable[[Argument], Argument] = lambda arg: arg
    axis: Callable[[int], int] = lambda axis: axis

    def fail(self, message: str, arg: int | None = None) -> Exception:
        found = None if arg is None else self.arg(arg)
        return self.ctx.fail(message, found if isinstance(found, int) else None)

    def require_dim(self, arg: Argument, axis: int, dim: Dim) -> Dim:
        return self.ctx.require_dim(self.arg(arg), self.axis(axis), dim)

    def broadcast(self, shapes: Sequence[tuple[Argument, tuple[Dim, ...]]]) -> tuple[Dim, ...]:
        return self.ctx.broadcast([(self.arg(arg), shape) for arg, shape in shapes])

    def fresh_dim(self, name: str | None = None) -> Dim:
        return self.ctx.fresh_dim(name)

    def constant(self, arg: int) -> Array | None:
        found = self.arg(arg)
        return self.ctx.constant(found) if isinstance(found, int) else None


__all__ = ["OtherContext"]

"""What a writer of code for loop IR has to remember: which values have names already, and for how long these hold.

A value is computed once in the scope where it is first needed; scopes are bodies of loops and branches. One that
depends on what statements change, a local or an element of a buffer that the kernel writes, is computed anew by each
statement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from nimblevm.kernels.loop_ir import Buffer, Load, Local, Statement, Value
from nimblevm.kernels.rewrite import parts


class ScopedValues(ABC):
    """The names of values while one body is written. buffers: of the body; alias: pairs that may share storage."""

    def __init__(self, buffers: Sequence[Buffer], alias: Iterable[tuple[int, int]]) -> None:
        self.scopes: list[dict[Value, str]] = [{}]
        self.temporary: dict[Value, str] = {}
        self.volatile: dict[Value, bool] = {}
        self.shared_storage = {index for pair in alias for index in pair}
        written = {i for i, b in enumerate(buffers) if b.role != "in"}
        self.mutable = written | self.shared_storage

    @abstractmethod
    def _fixed(self, value: Value) -> str | None:
        """The text of a value that needs no name: a constant, a dim; None for any other."""

    @abstractmethod
    def _write(self, value: Value) -> str:
        """Write the value, whose parts are known; its name."""

    @abstractmethod
    def _block(self, body: Sequence[Statement]) -> None:
        """Write statements."""

    def _scoped(self, body: Sequence[Statement], first: dict[Value, str] | None = None) -> None:
        """Write statements in a scope of their own. first: what it begins with, the variable of a loop."""
        self.scopes.append(first or {})
        self._block(body)
        self.scopes.pop()
        self.temporary = {}

    def _known(self, value: Value) -> str | None:
        found = self._fixed(value)
        if found is None:
            found = self.temporary.get(value)
        for scope in reversed(self.scopes):
            if found is not None:
                return found
            found = scope.get(value)
        return found

    def _value(self, root: Value) -> str:
        """The name of a value; what it needs is written before. Iterative."""
        todo: list[tuple[Value, bool]] = [(root, False)]
        while todo:
            value, ready = todo.pop()
            if self._known(value) is not None:
                continue
            if not ready:
                todo.append((value, True))
                todo.extend((p, False) for p in reversed(parts(value)))
                continue
            name = self._write(value)
            (self.temporary if self._changes(value) else self.scopes[-1])[value] = name
        found = self._known(root)
        assert found is not None
        return found

    def _changes(self, value: Value) -> bool:
        """Whether a value depends on what statements change. Its parts have been asked before, so this is one deep."""
        found = self.volatile.get(value)
        if found is None:
            found = isinstance(value, Local)
            found = found or (isinstance(value, Load) and value.buffer in self.mutable)
            found = found or any(self._changes(p) for p in parts(value))
            self.volatile[value] = found
        return found


__all__ = ["ScopedValues"]

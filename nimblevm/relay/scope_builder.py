"""ScopeBuilder: nested lets and ifs written as Python statements, as TVM users know it.

sb = ScopeBuilder()
with sb.if_scope(cond):
    y = sb.let("y", x + one)
    sb.ret(y)
with sb.else_scope():
    sb.ret(x)
body = sb.get()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nimblevm.arguments import explained_methods
from nimblevm.relay import ir
from nimblevm.relay.call import as_expr
from nimblevm.relay.types import IncompleteType, Type


@explained_methods
class ScopeBuilder:
    """Collects lets and one result per scope; `get` gives the expression."""

    def __init__(self) -> None:
        self._bindings: list[list[tuple[ir.Var, ir.Expr]]] = [[]]
        self._results: list[ir.Expr | None] = [None]
        # A scope that has an if without its else yet: (condition, true branch).
        self._open_ifs: list[tuple[ir.Expr, ir.Expr] | None] = [None]

    def let(self, var: ir.Var | str | tuple[str, Type], value: Any) -> ir.Var:
        """Bind `value`; a name, or a pair of name and type, makes the variable. Returns the variable."""
        if isinstance(var, str):
            var = ir.Var(var)
        elif isinstance(var, tuple | list):
            if len(var) != 2:
                raise ValueError("expected a pair of name and type")
            var = ir.Var(*var)
        self._bindings[-1].append((var, as_expr(value)))
        return var

    @contextmanager
    def if_scope(self, cond: ir.Expr) -> Iterator[None]:
        """The true branch of an if, which is the result of the scope around it."""
        if self._results[-1] is not None or self._open_ifs[-1] is not None:
            raise RuntimeError("the scope has its result already")
        self._enter()
        yield
        branch = self._leave()
        self._open_ifs[-1] = (as_expr(cond), branch)

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The false branch; must follow an if_scope."""
        opened = self._open_ifs[-1]
        if opened is None:
            raise RuntimeError("else_scope must follow an if_scope")
        self._enter()
        yield
        branch = self._leave()
        self._open_ifs[-1] = None
        self._results[-1] = ir.If(*opened, branch)

    def type_of(self, expr: ir.Expr) -> Type:
        """The type of a variable as annotated; a hole for anything else."""
        if isinstance(expr, ir.Var) and expr.type_annotation is not None:
            return expr.type_annotation
        return expr.checked_type or IncompleteType()

    def ret(self, value: Any) -> None:
        """Set the result of the current scope."""
        if self._results[-1] is not None or self._open_ifs[-1] is not None:
            raise RuntimeError("the scope has its result already")
        self._results[-1] = as_expr(value)

    def get(self) -> ir.Expr:
        """The expression of the outermost scope."""
        if len(self._bindings) != 1:
            raise RuntimeError("a scope is still open")
        return self._expression()

    def _enter(self) -> None:
        self._bindings.append([])
        self._results.append(None)
        self._open_ifs.append(None)

    def _leave(self) -> ir.Expr:
        made = self._expression()
        self._bindings.pop()
        self._results.pop()
        self._open_ifs.pop()
        return made

    def _expression(self) -> ir.Expr:
        body = self._results[-1]
        if self._open_ifs[-1] is not None:
            raise RuntimeError("an if_scope has no else_scope")
        if body is None:
            raise RuntimeError("the scope has no result: call ret")
        for var, value in reversed(self._bindings[-1]):
            body = ir.Let(var, value, body)
        return body


__all__ = ["ScopeBuilder"]

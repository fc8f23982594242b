"""tvm.ir.op: attributes of operators."""

from __future__ import annotations

from typing import Any

from nimblevm.arguments import explain_arguments
from nimblevm.compiler.external import Check, register_op_check
from nimblevm.relay.op.registry import Op, get


def register_op_attr(
    op_name: str, attr_key: str, value: Check | None = None, level: int = 10
) -> Any:
    """Say that AnnotateTarget("x") takes an operator: attr_key is "target.x", value a function Call -> bool.

    Without a value it is a decorator. `level` decides nothing: the last one counts. ValueError for another attribute,
    CompileError for an unknown operator.
    """
    kind, _, target = attr_key.partition(".")
    if kind != "target" or not target:
        raise ValueError(
            f'the attributes of operators are their records\'; "target.<backend>" can be set, not {attr_key!r}'
        )
    if value is None:
        return lambda made: register_op_attr(op_name, attr_key, made, level)
    register_op_check(get(op_name).name, target, value)
    return value


__all__ = ["Op", "register_op_attr"]

explain_arguments(globals(), __all__)

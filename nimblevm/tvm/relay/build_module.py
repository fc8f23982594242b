"""tvm.relay.build_module: executors and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nimblevm.executor import create_executor
from nimblevm.relay.builder import bind
from nimblevm.relay.ir import Expr, Function


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Expr:
    """A function with parameters replaced by constants; names that it does not have are passed over, as in TVM."""
    names = {p.name_hint for p in func.params}
    return bind(func, {key: value for key, value in params.items() if key in names})


__all__ = ["bind_params_by_name", "create_executor"]

"""Whether an expression has an attribute of a given value, as patterns ask."""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.op.registry import Op

_MISSING = object()


def has_attribute(expr: Expr, name: str, value: Any) -> bool:
    """Of a call, a function or an operator record ("TOpPattern" is its pattern of fusion). Lists equal tuples."""
    return _same(_attribute(expr, name), value)


def _attribute(expr: Expr, name: str) -> Any:
    if isinstance(expr, Call):
        return getattr(expr.attrs, name, _MISSING)
    if isinstance(expr, Function):
        return expr.attrs.get(name, _MISSING)
    if isinstance(expr, Op):
        return int(expr.pattern) if name == "TOpPattern" else getattr(expr, name, _MISSING)
    return _MISSING


def _same(have: Any, want: Any) -> bool:
    if isinstance(want, list | tuple) and isinstance(have, list | tuple):
        return len(have) == len(want) and all(_same(h, w) for h, w in zip(have, want, strict=True))
    return have is not _MISSING and bool(np.all(have == want))

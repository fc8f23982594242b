"""Cases of elementwise mathematics whose operands need care."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.relay.op.draw import Case, Source, array, flag, operands, pick


def _power(source: Source, dtype: str) -> Case:
    """Integers: no 0 to a negative power, which is an error."""
    a, b = operands(source, 2)
    base, exponent = array(source, a, dtype), array(source, b, dtype)
    if np.dtype(dtype).kind == "i":
        if flag(source):
            base = np.where(base == 0, base.dtype.type(pick(source, (1, -1, 2))), base)
        else:
            exponent = np.where(exponent < 0, ~exponent, exponent)
    return Case((base, exponent))


CASES: dict[str, Callable[[Source, str], Case]] = {"power": _power}

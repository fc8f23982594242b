"""What passes do to constants, whether their elements are known or bound when the program is loaded."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from nimblevm.relay.ir import Constant, Span, late_array
from nimblevm.relay.late import LateArray


def late_constant(late: LateArray, span: Span | None = None) -> Constant:
    """A constant that is bound late."""
    return Constant(cast("Any", late), span=span)


def sliced(constant: Constant, axis: int, begin: int, end: int) -> Constant:
    """Elements begin to end of an axis."""
    late = late_array(constant)
    if late is not None:
        return late_constant(late.sliced(axis, begin, end), constant.span)
    index = (slice(None),) * axis + (slice(begin, end),)
    return Constant(np.ascontiguousarray(constant.data[index]), span=constant.span)


__all__ = ["late_constant", "sliced"]

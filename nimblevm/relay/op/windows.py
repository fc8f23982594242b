"""What convolutions and pools share: layouts, padding attributes, sizes of sliding windows.

    size of the result along an axis = floordiv(size + before + after - ((kernel - 1) * dilation + 1), stride) + 1

A layout is a string of letters, one an axis: N (batch), C (channels) and D, H, W for data; O, I and D, H, W for
kernels; every order is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import Array
from nimblevm.relay.op.registry import TypeContext
from nimblevm.relay.types import TensorType

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along one axis of `size` elements; `before` and `after` elements of padding."""

    size: Dim
    kernel: Dim
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def reach(self) -> Dim:
        """Elements from a window's first to its last."""
        return dims.add(dims.mul(dims.sub(self.kernel, 1), self.dilation), 1)

    @property
    def padded(self) -> Dim:
        return dims.add(self.size, self.before + self.after)

    @property
    def out(self) -> Dim:
        """The number of windows."""
        return dims.add(dims.floordiv(dims.sub(self.padded, self.reach), self.stride), 1)


def per_axis(value: object, count: int) -> tuple[Any, ...]:
    """An attribute of `count` values of which one may stand for all; a wrong number of them stays as it is."""
    found = value if isinstance(value, tuple) else (value,)
    return found * count if len(found) == 1 else found


def numbers(ctx: TypeContext, name: str, value: object, count: int, least: int) -> tuple[int, ...]:
    """An attribute of `count` integers >= least (one integer stands for all)."""
    found = per_axis(value, count)
    ok = all(isinstance(v, int) and not isinstance(v, bool) and v >= least for v in found)
    if len(found) != count or not ok:
        raise ctx.fail(f"{name} must be {count} integers >= {least}, not {value!r}")
    return found


def padding_of(ctx: TypeContext, value: object, count: int) -> tuple[tuple[int, int], ...]:
    """(before, after) an axis, from 1 value (everywhere), one an axis, or all befores and then all afters."""
    found = value if isinstance(value, tuple) else (value,)
    ok = all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in found)
    if not ok or len(found) not in (1, count, 2 * count):
        lengths = " or ".join(str(n) for n in sorted({1, count, 2 * count}))
        raise ctx.fail(f"padding must be {lengths} integers >= 0, not {value!r}")
    return padding_pairs(found, count)


def padding_pairs(value: Sequence[int] | int, count: int) -> tuple[tuple[int, int], ...]:
    """The pairs of a padding attribute that is known to be right."""
    found = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(found) == 1:
        found = found * (2 * count)
    elif len(found) == count:
        found = found * 2
    return tuple(zip(found[:count], found[count:], strict=True))


def layout_of(ctx: TypeContext, name: str, layout: str, letters: str) -> str:
    """A layout attribute: each letter once."""
    if not isinstance(layout, str) or sorted(layout) != sorted(letters):
        raise ctx.fail(f"{name} must have the letters {letters} in some order, not {layout!r}")
    return layout


def check_rank(ctx: TypeContext, found: TensorType, layout: str, index: int) -> None:
    """A located error unless argument `index` has an axis a letter."""
    if len(found.shape) != len(layout):
        raise ctx.fail(
            f"argument {index} must have rank {len(layout)} ({layout}), not {len(found.shape)}",
            index,
        )


def require_at_least(
    ctx: TypeContext, arg: int, axis: int, size: Dim, least: Dim, what: str
) -> None:
    """Demand size >= least of an axis; refused if both are known."""
    if isinstance(size, int) and isinstance(least, int):
        if size < least:
            raise ctx.fail(f"{what}: axis {axis} has size {size}, but needs {least}", arg)
        return
    ctx.require_dim(arg, axis, dims.max_(size, least))


def require_fits(ctx: TypeContext, arg: int, axis: int, window: Window) -> None:
    """Demand that one window fits the padded axis."""
    least = dims.sub(window.reach, window.before + window.after)
    require_at_least(ctx, arg, axis, window.size, least, "the window does not fit the padded axis")


def arranged(layout: str, found: dict[str, Any]) -> tuple[Any, ...]:
    """What each letter stands for, in the layout's order."""
    return tuple(found[letter] for letter in layout)


def to_order(value: Array, layout: str, order: str) -> Array:
    """`value` of `layout` with its axes in another order."""
    return np.transpose(value, [layout.index(letter) for letter in order])


__all__ = [
    "SPATIAL", "Window", "arranged", "check_rank", "layout_of", "numbers", "padding_of", "padding_pairs",
    "per_axis", "require_at_least", "require_fits", "to_order",
]  # fmt: skip

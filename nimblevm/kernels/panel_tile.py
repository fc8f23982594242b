"""The tile that a product with panels fills: sizes that schedules and micro-kernels agree on.

A panel is LANES columns of the right operand, side by side for each k in turn (relay/op/dense_pack.py, "NC16n"). A tile
on the stack holds sums of some rows and at most MAX_PANELS panels: element (r, p, t) lies at TILE_ROW r + LANES p + t.
"""

from __future__ import annotations

from nimblevm.relay.op.dense_pack import LANES

MAX_PANELS = 4
TILE_ROW = LANES * MAX_PANELS
LOW = 6
"""The most rows with four panels at once in AVX-512's registers."""

__all__ = ["LANES", "LOW", "MAX_PANELS", "TILE_ROW"]

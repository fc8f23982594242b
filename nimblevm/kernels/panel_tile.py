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

MAX_ROWS = 12
"""The most rows with two panels at once there, and the rows of a tile."""
MANY = 5
"""So many blocks of MAX_ROWS rows share fetching what follows: LOW of them half as much as of fewer blocks."""

__all__ = ["LANES", "LOW", "MANY", "MAX_PANELS", "MAX_ROWS", "TILE_ROW"]

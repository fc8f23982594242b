"""How products with packed weights are run: what there is to choose, and a committed table of choices.

The table holds what was measured on a few machines, by the vectors that a CPU has and the memory that the weights
fit in. What `nimblevm tune` measured on the user's machine goes before it (tune.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ROWS = tuple(range(1, 13))
PANELS = (1, 2, 4)
MAX_AHEAD, MAX_HEIGHT = 1 << 16, 48


@dataclass(frozen=True, slots=True)
class Variant:
    """rows: counts of rows with a loop of their own (residues take the largest that fit), 1 among them. panels: of 16
    columns, at once where registers allow. ahead: bytes to prefetch ahead with one or two rows, 0 for none. height:
    rows of a tile, between which the epilogue runs.
    """

    rows: tuple[int, ...] = ROWS
    panels: int = 4
    ahead: int = 0
    height: int = 12

    def __post_init__(self) -> None:
        rows_fit = 1 in self.rows and self.rows == tuple(sorted({*self.rows} & {*ROWS}))
        if not rows_fit or self.panels not in PANELS:
            raise ValueError(f"rows must be some of {ROWS} with 1, panels one of {PANELS}")
        if not 0 <= self.ahead <= MAX_AHEAD or not 1 <= self.height <= MAX_HEIGHT:
            raise ValueError(f"ahead must be 0 to {MAX_AHEAD} bytes, height 1 to {MAX_HEIGHT} rows")

    @property
    def key(self) -> str:
        """A short name for symbols."""
        return f"r{'_'.join(map(str, self.rows))}p{self.panels}a{self.ahead}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a choice depends on: dtypes of operands, K, and the number of columns."""

    x: str
    w: str
    depth: int
    units: int

    @property
    def weight_bytes(self) -> int:
        return self.depth * self.units * {"float64": 8, "float32": 4}.get(self.w, 2)


# Zen 4 (AVX-512) loses 15 % by prefetching, Zen 3 (AVX2) gains 15 % where weights come from the third-level cache.
_TABLE: tuple[tuple[str, int, Variant], ...] = (
    ("avx512f", 1 << 62, Variant()),
    ("avx2", 256 << 10, Variant()),
    ("avx2", 1 << 62, Variant(ahead=4096)),
    ("", 1 << 62, Variant()),
)
"""(feature, at most so many bytes of weights, choice): the first row that fits."""


class Choices:
    """Which variant a product takes: the record's, else the table's.

    external  products of the record that an external backend, by name, runs best
    """

    def __init__(
        self,
        record: Mapping[Shape, Variant] | None = None,
        external: Mapping[Shape, str] | None = None,
    ) -> None:
        self.record = dict(record or {})
        self.external = dict(external or {})

    def of(self, shape: Shape, features: tuple[str, ...]) -> Variant:
        found = self.record.get(shape)
        if found is not None:
            return found
        for feature, most, variant in _TABLE:
            if (not feature or feature in features) and shape.weight_bytes <= most:
                return variant
        raise ValueError("the table has no last row")


PLAIN = Variant()
"""The choice where nothing is known."""

__all__ = ["PLAIN", "Choices", "Shape", "Variant"]

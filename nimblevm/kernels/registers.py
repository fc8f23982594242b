"""Vector registers of a target, and the tiles of sums that fit into them: the one place that knows both."""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.kernels.panel_tile import LANES


@dataclass(frozen=True, slots=True)
class Registers:
    """count: of vector registers. size: of one in bytes. fused: whether one instruction multiplies and adds.
    in_flight: vectors of additions that hide the time which one of them takes.
    """

    count: int
    size: int
    fused: bool
    in_flight: int

    @staticmethod
    def of(features: tuple[str, ...]) -> Registers:
        """Of a CPU with these features, LLVM names."""
        if "avx512f" in features:
            return Registers(32, 64, fused=True, in_flight=4)
        if "avx" in features:
            return Registers(16, 32, fused="fma" in features, in_flight=8)
        if "neon" in features:
            return Registers(32, 16, fused=True, in_flight=16)
        return Registers(16, 16, fused=False, in_flight=8)

    def lanes(self, size: int) -> int:
        """Elements of `size` bytes of a register, at most those of a panel."""
        return min(LANES, self.size // size)

    def vectors(self, panels: int, size: int) -> int:
        """That hold a row of so many panels."""
        return panels * LANES // self.lanes(size)

    def _free(self, rows: int, panels: int, size: int) -> int:
        """What sums of so many rows and panels leave, less what operands pass through: two where products are not
        fused with sums.
        """
        return self.count - rows * self.vectors(panels, size) - (1 if self.fused else 2)

    def columns_wait(self, rows: int, panels: int, size: int) -> bool:
        """Whether a turn of the depth keeps its columns and lets the rows pass, or the other way round."""
        return self.vectors(panels, size) <= self._free(rows, panels, size)

    def fit(self, rows: int, panels: int, size: int) -> bool:
        """Whether a turn of the depth with so many sums spills none."""
        kept = min(rows, self.vectors(panels, size))
        return kept <= self._free(rows, panels, size)

    def panels(self, rows: int, size: int) -> int:
        """Panels at once for so many rows, 0 if not even one fits."""
        return next((panels for panels in (4, 2, 1) if self.fit(rows, panels, size)), 0)

    def max_rows(self, size: int, most: int) -> int:
        """The most rows with a panel at once, 1 at least."""
        return max(1, *(r for r in range(1, most + 1) if self.panels(r, size)))

    def chains(self, rows: int, panels: int, size: int) -> int:
        """Sums of a row and a column that take turns, where few of them would wait for one another."""
        return max(1, self.in_flight // (rows * self.vectors(panels, size)))


__all__ = ["Registers"]

"""What the calls of one function of llvm_panels.py have in common, and so what it is made for.

The fewer cases a function must serve, the less text LLVM has to compile, and strides that are literals become part of
addresses. But each difference makes another function to compile. So only that is told apart which matters: a single row
(a step of a recurrent cell), rows that all fit beside four panels (where products share a tile), or any number; panels,
where their number is a literal; the strides of wide panels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nimblevm.kernels.facts import at_most
from nimblevm.kernels.loop_ir import Const, PanelProduct, Value
from nimblevm.kernels.panel_tile import LANES, LOW, MAX_PANELS, TILE_ROW
from nimblevm.kernels.variants import Variant

ANY = 0
_PARAMETERS = {
    "x": "ptr", "x_row": "i64", "w": "ptr", "w_step": "i64", "w_panel": "i64", "depth": "i64", "tile": "ptr",
    "tile_row": "i64", "next": "ptr", "blocks": "i64", "rows": "i64", "panels": "i64",
}  # fmt: skip
_OF_ROWS = ("x_row", "tile_row", "next", "blocks", "rows")


@dataclass(frozen=True, slots=True)
class PanelCalls:
    """x_type, w_type: dtypes of operands. most_rows: LOW or ANY; 1 if there is one, always. panels_known: their number,
    or MAX_PANELS and what is left of more than that, or ANY. w_step, w_panel, tile_row: the literal, if it is one.
    pairs: see PanelProduct.
    """

    x_type: str
    w_type: str
    variant: Variant
    most_rows: int = ANY
    panels_known: int = ANY
    w_step: int | None = None
    w_panel: int | None = None
    tile_row: int | None = TILE_ROW
    pairs: bool = False

    @staticmethod
    def of(product: PanelProduct) -> PanelCalls:
        """Those that a product is one of."""
        rows = LOW if at_most(product.rows, LOW) else ANY
        if _literal(product.rows) == 1:
            rows = 1
        panels = _literal(product.panels) or ANY
        if panels > MAX_PANELS:
            panels = MAX_PANELS + panels % MAX_PANELS
        w_step, w_panel = _usual(_literal(product.w_step), _literal(product.w_panel))
        tile_row = TILE_ROW if product.tile_row == TILE_ROW or rows == 1 else None
        return PanelCalls(
            product.x.dtype,
            product.w.dtype,
            product.variant,
            rows,
            panels,
            w_step,
            w_panel,
            tile_row,
            product.pairs,
        )

    @staticmethod
    def of_row(dtype: str, variant: Variant, w_step: int, w_panel: int) -> PanelCalls:
        """Those for one row and any number of panels."""
        return PanelCalls(dtype, dtype, variant, 1, ANY, *_usual(w_step, w_panel))

    def serves(self, other: PanelCalls) -> bool:
        """Whether the function for these calls does for the others. That of a single row has other parameters."""
        rows = (self.most_rows, other.most_rows)
        panels = (self.panels_known, other.panels_known)
        if (rows[0] != rows[1] and rows != (ANY, LOW)) or panels[0] not in (ANY, panels[1]):
            return False
        return replace(self, most_rows=rows[1], panels_known=panels[1]) == other

    @property
    def symbol(self) -> str:
        strides = (self.w_step, self.w_panel, self.tile_row)
        known = ".".join("any" if stride is None else str(stride) for stride in strides)
        types = f"{self.x_type}.{self.w_type}{'.pairs' if self.pairs else ''}"
        return f"panels.{types}.{self.variant.key}.{self.most_rows}.{self.panels_known}.{known}"

    def sizes(self, most: int) -> list[int]:
        """Of groups of panels that are multiplied at once, at most so many, the largest first."""
        sizes = (4, 2) if self.pairs else (4, 2, 1)
        fit = [size for size in sizes if size <= max(most, sizes[-1])]
        if self.panels_known == ANY:
            return fit
        found, left = [], self.panels_known
        for size in fit:
            if left >= size:
                found.append(size)
            left %= size
        return found

    def value(self, stride: str) -> str:
        """A stride in the function's text: the literal or the parameter."""
        known = getattr(self, stride, None)
        return f"%{stride}" if known is None else str(known)

    def declaration(self, kind: str = "declare") -> str:
        """The head of the function."""
        params = ", ".join(f"{_PARAMETERS[name]} %{name}" for name in self._names())
        return f"{kind} hidden void @{self.symbol}({params})"

    def call(self, values: Mapping[str, str]) -> str:
        """Of the function with these arguments, by name; those that it has no use for are left out."""
        args = ", ".join(f"{_PARAMETERS[name]} {values[name]}" for name in self._names())
        return f"call void @{self.symbol}({args})"

    def _names(self) -> list[str]:
        absent = _OF_ROWS if self.most_rows == 1 else ()
        return [n for n in _PARAMETERS if n not in absent and getattr(self, n, None) is None]


def _usual(w_step: int | None, w_panel: int | None) -> tuple[int | None, int | None]:
    """The strides of wide panels, or the step of narrow ones; others differ by depth or by model."""
    if w_step == TILE_ROW and w_panel == LANES:
        return w_step, w_panel
    return (w_step if w_step == LANES else None), None


def _literal(value: Value) -> int | None:
    return int(value.value) if isinstance(value, Const) else None


__all__ = ["ANY", "PanelCalls"]

"""Micro-kernels of sums over windows (convolutions) with weights in rows of 16 columns, as LLVM text.

    void @windows.<x>(ptr x, ptr offsets, ptr w, i64 w_panel, i64 A, i64 step_a, i64 B, i64 step_b, i64 depth, ptr tile,
                      i64 rows, i64 panels)

    tile[r * row_of_tile + 16 * p + t] = sum over a < A, b < B, k < depth of
        x[offsets[r] + a * step_a + b * step_b + k] * w[p * w_panel + 16 * ((a * B + b) * depth + k) + t]

for any number of rows, p < panels <= MAX_PANELS and t < 16; strides and offsets count elements. Rows lie anywhere, so
that a tile has as many of them at the end of a line of the image as in its middle. All sums stay in registers through
the whole window. The scheme is that of llvm_panels.py, which has a product's rows a fixed stride apart.
"""

from __future__ import annotations

from nimblevm.kernels.llvm_panels import blocks_of_rows
from nimblevm.kernels.panel_tile import LANES, LOW, TILE_ROW
from nimblevm.kernels.registers import Registers

_TYPES = {"float32": "float", "float64": "double"}
_SIZES = {"float32": 4, "float64": 8}
_PARAMS = (
    "ptr noalias %x, ptr noalias %offsets, ptr noalias %w, i64 %w_panel, i64 %na, i64 %sa, i64 %nb, i64 %sb, "
    "i64 %depth, ptr noalias %tile"
)
_ARGS = "i64 %w_panel, i64 %na, i64 %sa, i64 %nb, i64 %sb, i64 %depth"


def symbol(dtype: str) -> str:
    return f"windows.{dtype}"


def declaration(dtype: str) -> str:
    """For the modules that call the function."""
    return f"declare hidden void @{symbol(dtype)}({_PARAMS}, i64 %rows, i64 %panels)\n"


def module_text(dtype: str, features: tuple[str, ...]) -> str:
    """The micro-kernels for operands of this dtype, and the function that chooses."""
    registers, size, name = Registers.of(features), _SIZES[dtype], symbol(dtype)
    limit = registers.max_rows(size, LOW)
    parts: list[str] = []
    blocks: list[str] = []
    for rows in range(1, limit + 1):
        sizes = [p for p in (4, 2, 1) if p <= (registers.panels(rows, size) or 1)]
        parts += [_Loop(dtype, rows, panels, registers).text(name) for panels in sizes]
        blocks.append(_panels_text(dtype, rows, sizes, name))
    cases = " ".join(f"i64 {r}, label %rows{r}" for r in range(1, limit + 1))
    ends = ", ".join(f"[ {r}, %r{r}.end ]" for r in range(1, limit + 1))
    parts.append(f"""
define hidden void @{name}({_PARAMS}, i64 %rows, i64 %panels) #2 {{
entry:
  br label %again
again:
  %at = phi ptr [ %offsets, %entry ], [ %at.next, %more ]
  %tile.now = phi ptr [ %tile, %entry ], [ %tile.next, %more ]
  %left = phi i64 [ %rows, %entry ], [ %left.next, %more ]
  %few = icmp slt i64 %left, {limit}
  %most = select i1 %few, i64 %left, i64 {limit}
  switch i64 %most, label %done [ {cases} ]
{"".join(blocks)}
more:
  %now = phi i64 {ends}
  %left.next = sub i64 %left, %now
  %at.next = getelementptr i64, ptr %at, i64 %now
  %skip = mul i64 %now, {TILE_ROW}
  %tile.next = getelementptr {_TYPES[dtype]}, ptr %tile.now, i64 %skip
  br label %again
done:
  ret void
}}
""")
    return "".join(parts)


def _panels_text(dtype: str, rows: int, sizes: list[int], name: str) -> str:
    def call(here: str, size: int) -> list[str]:
        return [
            f"  call void @{name}.{rows}x{size}(ptr %x, ptr %at, ptr {here}.w, {_ARGS}, ptr {here}.t)"
        ]

    return blocks_of_rows(rows, sizes, (_TYPES[dtype],) * 2, call)


class _Loop:
    """Writes one micro-kernel: `rows` x `panels` sums in registers, through loops over a, b and the depth."""

    def __init__(self, dtype: str, rows: int, panels: int, registers: Registers) -> None:
        self.rows, self.panels = rows, panels
        self.type, self.size = _TYPES[dtype], _SIZES[dtype]
        self.lanes = registers.lanes(self.size)
        self.columns_wait = registers.columns_wait(rows, panels, self.size)
        self.vectors = panels * LANES // self.lanes
        self.vector = f"<{self.lanes} x {self.type}>"
        self.sums = [f"{r}.{v}" for r in range(rows) for v in range(self.vectors)]
        self.lines: list[str] = []

    def text(self, name: str) -> str:
        self.lines = ["entry:"]
        self._entry()
        self._open_loops()
        self._step()
        self._close_loops()
        self._store()
        head = f"define internal void @{name}.{self.rows}x{self.panels}({_PARAMS}) #2 {{"
        return "\n".join([head, *self.lines, "}"]) + "\n"

    def _entry(self) -> None:
        """Where each row of x and each panel begin."""
        self.lines.append(f"  %step = mul nsw i64 %depth, {LANES}")
        for r in range(self.rows):
            self.lines += [
                f"  %at{r} = getelementptr i64, ptr %offsets, i64 {r}",
                f"  %o{r} = load i64, ptr %at{r}, align 8",
                f"  %x{r} = getelementptr {self.type}, ptr %x, i64 %o{r}",
            ]
        for p in range(self.panels):
            self.lines += [
                f"  %wo{p} = mul i64 %w_panel, {p}",
                f"  %w{p} = getelementptr {self.type}, ptr %w, i64 %wo{p}",
            ]

    def _open_loops(self) -> None:
        """Down to the body of the loop over the depth."""
        zero = dict.fromkeys(self.sums, "zeroinitializer")
        self.lines.append("  br label %a")
        starts = {"i": ("0", "%a.next"), "x": ("0", "%a.x.next"), "w": ("0", "%b.w")}
        self._head("a", "entry", "b.end", starts, zero, "b")
        self.lines += [
            "  %a.go = icmp slt i64 %a.i, %na",
            "  br i1 %a.go, label %a.body, label %end",
            "a.body:",
            "  br label %b",
        ]
        starts = {"i": ("0", "%b.next"), "x": ("%a.x", "%b.x.next"), "w": ("%a.w", "%b.w.next")}
        self._head("b", "a.body", "k.end", starts, self._phis("a"), "k")
        self.lines += [
            "  %b.go = icmp slt i64 %b.i, %nb",
            "  br i1 %b.go, label %b.body, label %b.end",
            "b.body:",
            "  %last = add i64 %b.x, %depth",
            "  %b.w.next = add nsw i64 %b.w, %step",  # not %k.w at its end: one counter less in the inner loop
            "  br label %k",
        ]
        starts = {"x": ("%b.x", "%k.x.next"), "w": ("%b.w", "%k.w.next")}
        self._head("k", "b.body", "k.body", starts, self._phis("b"), "new")
        self.lines += [
            "  %k.go = icmp ne i64 %k.x, %last",
            "  br i1 %k.go, label %k.body, label %k.end",
            "k.body:",
        ]

    def _close_loops(self) -> None:
        self.lines += [
            "  %k.x.next = add nsw i64 %k.x, 1",
            f"  %k.w.next = add nsw i64 %k.w, {LANES}",
            "  br label %k",
            "k.end:",
            "  %b.next = add nsw i64 %b.i, 1",
            "  %b.x.next = add nsw i64 %b.x, %sb",
            "  br label %b",
            "b.end:",
            "  %a.next = add nsw i64 %a.i, 1",
            "  %a.x.next = add nsw i64 %a.x, %sa",
            "  br label %a",
            "end:",
        ]

    def _store(self) -> None:
        """The sums into their tile."""
        for r in range(self.rows):
            for v in range(self.vectors):
                self.lines += [
                    f"  %t{r}.{v} = getelementptr {self.type}, ptr %tile, i64 {r * TILE_ROW + v * self.lanes}",
                    f"  store {self.vector} %a.{r}.{v}, ptr %t{r}.{v}, align {self.lanes * self.size}",
                ]
        self.lines.append("  ret void")

    def _phis(self, loop: str) -> dict[str, str]:
        return {s: f"%{loop}.{s}" for s in self.sums}

    def _head(
        self, loop: str, before: str, latch: str, counters: dict[str, tuple[str, str]], sums: dict[str, str], inner: str
    ) -> None:  # fmt: skip
        """The head of a loop: counters (start, next) and the sums, which come from `before` or from the loop inside."""
        self.lines.append(f"{loop}:")
        self.lines += [
            f"  %{loop}.{name} = phi i64 [ {start}, %{before} ], [ {after}, %{latch} ]"
            for name, (start, after) in counters.items()
        ]
        self.lines += [
            f"  %{loop}.{s} = phi {self.vector} [ {sums[s]}, %{before} ], [ %{inner}.{s}, %{latch} ]"
            for s in self.sums
        ]

    def _step(self) -> None:
        """One turn of the depth."""
        columns = [self._column(v) for v in range(self.vectors)]
        rows = [self._row(r) for r in range(self.rows)]
        if self.columns_wait:
            self.lines += [line for column in columns for line in column]
            for r, row in enumerate(rows):
                self.lines += [*row, *(x for v in range(self.vectors) for x in self._add(r, v))]
        else:
            self.lines += [line for row in rows for line in row]
            for v, column in enumerate(columns):
                self.lines += [*column, *(x for r in range(self.rows) for x in self._add(r, v))]

    def _column(self, v: int) -> list[str]:
        panel, lane = divmod(v * self.lanes, LANES)
        return [
            f"  %wa{v} = getelementptr {self.type}, ptr %w{panel}, i64 %k.w",
            f"  %wb{v} = getelementptr {self.type}, ptr %wa{v}, i64 {lane}",
            f"  %c{v} = load {self.vector}, ptr %wb{v}, align {self.size}",
        ]

    def _row(self, r: int) -> list[str]:
        vector = self.vector
        return [
            f"  %xa{r} = getelementptr {self.type}, ptr %x{r}, i64 %k.x",
            f"  %v{r} = load {self.type}, ptr %xa{r}",
            f"  %one{r} = insertelement {vector} poison, {self.type} %v{r}, i64 0",
            f"  %all{r} = shufflevector {vector} %one{r}, {vector} poison, <{self.lanes} x i32> zeroinitializer",
        ]

    def _add(self, r: int, v: int) -> list[str]:
        return [
            f"  %m{r}.{v} = fmul contract {self.vector} %all{r}, %c{v}",
            f"  %new.{r}.{v} = fadd contract {self.vector} %k.{r}.{v}, %m{r}.{v}",
        ]


__all__ = ["declaration", "module_text", "symbol"]

"""Micro-kernels of products with a right operand in rows of 16 columns, as LLVM text.

    void @panels.<x>.<w>.<..>(ptr x, i64 x_row, ptr w, i64 w_step, i64 w_panel, i64 depth, ptr tile, i64 tile_row,
                              ptr next, i64 blocks, i64 rows, i64 panels)

    tile[r * tile_row + 16 * p + t] = sum over k < depth of x[r * x_row + k] * w[p * w_panel + k * w_step + t]

for any number of rows and panels, t < 16; strides count elements. The function chooses by rows and panels among loops
that keep all their sums in registers (registers.py), written with vectors of a register's size. Seven rows are 4 and
3, not 6 and 1: one row takes as long as three where weights are read from a cache. variants.py says what there is to
choose.

Each function is a module of its own, which all kernels of a program share: LLVM takes up to half a second for it, and
other programs need the same. What a function's calls have in common is part of it, and no argument
(llvm_panel_calls.py). A single row needs neither of x_row, tile_row, next, blocks and rows.

`next` is what will be read after w. With many rows there is time to fetch it: one cache line in each turn of the depth
for three rows and more, so LOW rows fetch the share of one panel of float32, the next LOW rows that of the panel behind
it. So weights that come from memory arrive while the ones before are multiplied (BERT-base, 69 tokens: 113 instead of
119 ms; two lines in a turn: 120). Where MANY blocks of rows follow each other, half of a line in a turn is enough, and
disturbs less (0.3 to 1 % of whole models).

`blocks` is how many blocks of rows meet these weights. If they are few, reading the weights is what takes time, and
four panels at once with LOW rows would read faster than memory gives and then wait for the rest of the rows. So up to
MAX_ROWS rows are multiplied with two panels, which leaves twice the time for a line, and while two panels are
multiplied the next two are fetched into the second-level cache (MiniLM, 10 tokens: 2.1 instead of 3.1 ms). Three to LOW
rows still take four panels at once, and fetch all of the next four if there is but one block (6 tokens: 1.6 instead of
2.2 ms).

With fewer registers LOW rows take one panel at once, so four in turn. Each pass fetches `line` bytes in a turn of the
depth: a quarter of its panel, so that LOW rows fetch the share of one panel as above; with one block of rows a half, or
all if it is one pass.

The scheme (a column panel streams past, rows are broadcast) is that of Goto and van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008; at batch 1 nothing but the stream of weights matters.
"""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.kernels.llvm_panel_calls import PanelCalls
from nimblevm.kernels.llvm_panel_loops import LINE, SIZES, TYPES, WEIGHTS, PanelLoop, has_two_ways
from nimblevm.kernels.panel_tile import LANES, LOW, MANY, MAX_PANELS, MAX_ROWS
from nimblevm.kernels.registers import Registers

FEW = 2
"""Blocks of rows that are bound by reading the weights. With three the difference is nothing (27 rows)."""


def module_text(calls: PanelCalls, features: tuple[str, ...]) -> str:
    """The micro-kernels for these calls, and the function that chooses."""
    return _Chooser(calls, features).text()


class _Chooser:
    """Writes the functions.

    limit  the most rows of a micro-kernel in this target's registers
    low    the most rows that do not wait for others to read the same weights
    paced  whether those rows take less than MAX_PANELS at once
    """

    def __init__(self, calls: PanelCalls, features: tuple[str, ...]) -> None:
        self.calls, self.features = calls, features
        self.type, self.weight = TYPES[calls.x_type], WEIGHTS[calls.w_type]
        size = SIZES[self.type]
        self.registers = Registers.of(features)
        self.limit = self.registers.max_rows(size, MAX_ROWS)
        self.low = min(self.limit, LOW)
        self.paced = self.registers.panels(self.low, size) < MAX_PANELS
        self.most = min(self.limit, calls.most_rows or self.limit)
        self.loops = [rows for rows in calls.variant.rows if rows <= self.most]

    def text(self) -> str:
        parts: list[str] = []
        blocks: list[str] = []
        for rows in self.loops:
            fit = self.registers.panels(rows, SIZES[self.type]) or 1
            sizes = self.calls.sizes(min(fit, self.calls.variant.panels))
            parts += [self._loop(rows, size, paced=self.paced) for size in sizes]
            if has_two_ways(rows, sizes[0]) and not self.paced:
                parts.append(self._loop(rows, MAX_PANELS, only=True))
            blocks.append(self._panels(rows, sizes))
        body = self._one_row(blocks[0]) if self.calls.most_rows == 1 else self._rows(blocks)
        return "".join([*parts, f"{self.calls.declaration('define')} #2 {{\n{body}\n}}\n"])

    def _loop(self, rows: int, panels: int, only: bool = False, paced: bool = False) -> str:
        return PanelLoop(self.calls, rows, panels, self.features, only, paced).text()

    def _one_row(self, block: str) -> str:
        return f"entry:\n  br label %rows1\n{block}more:\n  ret void"

    def _rows(self, blocks: list[str]) -> str:
        """Any number of rows: the most that fit, again and again."""
        best = {left: max(r for r in self.loops if r <= left) for left in range(1, self.most + 1)}
        cases = " ".join(f"i64 {left}, label %rows{rows}" for left, rows in best.items())
        ends = ", ".join(f"[ {r}, %r{r}.end ]" for r in self.loops)
        return f"""entry:
  %only = icmp ule i64 %blocks, 1
  %slow = icmp uge i64 %blocks, {MANY}
{_pace(self.limit, SIZES[self.weight]) if self.paced else _LINE}
  br label %again
again:
  %x.now = phi ptr [ %x, %entry ], [ %x.next, %more ]
  %tile.now = phi ptr [ %tile, %entry ], [ %tile.next, %more ]
  %next.now = phi ptr [ %next, %entry ], [ %next.next, %more ]
  %left = phi i64 [ %rows, %entry ], [ %left.next, %more ]
{self._choice()}
  switch i64 %most, label %done [ {cases} ]
{"".join(blocks)}
more:
  %now = phi i64 {ends}
  %left.next = sub i64 %left, %now
  %skip = mul i64 %now, %x_row
  %x.next = getelementptr {self.type}, ptr %x.now, i64 %skip
  %tile.skip = mul i64 %now, {self.calls.value("tile_row")}
  %tile.next = getelementptr {self.type}, ptr %tile.now, i64 %tile.skip
  %next.next = getelementptr i8, ptr %next.now, i64 %skipped
  br label %again
done:
  ret void"""

    def _choice(self) -> str:
        """`most` of the rows that are left: all, but where they are many as many as is best."""
        limit, low = self.limit, self.low
        if 0 < self.calls.most_rows <= low:
            return "  %most = add i64 %left, 0"
        return f"""  %many = icmp sgt i64 %left, {low}
  br i1 %many, label %choose, label %go
choose:
  %read = icmp ule i64 %blocks, {FEW}
  %limit = select i1 %read, i64 {limit}, i64 {low}
  %more.than = add i64 %limit, 1
  %half = select i1 %read, i64 {limit // 2 + 1}, i64 {low // 2 + 1}
  %few = icmp slt i64 %left, %limit
  %full = select i1 %few, i64 %left, i64 %limit
  %single = icmp eq i64 %left, %more.than
  %best = select i1 %single, i64 %half, i64 %full
  br label %go
go:
  %most = phi i64 [ %left, %again ], [ %best, %choose ]"""

    def _panels(self, rows: int, sizes: list[int]) -> str:
        """The blocks that serve so many rows."""
        x_row, x, tile = ("%x_row", "%x.now", "%tile.now")
        if self.calls.most_rows == 1:
            x_row, x, tile = ("0", "%x", "%tile")
        strides = {name: self.calls.value(name) for name in ("w_step", "w_panel", "tile_row")}

        def call(here: str, size: int) -> list[str]:
            before, function, place, line = self._following(here, rows, size)
            return [
                *before,
                f"  call void {function}(ptr {x}, i64 {x_row}, ptr {here}.w, i64 {strides['w_step']}, "
                f"i64 {strides['w_panel']}, i64 %depth, ptr {here}.t, i64 {strides['tile_row']}, "
                f"ptr {place}, i64 {line})",
            ]

        return blocks_of_rows(rows, sizes, (self.type, self.weight), call, tile, strides["w_panel"])

    def _following(self, here: str, rows: int, size: int) -> tuple[list[str], str, str, str]:
        """What a call needs before it, the micro-kernel, what it is to fetch, and how much of it in a turn."""
        function = f"@{self.calls.symbol}.{rows}x{size}"
        if self.calls.most_rows == 1:  # a single row fetches nothing
            return [], function, "null", "0"
        if self.paced:
            before = [
                f"  {here}.before = mul i64 {here}.p, %fetched",
                f"  {here}.fetch = getelementptr i8, ptr %next.now, i64 {here}.before",
            ]
            return before, function, f"{here}.fetch", "%line"
        two_ways = has_two_ways(rows, size)
        if not two_ways and rows <= LOW:
            return [], function, "%next.now", "%line"
        before = self._behind(here, size * SIZES[self.weight])
        if two_ways:
            before.append(f"  {here}.f = select i1 %only, ptr {function}.only, ptr {function}")
            function = f"{here}.f"
        return before, function, f"{here}.fetch", "%line"

    def _behind(self, here: str, size: int) -> list[str]:
        """`fetch` is where the panels behind a call's own lie, while there are some. size: bytes of a column of its
        own.
        """
        return [
            f"  {here}.step = mul i64 {self.calls.value('w_panel')}, {size}",
            f"  {here}.behind = getelementptr i8, ptr {here}.w, i64 {here}.step",
            f"  {here}.more = icmp slt i64 {here}.next, %panels",
            f"  {here}.fetch = select i1 {here}.more, ptr {here}.behind, ptr %next.now",
        ]


def blocks_of_rows(
    rows: int,
    sizes: list[int],
    types: tuple[str, str],
    call: Callable[[str, int], list[str]],
    tile: str = "%tile.now",
    w_panel: str = "%w_panel",
) -> str:
    """The blocks that serve so many rows: as many panels at once as fit, then fewer.

    types  of the tile's elements and of the panels', as LLVM has them
    call   (here, panels) -> the call of a micro-kernel; {here}.w is the first panel, {here}.t its place in the tile
    """
    lines = [f"rows{rows}:", f"  br label %r{rows}.s0"]
    done, before = "0", f"rows{rows}"
    for number, size in enumerate(sizes):
        here, go = f"r{rows}.s{number}", f"r{rows}.g{number}"
        after = f"r{rows}.end" if number == len(sizes) - 1 else f"r{rows}.s{number + 1}"
        lines += [
            f"{here}:",
            f"  %{here}.p = phi i64 [ {done}, %{before} ], [ %{here}.next, %{go} ]",
            f"  %{here}.next = add i64 %{here}.p, {size}",
            f"  %{here}.fits = icmp sle i64 %{here}.next, %panels",
            f"  br i1 %{here}.fits, label %{go}, label %{after}",
            f"{go}:",
            f"  %{here}.wo = mul i64 %{here}.p, {w_panel}",
            f"  %{here}.w = getelementptr {types[1]}, ptr %w, i64 %{here}.wo",
            f"  %{here}.to = mul i64 %{here}.p, {LANES}",
            f"  %{here}.t = getelementptr {types[0]}, ptr {tile}, i64 %{here}.to",
            *call(f"%{here}", size),
            f"  br label %{here}",
        ]
        done, before = f"%{here}.p", here
    lines += [f"r{rows}.end:", "  br label %more"]
    return "\n".join(lines) + "\n"


_LINE = f"""  %line = select i1 %slow, i64 {LINE // 2}, i64 {LINE}
  %skipped = mul i64 %depth, %line"""


def _pace(limit: int, size: int) -> str:
    """`line`: bytes to fetch in a turn of a panel. skipped: what the four panels of some rows fetch."""
    panel = LANES * size
    return f"""  %pass = icmp sle i64 %rows, {limit}
  %alone = select i1 %pass, i64 {panel}, i64 {panel // 2}
  %shared = select i1 %slow, i64 {panel // MAX_PANELS // 2}, i64 {panel // MAX_PANELS}
  %line = select i1 %only, i64 %alone, i64 %shared
  %fetched = mul i64 %depth, %line
  %skipped = mul i64 %fetched, {MAX_PANELS}"""


__all__ = ["FEW", "blocks_of_rows", "module_text"]

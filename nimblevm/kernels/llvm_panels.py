"""Micro-kernels of products with a right operand in rows of 16 columns, as LLVM text.

    void @panels.<x>.<w>.<variant>(ptr x, i64 x_row, ptr w, i64 w_step, i64 w_panel, i64 depth, ptr tile,
                                   i64 tile_row, ptr next, i64 blocks, i64 rows, i64 panels)

    tile[r * tile_row + 16 * p + t] = sum over k < depth of x[r * x_row + k] * w[p * w_panel + k * w_step + t]

for any number of rows and panels, t < 16; strides count elements. The function chooses by rows and panels among loops
that keep all their sums in registers, written with vectors of 16 elements, which LLVM splits for narrower targets.
Seven rows are 4 and 3, not 6 and 1: one row takes as long as three where weights are read from a cache. All kernels of
a module share them. variants.py says what there is to choose.

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

The scheme (a column panel streams past, rows are broadcast) is that of Goto and van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008; at batch 1 nothing but the stream of weights matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nimblevm.kernels.llvm_half import half_to_float
from nimblevm.kernels.panel_tile import LANES, LOW, MANY, MAX_PANELS, MAX_ROWS
from nimblevm.kernels.variants import Variant

FEW = 2
"""Blocks of rows that are bound by reading the weights. With three the difference is nothing (27 rows)."""
LINE = 64
"""Bytes of a cache line."""
_FIRST_LEVEL, _SECOND_LEVEL = 3, 2
"""Localities of llvm.prefetch."""
_PARAMS = "ptr %x, i64 %x_row, ptr %w, i64 %w_step, i64 %w_panel, i64 %depth, ptr %tile, i64 %tile_row, ptr %next"
_TYPES = {"float32": "float", "float64": "double"}
_WEIGHTS = {**_TYPES, "float16": "i16", "uint16": "i16"}
_SIZES = {"float": 4, "double": 8, "i16": 2}


@dataclass(frozen=True, slots=True)
class Budget:
    """Vector registers of 16 float32 that sums may take, by target."""

    vectors: int

    @staticmethod
    def of(features: tuple[str, ...]) -> Budget:
        if "avx512f" in features:
            return Budget(24)
        if "avx" in features or "neon" in features:
            return Budget(6)
        return Budget(3)

    def panels(self, rows: int, width: int) -> int:
        """Panels at once for so many rows; `width`: vectors that 16 elements take."""
        for panels in (4, 2, 1):
            if rows * panels * width <= self.vectors:
                return panels
        return 0

    def max_rows(self, width: int, most: int = MAX_ROWS) -> int:
        return max(1, *(r for r in range(1, most + 1) if self.panels(r, width)))


def symbol(x: str, w: str, variant: Variant) -> str:
    return f"panels.{x}.{w}.{variant.key}"


def module_text(x: str, w: str, variant: Variant, features: tuple[str, ...]) -> str:
    """The micro-kernels of a variant for operands of these dtypes, and the function that chooses."""
    budget, width = Budget.of(features), 2 if x == "float64" else 1
    parts: list[str] = []
    cases: list[str] = []
    blocks: list[str] = []
    name = symbol(x, w, variant)
    limit = budget.max_rows(width)
    low = min(limit, LOW)
    loops = [r for r in variant.rows if r <= limit]
    for rows in loops:
        most = min(budget.panels(rows, width) or 1, variant.panels)
        sizes = [p for p in (4, 2, 1) if p <= most]
        parts += [_Loop(x, w, rows, p, variant.ahead, features).text(name) for p in sizes]
        if _is_low(rows, sizes[0]):
            parts.append(_Loop(x, w, rows, MAX_PANELS, 0, features, only=True).text(name))
        blocks.append(_panels_text(x, w, rows, sizes, name))
    for left in range(1, limit + 1):
        cases.append(f"i64 {left}, label %rows{max(r for r in loops if r <= left)}")
    ends = ", ".join(f"[ {r}, %r{r}.end ]" for r in loops)
    type_ = _TYPES[x]
    parts.append(f"""
define internal void @{name}({_PARAMS}, i64 %blocks, i64 %rows, i64 %panels) #2 {{
entry:
  %only = icmp ule i64 %blocks, 1
  %slow = icmp uge i64 %blocks, {MANY}
  %line = select i1 %slow, i64 {LINE // 2}, i64 {LINE}
  br label %again
again:
  %x.now = phi ptr [ %x, %entry ], [ %x.next, %more ]
  %tile.now = phi ptr [ %tile, %entry ], [ %tile.next, %more ]
  %next.now = phi ptr [ %next, %entry ], [ %next.next, %more ]
  %left = phi i64 [ %rows, %entry ], [ %left.next, %more ]
  %many = icmp sgt i64 %left, {low}
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
  %most = phi i64 [ %left, %again ], [ %best, %choose ]
  switch i64 %most, label %done [ {" ".join(cases)} ]
{"".join(blocks)}
more:
  %now = phi i64 {ends}
  %left.next = sub i64 %left, %now
  %skip = mul i64 %now, %x_row
  %x.next = getelementptr {type_}, ptr %x.now, i64 %skip
  %tile.skip = mul i64 %now, %tile_row
  %tile.next = getelementptr {type_}, ptr %tile.now, i64 %tile.skip
  %next.skip = mul i64 %depth, %line
  %next.next = getelementptr i8, ptr %next.now, i64 %next.skip
  br label %again
done:
  ret void
}}
""")
    return "".join(parts)


def blocks_of_rows(
    rows: int, sizes: list[int], types: tuple[str, str], call: Callable[[str, int], list[str]]
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
            f"  %{here}.wo = mul i64 %{here}.p, %w_panel",
            f"  %{here}.w = getelementptr {types[1]}, ptr %w, i64 %{here}.wo",
            f"  %{here}.to = mul i64 %{here}.p, {LANES}",
            f"  %{here}.t = getelementptr {types[0]}, ptr %tile.now, i64 %{here}.to",
            *call(f"%{here}", size),
            f"  br label %{here}",
        ]
        done, before = f"%{here}.p", here
    lines += [f"r{rows}.end:", "  br label %more"]
    return "\n".join(lines) + "\n"


def _panels_text(x: str, w: str, rows: int, sizes: list[int], name: str) -> str:
    types = (_TYPES[x], _WEIGHTS[w])

    def call(here: str, size: int) -> list[str]:
        fetches = rows > LOW or _is_low(rows, size)
        function, choice = f"@{name}.{rows}x{size}", []
        if _is_low(rows, size):
            choice = [f"  {here}.f = select i1 %only, ptr {function}.only, ptr {function}"]
            function = f"{here}.f"
        return [
            *(_behind(here, size * _SIZES[types[1]]) if fetches else ()),
            *choice,
            f"  call void {function}(ptr %x.now, i64 %x_row, ptr {here}.w, i64 %w_step, "
            f"i64 %w_panel, i64 %depth, ptr {here}.t, i64 %tile_row, "
            f"ptr {f'{here}.fetch' if fetches else '%next.now'}, i64 %line)",
        ]

    return blocks_of_rows(rows, sizes, types, call)


def _is_low(rows: int, panels: int) -> bool:
    """Whether a micro-kernel fetches what is behind its panels in one of two ways."""
    return 2 < rows <= LOW and panels == MAX_PANELS


def _behind(here: str, size: int) -> list[str]:
    """`fetch` is where the panels behind a call's own lie, while there are some. size: bytes of a column of its own."""
    return [
        f"  {here}.step = mul i64 %w_panel, {size}",
        f"  {here}.behind = getelementptr i8, ptr {here}.w, i64 {here}.step",
        f"  {here}.more = icmp slt i64 {here}.next, %panels",
        f"  {here}.fetch = select i1 {here}.more, ptr {here}.behind, ptr %next.now",
    ]


Sum = tuple[int, int, int]
"""Row, panel and chain of a sum."""


def _register(loop: str, of: Sum) -> str:
    """The phi of a sum at the head of a loop."""
    return f"%{loop}.a{'.'.join(map(str, of))}"


class _Loop:
    """Writes one micro-kernel: `rows` x `panels` sums in registers."""

    def __init__(
        self,
        x: str,
        w: str,
        rows: int,
        panels: int,
        ahead: int,
        features: tuple[str, ...],
        only: bool = False,
    ) -> None:
        """only: no other rows meet these weights."""
        self.rows, self.panels = rows, panels
        self.w, self.features = w, features
        self.type, self.weight = _TYPES[x], _WEIGHTS[w]
        self.vector = f"<{LANES} x {self.type}>"
        self.lines: list[str] = []
        self.count = 0
        self.streams = rows <= 2
        # A sum waits four cycles for the one before: with few of them the turns of the depth take turns.
        self.chains = max(1, 4 // (rows * panels)) if self.streams else 1
        self.sums = [
            (r, p, c) for r in range(rows) for p in range(panels) for c in range(self.chains)
        ]
        self.ahead = ahead if self.streams else 0
        self.fetched = panels if rows > LOW else int(_is_low(rows, panels))
        if only:
            self.fetched = panels * LANES * _SIZES[self.weight] // LINE
        self.locality = _SECOND_LEVEL if only or rows > LOW else _FIRST_LEVEL
        self.name = f"{rows}x{panels}.only" if only else f"{rows}x{panels}"

    def do(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def column(self, place: str) -> str:
        """The 16 elements of w at `place`, as wide as the sums."""
        raw = f"<{LANES} x {self.weight}>"
        found = self.do(f"load {raw}, ptr {place}, align {_SIZES[self.weight]}")
        match self.w:
            case "float16":
                return half_to_float(self.do, found, self.features, LANES)
            case "uint16":
                wide = self.do(f"zext {raw} {found} to <{LANES} x i32>")
                bits = self.do(f"shl <{LANES} x i32> {wide}, splat (i32 16)")
                return self.do(f"bitcast <{LANES} x i32> {bits} to {self.vector}")
        return found

    def fetch(self, place: str, ahead: int, locality: int) -> None:
        there = self.do(f"getelementptr i8, ptr {place}, i64 {ahead}")
        self.lines.append(
            f"  call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 {locality}, i32 1)"
        )

    def step(self, k: str, offset: str, chain: int, sums: dict[Sum, str]) -> dict[Sum, str]:
        """One turn of the depth at index k of x and `offset` of w, added to the sums of a chain."""
        columns = []
        for p in range(self.panels):
            place = self.do(f"getelementptr {self.weight}, ptr %w{p}, i64 {offset}")
            if self.ahead:
                self.fetch(place, self.ahead, _FIRST_LEVEL)
            columns.append(self.column(place))
        for line in range(self.fetched):
            # Half of a line a turn asks for each line twice, which costs less than a branch.
            each = "%line" if self.locality == _FIRST_LEVEL else self.fetched * LINE
            first = self.do(f"mul i64 {k}, {each}")
            place = self.do(f"getelementptr i8, ptr %next, i64 {first}")
            self.fetch(place, line * LINE, self.locality)
        new = dict(sums)
        for r in range(self.rows):
            place = self.do(f"getelementptr {self.type}, ptr %x{r}, i64 {k}")
            value = self.do(f"load {self.type}, ptr {place}")
            one = self.do(f"insertelement {self.vector} poison, {self.type} {value}, i64 0")
            same = self.do(
                f"shufflevector {self.vector} {one}, {self.vector} poison, <{LANES} x i32> zeroinitializer"
            )
            for p in range(self.panels):
                product = self.do(f"fmul contract {self.vector} {same}, {columns[p]}")
                old = sums[r, p, chain]
                new[r, p, chain] = self.do(f"fadd contract {self.vector} {old}, {product}")
        return new

    def text(self, symbol_: str) -> str:
        # With more rows LLVM would hold several turns' operands at once and spill sums.
        unroll = 4 if self.streams else 1
        self.lines = ["entry:"]
        for r in range(self.rows):
            self.lines.append(f"  %xo{r} = mul i64 %x_row, {r}")
            self.lines.append(f"  %x{r} = getelementptr {self.type}, ptr %x, i64 %xo{r}")
        for p in range(self.panels):
            self.lines.append(f"  %wo{p} = mul i64 %w_panel, {p}")
            self.lines.append(f"  %w{p} = getelementptr {self.weight}, ptr %w, i64 %wo{p}")
        self.lines += [
            f"  %rest = and i64 %depth, {unroll - 1}",
            "  %whole = sub i64 %depth, %rest",
            "  br label %main",
        ]
        zero = dict.fromkeys(self.sums, "zeroinitializer")
        self._level("main", unroll, "entry", zero, "0", "0", "%whole", "tail")
        after = {s: _register("main", s) for s in self.sums}
        self._level("tail", 1, "main", after, "%main.k", "%main.o", "%depth", "end")
        self.lines.append("end:")
        for r, p in ((r, p) for r in range(self.rows) for p in range(self.panels)):
            total = _register("tail", (r, p, 0))
            for chain in range(1, self.chains):
                other = _register("tail", (r, p, chain))
                total = self.do(f"fadd {self.vector} {total}, {other}")
            row = self.do(f"mul i64 %tile_row, {r}")
            row = self.do(f"getelementptr {self.type}, ptr %tile, i64 {row}")
            place = self.do(f"getelementptr {self.type}, ptr {row}, i64 {p * LANES}")
            self.lines.append(f"  store {self.vector} {total}, ptr {place}, align 64")
        self.lines.append("  ret void")
        params = _PARAMS.replace("ptr", "ptr noalias") + ", i64 %line"
        head = f"define internal void @{symbol_}.{self.name}({params}) #2 {{"
        return "\n".join([head, *self.lines, "}"]) + "\n"

    def _level(
        self,
        name: str,
        unroll: int,
        before: str,
        sums: dict[Sum, str],
        k: str,
        offset: str,
        last: str,
        after: str,
    ) -> None:
        """A loop of `unroll` turns of the depth at a time, from k to last."""
        body = f"{name}.body"
        self.lines += [
            f"{name}:",
            f"  %{name}.k = phi i64 [ {k}, %{before} ], [ %{name}.k.next, %{body} ]",
            f"  %{name}.o = phi i64 [ {offset}, %{before} ], [ %{name}.o.next, %{body} ]",
        ]
        mark = len(self.lines)
        self.lines += [
            f"  %{name}.go = icmp slt i64 %{name}.k, {last}",
            f"  br i1 %{name}.go, label %{body}, label %{after}",
            f"{body}:",
        ]
        now = {s: _register(name, s) for s in self.sums}
        new, place, at = dict(now), f"%{name}.o", f"%{name}.k"
        for turn in range(unroll):
            if turn:
                at = self.do(f"add nsw i64 %{name}.k, {turn}")
                place = self.do(f"add nsw i64 {place}, %w_step")
            new = self.step(at, place, turn % self.chains, new)
        self.lines += [
            f"  %{name}.k.next = add nsw i64 %{name}.k, {unroll}",
            f"  %{name}.o.next = add nsw i64 {place}, %w_step",
            f"  br label %{name}",
        ]
        self.lines[mark:mark] = [
            f"  {now[s]} = phi {self.vector} [ {sums[s]}, %{before} ], [ {new[s]}, %{body} ]"
            for s in self.sums
        ]


__all__ = ["FEW", "MAX_ROWS", "Budget", "blocks_of_rows", "module_text", "symbol"]

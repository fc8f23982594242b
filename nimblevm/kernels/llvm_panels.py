"""Micro-kernels of products with a right operand in rows of 16 columns, as LLVM text.

    void @panels.<x>.<w>.<variant>(ptr x, i64 x_row, ptr w, i64 w_step, i64 w_panel, i64 depth, ptr tile,
                                   i64 tile_row, ptr next, i64 blocks, i64 rows, i64 panels)

    tile[r * tile_row + 16 * p + t] = sum over k < depth of x[r * x_row + k] * w[p * w_panel + k * w_step + t]

for any number of rows and panels, t < 16; strides count elements. The function chooses by rows and panels among loops
that keep all their sums in registers (registers.py), written with vectors of a register's size. Seven rows are 4 and 3,
not 6 and 1: one row takes as long as three where weights are read from a cache. All kernels of a module share them.
variants.py says what there is to choose.

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

from nimblevm.kernels.llvm_half import half_to_float
from nimblevm.kernels.panel_tile import LANES, LOW, MANY, MAX_PANELS, MAX_ROWS
from nimblevm.kernels.registers import Registers
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


def symbol(x: str, w: str, variant: Variant) -> str:
    return f"panels.{x}.{w}.{variant.key}"


def module_text(x: str, w: str, variant: Variant, features: tuple[str, ...]) -> str:
    """The micro-kernels of a variant for operands of these dtypes, and the function that chooses."""
    registers, size = Registers.of(features), _SIZES[_TYPES[x]]
    parts: list[str] = []
    cases: list[str] = []
    blocks: list[str] = []
    name = symbol(x, w, variant)
    limit = registers.max_rows(size, MAX_ROWS)
    low = min(limit, LOW)
    paced = registers.panels(low, size) < MAX_PANELS
    loops = [r for r in variant.rows if r <= limit]
    for rows in loops:
        most = min(registers.panels(rows, size) or 1, variant.panels)
        sizes = [p for p in (4, 2, 1) if p <= most]
        parts += [
            _Loop(x, w, rows, p, variant.ahead, features, paced=paced).text(name) for p in sizes
        ]
        if _is_low(rows, sizes[0]):
            parts.append(_Loop(x, w, rows, MAX_PANELS, 0, features, only=True).text(name))
        blocks.append(_panels_text(x, w, rows, sizes, name, paced))
    for left in range(1, limit + 1):
        cases.append(f"i64 {left}, label %rows{max(r for r in loops if r <= left)}")
    ends = ", ".join(f"[ {r}, %r{r}.end ]" for r in loops)
    type_ = _TYPES[x]
    parts.append(f"""
define internal void @{name}({_PARAMS}, i64 %blocks, i64 %rows, i64 %panels) #2 {{
entry:
  %only = icmp ule i64 %blocks, 1
  %slow = icmp uge i64 %blocks, {MANY}
{_pace(limit, _SIZES[_WEIGHTS[w]]) if paced else _LINE}
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
  %next.next = getelementptr i8, ptr %next.now, i64 %skipped
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


def _panels_text(x: str, w: str, rows: int, sizes: list[int], name: str, paced: bool) -> str:
    types = (_TYPES[x], _WEIGHTS[w])

    def call(here: str, size: int) -> list[str]:
        if paced:
            return [
                f"  {here}.before = mul i64 {here}.p, %fetched",
                f"  {here}.fetch = getelementptr i8, ptr %next.now, i64 {here}.before",
                f"  call void @{name}.{rows}x{size}(ptr %x.now, i64 %x_row, ptr {here}.w, i64 %w_step, "
                f"i64 %w_panel, i64 %depth, ptr {here}.t, i64 %tile_row, ptr {here}.fetch, i64 %line)",
            ]
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
"""Row, vector and chain of a sum."""


def _register(loop: str, of: Sum) -> str:
    """The phi of a sum at the head of a loop."""
    return f"%{loop}.a{'.'.join(map(str, of))}"


class _Loop:
    """Writes one micro-kernel: the sums of `rows` x `panels` in registers, a vector each."""

    def __init__(
        self,
        x: str,
        w: str,
        rows: int,
        panels: int,
        ahead: int,
        features: tuple[str, ...],
        only: bool = False,
        paced: bool = False,
    ) -> None:
        """only: no other rows meet these weights. paced: how many bytes to fetch in a turn is a parameter."""
        self.rows, self.panels = rows, panels
        self.w, self.features = w, features
        self.type, self.weight = _TYPES[x], _WEIGHTS[w]
        registers, size = Registers.of(features), _SIZES[self.type]
        self.lanes = registers.lanes(size)
        self.columns_wait = registers.columns_wait(rows, panels, size)
        self.vectors = panels * LANES // self.lanes
        self.vector, self.align = f"<{self.lanes} x {self.type}>", self.lanes * size
        self.lines: list[str] = []
        self.count = 0
        self.streams = rows <= 2
        # With few sums, which wait for the ones before, the turns of the depth take turns.
        self.chains = registers.chains(rows, panels, size) if self.streams else 1
        self.sums = [
            (r, v, c) for r in range(rows) for v in range(self.vectors) for c in range(self.chains)
        ]
        self.ahead = ahead if self.streams else 0
        self.fetched = panels if rows > LOW else int(_is_low(rows, panels))
        if only:
            self.fetched = panels * LANES * _SIZES[self.weight] // LINE
        self.paced = paced
        if paced:
            self.fetched = 0 if self.streams else panels
        self.locality = _SECOND_LEVEL if paced or only or rows > LOW else _FIRST_LEVEL
        self.name = f"{rows}x{panels}.only" if only else f"{rows}x{panels}"

    def do(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def column(self, place: str) -> str:
        """The elements of w at `place`, as wide as the sums."""
        raw = f"<{self.lanes} x {self.weight}>"
        found = self.do(f"load {raw}, ptr {place}, align {_SIZES[self.weight]}")
        match self.w:
            case "float16":
                return half_to_float(self.do, found, self.features, self.lanes)
            case "uint16":
                wide = self.do(f"zext {raw} {found} to <{self.lanes} x i32>")
                bits = self.do(f"shl <{self.lanes} x i32> {wide}, splat (i32 16)")
                return self.do(f"bitcast <{self.lanes} x i32> {bits} to {self.vector}")
        return found

    def fetch(self, place: str, ahead: int, locality: int) -> None:
        there = self.do(f"getelementptr i8, ptr {place}, i64 {ahead}")
        self.lines.append(
            f"  call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 {locality}, i32 1)"
        )

    def follow(self, k: str) -> None:
        """Fetch what is a turn's share of the weights that follow."""
        for line in range(self.fetched):
            # Half of a line a turn asks for each line twice, which costs less than a branch.
            of_call = self.paced or self.locality == _FIRST_LEVEL
            first = self.do(f"mul i64 {k}, {'%line' if of_call else self.fetched * LINE}")
            place = self.do(f"getelementptr i8, ptr %next, i64 {first}")
            self.fetch(place, line * LINE, self.locality)

    def row(self, r: int, k: str) -> str:
        """A vector of x at index k of row r."""
        value = self.do(
            f"load {self.type}, ptr {self.do(f'getelementptr {self.type}, ptr %x{r}, i64 {k}')}"
        )
        one = self.do(f"insertelement {self.vector} poison, {self.type} {value}, i64 0")
        return self.do(
            f"shufflevector {self.vector} {one}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def step(self, k: str, offset: str, chain: int, sums: dict[Sum, str]) -> dict[Sum, str]:
        """One turn of the depth at index k of x and `offset` of w, added to the sums of a chain."""
        places = [
            self.do(f"getelementptr {self.weight}, ptr %w{p}, i64 {offset}")
            for p in range(self.panels)
        ]
        for place in places if self.ahead else ():
            self.fetch(place, self.ahead, _FIRST_LEVEL)

        def column(v: int) -> str:
            panel, lane = divmod(v * self.lanes, LANES)
            return self.column(
                self.do(f"getelementptr {self.weight}, ptr {places[panel]}, i64 {lane}")
            )

        new = dict(sums)

        def add(r: int, v: int, x: str, w: str) -> None:
            product = self.do(f"fmul contract {self.vector} {x}, {w}")
            new[r, v, chain] = self.do(
                f"fadd contract {self.vector} {sums[r, v, chain]}, {product}"
            )

        if self.columns_wait:
            columns = [column(v) for v in range(self.vectors)]
            self.follow(k)
            for r in range(self.rows):
                x = self.row(r, k)
                for v, w in enumerate(columns):
                    add(r, v, x, w)
        else:
            rows = [self.row(r, k) for r in range(self.rows)]
            self.follow(k)
            for v in range(self.vectors):
                w = column(v)
                for r, x in enumerate(rows):
                    add(r, v, x, w)
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
        for r, v in ((r, v) for r in range(self.rows) for v in range(self.vectors)):
            total = _register("tail", (r, v, 0))
            for chain in range(1, self.chains):
                other = _register("tail", (r, v, chain))
                total = self.do(f"fadd {self.vector} {total}, {other}")
            row = self.do(f"mul i64 %tile_row, {r}")
            row = self.do(f"getelementptr {self.type}, ptr %tile, i64 {row}")
            place = self.do(f"getelementptr {self.type}, ptr {row}, i64 {v * self.lanes}")
            self.lines.append(f"  store {self.vector} {total}, ptr {place}, align {self.align}")
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


__all__ = ["FEW", "MAX_ROWS", "blocks_of_rows", "module_text", "symbol"]

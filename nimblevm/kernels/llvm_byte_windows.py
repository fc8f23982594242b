"""Micro-kernels of sums over windows of planes of bytes (convolutions), as LLVM text, for AVX-512 VNNI.

    void @byte_windows.<x>.<w>(ptr x, ptr offsets, ptr w, i64 w_row, i64 depth, ptr tile, i64 rows, i64 panels, i1 more)

    tile[64 r + c] = sum over k < depth of x[offsets[k] + c] * w[r * w_row + k]    for r < rows <= 24, c < 16 panels

x and w are int8 or uint8, sums int32 that wrap; `more`: what the tile holds is added. Outputs that lie side by side
read elements that lie side by side, at an offset for each element of the window: padding, strides, dilation and
channels are all in the table. Four rows of x are interleaved, so that `vpdpbusd` multiplies four elements of the
window of 16 outputs by four weights that are broadcast. Nothing is added across a vector, so that short windows and
few channels cost no more than long ones. Interleaving 32 columns takes eight shuffles of half a vector and two of
whole ones, beside the 24 products of twelve rows.

Operands of one sign. With x' = x xor 0x80, which is x + 128 of the other sign or x - 128,

    sum x w  =  sum x' w  -  sum 0' w

and the last sum is that of a row of weights, computed once for all columns of a tile. The equation holds modulo 2**32,
which is how int32 wraps.
"""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.kernels.llvm_bytes import DOT, FLIPPED, REDUCE, TURNS, masked_load, numbers
from nimblevm.kernels.panel_tile import LANES, TILE_ROW

ROWS = {2: (12, 6, 4, 2, 1), 1: (12, 6, 4, 2, 1)}
"""Rows at once by panels at once."""
MOST_ROWS = 24
"""Of a tile: twice those at once."""
_QUAD = 4
"""Bytes of an element of a vector."""
_SUMS, _BYTES = f"<{LANES} x i32>", f"<{TURNS} x i8>"
_PARAMS = "ptr %x, ptr %offsets, ptr %w, i64 %w_row, i64 %depth, ptr %tile, i64 %rows, i64 %panels, i1 %more"
_LOAD = masked_load(TURNS)
_FEW = masked_load(_QUAD)
_DECLARATIONS = f"""declare {_SUMS} @{DOT}({_SUMS}, {_SUMS}, {_SUMS})
declare {_BYTES} @{_LOAD}(ptr, i32 immarg, <{TURNS} x i1>, {_BYTES})
declare <{_QUAD} x i8> @{_FEW}(ptr, i32 immarg, <{_QUAD} x i1>, <{_QUAD} x i8>)
declare i32 @{REDUCE}({_SUMS})
declare i64 @llvm.smin.i64(i64, i64)
"""


def symbol(x_type: str, w_type: str) -> str:
    return f"byte_windows.{x_type}.{w_type}"


def declaration(x_type: str, w_type: str) -> str:
    """For the modules that call the function."""
    return f"declare hidden void @{symbol(x_type, w_type)}({_PARAMS})\n"


def module_text(x_type: str, w_type: str) -> str:
    """The micro-kernels for operands of these dtypes, and the function that chooses."""
    name = symbol(x_type, w_type)
    loops = [_Loop(x_type, w_type, rows, panels).text() for panels in ROWS for rows in ROWS[panels]]
    less = [_less_text(name, w_type)] if x_type == w_type else []
    return "".join([_DECLARATIONS, *loops, *less, _chooser(name, x_type == w_type)])


def _dot(sums: str, x: str, w: str, w_type: str) -> str:
    """x and w of different signs, the unsigned one first."""
    first, second = (w, x) if w_type == "uint8" else (x, w)
    return f"call {_SUMS} @{DOT}({_SUMS} {sums}, {_SUMS} {first}, {_SUMS} {second})"


def _mask(indices: list[int]) -> str:
    return f"<{len(indices)} x i32> <{', '.join(f'i32 {i}' for i in indices)}>"


class _Loop:
    """Writes the sums of some rows and panels."""

    def __init__(self, x_type: str, w_type: str, rows: int, panels: int) -> None:
        self.w_type, self.rows, self.panels = w_type, rows, panels
        self.flips = x_type == w_type
        self.symbol = f"{symbol(x_type, w_type)}.{rows}x{panels}"
        self.sums = [(r, p) for r in range(rows) for p in range(panels)]
        self.lines: list[str] = []
        self.count = 0

    def do(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def text(self) -> str:
        self.lines = [
            f"define internal void @{self.symbol}(ptr %x, ptr %offsets, ptr %w, i64 %w_row, i64 %depth, ptr %tile, "
            "ptr %less, i1 %more) #2 {",
            "entry:",
            f"  %rest = and i64 %depth, {_QUAD - 1}",
            "  %whole = sub i64 %depth, %rest",
            "  %last = sub i64 %depth, 1",
        ]
        for r in range(self.rows):
            offset = self.do(f"mul i64 %w_row, {r}")
            self.lines.append(f"  %w{r} = getelementptr i8, ptr %w, i64 {offset}")
        self._depth()
        for r in range(self.rows):
            self._keep(r)
        return "\n".join([*self.lines, "  ret void", "}"]) + "\n"

    def _depth(self) -> None:
        """The loop over whole vectors, and what is left of the window behind them."""
        self.lines += [
            "  br label %loop",
            "loop:",
            "  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]",
        ]
        mark = len(self.lines)
        self.lines += [
            "  %go = icmp slt i64 %k, %whole",
            "  br i1 %go, label %body, label %after",
            "body:",
        ]
        now = {s: f"%loop.{s[0]}.{s[1]}" for s in self.sums}
        new = self._turn(now, [self.do(f"add i64 %k, {j}") for j in range(_QUAD)], self._weights)
        self.lines += [f"  %k.next = add i64 %k, {_QUAD}", "  br label %loop"]
        self.lines += [
            "after:",
            "  %some = icmp ne i64 %rest, 0",
            "  br i1 %some, label %tail, label %end",
            "tail:",
            f"  %rest.v = insertelement <{_QUAD} x i64> poison, i64 %rest, i64 0",
            f"  %rest.all = shufflevector <{_QUAD} x i64> %rest.v, <{_QUAD} x i64> poison, "
            f"<{_QUAD} x i32> zeroinitializer",
            f"  %mask = icmp ult <{_QUAD} x i64> {numbers(_QUAD)}, %rest.all",
        ]
        # Behind the last element of the window any of x will do: the weight is 0.
        behind = [self.do(f"add i64 %whole, {j}") for j in range(_QUAD)]
        places = [self.do(f"call i64 @llvm.smin.i64(i64 {p}, i64 %last)") for p in behind]
        last = self._turn(now, places, self._last_weights)
        self.lines += ["  br label %end", "end:"]
        for s in self.sums:
            name = f"%end.{s[0]}.{s[1]}"
            self.lines.append(f"  {name} = phi {_SUMS} [ {now[s]}, %after ], [ {last[s]}, %tail ]")
        self.lines[mark:mark] = [
            f"  {now[s]} = phi {_SUMS} [ zeroinitializer, %entry ], [ {new[s]}, %body ]"
            for s in self.sums
        ]

    def _turn(
        self, sums: dict[tuple[int, int], str], places: list[str], weights: Callable[[int], str]
    ) -> dict[tuple[int, int], str]:
        """Four elements of the window, at these places of the table."""
        columns = self._interleaved([self._row(place) for place in places])
        if self.flips:
            columns = [self.do(f"xor {_BYTES} {column}, {FLIPPED}") for column in columns]
        columns = [self.do(f"bitcast {_BYTES} {column} to {_SUMS}") for column in columns]
        new = {}
        for r in range(self.rows):
            one = self.do(f"insertelement {_SUMS} poison, i32 {weights(r)}, i64 0")
            w = self.do(
                f"shufflevector {_SUMS} {one}, {_SUMS} poison, <{LANES} x i32> zeroinitializer"
            )
            for p, x in enumerate(columns):
                new[r, p] = self.do(_dot(sums[r, p], x, w, self.w_type))
        return new

    def _row(self, place: str) -> str:
        """Bytes of x that one element of the window meets."""
        at = self.do(f"getelementptr i64, ptr %offsets, i64 {place}")
        offset = self.do(f"load i64, ptr {at}, align 8")
        row = self.do(f"getelementptr i8, ptr %x, i64 {offset}")
        return self.do(f"load <{LANES * self.panels} x i8>, ptr {row}, align 1")

    def _weights(self, r: int) -> str:
        place = self.do(f"getelementptr i8, ptr %w{r}, i64 %k")
        return self.do(f"load i32, ptr {place}, align 1")

    def _last_weights(self, r: int) -> str:
        place = self.do(f"getelementptr i8, ptr %w{r}, i64 %whole")
        few = f"<{_QUAD} x i8>"
        found = self.do(
            f"call {few} @{_FEW}(ptr {place}, i32 1, <{_QUAD} x i1> %mask, {few} zeroinitializer)"
        )
        return self.do(f"bitcast {few} {found} to i32")

    def _interleaved(self, rows: list[str]) -> list[str]:
        """Vectors of 16 columns with four bytes each. Bytes change places within 128 bits, as instructions have it, so
        that a vector has columns of all panels: see `_in_order`.
        """
        a, b, c, d = rows
        size = LANES * self.panels
        pairs = [
            self._unpacked(p, q, size, 1, half) for p, q in ((a, b), (c, d)) for half in (0, 1)
        ]
        quads = [
            self._unpacked(pairs[half], pairs[2 + half], size, 2, part)
            for half in (0, 1)
            for part in (0, 1)
        ]
        while size < TURNS:
            joined = _mask([*range(2 * size)])
            quads = [
                self.do(
                    f"shufflevector <{size} x i8> {quads[i]}, <{size} x i8> {quads[i + 1]}, {joined}"
                )
                for i in range(0, len(quads), 2)
            ]
            size *= 2
        return quads

    def _unpacked(self, a: str, b: str, size: int, group: int, half: int) -> str:
        """Of each 128 bits of a and b the first or second half, `group` bytes of a and of b in turn."""
        found = [
            lane + 8 * half + at + source + byte
            for lane in range(0, size, 16)
            for at in range(0, 8, group)
            for source in (0, size)
            for byte in range(group)
        ]
        return self.do(f"shufflevector <{size} x i8> {a}, <{size} x i8> {b}, {_mask(found)}")

    def _in_order(self, sums: list[str]) -> list[str]:
        """The sums of a row by columns. Of two panels quads of columns lie as 0 4 1 5, 2 6 3 7; of one in order."""
        if self.panels == 1:
            return sums
        a, b = sums
        return [self._quads(a, b, places) for places in ((0, 2, 4, 6), (1, 3, 5, 7))]

    def _quads(self, a: str, b: str, places: tuple[int, ...]) -> str:
        """Four of the eight quads of two vectors."""
        found = _mask([4 * place + i for place in places for i in range(4)])
        return self.do(f"shufflevector {_SUMS} {a}, {_SUMS} {b}, {found}")

    def _keep(self, r: int) -> None:
        """The totals of a row into the tile."""
        totals = self._in_order([f"%end.{r}.{p}" for p in range(self.panels)])
        every = ""
        if self.flips:
            place = self.do(f"getelementptr i32, ptr %less, i64 {r}")
            one = self.do(
                f"insertelement {_SUMS} poison, i32 {self.do(f'load i32, ptr {place}')}, i64 0"
            )
            every = self.do(
                f"shufflevector {_SUMS} {one}, {_SUMS} poison, <{LANES} x i32> zeroinitializer"
            )
        for p, total in enumerate(totals):
            value = self.do(f"sub {_SUMS} {total}, {every}") if every else total
            place = self.do(f"getelementptr i32, ptr %tile, i64 {r * TILE_ROW + p * LANES}")
            held = self.do(f"load {_SUMS}, ptr {place}, align 64")
            before = self.do(f"select i1 %more, {_SUMS} {held}, {_SUMS} zeroinitializer")
            value = self.do(f"add {_SUMS} {value}, {before}")
            self.lines.append(f"  store {_SUMS} {value}, ptr {place}, align 64")


def _less_text(name: str, w_type: str) -> str:
    """The product of zeros, flipped, and a row of weights."""
    load = (
        f"call {_BYTES} @{_LOAD}(ptr %place, i32 1, <{TURNS} x i1> %mask, {_BYTES} zeroinitializer)"
    )
    zeros = f"splat (i32 {int.from_bytes(bytes([0x80] * _QUAD), 'little', signed=True)})"
    return f"""define internal i32 @{name}.less(ptr %w, i64 %depth) #2 {{
entry:
  %rest = and i64 %depth, {TURNS - 1}
  %whole = sub i64 %depth, %rest
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]
  %sum = phi {_SUMS} [ zeroinitializer, %entry ], [ %new, %body ]
  %go = icmp slt i64 %k, %whole
  br i1 %go, label %body, label %tail
body:
  %here = getelementptr i8, ptr %w, i64 %k
  %quads = load {_SUMS}, ptr %here, align 1
  %new = {_dot("%sum", zeros, "%quads", w_type)}
  %k.next = add i64 %k, {TURNS}
  br label %loop
tail:
  %ones = shl i64 -1, %rest
  %bits = xor i64 %ones, -1
  %mask = bitcast i64 %bits to <{TURNS} x i1>
  %place = getelementptr i8, ptr %w, i64 %whole
  %bytes = {load}
  %last = bitcast {_BYTES} %bytes to {_SUMS}
  %end = {_dot("%sum", zeros, "%last", w_type)}
  %total = call i32 @{REDUCE}({_SUMS} %end)
  ret i32 %total
}}
"""


def _chooser(name: str, flips: bool) -> str:
    """As many panels at once as there are, and for these all rows, as many at once as there are."""
    blocks = "".join(_panels_text(name, panels) for panels in ROWS)
    cases = " ".join(f"i64 {panels}, label %p{panels}" for panels in ROWS)
    ends = ", ".join(f"[ {panels}, %p{panels}.again ]" for panels in ROWS)
    before, subtracted = ("zeros", _LESS.format(name=name)) if flips else ("entry", "")
    return f"""define hidden void @{name}({_PARAMS}) #2 {{
entry:
  %less = alloca [{MOST_ROWS} x i32], align 16
  br label %{"zeros" if flips else "again"}
{subtracted}again:
  %x.now = phi ptr [ %x, %{before} ], [ %x.next, %on ]
  %tile.now = phi ptr [ %tile, %{before} ], [ %tile.next, %on ]
  %left = phi i64 [ %panels, %{before} ], [ %left.next, %on ]
{_most("%left", tuple(ROWS), "%p")}
  switch i64 %p.most, label %done [ {cases} ]
{blocks}on:
  %now = phi i64 {ends}
  %left.next = sub i64 %left, %now
  %skip = mul i64 %now, {LANES}
  %x.next = getelementptr i8, ptr %x.now, i64 %skip
  %tile.next = getelementptr i32, ptr %tile.now, i64 %skip
  br label %again
done:
  ret void
}}
"""


_LESS = """zeros:
  %row = phi i64 [ 0, %entry ], [ %row.next, %zeros.row ]
  %row.go = icmp slt i64 %row, %rows
  br i1 %row.go, label %zeros.row, label %again
zeros.row:
  %row.skip = mul i64 %row, %w_row
  %row.w = getelementptr i8, ptr %w, i64 %row.skip
  %row.less = call i32 @{name}.less(ptr %row.w, i64 %depth)
  %row.place = getelementptr i32, ptr %less, i64 %row
  store i32 %row.less, ptr %row.place
  %row.next = add i64 %row, 1
  br label %zeros
"""


def _most(left: str, sizes: tuple[int, ...], name: str) -> str:
    """Lines that set <name>.most to the largest of these sizes that is not more than `left`, 0 if there is none."""
    lines, found = [], "0"
    for size in reversed(sizes):
        new = f"{name}.most" if size == sizes[0] else f"{name}.m{size}"
        lines += [
            f"  {name}.f{size} = icmp sge i64 {left}, {size}",
            f"  {new} = select i1 {name}.f{size}, i64 {size}, i64 {found}",
        ]
        found = new
    return "\n".join(lines)


def _panels_text(name: str, panels: int) -> str:
    """The blocks that serve so many panels."""
    here, rows = f"%p{panels}", ROWS[panels]
    label = here[1:]
    cases = " ".join(f"i64 {r}, label {here}.r{r}" for r in rows)
    ends = ", ".join(f"[ {r}, {here}.r{r} ]" for r in rows)
    lines = [
        f"{label}:",
        f"  br label {here}.again",
        f"{label}.again:",
        f"  {here}.w = phi ptr [ %w, {here} ], [ {here}.w.next, {here}.on ]",
        f"  {here}.t = phi ptr [ %tile.now, {here} ], [ {here}.t.next, {here}.on ]",
        f"  {here}.l = phi ptr [ %less, {here} ], [ {here}.l.next, {here}.on ]",
        f"  {here}.left = phi i64 [ %rows, {here} ], [ {here}.left.next, {here}.on ]",
        _most(f"{here}.left", rows, f"{here}.r"),
        f"  switch i64 {here}.r.most, label %on [ {cases} ]",
    ]
    for r in rows:
        lines += [
            f"{label}.r{r}:",
            f"  call void @{name}.{r}x{panels}(ptr %x.now, ptr %offsets, ptr {here}.w, i64 %w_row, i64 %depth, "
            f"ptr {here}.t, ptr {here}.l, i1 %more)",
            f"  br label {here}.on",
        ]
    lines += [
        f"{label}.on:",
        f"  {here}.now = phi i64 {ends}",
        f"  {here}.left.next = sub i64 {here}.left, {here}.now",
        f"  {here}.skip = mul i64 {here}.now, %w_row",
        f"  {here}.w.next = getelementptr i8, ptr {here}.w, i64 {here}.skip",
        f"  {here}.t.skip = mul i64 {here}.now, {TILE_ROW}",
        f"  {here}.t.next = getelementptr i32, ptr {here}.t, i64 {here}.t.skip",
        f"  {here}.l.next = getelementptr i32, ptr {here}.l, i64 {here}.now",
        f"  br label {here}.again",
    ]
    return "\n".join(lines) + "\n"


__all__ = ["MOST_ROWS", "declaration", "module_text", "symbol"]

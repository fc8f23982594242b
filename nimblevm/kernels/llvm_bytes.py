"""Micro-kernels of products of bytes whose operands both run along the depth, as LLVM text, for AVX-512 VNNI.

    void @bytes.<x>.<w>(ptr x, i64 x_row, ptr w, i64 w_row, i64 depth, ptr tile, i64 rows, i64 columns)

    tile[64 r + c] = sum over k < depth of x[r * x_row + k] * w[c * w_row + k]    for r < rows and c < columns <= 64

x and w are int8 or uint8, sums int32 that wrap. `vpdpbusd` adds four products of an unsigned and a signed byte to each
int32 of a vector, exactly, so 64 turns of the depth are one instruction. Up to six rows and four columns are summed at
once, 24 sums in registers; at the end a row's four vectors are transposed and added. What is left of the depth is
loaded with a mask, zeros behind it. Columns behind the last one repeat it: the tile has room for them.

Operands of one sign. With w' = w xor 0x80, which is w + 128 of the other sign or w - 128,

    sum x w  =  sum x w'  -  sum x 0'

and the last sum, the product with a column of zeros, is computed once for each row and all columns of a tile. The
equation holds modulo 2**32, which is how int32 wraps.

Weights need no other layout than they have, so that a file is the same for CPUs without the instruction, and weights
need not be constants (adr 19).
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.kernels.panel_tile import TILE_ROW

NEEDS = ("avx512f", "avx512bw", "avx512vnni")
"""Features of CPUs that have the instruction, and loads of bytes with masks."""
ROWS = (6, 4, 2, 1)
"""Rows at once."""
COLUMNS = 4
"""Columns at once."""
TURNS = 64
"""Turns of the depth of an instruction."""
DOT = "llvm.x86.avx512.vpdpbusd.512"
REDUCE = f"llvm.vector.reduce.add.v{TURNS // 4}i32"
FLIPPED = "splat (i8 -128)"
"""A vector of zeros, flipped."""


def masked_load(count: int) -> str:
    """The function that loads bytes of which a mask chooses."""
    return f"llvm.masked.load.v{count}i8.p0"


_BYTES, _SUMS = f"<{TURNS} x i8>", f"<{TURNS // 4} x i32>"
_LOAD = masked_load(TURNS)
_PARAMS = "ptr %x, i64 %x_row, ptr %w, i64 %w_row, i64 %depth, ptr %tile, i64 %rows, i64 %columns"
_DECLARATIONS = f"""declare {_SUMS} @{DOT}({_SUMS}, {_SUMS}, {_SUMS})
declare {_BYTES} @{_LOAD}(ptr, i32 immarg, <{TURNS} x i1>, {_BYTES})
declare i32 @{REDUCE}({_SUMS})
declare i64 @llvm.smin.i64(i64, i64)
"""


def has_instruction(features: Sequence[str]) -> bool:
    """Whether a CPU with these features, LLVM names, runs the micro-kernels."""
    return set(NEEDS) <= set(features)


def numbers(count: int) -> str:
    """0, 1, 2, .. as a vector."""
    return f"<{', '.join(f'i64 {i}' for i in range(count))}>"


def symbol(x_type: str, w_type: str) -> str:
    return f"bytes.{x_type}.{w_type}"


def declaration(x_type: str, w_type: str) -> str:
    """For the modules that call the function."""
    return f"declare hidden void @{symbol(x_type, w_type)}({_PARAMS})\n"


def module_text(x_type: str, w_type: str) -> str:
    """The micro-kernels for operands of these dtypes, and the function that chooses."""
    name = symbol(x_type, w_type)
    parts = [_Loop(x_type, w_type, rows, COLUMNS).text() for rows in ROWS]
    if x_type == w_type:
        parts.append(_Loop(x_type, w_type, 1, 0).text())
    return "".join([_DECLARATIONS, *parts, _chooser(name, x_type == w_type)])


class _Loop:
    """Writes the sums of some rows and columns; with no columns, of a row and a column of zeros, flipped."""

    def __init__(self, x_type: str, w_type: str, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.flips = x_type == w_type
        self.unsigned_x = x_type == "uint8"
        self.symbol = f"{symbol(x_type, w_type)}.{f'{rows}x{columns}' if columns else 'zero'}"
        self.sums = [(r, c) for r in range(rows) for c in range(max(columns, 1))]
        self.lines: list[str] = []
        self.count = 0

    def do(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def text(self) -> str:
        columns = "".join(f", ptr %w{c}" for c in range(self.columns))
        keeps = ", ptr %tile, ptr %less" if self.columns else ""
        result = "void" if self.columns else "i32"
        self.lines = [
            f"define internal {result} @{self.symbol}(ptr %x, i64 %x_row{columns}, i64 %depth{keeps}) #2 {{",
            "entry:",
            f"  %rest = and i64 %depth, {TURNS - 1}",
            "  %whole = sub i64 %depth, %rest",
        ]
        for r in range(self.rows):
            offset = self.do(f"mul i64 %x_row, {r}")
            self.lines.append(f"  %x{r} = getelementptr i8, ptr %x, i64 {offset}")
        self._depth()
        if self.columns:
            self._keep()
        else:
            self.lines.append(f"  ret i32 {self.do(f'call i32 @{REDUCE}({_SUMS} %end.0.0)')}")
        return "\n".join([*self.lines, "}"]) + "\n"

    def _depth(self) -> None:
        """The loop over whole vectors, and the turns behind it."""
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
        new = self._turn(now, masked=False)
        self.lines += [f"  %k.next = add i64 %k, {TURNS}", "  br label %loop"]
        self.lines += [
            "after:",
            "  %some = icmp ne i64 %rest, 0",
            "  br i1 %some, label %tail, label %end",
            "tail:",
            f"  %rest.v = insertelement <{TURNS} x i64> poison, i64 %rest, i64 0",
            f"  %rest.all = shufflevector <{TURNS} x i64> %rest.v, <{TURNS} x i64> poison, "
            f"<{TURNS} x i32> zeroinitializer",
            f"  %mask = icmp ult <{TURNS} x i64> {numbers(TURNS)}, %rest.all",
        ]
        last = self._turn(now, masked=True)
        self.lines += ["  br label %end", "end:"]
        for s in self.sums:
            name = f"%end.{s[0]}.{s[1]}"
            self.lines.append(f"  {name} = phi {_SUMS} [ {now[s]}, %after ], [ {last[s]}, %tail ]")
        self.lines[mark:mark] = [
            f"  {now[s]} = phi {_SUMS} [ zeroinitializer, %entry ], [ {new[s]}, %body ]"
            for s in self.sums
        ]

    def _turn(self, sums: dict[tuple[int, int], str], masked: bool) -> dict[tuple[int, int], str]:
        """One vector of the depth, at index k."""
        columns = [self._column(c, masked) for c in range(self.columns)]
        columns = columns or [self._as_sums(FLIPPED)]
        new = {}
        for r in range(self.rows):
            x = self._as_sums(self._load(f"%x{r}", masked))
            for c, w in enumerate(columns):
                first, second = (x, w) if self.unsigned_x else (w, x)
                new[r, c] = self.do(
                    f"call {_SUMS} @{DOT}({_SUMS} {sums[r, c]}, {_SUMS} {first}, {_SUMS} {second})"
                )
        return new

    def _column(self, c: int, masked: bool) -> str:
        value = self._load(f"%w{c}", masked)
        if self.flips:
            value = self.do(f"xor {_BYTES} {value}, {FLIPPED}")
        return self._as_sums(value)

    def _load(self, row: str, masked: bool) -> str:
        place = self.do(f"getelementptr i8, ptr {row}, i64 %k")
        if masked:
            return self.do(
                f"call {_BYTES} @{_LOAD}(ptr {place}, i32 1, <{TURNS} x i1> %mask, {_BYTES} zeroinitializer)"
            )
        return self.do(f"load {_BYTES}, ptr {place}, align 1")

    def _as_sums(self, value: str) -> str:
        return self.do(f"bitcast {_BYTES} {value} to {_SUMS}")

    def _keep(self) -> None:
        """The totals into the tile."""
        for r in range(self.rows):
            a, b, c, d = (f"%end.{r}.{column}" for column in range(COLUMNS))
            # Of each 128 bits: sums of two elements of a and b in turn, then of all four of a, b, c, d.
            total = self._added(self._added(a, b, 1), self._added(c, d, 1), 2)
            for size in (8, 4):
                total = self._halves(total, size)
            if self.flips:
                place = self.do(f"getelementptr i32, ptr %less, i64 {r}")
                less = self.do(f"load i32, ptr {place}")
                one = self.do(f"insertelement <4 x i32> poison, i32 {less}, i64 0")
                every = self.do(
                    f"shufflevector <4 x i32> {one}, <4 x i32> poison, <4 x i32> zeroinitializer"
                )
                total = self.do(f"sub <4 x i32> {total}, {every}")
            place = self.do(f"getelementptr i32, ptr %tile, i64 {r * TILE_ROW}")
            self.lines.append(f"  store <4 x i32> {total}, ptr {place}, align 4")
        self.lines.append("  ret void")

    def _added(self, a: str, b: str, size: int) -> str:
        """Blocks of `size` elements of a and b in turn: the lower halves of each 128 bits plus the upper ones."""
        halves = []
        for half in (0, 2):
            order = [
                source + quad + half + block * size + i
                for quad in range(0, TURNS // 4, 4)
                for block in range(2 // size)
                for source in (0, TURNS // 4)
                for i in range(size)
            ]
            mask = ", ".join(f"i32 {i}" for i in order)
            halves.append(
                self.do(f"shufflevector {_SUMS} {a}, {_SUMS} {b}, <{TURNS // 4} x i32> <{mask}>")
            )
        return self.do(f"add {_SUMS} {halves[0]}, {halves[1]}")

    def _halves(self, value: str, size: int) -> str:
        """The first `size` elements of twice as many, plus the others."""
        parts = []
        for first in (0, size):
            mask = ", ".join(f"i32 {first + i}" for i in range(size))
            wide = f"<{2 * size} x i32>"
            parts.append(
                self.do(f"shufflevector {wide} {value}, {wide} poison, <{size} x i32> <{mask}>")
            )
        return self.do(f"add <{size} x i32> {parts[0]}, {parts[1]}")


def _chooser(name: str, flips: bool) -> str:
    """As many rows at once as there are, again and again, and for each of these all columns."""
    choice = [f"  %fits{rows} = icmp sge i64 %left, {rows}" for rows in ROWS]
    most = "0"
    for rows in reversed(ROWS):
        choice.append(f"  %most{rows} = select i1 %fits{rows}, i64 {rows}, i64 {most}")
        most = f"%most{rows}"
    cases = " ".join(f"i64 {rows}, label %rows{rows}" for rows in ROWS)
    ends = ", ".join(f"[ {rows}, %go{rows} ]" for rows in ROWS)
    blocks = "".join(_rows_text(name, rows, flips) for rows in ROWS)
    return f"""define hidden void @{name}({_PARAMS}) #2 {{
entry:
  %less = alloca [{max(ROWS)} x i32], align 16
  %last = sub i64 %columns, 1
  br label %again
again:
  %x.now = phi ptr [ %x, %entry ], [ %x.next, %more ]
  %tile.now = phi ptr [ %tile, %entry ], [ %tile.next, %more ]
  %left = phi i64 [ %rows, %entry ], [ %left.next, %more ]
{chr(10).join(choice)}
  switch i64 {most}, label %done [ {cases} ]
{blocks}more:
  %now = phi i64 {ends}
  %left.next = sub i64 %left, %now
  %skip = mul i64 %now, %x_row
  %x.next = getelementptr i8, ptr %x.now, i64 %skip
  %tile.skip = mul i64 %now, {TILE_ROW}
  %tile.next = getelementptr i32, ptr %tile.now, i64 %tile.skip
  br label %again
done:
  ret void
}}
"""


def _rows_text(name: str, rows: int, flips: bool) -> str:
    """The blocks that serve so many rows."""
    lines = [f"rows{rows}:"]
    for r in range(rows) if flips else ():
        here = f"%z{rows}.{r}"
        lines += [
            f"  {here}.o = mul i64 %x_row, {r}",
            f"  {here}.x = getelementptr i8, ptr %x.now, i64 {here}.o",
            f"  {here} = call i32 @{name}.zero(ptr {here}.x, i64 0, i64 %depth)",
            f"  {here}.p = getelementptr i32, ptr %less, i64 {r}",
            f"  store i32 {here}, ptr {here}.p",
        ]
    here = f"%c{rows}"
    lines += [
        f"  br label %go{rows}",
        f"go{rows}:",
        f"  {here} = phi i64 [ 0, %rows{rows} ], [ {here}.next, %do{rows} ]",
        f"  {here}.go = icmp slt i64 {here}, %columns",
        f"  br i1 {here}.go, label %do{rows}, label %more",
        f"do{rows}:",
    ]
    for c in range(COLUMNS):
        lines += [
            f"  {here}.i{c} = add i64 {here}, {c}",
            f"  {here}.j{c} = call i64 @llvm.smin.i64(i64 {here}.i{c}, i64 %last)",
            f"  {here}.o{c} = mul i64 {here}.j{c}, %w_row",
            f"  {here}.w{c} = getelementptr i8, ptr %w, i64 {here}.o{c}",
        ]
    columns = "".join(f", ptr {here}.w{c}" for c in range(COLUMNS))
    lines += [
        f"  {here}.t = getelementptr i32, ptr %tile.now, i64 {here}",
        f"  call void @{name}.{rows}x{COLUMNS}(ptr %x.now, i64 %x_row{columns}, i64 %depth, ptr {here}.t, ptr %less)",
        f"  {here}.next = add i64 {here}, {COLUMNS}",
        f"  br label %go{rows}",
    ]
    return "\n".join(lines) + "\n"


__all__ = [
    "DOT", "FLIPPED", "REDUCE", "TURNS", "declaration", "has_instruction", "masked_load", "module_text", "numbers",
    "symbol",
]  # fmt: skip

"""One micro-kernel of llvm_panels.py as LLVM text: sums of some rows and panels in registers, through the depth."""

from __future__ import annotations

from nimblevm.kernels.llvm_half import half_to_float
from nimblevm.kernels.llvm_panel_calls import PanelCalls
from nimblevm.kernels.panel_tile import LANES, LOW, MAX_PANELS
from nimblevm.kernels.registers import Registers

LINE = 64
"""Bytes of a cache line."""
_FIRST_LEVEL, _SECOND_LEVEL = 3, 2
"""Localities of llvm.prefetch."""
TYPES = {"float32": "float", "float64": "double"}
WEIGHTS = {**TYPES, "float16": "i16", "uint16": "i16"}
SIZES = {"float": 4, "double": 8, "i16": 2}
"""dtypes of x and of w as LLVM has them, and their bytes."""

_UNROLL = 4
"""Turns of the depth at a time with one or two rows."""
_PARAMS = (
    "ptr noalias %x, i64 %x_row, ptr noalias %w, i64 %w_step, i64 %w_panel, i64 %depth, ptr noalias %tile, "
    "i64 %tile_row, ptr noalias %next, i64 %line"
)
Sum = tuple[int, int, int]
"""Row, vector and chain of a sum."""


def _register(loop: str, of: Sum) -> str:
    """The phi of a sum at the head of a loop."""
    return f"%{loop}.a{'.'.join(map(str, of))}"


class PanelLoop:
    """Writes one micro-kernel: the sums of `rows` x `panels` in registers, a vector each."""

    def __init__(
        self,
        calls: PanelCalls,
        rows: int,
        panels: int,
        features: tuple[str, ...],
        only: bool = False,
        paced: bool = False,
    ) -> None:
        """only: no other rows meet these weights. paced: how many bytes to fetch in a turn is a parameter."""
        self.calls, self.rows, self.panels = calls, rows, panels
        self.features = features
        self.type, self.weight = TYPES[calls.x_type], WEIGHTS[calls.w_type]
        registers, size = Registers.of(features), SIZES[self.type]
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
        self.ahead = calls.variant.ahead if self.streams else 0
        self.fetched = panels if rows > LOW else int(has_two_ways(rows, panels))
        if only:
            self.fetched = panels * LANES * SIZES[self.weight] // LINE
        self.paced = paced
        if paced:
            self.fetched = 0 if self.streams else panels
        self.locality = _SECOND_LEVEL if paced or only or rows > LOW else _FIRST_LEVEL
        self.symbol = f"{calls.symbol}.{rows}x{panels}{'.only' if only else ''}"

    def do(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def column(self, places: list[str], v: int) -> str:
        """The elements of w for vector v of a row's sums. places: where each panel's begin."""
        panel, lane = divmod(v * self.lanes, LANES)
        if self.calls.pairs:
            return self.one_of_pairs(self.at(places[panel - panel % 2], 2 * lane), panel % 2)
        return self.widened(self.at(places[panel], lane))

    def at(self, place: str, elements: int) -> str:
        """The place in w so many elements behind another."""
        return self.do(f"getelementptr {self.weight}, ptr {place}, i64 {elements}")

    def one_of_pairs(self, place: str, number: int) -> str:
        """The first or the second columns of pairs at `place`; LLVM loads the pairs once."""
        raw = f"<{self.lanes} x i32>"
        pairs = self.do(f"load {raw}, ptr {place}, align {SIZES[self.weight]}")
        upper = f"and {raw} {pairs}, splat (i32 -65536)"
        bits = self.do(upper if number else f"shl {raw} {pairs}, splat (i32 16)")
        return self.do(f"bitcast {raw} {bits} to {self.vector}")

    def widened(self, place: str) -> str:
        """The elements of w at `place`, as wide as the sums."""
        raw = f"<{self.lanes} x {self.weight}>"
        found = self.do(f"load {raw}, ptr {place}, align {SIZES[self.weight]}")
        match self.calls.w_type:
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
        for place in places[:: 2 if self.calls.pairs else 1] if self.ahead else ():
            self.fetch(place, self.ahead, _FIRST_LEVEL)

        new = dict(sums)

        def add(r: int, v: int, x: str, w: str) -> None:
            product = self.do(f"fmul contract {self.vector} {x}, {w}")
            new[r, v, chain] = self.do(
                f"fadd contract {self.vector} {sums[r, v, chain]}, {product}"
            )

        if self.columns_wait:
            columns = [self.column(places, v) for v in range(self.vectors)]
            self.follow(k)
            for r in range(self.rows):
                x = self.row(r, k)
                for v, w in enumerate(columns):
                    add(r, v, x, w)
        else:
            rows = [self.row(r, k) for r in range(self.rows)]
            self.follow(k)
            for v in range(self.vectors):
                w = self.column(places, v)
                for r, x in enumerate(rows):
                    add(r, v, x, w)
        return new

    def text(self) -> str:
        w_panel = self.calls.value("w_panel")
        self.lines = ["entry:"]
        for r in range(self.rows):
            self.lines.append(f"  %xo{r} = mul i64 %x_row, {r}")
            self.lines.append(f"  %x{r} = getelementptr {self.type}, ptr %x, i64 %xo{r}")
        for p in range(self.panels):
            self.lines.append(f"  %wo{p} = mul i64 {w_panel}, {p}")
            self.lines.append(f"  %w{p} = getelementptr {self.weight}, ptr %w, i64 %wo{p}")
        self._depth()
        self._keep()
        head = f"define internal void @{self.symbol}({_PARAMS}) #2 {{"
        return "\n".join([head, *self.lines, "}"]) + "\n"

    def _depth(self) -> None:
        """The loops. With more rows LLVM would hold several turns' operands at once and spill sums."""
        zero = dict.fromkeys(self.sums, "zeroinitializer")
        if not self.streams:
            self.lines.append("  br label %tail")
            self._level("tail", 1, "entry", zero, "0", "0", "%depth", "end")
            return
        self.lines += [
            f"  %rest = and i64 %depth, {_UNROLL - 1}",
            "  %whole = sub i64 %depth, %rest",
            "  br label %main",
        ]
        self._level("main", _UNROLL, "entry", zero, "0", "0", "%whole", "tail")
        after = {s: _register("main", s) for s in self.sums}
        self._level("tail", 1, "main", after, "%main.k", "%main.o", "%depth", "end")

    def _keep(self) -> None:
        """The totals into the tile."""
        tile_row = self.calls.value("tile_row")
        self.lines.append("end:")
        for r, v in ((r, v) for r in range(self.rows) for v in range(self.vectors)):
            total = _register("tail", (r, v, 0))
            for chain in range(1, self.chains):
                other = _register("tail", (r, v, chain))
                total = self.do(f"fadd {self.vector} {total}, {other}")
            row = self.do(f"mul i64 {tile_row}, {r}")
            row = self.do(f"getelementptr {self.type}, ptr %tile, i64 {row}")
            place = self.do(f"getelementptr {self.type}, ptr {row}, i64 {v * self.lanes}")
            self.lines.append(f"  store {self.vector} {total}, ptr {place}, align {self.align}")
        self.lines.append("  ret void")

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
        w_step = self.calls.value("w_step")
        now = {s: _register(name, s) for s in self.sums}
        new, place, at = dict(now), f"%{name}.o", f"%{name}.k"
        for turn in range(unroll):
            if turn:
                at = self.do(f"add nsw i64 %{name}.k, {turn}")
                place = self.do(f"add nsw i64 {place}, {w_step}")
            new = self.step(at, place, turn % self.chains, new)
        self.lines += [
            f"  %{name}.k.next = add nsw i64 %{name}.k, {unroll}",
            f"  %{name}.o.next = add nsw i64 {place}, {w_step}",
            f"  br label %{name}",
        ]
        self.lines[mark:mark] = [
            f"  {now[s]} = phi {self.vector} [ {sums[s]}, %{before} ], [ {new[s]}, %{body} ]"
            for s in self.sums
        ]


def has_two_ways(rows: int, panels: int) -> bool:
    """Whether a micro-kernel fetches what is behind its panels in one of two ways."""
    return 2 < rows <= LOW and panels == MAX_PANELS


__all__ = ["LINE", "SIZES", "TYPES", "WEIGHTS", "PanelLoop", "has_two_ways"]

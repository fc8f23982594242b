"""Micro-kernels of two products at once, as LLVM text: one row that waits for its weights, and several rows beside it.

    void @beside.<turns>.<strides>(ptr x, ptr w, i64 depth, ptr tile, i64 panels,
                                   ptr x2, ptr w2, i64 depth2, ptr tile2, i1 begins, i64 rows2, i64 panels2)

    tile[16 p + t]             = sum over k < depth of x[k] * w[p w_panel + k w_step + t]      (llvm_panels.py, one row)
    tile2[64 r + 16 p + t]    += sum over k < depth2 of x2[r x2_row + k] * w2[p w2_panel + k w2_step + t]

for r < ROWS and p < panels2 <= PANELS, if rows2 > 0; else the second line is left out. With `begins` tile2 counts as 0
before. Strides are literals: ROWS addresses of rows would not fit the registers. In the loop of both, `turns` turns of
the first depth, of 4 cache lines of weights each, stand beside one turn of the second, 16 multiply-adds of vectors
whose operands are mostly in the first-level cache. Each sum adds its terms in the order of k, whatever `turns` is.

Measured on Zen 4 (docs/performance-log.md): synthetic multiply-adds from registers beside the loads are free, so what
the second product costs are the cache lines that it brings along.
"""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.kernels.llvm_panel_calls import PanelCalls
from nimblevm.kernels.panel_tile import LANES, MAX_PANELS, TILE_ROW

ROWS, PANELS = 8, 2
"""Rows and panels beside: 16 sums of vectors, with 4 of the first product and operands for 32 registers."""
_UNROLL = 6
"""Turns of the first depth in a turn of a loop of its own."""
_TURNS = (3, 2, 1)
"""What `turns` may be. The loop of both has one turn of the rows: with more of them LLVM moves loads of several turns
together and, where `turns` is 2, spills sums (GRU 512->512: a step took 1.15 times as long).
"""
_VECTOR = f"<{LANES} x float>"
_PARAMS = "ptr noalias %x, ptr noalias %w, i64 %depth, ptr noalias %tile"
_PARAMS2 = "ptr noalias %x2, ptr noalias %w2, i64 %depth2, ptr noalias %tile2, i1 %begins"
_ARGS = "ptr %x, ptr %w, i64 %depth, ptr %tile"
_ARGS2 = "ptr %x2, ptr %w2, i64 %depth2, ptr %tile2, i1 %begins"


def turns_beside(depth: int, depth2: int) -> int:
    """How many turns of a product's depth are to stand beside one of the rows' depth: as many as leave at most an
    eighth of the rows' turns over, which then run with nothing beside them.
    """
    for turns in _TURNS:
        if 8 * (depth // turns) >= 7 * depth2:
            return turns
    return _TURNS[-1]


@dataclass(frozen=True, slots=True)
class Form:
    """What is a literal in a micro-kernel: turns, and strides in elements; see above."""

    turns: int
    w_step: int
    w_panel: int
    x2_row: int
    w2_step: int
    w2_panel: int

    @property
    def symbol(self) -> str:
        literals = (self.turns, self.w_step, self.w_panel, self.x2_row, self.w2_step, self.w2_panel)
        return ".".join(["beside", *map(str, literals)])


Sums = dict[str, str]
"""Name of a sum -> the register that holds it."""


class _Writer:
    def __init__(self, form: Form) -> None:
        self.s = form
        self.lines: list[str] = []
        self.count = 0
        self.one = [f"a{p}" for p in range(MAX_PANELS)]

    def do(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def _at(self, base: str, index: str, step: int, offset: int) -> str:
        place = index if step == 1 else self.do(f"mul nsw i64 {index}, {step}")
        place = self.do(f"getelementptr float, ptr {base}, i64 {place}")
        return self.do(f"getelementptr float, ptr {place}, i64 {offset}")

    def _same(self, place: str) -> str:
        value = self.do(f"load float, ptr {place}")
        one = self.do(f"insertelement {_VECTOR} poison, float {value}, i64 0")
        return self.do(
            f"shufflevector {_VECTOR} {one}, {_VECTOR} poison, <{LANES} x i32> zeroinitializer"
        )

    def _add(self, old: str, x: str, w: str) -> str:
        product = self.do(f"fmul contract {_VECTOR} {x}, {w}")
        return self.do(f"fadd contract {_VECTOR} {old}, {product}")

    def _row(self, k: str, turn: int, sums: Sums) -> Sums:
        """A turn of the first product."""
        x = self._same(self._at("%x", k, 1, turn))
        new = dict(sums)
        for p in range(MAX_PANELS):
            place = self._at("%w", k, self.s.w_step, turn * self.s.w_step + p * self.s.w_panel)
            w = self.do(f"load {_VECTOR}, ptr {place}, align 4")
            new[f"a{p}"] = self._add(sums[f"a{p}"], x, w)
        return new

    def _rows(self, k: str, turn: int, sums: Sums, panels: int) -> Sums:
        """A turn of the second product."""
        new = dict(sums)
        columns = []
        for p in range(panels):
            offset = turn * self.s.w2_step + p * self.s.w2_panel
            place = self._at("%w2", k, self.s.w2_step, offset)
            columns.append(self.do(f"load {_VECTOR}, ptr {place}, align 4"))
        for r in range(ROWS):
            x = self._same(self._at("%x2", k, 1, r * self.s.x2_row + turn))
            for p in range(panels):
                new[f"b{r}.{p}"] = self._add(sums[f"b{r}.{p}"], x, columns[p])
        return new

    def loop(
        self, name: str, before: str, after: str, turns: tuple[int, int], state: Sums, panels: int
    ) -> Sums:
        """Some turns of the first and of the second depth at a time, while both have as many left; what is in registers
        behind it. state: the sums, and "k" and "k2".
        """
        first, second = turns
        body = f"{name}.body"
        now = {key: f"%{name}.{key}" for key in state}
        mark = len(self.lines) + 1
        self.lines.append(f"{name}:")
        tests = []
        if first:
            end = self.do(f"add nsw i64 {now['k']}, {first}")
            tests.append(self.do(f"icmp sle i64 {end}, %depth"))
        if second:
            end = self.do(f"add nsw i64 {now['k2']}, {second}")
            tests.append(self.do(f"icmp sle i64 {end}, %depth2"))
        go = tests[0] if len(tests) == 1 else self.do(f"and i1 {tests[0]}, {tests[1]}")
        self.lines += [f"  br i1 {go}, label %{body}, label %{after}", f"{body}:"]
        new = dict(now)
        for turn in range(first):
            new = self._row(now["k"], turn, new)
        for turn in range(second):
            new = self._rows(now["k2"], turn, new, panels)
        if second:
            new["k2"] = self.do(f"add nsw i64 {now['k2']}, {second}")
        if first:
            new["k"] = self.do(f"add nsw i64 {now['k']}, {first}")
        self.lines.append(f"  br label %{name}")
        self.lines[mark:mark] = [
            f"  {now[key]} = phi {_type(key)} [ {first}, %{before} ], [ {new[key]}, %{body} ]"
            for key, first in state.items()
        ]
        return now

    def both(self, symbol: str) -> str:
        """MAX_PANELS panels of one row, PANELS panels of ROWS rows."""
        self.lines = ["entry:"]
        state = {
            "k": "0",
            "k2": "0",
            **dict.fromkeys(self.one, "zeroinitializer"),
            **self._load(PANELS),
        }
        self.lines.append("  br label %both")
        state = self.loop("both", "entry", "main", (self.s.turns, 1), state, PANELS)
        state |= self.loop("main", "both", "tail", (_UNROLL, 0), _only(state, "k", *self.one), 0)
        state |= self.loop("tail", "main", "rest", (1, 0), _only(state, "k", *self.one), 0)
        others = [key for key in state if key not in ("k", *self.one)]
        state |= self.loop("rest", "tail", "end", (0, 1), _only(state, *others), PANELS)
        self.lines.append("end:")
        for p, key in enumerate(self.one):
            self._store("%tile", p * LANES, state[key])
        self._keep(state)
        return self._function(f"{symbol}.both", f"{_PARAMS}, {_PARAMS2}")

    def alone(self, symbol: str) -> str:
        """MAX_PANELS panels of one row: like the kernel of llvm_panels.py, but with strides that are literals."""
        self.lines = ["entry:", "  br label %main"]
        state = {"k": "0", **dict.fromkeys(self.one, "zeroinitializer")}
        state = self.loop("main", "entry", "tail", (_UNROLL, 0), state, 0)
        state = self.loop("tail", "main", "end", (1, 0), state, 0)
        self.lines.append("end:")
        for p, key in enumerate(self.one):
            self._store("%tile", p * LANES, state[key])
        return self._function(f"{symbol}.alone", _PARAMS)

    def rest(self, symbol: str, panels: int) -> str:
        """The second product alone."""
        self.lines = ["entry:"]
        state = {"k2": "0", **self._load(panels)}
        self.lines.append("  br label %rest")
        state = self.loop("rest", "entry", "end", (0, 1), state, panels)
        self.lines.append("end:")
        self._keep(state)
        return self._function(f"{symbol}.rest{panels}", _PARAMS2)

    def _load(self, panels: int) -> Sums:
        found: Sums = {}
        for r in range(ROWS):
            for p in range(panels):
                place = self.do(f"getelementptr float, ptr %tile2, i64 {r * TILE_ROW + p * LANES}")
                old = self.do(f"load {_VECTOR}, ptr {place}, align 64")
                found[f"b{r}.{p}"] = self.do(
                    f"select i1 %begins, {_VECTOR} zeroinitializer, {_VECTOR} {old}"
                )
        return found

    def _keep(self, state: Sums) -> None:
        for key, value in state.items():
            if key[0] == "b":
                r, p = map(int, key[1:].split("."))
                self._store("%tile2", r * TILE_ROW + p * LANES, value)

    def _store(self, base: str, offset: int, value: str) -> None:
        place = self.do(f"getelementptr float, ptr {base}, i64 {offset}")
        self.lines.append(f"  store {_VECTOR} {value}, ptr {place}, align 64")

    def _function(self, symbol: str, params: str) -> str:
        head = f"define internal void @{symbol}({params}) #2 {{"
        return "\n".join([head, *self.lines, "  ret void", "}"]) + "\n"


def _type(key: str) -> str:
    return "i64" if key in ("k", "k2") else _VECTOR


def _only(state: Sums, *keys: str) -> Sums:
    return {key: state[key] for key in keys}


def declaration(name: str) -> str:
    """For the modules that call the function."""
    return f"declare hidden void @{name}({_PARAMS}, i64 %panels, {_PARAMS2}, i64 %rows2, i64 %panels2)\n"


def module_text(name: str, form: Form, panels: PanelCalls) -> str:
    """The function `name` of this form; panels: the calls of a row by itself (llvm_panels.py)."""
    parts = [panels.declaration() + "\n", _Writer(form).both(name), _Writer(form).alone(name)]
    parts += [_Writer(form).rest(name, p) for p in (1, PANELS)]
    few = panels.call({
        "x": "%x", "w": "%w", "w_step": str(form.w_step), "w_panel": str(form.w_panel),
        "depth": "%depth", "tile": "%tile", "panels": "%panels",
    })  # fmt: skip
    parts.append(f"""
define hidden void @{name}({_PARAMS}, i64 %panels, {_PARAMS2}, i64 %rows2, i64 %panels2) #2 {{
entry:
  %some = icmp sgt i64 %rows2, 0
  %all = icmp eq i64 %panels, {MAX_PANELS}
  %all2 = icmp eq i64 %panels2, {PANELS}
  %full = and i1 %all, %all2
  %fast = and i1 %full, %some
  br i1 %fast, label %both, label %apart
both:
  call void @{name}.both({_ARGS}, {_ARGS2})
  ret void
apart:
  br i1 %all, label %whole, label %few
whole:
  call void @{name}.alone({_ARGS})
  br label %then
few:
  {few}
  br label %then
then:
  br i1 %some, label %rest, label %done
rest:
  br i1 %all2, label %rest2, label %rest1
rest2:
  call void @{name}.rest{PANELS}({_ARGS2})
  ret void
rest1:
  call void @{name}.rest1({_ARGS2})
  ret void
done:
  ret void
}}
""")
    return "".join(parts)


__all__ = ["PANELS", "ROWS", "Form", "declaration", "module_text", "turns_beside"]

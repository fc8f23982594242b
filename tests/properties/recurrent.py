"""Random recurrent programs: loops over rows and walks over trees with cells of random products and arithmetic.

Most are in the form that the loop passes look for, some just miss it (an exit, a step of 2, a start at 1, another limit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import nimblevm as nvm
from nimblevm.driver import bind_params

WIDTHS = (2, 3)
SOURCES = ("(?n, {w})", "(?n, 1, {w})", "(3, {w})")


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A program with its weights bound, and arguments for several lengths of its sequence."""

    mod: nvm.relay.IRModule
    runs: list[list[Any]]

    def __repr__(self) -> str:
        return self.mod.astext(show_meta_data=False)


class _Cell:
    """Statements of one step; `terms` are values of shape (1, width)."""

    def __init__(
        self, draw: Any, terms: dict[int, list[str]], fixed: dict[str, tuple[int, ...]]
    ) -> None:
        self.draw = draw
        self.terms = terms
        self.fixed = fixed  # weights by name -> shape
        self.lines: list[str] = []

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def weight(self, *shape: int) -> str:
        known = [n for n, s in self.fixed.items() if s == shape]
        if known and self.draw(st.booleans()):
            return "%" + str(self.pick(known))
        name = f"w{len(self.fixed)}"
        self.fixed[name] = shape
        return f"%{name}"

    def let(self, width: int, value: str) -> str:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"let {name} = {value};")
        self.terms.setdefault(width, []).append(name)
        return name

    def any(self, width: int) -> str:
        if width not in self.terms or self.draw(st.integers(0, 3)) == 0:
            return self.product(width)
        return str(self.pick(self.terms[width]))

    def product(self, width: int) -> str:
        source = self.pick([w for w in self.terms if self.terms[w]])
        data, size = self.pick(self.terms[source]), source
        if self.draw(st.booleans()):
            other = self.pick([w for w in self.terms if self.terms[w]])
            data, size = (
                f"concatenate(({data}, {self.pick(self.terms[other])}), axis=1)",
                source + other,
            )
        return f"nn.dense({data}, {self.weight(width, size)})"

    def statement(self) -> None:
        width = self.pick(WIDTHS)
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            self.let(width, f"{self.pick(('tanh', 'sigmoid'))}({self.any(width)})")
        elif kind == 1:
            self.let(width, f"{self.any(width)} {self.pick('+-*')} {self.any(width)}")
        elif kind == 2:
            self.let(width, f"{self.product(width)} + {self.weight(width)}")
        elif kind == 3:
            self.let(width, f"{self.product(width)} + {self.product(width)} + {self.any(width)}")
        else:
            self.gates(width)

    def gates(self, width: int) -> None:
        """Pieces of a product, read by elementwise operators, and now and then by others."""
        count = self.draw(st.integers(2, 3))
        inner = f"{self.product(count * width)} + {self.weight(count * width)}"
        if self.draw(st.booleans()):
            inner = f"({inner}) + {self.product(count * width)}"
        if self.draw(st.booleans()):
            inner = f"tanh({inner})"
        name = f"%g{len(self.lines)}"
        self.lines.append(
            f"let {name} = split({inner}, indices_or_sections={count}, axis={self.pick((1, -1))});"
        )
        self.let(width, f"sigmoid({name}.0) * {name}.{count - 1}")
        if self.draw(st.integers(0, 4)) == 0:
            self.terms[width].append(f"{name}.1")


@st.composite
def loops(draw: Any) -> Recurrent:
    """A loop over the rows of %x, or over the numbers %x of rows of a table."""
    width = draw(st.sampled_from(WIDTHS))
    embedded = draw(st.integers(0, 3)) == 0
    source = "(?n)" if embedded else draw(st.sampled_from(SOURCES)).format(w=width)
    fixed: dict[str, tuple[int, ...]] = {"table": (4, width)} if embedded else {}
    index = draw(st.sampled_from(["%i"] * 3 + ["%n - 1 - %i"]))
    row = f"take(%x, {index}, axis=0)"
    if embedded:
        row = f"take(%table, {row}, axis=0)"
    states = [(f"%s{k}", draw(st.sampled_from(WIDTHS))) for k in range(draw(st.integers(1, 3)))]
    cell = _Cell(draw, {width: ["%row"]}, fixed)
    following = _next_states(cell, states)
    miss = draw(st.integers(0, 9))
    step, start = (2, 0) if miss == 0 else (1, 1) if miss == 1 else (1, 0)
    limit = "2" if miss == 2 else "take(shape_of(%x), 0)"
    again = f"%loop(%i + {step}, {', '.join(following)})"
    end = ", ".join(n for n, _ in states if draw(st.booleans())) or states[-1][0]
    leave = (
        f"if (less(max({following[0]}), 0.4f)) {{ {again} }} else {{ ({end},) }}"
        if miss == 3
        else again
    )
    ends = [n.strip() for n in end.split(",")]
    sizes = dict(states)
    result = ", ".join(f"Tensor[(1, {sizes[n]}), float32]" for n in ends)
    dtype = "int32" if embedded else "float32"
    text = f"""#[version = "0.0.5"]
def @main(%x: Tensor[{source}, {dtype}]{_declared(fixed)}) -> ({result},) {{
  let %n = {limit};
  let %loop = fn (%i: int32, {", ".join(f"{n}: Tensor[(1, {s}), float32]" for n, s in states)}) -> ({result},) {{
    if (less(%i, %n)) {{
      let %row = reshape({row}, newshape=[1, {width}]);
      {chr(10).join(cell.lines)}
      {leave}
    }} else {{ ({end},) }}
  }};
  %loop({start}, {", ".join(f"full(0.5f, shape=[1, {s}], dtype='float32')".replace("'", '"') for _, s in states)})
}}
"""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    # A trip that has no row to take fails, so no empty sequence where another limit decides.
    lengths = (int(limit == "2"), 1, 4) if "?n" in source else (3,)
    runs = [[_sequence(rng, source, rows, width)] for rows in lengths]
    return _bound(draw, text, fixed, runs, rng)


def _next_states(cell: _Cell, states: list[tuple[str, int]]) -> list[str]:
    """The states of the next trip: each reads those before it, and the last one statements between."""
    following: list[str] = []
    for name, size in states:
        cell.terms.setdefault(size, []).append(name)
        if cell.draw(st.booleans()) or name == states[-1][0]:
            for _ in range(cell.draw(st.integers(1, 3))):
                cell.statement()
        following.append(cell.let(size, f"tanh({cell.any(size)} + {cell.product(size)})"))
    return following


def _sequence(rng: np.random.Generator, source: str, rows: int, width: int) -> np.ndarray:
    """An argument of the shape `source`: rows, or numbers of rows, some of which the table does not have."""
    if "," not in source:
        return rng.integers(-1, 6, rows).astype(np.int32)
    shape = (rows, 1, width) if ", 1, " in source else (rows, width)
    return rng.standard_normal(shape).astype(np.float32)


def _declared(fixed: dict[str, tuple[int, ...]]) -> str:
    return "".join(f", %{n}: Tensor[({', '.join(map(str, s))}), float32]" for n, s in fixed.items())


def _bound(
    draw: Any,
    text: str,
    fixed: dict[str, tuple[int, ...]],
    runs: list[list[Any]],
    rng: np.random.Generator,
) -> Recurrent:
    """The weights as constants, or as arguments."""
    mod = nvm.relay.parse(text, source_name="recurrent.rly")
    weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in fixed.items()}
    if draw(st.integers(0, 3)):
        return Recurrent(bind_params(mod, weights) if weights else mod, runs)
    return Recurrent(mod, [[*given, *weights.values()] for given in runs])


@st.composite
def walks(draw: Any) -> Recurrent:
    """A walk over a binary tree whose leaves and nodes hold a row."""
    width, size = draw(st.sampled_from(WIDTHS)), draw(st.sampled_from(WIDTHS))
    fixed: dict[str, tuple[int, ...]] = {}
    leaf = _Cell(draw, {width: ["%x"]}, fixed)
    node = _Cell(
        draw, {size: ["%a", "%b"], width: ["%v"] if width != size else ["%v", "%a", "%b"]}, fixed
    )
    for cell in (leaf, node):
        for _ in range(draw(st.integers(0, 2))):
            cell.statement()
    ends = [f"tanh({cell.any(size)} + {cell.product(size)})" for cell in (leaf, node)]
    second = "%walk(%r)"
    if draw(st.integers(0, 5)) == 0:
        second = "if (less(max(%a), 0.4f)) { %walk(%r) } else { %a }"
    text = f"""#[version = "0.0.5"]
type Tree {{ Leaf(Tensor[(1, {width}), float32]), Node(Tree, Tensor[(1, {width}), float32], Tree), Skip(Tree) }}
def @main(%t: Tree{_declared(fixed)}) -> Tensor[(1, {size}), float32] {{
  let %walk = fn (%t: Tree) -> Tensor[(1, {size}), float32] {{
    match (%t) {{
      Leaf(%x) => {{ {" ".join(leaf.lines)} {ends[0]} }},
      Node(%l, %v, %r) => {{ let %a = %walk(%l); let %b = {second}; {" ".join(node.lines)} {ends[1]} }},
      Skip(%s) => {{ %walk(%s) }},
    }}
  }};
  %walk(%t)
}}
"""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return _bound(draw, text, fixed, [[_tree(rng, width, n)] for n in (1, 2, 5)], rng)


def _tree(rng: np.random.Generator, width: int, leaves: int) -> Any:
    """Nested tuples ("Node", left, row, right), ("Leaf", row), ("Skip", tree)."""

    def row() -> Any:
        return rng.standard_normal((1, width)).astype(np.float32)

    trees: list[Any] = [("Leaf", row()) for _ in range(leaves)]
    while len(trees) > 1:
        at = int(rng.integers(len(trees) - 1))
        joined = ("Node", trees[at], row(), trees[at + 1])
        trees[at : at + 2] = [("Skip", joined) if rng.integers(2) else joined]
    return trees[0]


def to_adt(value: Any, constructor: Any) -> Any:
    """Trees of `_tree` as ADT values, which are small enough to recurse on."""
    if isinstance(value, tuple):
        return constructor(value[0])(*(to_adt(v, constructor) for v in value[1:]))
    return value

"""A Child-Sum TreeLSTM: nodes with any number of children.

    s = sum of h_k;  i, o, u = split(W x + U s + b);  f_k = sigmoid(Wf x + Uf h_k + bf)
    c = sigmoid(i) tanh(u) + sum of f_k c_k;  h = sigmoid(o) tanh(c)

Source: Tai, Socher and Manning 2015 (arXiv 1503.00075).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.bench.workloads.gru import declarations, draw
from nimblevm.bench.workloads.lstm import sigmoid

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Tree:
    """x (1, inputs) and the children."""

    x: Array
    children: tuple[Tree, ...] = ()


def weight_shapes(inputs: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    return {
        "w": (3 * hidden, inputs), "u": (3 * hidden, hidden), "b": (3 * hidden,),
        "wf": (hidden, inputs), "uf": (hidden, hidden), "bf": (hidden,),
    }  # fmt: skip


def text(inputs: int = 300, hidden: int = 150) -> str:
    """Relay text: main(t: CTree, weights) -> (h, c), each (1, hidden)."""
    state = f"Tensor[(1, {hidden}), float32]"
    return f"""#[version = "0.0.5"]
type CTree {{
  Node(Tensor[(1, {inputs}), float32], Children),
}}
type Children {{
  End,
  More(CTree, Children),
}}

def @main(%t: CTree, {declarations(weight_shapes(inputs, hidden))}) -> ({state}, {state}) {{
  let %walk = fn (%t: CTree) -> ({state}, {state}) {{
    match (%t) {{
      Node(%x, %children) => {{
        let %xf = add(nn.dense(%x, %wf), %bf);
        let %fold = fn (%rest: Children, %s: {state}, %c: {state}) -> ({state}, {state}) {{
          match (%rest) {{
            End => {{ (%s, %c) }},
            More(%first, %others) => {{
              let %k = %walk(%first);
              let %f = sigmoid(add(%xf, nn.dense(%k.0, %uf)));
              %fold(%others, %s + %k.0, %c + %f * %k.1)
            }},
          }}
        }};
        let %zero = zeros(shape=[1, {hidden}], dtype="float32");
        let %sums = %fold(%children, %zero, %zero);
        let %z = add(add(nn.dense(%x, %w), nn.dense(%sums.0, %u)), %b);
        let %g = split(%z, indices_or_sections=3, axis=1);
        let %c = sigmoid(%g.0) * tanh(%g.2) + %sums.1;
        (sigmoid(%g.1) * tanh(%c), %c)
      }},
    }}
  }};
  %walk(%t)
}}
"""


def params(inputs: int = 300, hidden: int = 150, seed: int = 0) -> dict[str, Array]:
    """Seeded weights."""
    return draw(weight_shapes(inputs, hidden), seed)


def random_tree(nodes: int, rng: np.random.Generator, inputs: int = 300) -> Tree:
    """A random tree of `nodes` >= 1 nodes: each node's parent is one of those before it."""
    xs = [rng.standard_normal((1, inputs)).astype(np.float32) for _ in range(nodes)]
    children: list[list[Tree]] = [[] for _ in range(nodes)]
    parents = [int(rng.integers(max(i, 1))) for i in range(nodes)]
    for i in reversed(range(1, nodes)):
        children[parents[i]].insert(0, Tree(xs[i], tuple(children[i])))
    return Tree(xs[0], tuple(children[0]))


def to_adt(tree: Tree, constructor: Any) -> Any:
    """The tree as ADT values; `constructor(name)` gives what makes them."""
    node, end, more = (constructor(name) for name in ("Node", "End", "More"))
    stack: list[tuple[Tree, bool]] = [(tree, False)]
    done: list[Any] = []
    while stack:
        item, visited = stack.pop()
        if not visited:
            stack.append((item, True))
            stack.extend((child, False) for child in item.children)
            continue
        value = end()
        # The children were pushed in order, so the last one was finished first.
        count = len(item.children)
        kids = done[len(done) - count :]
        del done[len(done) - count :]
        for kid in kids:
            value = more(kid, value)
        done.append(node(item.x, value))
    return done[0]


def reference(
    tree: Tree, w: Array, u: Array, b: Array, wf: Array, uf: Array, bf: Array
) -> tuple[Array, Array]:
    """(h, c), each (1, hidden), in numpy float32."""
    stack: list[tuple[Tree, bool]] = [(tree, False)]
    done: list[tuple[Array, Array]] = []
    while stack:
        item, visited = stack.pop()
        if not visited:
            stack.append((item, True))
            stack.extend((child, False) for child in reversed(item.children))
            continue
        count = len(item.children)
        kids = done[len(done) - count :]
        del done[len(done) - count :]
        total = c = np.zeros((1, bf.shape[0]), np.float32)
        for h_k, c_k in kids:
            total = total + h_k
            c = c + sigmoid(item.x @ wf.T + bf + h_k @ uf.T) * c_k
        i, o, new = np.split(item.x @ w.T + total @ u.T + b, 3, axis=1)
        c = sigmoid(i) * np.tanh(new) + c
        done.append((sigmoid(o) * np.tanh(c), c))
    return done[0]

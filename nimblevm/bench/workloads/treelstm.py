"""A binary TreeLSTM over an algebraic data type.

    leaf:  i, o, u = split(Wl x + bl);            c = sigmoid(i) tanh(u)
    node:  i, fl, fr, o, u = split(Wn [hl, hr] + bn);  c = sigmoid(i) tanh(u) + sigmoid(fl) cl + sigmoid(fr) cr
    h = sigmoid(o) tanh(c)

Source: Tai, Socher and Manning 2015 (arXiv 1503.00075), the N-ary variant with N = 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.workloads.lstm import sigmoid

Array = np.ndarray[Any, Any]
Tree = Any  # a leaf is an array (1, inputs), a node a pair of trees


def text(inputs: int = 300, hidden: int = 150) -> str:
    """Relay text: main(t: BTree, wl, bl, wn, bn) -> (h, c), each (1, hidden)."""
    state = f"Tensor[(1, {hidden}), float32]"
    weights = [
        ("wl", f"({3 * hidden}, {inputs})"),
        ("bl", f"({3 * hidden})"),
        ("wn", f"({5 * hidden}, {2 * hidden})"),
        ("bn", f"({5 * hidden})"),
    ]
    declared = ",\n          ".join(f"%{n}: Tensor[{shape}, float32]" for n, shape in weights)
    return f"""#[version = "0.0.5"]
type BTree {{
  Leaf(Tensor[(1, {inputs}), float32]),
  Node(BTree, BTree),
}}

def @main(%t: BTree, {declared}) -> ({state}, {state}) {{
  let %walk = fn (%t: BTree) -> ({state}, {state}) {{
    match (%t) {{
      Leaf(%x) => {{
        let %g = split(add(nn.dense(%x, %wl), %bl), indices_or_sections=3, axis=1);
        let %c = sigmoid(%g.0) * tanh(%g.2);
        (sigmoid(%g.1) * tanh(%c), %c)
      }},
      Node(%left, %right) => {{
        let %l = %walk(%left);
        let %r = %walk(%right);
        let %z = add(nn.dense(concatenate((%l.0, %r.0), axis=1), %wn), %bn);
        let %g = split(%z, indices_or_sections=5, axis=1);
        let %c = sigmoid(%g.0) * tanh(%g.4) + sigmoid(%g.1) * %l.1 + sigmoid(%g.2) * %r.1;
        (sigmoid(%g.3) * tanh(%c), %c)
      }},
    }}
  }};
  %walk(%t)
}}
"""


def params(inputs: int = 300, hidden: int = 150, seed: int = 0) -> dict[str, Array]:
    """Weights, float32, drawn from a normal of standard deviation 1 / sqrt(fan-in)."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int, fan: int) -> Array:
        drawn: Array = (rng.standard_normal(shape) * fan**-0.5).astype(np.float32)
        return drawn

    return {
        "wl": draw(3 * hidden, inputs, fan=inputs),
        "bl": draw(3 * hidden, fan=inputs),
        "wn": draw(5 * hidden, 2 * hidden, fan=2 * hidden),
        "bn": draw(5 * hidden, fan=2 * hidden),
    }


def random_tree(words: int, rng: np.random.Generator, inputs: int = 300) -> Tree:
    """A random binary tree over `words` >= 1 leaves with normal vectors: pairs of neighbours are joined at random."""
    trees: list[Tree] = [rng.standard_normal((1, inputs)).astype(np.float32) for _ in range(words)]
    while len(trees) > 1:
        at = int(rng.integers(len(trees) - 1))
        trees[at : at + 2] = [(trees[at], trees[at + 1])]
    return trees[0]


def fold(tree: Tree, leaf: Any, node: Any) -> Any:
    """leaf(x) and node(left, right) applied bottom-up, without recursion."""
    stack: list[tuple[Tree, bool]] = [(tree, False)]
    done: list[Any] = []
    while stack:
        item, visited = stack.pop()
        if not isinstance(item, tuple):
            done.append(leaf(item))
        elif visited:
            right = done.pop()
            done.append(node(done.pop(), right))
        else:
            stack += [(item, True), (item[1], False), (item[0], False)]
    return done[0]


def reference(tree: Tree, wl: Array, bl: Array, wn: Array, bn: Array) -> tuple[Array, Array]:
    """(h, c), each (1, hidden), in numpy float32."""

    def leaf(x: Array) -> tuple[Array, Array]:
        i, o, u = np.split(x @ wl.T + bl, 3, axis=1)
        c = sigmoid(i) * np.tanh(u)
        return sigmoid(o) * np.tanh(c), c

    def node(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        z = np.concatenate([left[0], right[0]], axis=1) @ wn.T + bn
        i, fl, fr, o, u = np.split(z, 5, axis=1)
        c = sigmoid(i) * np.tanh(u) + sigmoid(fl) * left[1] + sigmoid(fr) * right[1]
        return sigmoid(o) * np.tanh(c), c

    result: tuple[Array, Array] = fold(tree, leaf, node)
    return result

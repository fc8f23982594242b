"""Trees whose leaves are batched give what the interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import treelstm
from nimblevm.driver import bind_params
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same

TREE = """#[version = "0.0.5"]
type Tree { Leaf(Tensor[(1, 4), float32]), Node(Tree, Tensor[(2, 3), float32], Tree), Mark(int32, Tree) }
def @main(%t: Tree, %w: Tensor[(3, 4), float32]) -> (Tensor[(1, 3), float32], int32) {
  let %walk = fn (%t: Tree, %u: Tensor[(3, 4), float32]) -> (Tensor[(1, 3), float32], int32) {
    match (%t) {
      Leaf(%x) => { (tanh(nn.dense(%x, %u)) * nn.dense(%x * 2f, %u), 1) },
      Node(%l, %v, %r) => {
        let %a = %walk(%l, %u);
        let %b = %walk(%r, %u);
        (%a.0 + nn.dense(%b.0, nn.dense(%u, %u)) + strided_slice(%v, begin=[1], end=[2]), %a.1 + %b.1)
      },
      Mark(_, %s) => { %walk(%s, %u) },
    }
  };
  let %two = %walk(%t, %w * 2f);
  let %one = %walk(%t, %w);
  (%one.0 + %two.0, %one.1 + %two.1)
}
"""


def test_walk_of_every_kind_of_node() -> None:
    rng = np.random.default_rng(3)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    mod, w = nvm.relay.parse(TREE), draw(3, 4)
    with nvm.compile(mod, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
        leaf, node, mark = map(exe.constructor, ("Leaf", "Node", "Mark"))
        small = leaf(draw(1, 4))
        wide = node(
            mark(3, node(leaf(draw(1, 4)), draw(2, 3), leaf(draw(1, 4)))), draw(2, 3), small
        )
        for tree in (small, mark(1, small), node(wide, draw(2, 3), wide)):
            assert_same(vm.run(tree, w), evaluate(infer_type(mod), [tree, w]))


@pytest.mark.parametrize("words", [1, 2, 9])
def test_tree_lstm(words: int) -> None:
    params = treelstm.params(8, 6)
    mod = bind_params(nvm.relay.parse(treelstm.text(8, 6)), params)
    drawn = treelstm.random_tree(words, np.random.default_rng(words), 8)
    with nvm.compile(mod, verify=True, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        tree = treelstm.fold(drawn, exe.constructor("Leaf"), exe.constructor("Node"))
        for got, want in zip(vm.run(tree), treelstm.reference(drawn, **params), strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-6)


def test_long_chain_of_leaves() -> None:
    """30,000 nodes deep: neither walk recurses on the machine's stack."""
    params = treelstm.params(2, 1)
    exe = nvm.compile(nvm.relay.parse(treelstm.text(2, 1)), params=params, native=False)
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    word = leaf(np.ones((1, 2), np.float32))
    tree = word
    for _ in range(30_000):
        tree = node(tree, word)
    with nvm.VirtualMachine(exe) as vm:
        h, _ = vm.run(tree)
        assert np.isfinite(h.numpy()).all()

"""Levels of trees that became one kernel (fuse_levels): the same bits as kernels a level, the same errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import treelstm
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.pipeline import PIPELINE
from nimblevm.errors import NimbleError, TimeLimit
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate

Array = np.ndarray[Any, Any]
INPUTS = 6

# A node with a tensor of its own, one result; {cell} of %a, %b and %x.
WALK = """#[version = "0.0.5"]
type Tree {{ Leaf(Tensor[(1, 6), {dtype}]), Node(Tree, Tensor[(1, 6), {dtype}], Tree) }}
def @main(%t: Tree, %w: Tensor[(18, 6), {dtype}], %u: Tensor[(18, 18), {dtype}]) -> Tensor[(1, 18), {dtype}] {{
  let %walk = fn (%t: Tree) -> Tensor[(1, 18), {dtype}] {{
    match (%t) {{
      Leaf(%x) => {{ tanh(nn.dense(%x, %w)) }},
      Node(%l, %x, %r) => {{ let %a = %walk(%l); let %b = %walk(%r); {cell} }},
    }}
  }};
  %walk(%t)
}}
"""
CELLS = {
    "node's product hoisted": "tanh(nn.dense(%a, %u) + nn.dense(%x, %w) * %b)",
    "product of a sum": "tanh(nn.dense(%a + %b, %u) + nn.dense(%x, %w))",
    "product of a product": "%a + nn.dense(tanh(nn.dense(%b, %u)), %u) + nn.dense(%x, %w)",
}
LOOP = """#[version = "0.0.5"]
def @main(%sizes: Tensor[(?l), int32], %x: Tensor[(?a, 4), float32], %first: Tensor[(?m, 4), float32],
          %w: Tensor[(4, 4), float32]) -> Tensor[(?, 4), float32] {
  let %count = vm.dim_of(%sizes, axis=0);
  let %levels = fn (%level: int64, %start: int64, %done: Tensor[(?, 4), float32]) -> Tensor[(?, 4), float32] {
    if (less(%level, %count)) {
      let %n = vm.read_at(%sizes, %level);
      let %d = vm.bind_dim(%n, dim=?n);
      let %new = tanh(nn.dense(vm.rows(%x, %start, shape=[?n, 4]), %w) + sum(%done, axis=[0]));
      %levels(%level + 1i64, %start + %n, concatenate((%done, %new), axis=0))
    } else { %done }
  };
  %levels(0i64, 0i64, %first)
}
"""


def fused(exe: nvm.Executable) -> bool:
    return any(k.name.startswith("levels_of_") for k in exe.program_record().kernels)


def draw(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Array:
    return rng.standard_normal(shape).astype(dtype)


def chain(rng: np.random.Generator, nodes: int) -> Any:
    tree: Any = draw(rng, 1, INPUTS)
    for _ in range(nodes):
        tree = (tree, draw(rng, 1, INPUTS))
    return tree


def test_tree_lstm_gives_the_bits_of_kernels_a_level() -> None:
    """One leaf, random trees, a chain; any number of threads, without machine code too."""
    sizes = {"inputs": INPUTS, "hidden": 130}
    given, mod = treelstm.params(**sizes), nvm.relay.parse(treelstm.text(**sizes))
    exe = nvm.compile(mod, given, verify=True)
    plain = nvm.compile(mod, given, passes_off=("fuse_levels",))
    assert fused(exe)
    assert not fused(plain)
    rng = np.random.default_rng(4)
    trees = [treelstm.random_tree(n, rng, INPUTS) for n in (1, 2, 3, 12, 40)]
    machines = [nvm.VirtualMachine(exe, threads=n) for n in (1, 2, 3)]
    other = nvm.VirtualMachine(plain)
    interpreted = nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=False))
    for tree in (*trees, chain(rng, 30)):
        wanted = treelstm.reference(tree, **given)
        value, known = (
            treelstm.fold(tree, e.constructor("Leaf"), e.constructor("Node")) for e in (exe, plain)
        )
        before = other.run(known)
        for vm in machines:
            for found, expected in zip(vm.run(value), before, strict=True):
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
        for found, expected in zip(interpreted.run(value), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), expected, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(before[0].numpy(), wanted[0], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("nodes", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_long_chain_and_its_scratch(nodes: int) -> None:
    """Scratch is for the largest level: memory of a chain is its tables, not five times that."""
    sizes = {"inputs": INPUTS, "hidden": 8}
    given = treelstm.params(**sizes)
    exe = nvm.compile(nvm.relay.parse(treelstm.text(**sizes)), given)
    tree = chain(np.random.default_rng(1), nodes)
    value = treelstm.fold(tree, exe.constructor("Leaf"), exe.constructor("Node"))
    vm = nvm.VirtualMachine(exe)
    for found, expected in zip(vm.run(value), treelstm.reference(tree, **given), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-4, atol=2e-5)
    slow = nvm.VirtualMachine(exe, limits=nvm.Limits(seconds=1e-4))
    with pytest.raises(TimeLimit):
        slow.run(value)


@pytest.mark.parametrize(
    ("cell", "dtype"),
    [
        ("node's product hoisted", "float32"),
        ("product of a sum", "float32"),
        pytest.param("product of a product", "float32", marks=pytest.mark.slow),
        pytest.param("node's product hoisted", "float64", marks=pytest.mark.slow),
    ],
)
def test_other_cells(cell: str, dtype: str) -> None:
    """Against kernels a level, and against the interpreter."""
    mod = nvm.relay.parse(WALK.format(cell=CELLS[cell], dtype=dtype))
    rng = np.random.default_rng(2)
    params = {"w": draw(rng, 18, 6, dtype=dtype), "u": draw(rng, 18, 18, dtype=dtype) * 0.2}
    exe = nvm.compile(mod, params, verify=True)
    plain = nvm.compile(mod, params, passes_off=("fuse_levels",))
    assert fused(exe)
    trees = [exe.constructor("Leaf")(draw(rng, 1, 6, dtype=dtype)) for _ in range(3)]
    for _ in range(12):
        a, b = (trees[int(rng.integers(len(trees)))] for _ in range(2))
        trees.append(exe.constructor("Node")(a, draw(rng, 1, 6, dtype=dtype), b))
    vm, other = nvm.VirtualMachine(exe), nvm.VirtualMachine(plain)
    for tree in (trees[0], trees[4], trees[-1]):
        found = vm.run(tree).numpy()
        np.testing.assert_allclose(found, other.run(tree).numpy(), rtol=1e-5, atol=1e-6)
        wanted = evaluate(infer_type(mod), [tree, *params.values()])
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_sizes_that_a_user_gives() -> None:
    """A loop that nobody made of a tree: empty, with empty levels, with sizes that do not fit. The interpreter runs the
    program's last form too.
    """
    rng = np.random.default_rng(3)
    w = draw(rng, 4, 4)
    mod = nvm.relay.parse(LOOP)
    exe = nvm.compile(mod, {"w": w}, verify=True)
    plain = nvm.compile(mod, {"w": w}, passes_off=("fuse_levels",))
    assert fused(exe)
    last = PIPELINE(infer_type(mod), PassContext())
    assert "Levels=" in last.astext()
    interpreted = nvm.load(exe.to_bytes(), native=False)
    machines = [nvm.VirtualMachine(e) for e in (exe, interpreted, plain)]
    x, first = draw(rng, 6, 4), draw(rng, 2, 4)
    for sizes in ([], [0], [2], [0, 1, 0, 2, 3], [6], [1] * 6):
        found = [vm.run(np.array(sizes, "int32"), x, first).numpy() for vm in machines]
        assert found[0].shape == (2 + sum(sizes), 4)
        np.testing.assert_array_equal(found[0], found[2])
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            found[0], evaluate(last, [np.array(sizes, "int32"), x, first, w]), rtol=1e-4, atol=1e-5
        )
    for sizes in ([7], [1, 6], [-1], [3, -1, 2], [2**31 - 1] * 3, [-(2**31), 1]):
        for vm in machines:
            with pytest.raises(NimbleError):
                vm.run(np.array(sizes, "int32"), x, first)
            assert vm.stats()["live_objects"] == 0

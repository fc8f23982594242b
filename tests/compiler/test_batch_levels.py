"""Trees that are computed by levels give what the interpreter gives, with the errors and limits of a recursion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import (
    DimOverflow,
    IndexOutOfRange,
    InstructionLimit,
    InvalidInput,
    MemoryLimit,
    NimbleError,
    TimeLimit,
)
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.op import get
from nimblevm.relay.op.registry import Effect
from tests.properties.compare import assert_same

GOLDEN = Path(__file__).parent.parent / "golden" / "batch_levels" / "every_kind_of_node.rly"
TREE = """#[version = "0.0.5"]
type Tree { Leaf(Tensor[(1, 4), float32]), Node(Tree, Tree) }
def @main(%t: Tree, %w: Tensor[(3, 4), float32], %u: Tensor[(3, 3), float32]) -> Tensor[(1, 3), float32] {
  let %walk = fn (%t: Tree) -> Tensor[(1, 3), float32] {
    match (%t) {
      Leaf(%x) => { tanh(nn.dense(%x, %w)) },
      Node(%l, %r) => { let %a = %walk(%l); let %b = %walk(%r); tanh(nn.dense(%a, %u) + 0.5f * %b) },
    }
  };
  %walk(%t)
}
"""


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("native", "unbox"),
    [
        (True, True),
        (False, False),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_node(unbox: bool, native: bool) -> None:
    """The program of the golden file, trees of 1 to 40 nodes."""
    rng = np.random.default_rng(5)
    text = GOLDEN.read_text().split("// BEFORE\n")[1].split("// AFTER\n")[0]
    mod, w, u = nvm.relay.parse(text), draw(rng, 2, 3), draw(rng, 2, 2)
    with (
        nvm.compile(mod, verify=True, unbox=unbox, native=native) as exe,
        nvm.VirtualMachine(exe) as vm,
    ):
        leaf, nothing, node, mark = map(exe.constructor, ("Leaf", "Nothing", "Node", "Mark"))

        def number() -> np.ndarray[Any, Any]:
            return np.asarray(rng.integers(9), "int32")

        trees = [leaf(number(), draw(rng, 3)), nothing(), mark(np.asarray(3), nothing())]
        for _ in range(30):
            a, b = (trees[int(rng.integers(len(trees)))] for _ in range(2))
            trees.append(node(a, draw(rng, 1, 3), b) if rng.integers(3) else mark(np.asarray(1), a))
        for tree in (*trees[:8], trees[-1]):
            args = [tree, trees[3], w, u]
            assert_same(vm.run(*args), evaluate(infer_type(mod), args))
        assert vm.stats()["live_objects"] == 0


def full(exe: nvm.Executable, leaf: Any, depth: int) -> Any:
    """A tree whose nodes have one child twice."""
    tree = exe.constructor("Leaf")(leaf)
    for _ in range(depth):
        tree = exe.constructor("Node")(tree, tree)
    return tree


def test_levels_and_recursion_agree() -> None:
    """A chain to the left, one to the right, a full tree, one leaf; the root is the last row."""
    rng = np.random.default_rng(2)
    mod = nvm.relay.parse(TREE)
    params = {"w": draw(rng, 3, 4), "u": draw(rng, 3, 3)}
    with (
        nvm.compile(mod, params=params) as exe,
        nvm.compile(mod, params=params, passes_off=("batch_levels", "batch_leaves")) as plain,
        nvm.VirtualMachine(exe) as vm,
        nvm.VirtualMachine(plain) as other,
    ):
        leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
        left = right = leaf(draw(rng, 1, 4))
        for _ in range(70):
            left, right = node(left, leaf(draw(rng, 1, 4))), node(leaf(draw(rng, 1, 4)), right)
        for tree in (
            leaf(draw(rng, 1, 4)),
            left,
            right,
            node(left, right),
            full(exe, draw(rng, 1, 4), 6),
        ):
            np.testing.assert_allclose(vm.run(tree), other.run(tree), rtol=1e-5, atol=1e-6)
        kernels = vm.stats()["kernel_calls"]
        vm.run(full(exe, draw(rng, 1, 4), 6))
        assert vm.stats()["kernel_calls"] - kernels <= 4 * 7  # a level, not a node


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (nvm.Limits(instructions=100_000), InstructionLimit),
        (nvm.Limits(bytes=1 << 20), MemoryLimit),
        (nvm.Limits(seconds=0.01), TimeLimit),
    ],
)
def test_a_small_value_with_many_nodes_meets_the_limits(
    limits: nvm.Limits, error: type[Exception]
) -> None:
    """2^40 nodes, of which memory holds 41."""
    rng = np.random.default_rng(2)
    text = TREE.replace("%t: Tree, %w", "%x: Tensor[(1, 4), float32], %n: int32, %w", 1).replace(
        "%walk(%t)\n}",
        """let %grown = fn (%i: int32, %t: Tree) -> Tree {
    if (less(%i, %n)) { %grown(%i + 1, Node(%t, %t)) } else { %t }
  };
  %walk(%grown(0, Leaf(%x)))
}""",
    )
    params = {"w": draw(rng, 3, 4), "u": draw(rng, 3, 3)}
    exe = nvm.compile(nvm.relay.parse(text), params=params)
    with exe, nvm.VirtualMachine(exe, limits=limits) as vm:
        with pytest.raises(error):
            vm.run(draw(rng, 1, 4), 40)
        assert vm.stats()["live_objects"] == 0
        vm.run(draw(rng, 1, 4), 2)


def test_a_tensor_of_another_size() -> None:
    rng = np.random.default_rng(2)
    params = {"w": draw(rng, 3, 4), "u": draw(rng, 3, 3)}
    with nvm.compile(nvm.relay.parse(TREE), params=params) as exe, nvm.VirtualMachine(exe) as vm:
        leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
        with pytest.raises((InvalidInput, NimbleError), match="expected"):
            vm.run(node(leaf(draw(rng, 1, 4)), leaf(draw(rng, 1, 5))))
        assert vm.stats()["live_objects"] == 0


def test_a_claim_that_does_not_hold() -> None:
    """Fields are claims: a tensor of another size inside the program is found where the tables are made."""
    text = """#[version = "0.0.5"]
type Tree { Leaf(Tensor[(1, ?), float32]), Node(Tree, Tree) }
def @main(%x: Tensor[(1, ?), float32], %w: Tensor[(3, 4), float32], %u: Tensor[(3, 3), float32])
    -> Tensor[(1, 3), float32] {
  let %walk = fn (%t: Tree) -> Tensor[(1, 3), float32] {
    match (%t) {
      Leaf(%x) => { tanh(nn.dense(%x, %w)) },
      Node(%l, %r) => { let %a = %walk(%l); let %b = %walk(%r); tanh(nn.dense(%a + %b, %u)) },
    }
  };
  %walk(Node(Leaf(%x), Leaf(%x)))
}
"""
    for claimed in (text, text.replace("Leaf(Tensor[(1, ?)", "Leaf(Tensor[(1, 4)")):
        with nvm.compile(nvm.relay.parse(claimed)) as exe, nvm.VirtualMachine(exe) as vm:
            rng = np.random.default_rng(2)
            w, u = draw(rng, 3, 4), draw(rng, 3, 3)
            vm.run(draw(rng, 1, 4), w, u)
            with pytest.raises(nvm.errors.ShapeMismatch):
                vm.run(draw(rng, 1, 5), w, u)


def test_rows_are_not_overwritten_as_the_whole() -> None:
    """exp could take tanh's storage, but the row does not begin where that does."""
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(4, 300), float32], %i: int32) -> Tensor[(2, 300), float32] {
  let %a = tanh(%x);
  let %r = vm.rows(%a, %i, shape=[2, 300]);
  exp(%r)
}
"""
    mod, x = nvm.relay.parse(text), draw(np.random.default_rng(1), 4, 300)
    with nvm.compile(mod, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
        for row in range(3):
            assert_same(vm.run(x, row), evaluate(infer_type(mod), [x, np.asarray(row, "int32")]))
        with pytest.raises(nvm.errors.IndexOutOfRange):
            vm.run(x, 3)


@pytest.mark.parametrize(
    ("call", "errors"),
    [
        ("vm.rows(%x, %i, shape=[2, 3])", (IndexOutOfRange, DimOverflow)),
        ("vm.read_at(reshape(%x, newshape=[-1]), %i)", (IndexOutOfRange,)),
    ],
)
def test_what_a_tensor_lacks(call: str, errors: tuple[type[Exception], ...]) -> None:
    """Programs may have these operators too: an index is checked, and may_fail keeps them where they are."""
    assert get(call.split("(")[0]).effect is Effect.MAY_FAIL
    text = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?, 3), int64], %i: int64) {{
  if (less(%i, 100i64)) {{ {call} }} else {{ {call.replace("%i", "0i64")} }}
}}
"""
    mod = infer_type(nvm.relay.parse(text))
    with nvm.compile(mod, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
        for rows in (2, 3):
            x = np.arange(3 * rows).reshape(rows, 3)
            for index in (0, 100, 1 << 62):
                assert_same(vm.run(x, index), evaluate(mod, [x, np.asarray(index)]))
            for index in (9, -1, -(1 << 63)):
                with pytest.raises(errors):
                    vm.run(x, index)
                with pytest.raises(errors):
                    evaluate(mod, [x, np.asarray(index)])
        with pytest.raises(IndexOutOfRange):
            vm.run(np.zeros((0, 3), "int64"), 0)


@pytest.mark.parametrize(("inputs", "units"), [(0, 3), (4, 0), (0, 0), (1, 1)])
def test_rows_of_no_and_of_one_element(inputs: int, units: int) -> None:
    text = TREE
    for old, new in (("(1, 4)", (1, inputs)), ("(3, 4)", (units, inputs)), ("(3, 3)", (units, units)), ("(1, 3)", (1, units))):  # fmt: skip
        text = text.replace(old, str(new))
    rng = np.random.default_rng(7)
    mod, w, u = infer_type(nvm.relay.parse(text)), draw(rng, units, inputs), draw(rng, units, units)
    with nvm.compile(mod, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
        leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
        tree = leaf(draw(rng, 1, inputs))
        for _ in range(3):
            assert_same(vm.run(tree, w, u), evaluate(mod, [tree, w, u]))
            tree = node(tree, leaf(draw(rng, 1, inputs)))


TABLES = """#[version = "0.0.5"]
type Tree {{ Leaf(Tensor[(1, 40), float32]), Other(Tensor[(1, 40), float32]), Node(Tree, Tree) }}
def @main(%t: Tree) -> {type} {{ vm.linearize(%t, type={type}) }}
"""
TABLES_TYPE = (
    "(Tensor[(?l), int32], Tensor[(?a, 1, 40), float32], Tensor[(?l), int32], Tensor[(?b, 1, 40), float32], "
    "Tensor[(?l), int32], Tensor[(?c), int32], Tensor[(?c), int32])"
)


@pytest.mark.parametrize("kinds", ["L", "LLL", "LLLOLLL", "OLOLOL", "OOOOLLLL", "LLLLLLOLO"])
@pytest.mark.parametrize("together", [True, False])
def test_leaves_that_lie_together_are_a_table(kinds: str, together: bool) -> None:
    """Bindings lay the leaves of a tree out side by side, in the order of their table if all are of one kind: then the
    table is the caller's memory. What comes of it outlives the call.
    """
    rng = np.random.default_rng(7)
    mod = nvm.relay.parse(TABLES.format(type=TABLES_TYPE))
    with nvm.compile(mod) as exe, nvm.VirtualMachine(exe) as vm:
        leaf, other, node = map(exe.constructor, ("Leaf", "Other", "Node"))

        def draw_tree() -> tuple[Any, dict[str, list[Any]]]:
            """A chain to the right, whose leaves are listed from the root on."""
            data = draw(rng, len(kinds), 1, 40)
            leaves = list(data) if together else [row[:, ::-1] for row in data]
            made = [(leaf if k == "L" else other)(x) for k, x in zip(kinds, leaves, strict=True)]
            tree = made[-1]
            for value in reversed(made[:-1]):
                tree = node(value, tree)
            return tree, {
                k: [x for j, x in zip(kinds, leaves, strict=True) if j == k] for k in "LO"
            }

        def check(tables: Any, rows: dict[str, list[Any]]) -> None:
            for table, kind in ((tables[1], "L"), (tables[3], "O")):
                expected = np.reshape(np.asarray(rows[kind], "float32"), (-1, 1, 40))
                np.testing.assert_array_equal(table, expected)

        tree, rows = draw_tree()
        before = vm.stats()["copied_bytes"]
        kept = vm.run(tree, out=(nvm.KEEP,) * 7)
        if together and kinds == "LLL":
            assert vm.stats()["copied_bytes"] - before == 160 * len(kinds)  # once, for the handle
        del tree
        for _ in range(3):
            again, expected = draw_tree()
            check(vm.run(again), expected)
        check([np.asarray(handle.read()) for handle in kept], rows)
        del kept
        assert vm.stats()["live_objects"] == 0

"""LSTM, TreeLSTM: compiled = oracle = numpy on random sizes, interleaved in one VM each, saved, loaded, native off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import g2p, lstm, treelstm
from nimblevm.relay.interpreter import Interpreter, evaluate
from nimblevm.relay.values import ADTValue
from tests.workloads import fresh

RTOL, ATOL = 1e-4, 1e-6
SMALL = {"inputs": 12, "hidden": 16}
RUNS = [
    pytest.param(True, SMALL, id="native, small"),
    pytest.param(False, SMALL, id="interpreted, small"),
    pytest.param(True, {}, id="native", marks=pytest.mark.slow),
]


def compiled(text: str, params: dict[str, Any], name: str) -> tuple[Any, nvm.Executable]:
    mod = nvm.relay.parse(text, source_name=f"{name}.rly")
    return mod, nvm.compile(mod, params=params)


def to_adt(exe: nvm.Executable, tree: treelstm.Tree) -> Any:
    return treelstm.fold(tree, exe.constructor("Leaf"), exe.constructor("Node"))


@pytest.mark.parametrize(("native", "sizes"), RUNS)
def test_lstm_on_50_lengths(native: bool, sizes: dict[str, int]) -> None:
    params = lstm.params(**sizes)
    mod, exe = compiled(lstm.text(**sizes), params, "lstm")
    exe = nvm.load(exe.to_bytes(), native=native)
    rng = np.random.default_rng(7)
    inputs = sizes.get("inputs", 300)
    with nvm.VirtualMachine(exe) as vm:
        for turn in range(50):
            n = 0 if turn == 0 else int(rng.integers(1, 40))
            x = rng.standard_normal((n, inputs)).astype(np.float32)
            got = vm.run(x).numpy()
            np.testing.assert_allclose(got, lstm.reference(x, **params), rtol=RTOL, atol=ATOL)
            if turn % 10 == 0:
                oracle = evaluate(mod, (x, params["w"], params["b"]))
                np.testing.assert_allclose(got, oracle, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize(("native", "sizes"), RUNS)
def test_treelstm_on_50_trees(native: bool, sizes: dict[str, int]) -> None:
    params = treelstm.params(**sizes)
    _, exe = compiled(treelstm.text(**sizes), params, "treelstm")
    exe = nvm.load(exe.to_bytes(), native=native)
    rng = np.random.default_rng(8)
    with nvm.VirtualMachine(exe) as vm:
        for _ in range(50):
            tree = treelstm.random_tree(int(rng.integers(1, 40)), rng, sizes.get("inputs", 300))
            got = vm.run(to_adt(exe, tree))
            for have, want in zip(got, treelstm.reference(tree, **params), strict=True):
                np.testing.assert_allclose(have.numpy(), want, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("turns", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_both_interleaved_in_one_vm_against_the_oracle(native: bool, turns: int) -> None:
    """One file with both models, sizes and trees in turns on one VM; weights come as arguments."""
    tree_text = treelstm.text(**SMALL).replace("@main", "@tree").split("\n", 1)[1]
    mod = nvm.relay.parse(lstm.text(**SMALL).replace("@main", "@lstm") + tree_text)
    exe = nvm.load(nvm.compile(mod).to_bytes(), native=native)
    weights, tree_weights = lstm.params(**SMALL), treelstm.params(**SMALL)
    oracle = Interpreter(mod)
    leaf, node = (mod.get_constructor("BTree", name) for name in ("Leaf", "Node"))
    rng = np.random.default_rng(9)
    with nvm.VirtualMachine(exe) as vm:
        for _ in range(turns):
            x = rng.standard_normal((int(rng.integers(0, 20)), SMALL["inputs"])).astype(np.float32)
            got = vm.invoke("lstm", x, **weights).numpy()
            close(got, oracle.run("lstm", x, *weights.values()))
            close(got, lstm.reference(x, **weights))
            tree = treelstm.random_tree(int(rng.integers(1, 20)), rng, SMALL["inputs"])
            pair = vm.invoke("tree", to_adt(exe, tree), **tree_weights)
            value = treelstm.fold(
                tree,
                lambda x: ADTValue(leaf, (x,)),
                lambda left, right: ADTValue(node, (left, right)),
            )
            for have, want, plain in zip(
                pair,
                oracle.run("tree", value, *tree_weights.values()),
                treelstm.reference(tree, **tree_weights),
                strict=True,
            ):
                close(have.numpy(), want)
                close(have.numpy(), plain)


def close(have: Any, want: Any) -> None:
    np.testing.assert_allclose(have, want, rtol=RTOL, atol=ATOL)


@pytest.mark.slow  # tests/cli/test_app.py runs a small file so
def test_saved_files_run_in_a_process_without_the_compiler(tmp_path: Path) -> None:
    params = lstm.params()
    _, exe = compiled(lstm.text(), params, "lstm")
    exe.save(tmp_path / "lstm.nvm")
    tree_params = treelstm.params()
    _, tree_exe = compiled(treelstm.text(), tree_params, "treelstm")
    tree_exe.save(tmp_path / "treelstm.nvm")
    fresh.run(tmp_path, ["lstm", "treelstm"])
    with np.load(tmp_path / "lstm_out.npz") as out, np.load(tmp_path / "lstm_in.npz") as given:
        for key in given.files:
            want = lstm.reference(given[key], **params)
            np.testing.assert_allclose(out[key], want, rtol=RTOL, atol=ATOL)
    with np.load(tmp_path / "treelstm_out.npz") as out:
        for i, tree in enumerate(fresh.trees()):
            want = treelstm.reference(tree, **tree_params)[0]
            np.testing.assert_allclose(out[f"h{i}"], want, rtol=RTOL, atol=ATOL)


@pytest.mark.slow
def test_g2p_predicts_what_the_package_predicts(tmp_path: Path) -> None:
    """All 1,000 words, from the saved file, in a fresh process."""
    weights = g2p.weights_path()
    if weights is None:
        pytest.skip("g2p-en is not installed (pip install --no-deps g2p-en==2.1.0)")
    _, exe = compiled(g2p.text(), g2p.params(weights), "g2p")
    exe.save(tmp_path / "g2p.nvm")
    words = json.loads((Path(__file__).parents[1] / "data" / "g2p_words.json").read_text())
    np.savez(
        tmp_path / "g2p_in.npz",
        allow_pickle=False,
        **{f"w{i}": g2p.encode(w) for i, w in enumerate(words)},
    )
    fresh.run(tmp_path, ["g2p"])
    with np.load(tmp_path / "g2p_out.npz") as out:
        got = {w: " ".join(g2p.decode(out[f"w{i}"])) for i, w in enumerate(words)}
    assert got == words
    assert len(got) == 1000


def test_importing_the_runtime_loads_nothing_of_compile_time() -> None:
    code = (
        "import sys, nimblevm; nimblevm.load; nimblevm.VirtualMachine; "
        "bad = [m for m in sys.modules if m.split('.')[:2] in "
        "[['nimblevm', n] for n in ('relay', 'compiler', 'kernels', 'driver', 'cli', 'bench')] "
        "or m.startswith('llvmlite')]; print(bad); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""LSTM, TreeLSTM and g2p-en at several sizes, beside numpy (and plain C for the LSTM). us a step, word or node.

Set OPENBLAS_NUM_THREADS=1 for a fair numpy: its threads cost more than they give at batch 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.peers import nimble
from nimblevm.bench.rows import ROWS
from nimblevm.bench.workloads import g2p, lstm, treelstm
from tests.bench.measure import nanoseconds, record
from tests.bench.reference import library

pytestmark = pytest.mark.bench
LSTM_SIZES = [(16, 16), (64, 128), (300, 256), (300, 512)]
STEPS = [1, 16, 64]
TREE_WORDS = [2, 10, 40]


def lstm_name(inputs: int, hidden: int, steps: int) -> str:
    return f"LSTM {inputs}->{hidden}, {steps} steps, a step"


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("inputs", "hidden"), LSTM_SIZES)
@pytest.mark.parametrize("side", ["vm", "numpy", "c"])
def test_lstm(benchmark: Any, inputs: int, hidden: int, steps: int, side: str) -> None:
    params = lstm.params(inputs, hidden)
    x = np.random.default_rng(1).standard_normal((steps, inputs)).astype(np.float32)
    if side == "vm":
        exe = nvm.compile(nvm.relay.parse(lstm.text(inputs, hidden)), params=params)
        vm = nvm.VirtualMachine(exe)
        took = nanoseconds(benchmark, lambda: vm.run(x), 100)
    elif side == "numpy":
        took = nanoseconds(benchmark, lambda: lstm.reference(x, **params), 30)
    else:
        run, w, b = library().ref_lstm, params["w"], params["b"]
        scratch = np.empty(inputs + 6 * hidden, np.float32)
        h = np.empty((1, hidden), np.float32)
        pointers = [a.ctypes.data for a in (x, w, b, scratch, h)]
        p = [pointers[0], steps, pointers[1], pointers[2], inputs, hidden, *pointers[3:]]
        took = nanoseconds(benchmark, lambda: run(*p), 100)
        np.testing.assert_allclose(h, lstm.reference(x, w=w, b=b), rtol=1e-3, atol=1e-5)
    record(benchmark, lstm_name(inputs, hidden, steps), side, took / steps, None)


def test_lstm_roofline(benchmark: Any) -> None:
    """Reading the weights of LSTM 300->512 once, the least that a step of batch 1 costs."""
    w = lstm.params(300, 512)["w"]
    run, pointer = library().ref_read, w.ctypes.data
    took = nanoseconds(benchmark, lambda: run(pointer, w.size))
    record(benchmark, f"read {w.nbytes / 1e6:.1f} MB, LSTM 300->512's weights", "c", took, None)


@pytest.mark.parametrize("words", TREE_WORDS)
@pytest.mark.parametrize("side", ["vm", "numpy"])
def test_treelstm(benchmark: Any, words: int, side: str) -> None:
    params = treelstm.params(300, 150)
    tree = treelstm.random_tree(words, np.random.default_rng(2), 300)
    if side == "vm":
        exe = nvm.compile(nvm.relay.parse(treelstm.text(300, 150)), params=params)
        vm = nvm.VirtualMachine(exe)
        adt = treelstm.fold(tree, exe.constructor("Leaf"), exe.constructor("Node"))
        took = nanoseconds(benchmark, lambda: vm.run(adt), 100)
    else:
        took = nanoseconds(benchmark, lambda: treelstm.reference(tree, **params), 30)
    name = f"TreeLSTM 300->150, {words} words, a node"
    record(benchmark, name, side, took / (2 * words - 1), None)


@pytest.mark.parametrize("word", ["a", "hello", "internationalization"])
def test_g2p(benchmark: Any, word: str) -> None:
    weights = g2p.weights_path()
    if weights is None:
        pytest.skip("g2p-en is not installed (pip install --no-deps g2p-en==2.1.0)")
    exe = nvm.compile(nvm.relay.parse(g2p.text()), params=g2p.params(weights))
    vm = nvm.VirtualMachine(exe)
    letters = g2p.encode(word)
    steps = len(letters) + len(vm.run(letters)) + 1
    took = nanoseconds(benchmark, lambda: vm.run(letters), 100)
    record(benchmark, f'g2p-en "{word}", a step of {steps}', "vm", took / steps, None)


@pytest.mark.parametrize("name", ["lstm2", "gru", "minilm-8", "seq2seq", "chain"])
def test_row(benchmark: Any, name: str) -> None:
    """Rows of `nimblevm bench`, our side alone; a token, symbol or operator of the middle input."""
    row = ROWS[name].shortened()
    prepared = nimble.prepare(row, threads=1)
    cases = row.cases()
    case = cases[len(cases) // 2]
    value = prepared.load(case)
    took = nanoseconds(benchmark, lambda: prepared.run(value), 50)
    record(benchmark, f"{row.name}, size {case.size}, a unit", "vm", took / case.units, None)

"""numpy (OpenBLAS): products of the inputs hoisted out of the time loop, leaves of trees batched."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nimblevm.bench.cases import flatten
from nimblevm.bench.peers import Prepared, Unsupported
from nimblevm.bench.rows import Row
from nimblevm.bench.workloads.lstm import sigmoid

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]


def version() -> str:
    return np.__version__


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """OpenBLAS takes its threads from the environment, which the worker has set."""
    makers: dict[str, Callable[[Weights], Callable[..., Sequence[Array]]]] = {
        "lstm": _lstm, "gru": _gru, "treelstm": _treelstm,
    }  # fmt: skip
    if row.kind not in makers and row.kind not in ("seq2seq", "chain"):
        raise Unsupported(f"no numpy implementation of {row.kind}")
    weights = row.params()
    blas = f"OpenBLAS, {os.environ.get('OPENBLAS_NUM_THREADS', 'default')} thread(s)"
    if row.kind in makers:
        run = makers[row.kind](weights)
        if row.kind == "treelstm":
            return Prepared(run, f"{blas}, leaves batched", load=lambda case: flatten(*case.inputs))
        return Prepared(lambda inputs: run(*inputs), f"{blas}, input product hoisted")
    return Prepared(lambda case: row.reference(weights, case), blas, load=lambda case: case)


def _lstm(weights: Weights) -> Callable[..., Sequence[Array]]:
    layers = []
    for name, w in weights.items():
        if name.startswith("w"):
            hidden = w.shape[0] // 4
            split = w.shape[1] - hidden
            inner = np.ascontiguousarray(w[:, split:])
            layers.append((np.ascontiguousarray(w[:, :split].T), inner, weights["b" + name[1:]]))

    def run(x: Array) -> Sequence[Array]:
        rows = x
        for outer, inner, b in layers:
            n = inner.shape[1]
            projected = rows @ outer + b
            h = c = np.zeros(n, np.float32)
            states = np.empty((len(rows), n), np.float32)
            for t, p in enumerate(projected):
                z = p + inner @ h
                gates = sigmoid(z)
                c = gates[n : 2 * n] * c + gates[:n] * np.tanh(z[2 * n : 3 * n])
                h = gates[3 * n :] * np.tanh(c)
                states[t] = h
            rows = states
        return (h[None],)

    return run


def _gru(weights: Weights) -> Callable[..., Sequence[Array]]:
    outer = np.ascontiguousarray(weights["w_ih"].T)
    inner, b_hh = weights["w_hh"], weights["b_hh"]
    n = inner.shape[1]

    def run(x: Array) -> Sequence[Array]:
        h = np.zeros(n, np.float32)
        for p in x @ outer + weights["b_ih"]:
            s = inner @ h + b_hh
            gates = sigmoid(p[: 2 * n] + s[: 2 * n])
            new = np.tanh(p[2 * n :] + gates[:n] * s[2 * n :])
            h = new + gates[n:] * (h - new)
        return (h[None],)

    return run


def _treelstm(weights: Weights) -> Callable[..., Sequence[Array]]:
    leaf, inner = np.ascontiguousarray(weights["wl"].T), weights["wn"]
    bl, bn = weights["bl"], weights["bn"]
    n = inner.shape[1] // 2

    def run(tree: Any) -> Sequence[Array]:
        count = len(tree.words)
        h = np.empty((count + len(tree.children), n), np.float32)
        c = np.empty_like(h)
        z = tree.words @ leaf + bl
        gates = sigmoid(z[:, : 2 * n])
        c[:count] = gates[:, :n] * np.tanh(z[:, 2 * n :])
        h[:count] = gates[:, n:] * np.tanh(c[:count])
        for k, (left, right) in enumerate(tree.children.tolist(), count):
            z = inner @ np.concatenate((h[left], h[right])) + bn
            g = sigmoid(z[: 4 * n])
            c[k] = (
                g[:n] * np.tanh(z[4 * n :]) + g[n : 2 * n] * c[left] + g[2 * n : 3 * n] * c[right]
            )
            h[k] = g[3 * n :] * np.tanh(c[k])
        return h[-1:], c[-1:]

    return run


__all__ = ["prepare", "version"]

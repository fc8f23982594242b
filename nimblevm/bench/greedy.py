"""Greedy decoding with a growing cache in plain numpy: what the decoder row's results are compared to."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def greedy(weights: dict[str, Array], heads: int, epsilon: float, ids: Array, steps: int) -> Array:
    """The `steps` tokens, int32, that a GPT-2 of these weights (names as in workloads/gpt2.py) writes after `ids`."""
    w = weights
    layers = sum(name.endswith("_qkv_w") for name in w)
    hidden = w["words"].shape[1]
    size = hidden // heads

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(epsilon))
        result: Array = centred * scale * w[f"{name}_g"] + w[f"{name}_b"]
        return result

    def dense(x: Array, name: str) -> Array:
        result: Array = x @ w[f"{name}_w"].T + w[f"{name}_b"]
        return result

    def step(ids: Array, seen: int) -> int:
        count = len(ids)
        x = w["words"][ids] + w["positions"][seen : seen + count]
        later = np.triu(np.ones((count, seen + count), bool), seen + 1)
        for i in range(layers):
            qkv = dense(norm(x, f"l{i}_norm1"), f"l{i}_qkv").reshape(count, 3, heads, size)
            cache[i, :, :, seen : seen + count] = qkv[:, 1:].transpose(1, 2, 0, 3)
            k, v = cache[i, :, :, : seen + count]
            scores = qkv[:, 0].transpose(1, 0, 2) @ k.transpose(0, 2, 1) * np.float32(size**-0.5)
            scores[:, later] = -np.inf
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = scores / scores.sum(axis=-1, keepdims=True) @ v
            x = x + dense(mixed.transpose(1, 0, 2).reshape(count, hidden), f"l{i}_o")
            u = dense(norm(x, f"l{i}_norm2"), f"l{i}_in")
            u = (
                u
                / 2
                * (1 + np.tanh(np.float32((2 / pi) ** 0.5) * (u + np.float32(0.044715) * u**3)))
            )
            x = x + dense(u, f"l{i}_out")
        return int(np.argmax(norm(x[-1:], "norm") @ w["words"].T))

    cache = np.empty((layers, 2, heads, len(ids) + steps, size), np.float32)
    seen, out, new = 0, [], np.asarray(ids)
    for _ in range(steps):
        out.append(step(new, seen))
        seen += len(new)
        new = np.array([out[-1]])
    return np.array(out, np.int32)


__all__ = ["greedy"]

"""A GPT-2 step as an ONNX model: the past of every layer comes in, and goes out with the new tokens appended."""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.peers.onnx_graph import FLOAT, INT64, Graph

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]


def cache_names(layers: int) -> list[tuple[str, str]]:
    """(input, output) of every cache, keys and values layer by layer."""
    return [
        (f"past_{kind}_{i}", f"present_{kind}_{i}") for i in range(layers) for kind in ("k", "v")
    ]


def decoder(weights: Weights, config: Any, fused: bool) -> Any:
    """ids (1, t) int64 and caches (1, heads, n, d) -> next (1) int64 and caches (1, heads, n + t, d).

    fused: com.microsoft.MultiHeadAttention, which appends to the cache, instead of its parts.
    """
    graph = Graph()
    heads, size = config.heads, config.hidden // config.heads
    ids = graph.input("ids", INT64, [1, "t"])
    pasts = [
        graph.input(name, FLOAT, [1, heads, "n", size]) for name, _ in cache_names(config.layers)
    ]
    count = graph.node("Shape", ids, start=1, end=2)
    seen = graph.node("Shape", pasts[0], start=2, end=3)
    total = graph.node("Add", seen, count)
    axis = graph.constant([0])
    words = graph.constant(weights["words"])
    places = graph.node("Slice", graph.constant(weights["positions"]), seen, total, axis)
    x = graph.node("Add", graph.node("Gather", words, ids, axis=0), places)
    mask = "" if fused else _mask(graph, seen, total)
    for i in range(config.layers):
        attend = _fused_attention if fused else _attention
        mixed = attend(graph, weights, config, i, x, pasts[2 * i : 2 * i + 2], mask)
        x = graph.node("Add", x, _dense(graph, weights, f"l{i}_o", mixed))
        u = _dense(graph, weights, f"l{i}_in", _norm(graph, weights, config, f"l{i}_norm2", x))
        u = graph.node("Gelu", u, approximate="tanh")
        x = graph.node("Add", x, _dense(graph, weights, f"l{i}_out", u))
    last = graph.node("Gather", x, graph.constant(-1), axis=1)
    last = _norm(graph, weights, config, "norm", last)
    logits = graph.node("MatMul", last, graph.constant(np.ascontiguousarray(weights["words"].T)))
    graph.output(graph.node("ArgMax", logits, axis=1, keepdims=0), INT64, [1])
    for _, name in cache_names(config.layers):
        graph.output(name, FLOAT, [1, heads, "n_t", size])
    return graph.model()


def _norm(graph: Graph, weights: Weights, config: Any, name: str, x: str) -> str:
    gain, bias = (graph.constant(weights[f"{name}_{part}"]) for part in "gb")
    return graph.node("LayerNormalization", x, gain, bias, axis=-1, epsilon=config.epsilon)


def _dense(graph: Graph, weights: Weights, name: str, x: str) -> str:
    matrix = graph.constant(np.ascontiguousarray(weights[f"{name}_w"].T))
    return graph.node("Add", graph.node("MatMul", x, matrix), graph.constant(weights[f"{name}_b"]))


def _mask(graph: Graph, seen: str, total: str) -> str:
    """(t, n + t): 0 where token n + i may see token j, j <= n + i, else a large negative number."""
    squeeze = graph.constant([0])
    start, end = (graph.node("Squeeze", value, squeeze) for value in (seen, total))
    one = graph.constant(1)
    rows = graph.node("Range", start, end, one)
    columns = graph.node("Range", graph.constant(0), end, one)
    later = graph.node("Greater", columns, graph.node("Unsqueeze", rows, graph.constant([1])))
    return graph.node("Where", later, graph.constant(-1e9), graph.constant(0.0))


def _qkv(graph: Graph, weights: Weights, config: Any, i: int, x: str) -> list[str]:
    normed = _norm(graph, weights, config, f"l{i}_norm1", x)
    both = _dense(graph, weights, f"l{i}_qkv", normed)
    return graph.nodes_of("Split", [both], 3, axis=2, num_outputs=3)


def _attention(
    graph: Graph, weights: Weights, config: Any, i: int, x: str, past: list[str], mask: str
) -> str:
    heads, size = config.heads, config.hidden // config.heads
    split = graph.constant([0, 0, heads, size])
    q, k, v = (
        graph.node("Transpose", graph.node("Reshape", part, split), perm=[0, 2, 1, 3])
        for part in _qkv(graph, weights, config, i, x)
    )
    for kind, old, new in (("k", past[0], k), ("v", past[1], v)):
        graph.add("Concat", [old, new], [f"present_{kind}_{i}"], axis=2)
    keys = graph.node("Transpose", f"present_k_{i}", perm=[0, 1, 3, 2])
    scores = graph.node("Mul", graph.node("MatMul", q, keys), graph.constant(float(size**-0.5)))
    scores = graph.node("Softmax", graph.node("Add", scores, mask), axis=-1)
    mixed = graph.node(
        "Transpose", graph.node("MatMul", scores, f"present_v_{i}"), perm=[0, 2, 1, 3]
    )
    return graph.node("Reshape", mixed, graph.constant([0, 0, config.hidden]))


def _fused_attention(
    graph: Graph, weights: Weights, config: Any, i: int, x: str, past: list[str], mask: str
) -> str:
    q, k, v = _qkv(graph, weights, config, i, x)
    mixed = graph.name("attention")
    graph.add(
        "MultiHeadAttention",
        [q, k, v, "", "", "", *past],
        [mixed, f"present_k_{i}", f"present_v_{i}"],
        "com.microsoft",
        num_heads=config.heads,
        unidirectional=1,
    )
    return mixed


__all__ = ["cache_names", "decoder"]

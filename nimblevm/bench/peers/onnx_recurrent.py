"""Recurrent rows as ONNX models: the LSTM and GRU operators; a Loop for TreeLSTM and for greedy decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.peers.onnx_graph import BOOL, FLOAT, INT32, INT64, Graph
from nimblevm.bench.workloads import seq2seq

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]


def _gates(matrix: Array, order: str, wanted: str) -> Array:
    """The rows of stacked gates in another order."""
    parts = dict(zip(order, np.split(matrix, len(order)), strict=True))
    return np.concatenate([parts[gate] for gate in wanted])


def lstm(weights: Weights) -> Any:
    """x (n, inputs) -> the top layer's last h (1, hidden). Gates i, f, g, o become ONNX's i, o, f, c."""
    graph = Graph()
    layers = [name[1:] for name in weights if name.startswith("w")]
    inputs = weights["w"].shape[1] - weights["w"].shape[0] // 4
    value = graph.input("x", FLOAT, ["n", inputs])
    value = graph.node("Unsqueeze", value, graph.constant([1]))
    for k, suffix in enumerate(layers):
        w, b = weights[f"w{suffix}"], weights[f"b{suffix}"]
        hidden = len(b) // 4
        split = w.shape[1] - hidden
        outer, inner = (_gates(m, "ifgo", "iofg")[None] for m in (w[:, :split], w[:, split:]))
        bias = np.concatenate([_gates(b, "ifgo", "iofg"), np.zeros_like(b)])[None]
        operands = [value, *map(graph.constant, (outer, inner, bias))]
        last = k == len(layers) - 1
        states, final = graph.name("states"), graph.name("final")
        names = ["", final] if last else [states]
        graph.add("LSTM", operands, names, hidden_size=hidden)
        if not last:
            value = graph.node("Squeeze", states, graph.constant([1]))
    graph.output(graph.node("Squeeze", final, graph.constant([0])), FLOAT, [1, hidden])
    return graph.model()


def _gru_operands(graph: Graph, weights: Weights, prefix: str) -> tuple[list[str], int]:
    """W, R and B of the GRU operator: gates r, z, n become ONNX's z, r, h."""
    w, r, b_ih, b_hh = (
        _gates(weights[f"{prefix}{name}"], "rzn", "zrn")
        for name in ("w_ih", "w_hh", "b_ih", "b_hh")
    )
    arrays = (w[None], r[None], np.concatenate([b_ih, b_hh])[None])
    return [graph.constant(array) for array in arrays], r.shape[1]


def gru(weights: Weights) -> Any:
    """x (n, inputs) -> last h (1, hidden)."""
    graph = Graph()
    x = graph.input("x", FLOAT, ["n", weights["w_ih"].shape[1]])
    operands, hidden = _gru_operands(graph, weights, "")
    final = graph.name("final")
    value = graph.node("Unsqueeze", x, graph.constant([1]))
    attributes: dict[str, Any] = {"hidden_size": hidden, "linear_before_reset": 1}
    graph.add("GRU", [value, *operands], ["", final], **attributes)
    graph.output(graph.node("Squeeze", final, graph.constant([0])), FLOAT, [1, hidden])
    return graph.model()


def treelstm(weights: Weights) -> Any:
    """words (n, inputs), children (m, 2) int64 -> h, c of the root, each (1, hidden).

    All leaves at once; then a Loop over the inner nodes, bottom-up, whose state is the rows [h, c] of all nodes so far.
    """
    graph = Graph()
    hidden = weights["wn"].shape[1] // 2
    words = graph.input("words", FLOAT, ["n", weights["wl"].shape[1]])
    children = graph.input("children", INT64, ["m", 2])
    z = graph.node(
        "Gemm", words, graph.constant(weights["wl"]), graph.constant(weights["bl"]), transB=1
    )
    i, o, u = graph.nodes_of("Split", [z], 3, axis=1, num_outputs=3)
    c = graph.node("Mul", graph.node("Sigmoid", i), graph.node("Tanh", u))
    h = graph.node("Mul", graph.node("Sigmoid", o), graph.node("Tanh", c))
    leaves = graph.node("Concat", h, c, axis=1)
    count = graph.node("Shape", children, end=1)
    count = graph.node("Squeeze", count, graph.constant([0]))

    body = Graph(graph)
    step = body.input("step", INT64, [])
    body.input("going", BOOL, [])
    state = body.input("state", FLOAT, ["k", 2 * hidden])
    pair = body.node("Gather", children, step, axis=0)
    rows = body.node("Gather", state, pair, axis=0)
    hs, cs = body.nodes_of("Split", [rows], 2, axis=1, num_outputs=2)
    both = body.node("Reshape", hs, body.constant([1, 2 * hidden]))
    cl, cr = body.nodes_of("Split", [cs], 2, axis=0, num_outputs=2)
    wn, bn = graph.constant(weights["wn"]), graph.constant(weights["bn"])
    z = body.node("Gemm", both, wn, bn, transB=1)
    sigmoids, u = body.nodes_of("Split", [z, body.constant([4 * hidden, hidden])], 2, axis=1)
    i, fl, fr, o = body.nodes_of(
        "Split", [body.node("Sigmoid", sigmoids)], 4, axis=1, num_outputs=4
    )
    c = body.node("Mul", i, body.node("Tanh", u))
    c = body.node("Add", c, body.node("Mul", fl, cl))
    c = body.node("Add", c, body.node("Mul", fr, cr))
    h = body.node("Mul", o, body.node("Tanh", c))
    body.output(body.node("Identity", "going"), BOOL, [])
    grown = body.node("Concat", state, body.node("Concat", h, c, axis=1), axis=0)
    body.output(grown, FLOAT, ["k1", 2 * hidden])

    states = graph.node("Loop", count, "", leaves, body=body.body())
    root = graph.node("Slice", states, *map(graph.constant, ([-1], [2**31], [0])))
    for value in graph.nodes_of("Split", [root], 2, axis=1, num_outputs=2):
        graph.output(value, FLOAT, [1, hidden])
    return graph.model()


def seq2seq_model(weights: Weights) -> Any:
    """ids (n) int32, limit () int32 -> the target symbols, int32: encoder by the GRU operator, decoder by a Loop."""
    graph = Graph()
    ids = graph.input("ids", INT32, ["n"])
    limit = graph.input("limit", INT32, [])
    encoder, hidden = _gru_operands(graph, weights, "enc_")
    decoder, _ = _gru_operands(graph, weights, "dec_")
    attributes: dict[str, Any] = {"hidden_size": hidden, "linear_before_reset": 1}
    x = graph.node("Gather", graph.constant(weights["source"]), ids, axis=0)
    x = graph.node("Unsqueeze", x, graph.constant([1]))
    state = graph.name("encoded")
    graph.add("GRU", [x, *encoder], ["", state], **attributes)
    trips = graph.node("Cast", limit, to=INT64)

    body = Graph(graph)
    body.input("step", INT64, [])
    body.input("going", BOOL, [])
    last = body.input("last", INT64, [1])
    h = body.input("h", FLOAT, [1, 1, hidden])
    x = body.node("Gather", graph.constant(weights["target"]), last, axis=0)
    x = body.node("Unsqueeze", x, body.constant([1]))
    new = body.name("new")
    body.add("GRU", [x, *decoder, "", h], ["", new], **attributes)
    flat = body.node("Squeeze", new, body.constant([0]))
    w, b = graph.constant(weights["w"]), graph.constant(weights["b"])
    scores = body.node("Gemm", flat, w, b, transB=1)
    best = body.node("ArgMax", scores, axis=1, keepdims=0)
    ended = body.node("Equal", best, body.constant([seq2seq.END]))
    body.output(body.node("Not", body.node("Squeeze", ended, body.constant([0]))), BOOL, [])
    body.output(best, INT64, [1])
    body.output(new, FLOAT, [1, 1, hidden])
    body.output(body.node("Identity", best), INT64, [1])

    going = graph.constant(np.array(True))
    start = graph.constant([seq2seq.START])
    operands = [trips, going, start, state]
    _, _, out = graph.nodes_of("Loop", operands, 3, body=body.body())
    # The end symbol is a step of the loop, but not of the result.
    out = graph.node("Reshape", out, graph.constant([-1]))
    kept = graph.node("Not", graph.node("Equal", out, graph.constant(seq2seq.END)))
    out = graph.node("Compress", out, kept, axis=0)
    graph.output(graph.node("Cast", out, to=INT32), INT32, ["steps"])
    return graph.model()


def chain(weights: Weights) -> Any:
    """x (n, size) -> the end of the chain."""
    graph = Graph()
    size = weights["w0"].shape[1]
    value = graph.input("x", FLOAT, ["n", size])
    for k in range(len(weights)):
        transposed = np.ascontiguousarray(weights[f"w{k}"].T)
        value = graph.node("MatMul", value, graph.constant(transposed))
    graph.output(value, FLOAT, ["n", size])
    return graph.model()


__all__ = ["chain", "gru", "lstm", "seq2seq_model", "treelstm"]

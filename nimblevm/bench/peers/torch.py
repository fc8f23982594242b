"""PyTorch, eager, inference mode: nn.LSTM and nn.GRU, fused attention, trees by recursion or level by level.

torch.compile does not take part: with dynamic lengths it had not compiled the six layers of MiniLM after minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from nimblevm.bench.cases import Case, flatten
from nimblevm.bench.peers import Parts, Prepared, Unsupported, whole
from nimblevm.bench.rows import Row
from nimblevm.bench.workloads import seq2seq

Array = np.ndarray[Any, Any]
Model = Callable[..., Any]  # tensors (or a tree) in, a tensor or a tuple of tensors out


def version() -> str:
    return str(torch.__version__)


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """Tensors share memory with numpy's arrays both ways (from_numpy, numpy())."""
    if row.kind not in _MODELS and row.kind not in ("chain", "gpt2"):
        raise Unsupported(f"no PyTorch model of {row.kind}")
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    start = time.perf_counter()
    weights = {name: torch.from_numpy(array) for name, array in row.params().items()}
    options = f"eager, inference_mode, {threads} thread(s)"
    if row.kind == "gpt2":
        decoder = _gpt2(weights, row)
        return Prepared(whole(decoder), options, time.perf_counter() - start, parts=decoder)
    inputs: Callable[[Case], Any] = attrgetter("inputs")
    if row.kind == "chain":
        models = {
            case.program: _chain([weights[f"w{k}"] for k in range(case.units)])
            for case in row.cases()
        }
    elif variant == "recursion":
        models = {"main": _recursion(weights)}
        options += ", recursion"
    else:
        models = {"main": _MODELS[row.kind](weights, row)}
        if row.kind == "treelstm":
            inputs = _levels
            options += ", level by level"
    seconds = time.perf_counter() - start
    return Prepared(_run, options, seconds, lambda case: (models[case.program], inputs(case)))


def _run(loaded: tuple[Model, Any]) -> Sequence[Array]:
    model, inputs = loaded
    with torch.inference_mode():
        found = model(*[torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in inputs])
        if isinstance(found, tuple):
            return [value.numpy() for value in found]
        return (found.numpy(),)


def _lstm(weights: dict[str, Any], row: Row) -> Model:
    hidden, layers = row.sizes["hidden"], row.sizes["layers"]
    module = torch.nn.LSTM(row.sizes["inputs"], hidden, layers)
    with torch.no_grad():
        for k in range(layers):
            w, b = weights[f"w{k or ''}"], weights[f"b{k or ''}"]
            getattr(module, f"weight_ih_l{k}").copy_(w[:, : w.shape[1] - hidden])
            getattr(module, f"weight_hh_l{k}").copy_(w[:, w.shape[1] - hidden :])
            getattr(module, f"bias_ih_l{k}").copy_(b)
            getattr(module, f"bias_hh_l{k}").zero_()
    module.eval()
    return lambda x: module(x)[1][0][-1:]


def _gru(weights: dict[str, Any], row: Row) -> Model:
    module = torch.nn.GRU(row.sizes["inputs"], row.sizes["hidden"])
    with torch.no_grad():
        for name, value in weights.items():
            kind, which = name.split("_")
            full = {"w": "weight", "b": "bias"}[kind]
            getattr(module, f"{full}_{which}_l0").copy_(value)
    module.eval()
    return lambda x: module(x)[1]


def _leaf(weights: dict[str, Any], x: Any) -> tuple[Any, Any]:
    i, o, u = F.linear(x, weights["wl"], weights["bl"]).chunk(3, 1)
    c = torch.sigmoid(i) * torch.tanh(u)
    return torch.sigmoid(o) * torch.tanh(c), c


def _node(weights: dict[str, Any], both: Any, cl: Any, cr: Any) -> tuple[Any, Any]:
    z = F.linear(both, weights["wn"], weights["bn"])
    size = cl.shape[1]
    i, fl, fr, o = torch.sigmoid(z[:, : 4 * size]).chunk(4, 1)
    c = i * torch.tanh(z[:, 4 * size :]) + fl * cl + fr * cr
    return o * torch.tanh(c), c


def _recursion(weights: dict[str, Any]) -> Model:
    """As the tutorials write it."""

    def walk(tree: Any) -> tuple[Any, Any]:
        if not isinstance(tree, tuple):
            return _leaf(weights, torch.from_numpy(tree))
        hl, cl = walk(tree[0])
        hr, cr = walk(tree[1])
        return _node(weights, torch.cat((hl, hr), 1), cl, cr)

    return lambda tree: walk(tree)


def _levels(case: Case) -> tuple[Array, Any]:
    """Leaf vectors, and for each level the children of its nodes; nodes are numbered level by level."""
    flat = flatten(*case.inputs)
    leaves = len(flat.words)
    order = np.concatenate([np.arange(leaves), *(level + leaves for level in flat.levels)])
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return flat.words, [
        torch.from_numpy(number[flat.children[level]].reshape(-1)) for level in flat.levels
    ]


def _by_level(weights: dict[str, Any], row: Row) -> Model:
    hidden = row.sizes["hidden"]

    def run(words: Any, levels: Any) -> tuple[Any, Any]:
        leaves = words.shape[0]
        count = leaves + sum(len(level) for level in levels) // 2
        h, c = torch.empty(count, hidden), torch.empty(count, hidden)
        h[:leaves], c[:leaves] = _leaf(weights, words)
        done = leaves
        for level in levels:
            n = len(level) // 2
            below = c.index_select(0, level).view(n, 2, hidden)
            both = h.index_select(0, level).view(n, 2 * hidden)
            made = _node(weights, both, below[:, 0], below[:, 1])
            h[done : done + n], c[done : done + n] = made
            done += n
        return h[-1:], c[-1:]

    return run


def _bert(weights: dict[str, Any], row: Row) -> Model:
    config = row.sizes["config"]
    hidden, heads = config.hidden, config.heads
    w = weights
    stacked = [
        tuple(torch.cat([w[f"l{i}_{n}_{part}"] for n in "qkv"]) for part in "wb")
        for i in range(config.layers)
    ]

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (hidden,), w[f"{name}_g"], w[f"{name}_b"], config.epsilon)

    def run(tokens: Any, mask: Any) -> Any:
        batch, length = tokens.shape
        x = norm(w["words"][tokens] + w["positions"][:length] + w["kinds"][0], "norm")
        bias = None if mask is None else ((mask - 1) * 10000)[:, None, None, :]
        for i in range(config.layers):
            qkv = F.linear(x, *stacked[i]).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=bias)
            mixed = mixed.transpose(1, 2).reshape(batch, length, hidden)
            x = norm(x + F.linear(mixed, w[f"l{i}_o_w"], w[f"l{i}_o_b"]), f"l{i}_norm1")
            inner = F.gelu(F.linear(x, w[f"l{i}_in_w"], w[f"l{i}_in_b"]))
            x = norm(x + F.linear(inner, w[f"l{i}_out_w"], w[f"l{i}_out_b"]), f"l{i}_norm2")
        return x

    def pooled(ids: Any) -> Any:
        return F.normalize(run(ids[None], None).mean((0, 1)), dim=0)

    return pooled if row.sizes["pooled"] else run


def _gpt2(weights: dict[str, Any], row: Row) -> Parts:
    """Keys and values of all tokens so far, (1, heads, n, d), concatenated with each new one's; a token is a part."""
    config, w = row.sizes["config"], weights
    hidden, heads = config.hidden, config.heads

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (hidden,), w[f"{name}_g"], w[f"{name}_b"], config.epsilon)

    def step(ids: Any, seen: int, cache: list[Any]) -> int:
        count = len(ids)
        x = w["words"][ids] + w["positions"][seen : seen + count]
        for i in range(config.layers):
            qkv = F.linear(norm(x, f"l{i}_norm1"), w[f"l{i}_qkv_w"], w[f"l{i}_qkv_b"])
            q, k, v = qkv.view(count, 3, heads, -1).permute(1, 2, 0, 3)[:, None]
            if cache[i] is not None:
                k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
            cache[i] = (k, v)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=count > 1)
            mixed = mixed[0].transpose(0, 1).reshape(count, hidden)
            x = x + F.linear(mixed, w[f"l{i}_o_w"], w[f"l{i}_o_b"])
            u = F.linear(norm(x, f"l{i}_norm2"), w[f"l{i}_in_w"], w[f"l{i}_in_b"])
            u = F.gelu(u, approximate="tanh")
            x = x + F.linear(u, w[f"l{i}_out_w"], w[f"l{i}_out_b"])
        return int(torch.argmax(F.linear(norm(x[-1:], "norm"), w["words"])))

    def run(inputs: Any) -> Generator[None, None, Sequence[Any]]:
        prompt, steps = inputs
        cache: list[Any] = [None] * config.layers
        ids, seen, out = torch.from_numpy(prompt).long(), 0, []
        for _ in range(int(steps)):
            with torch.inference_mode():
                out.append(step(ids, seen, cache))
            seen += len(ids)
            ids = torch.tensor([out[-1]])
            yield
        return [np.array(out, np.int32)]

    return run


def _seq2seq(weights: dict[str, Any], row: Row) -> Model:
    hidden = row.sizes["hidden"]
    named = {n[4:]: v for n, v in weights.items() if n.startswith("enc_")}
    encoder = _gru(named, replace(row, sizes={"inputs": hidden, "hidden": hidden}))
    cell = [weights[f"dec_{n}"] for n in ("w_ih", "w_hh", "b_ih", "b_hh")]

    def run(ids: Any, limit: Any) -> Any:
        h = encoder(weights["source"][ids])
        last, out = seq2seq.START, []
        for _ in range(int(limit)):
            h = torch.gru_cell(weights["target"][last][None], h, *cell)
            last = int(torch.argmax(F.linear(h, weights["w"], weights["b"])))
            if last == seq2seq.END:
                break
            out.append(last)
        return torch.tensor(out, dtype=torch.int32)

    return run


def _resnet(weights: dict[str, Any], row: Row) -> Model:
    w = weights

    def convolution(x: Any, name: str, stride: int) -> Any:
        gain, bias, mean, variance = (w[f"{name}_{part}"] for part in "gbmv")
        x = F.conv2d(x, w[f"{name}_w"], None, stride, w[f"{name}_w"].shape[2] // 2)
        return F.batch_norm(x, mean, variance, gain, bias, eps=1e-5)

    blocks = sorted({key[:4] for key in w if key.startswith("s") and key[1].isdigit()})

    def run(x: Any) -> Any:
        y = F.max_pool2d(F.relu(convolution(x, "stem", 2)), 3, 2, 1)
        for name in blocks:
            shortcut, stride = y, 1
            if f"{name}d_w" in w:
                stride = 1 if name == "s0b0" else 2
                shortcut = convolution(y, f"{name}d", stride)
            inner = F.relu(convolution(y, f"{name}c0", stride))
            y = F.relu(convolution(inner, f"{name}c1", 1) + shortcut)
        return F.linear(y.mean((2, 3)), w["fc_w"], w["fc_b"])

    return run


def _chain(matrices: Sequence[Any]) -> Model:
    def run(x: Any) -> Any:
        for matrix in matrices:
            x = F.linear(x, matrix)
        return x

    return run


_MODELS: dict[str, Callable[[dict[str, Any], Row], Model]] = {
    "lstm": _lstm, "gru": _gru, "treelstm": _by_level, "bert": _bert, "seq2seq": _seq2seq,
    "resnet": _resnet,
}  # fmt: skip

__all__ = ["prepare", "version"]

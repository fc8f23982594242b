"""The rows of the benchmark table: programs, weights, inputs, peers and targets. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from nimblevm.bench.cases import Case, lengths, parse_like_tree
from nimblevm.bench.greedy import greedy
from nimblevm.bench.workloads import bert, chain, gpt2, gru, lstm, minilm, resnet, seq2seq, treelstm
from nimblevm.relay.module import IRModule

Array = np.ndarray[Any, Any]
Seconds = Sequence[float]  # one a case, in the order of the row's cases

US, MS = 1e-6, 1e-3


def per_unit(cases: Sequence[Case], seconds: Seconds) -> float:
    """Seconds a unit over all cases."""
    return sum(seconds) / sum(case.units for case in cases)


def slope(cases: Sequence[Case], seconds: Seconds) -> float:
    """Seconds that one more operator costs, from the shortest and the longest case."""
    first, last = cases[0], cases[-1]
    return (seconds[-1] - seconds[0]) / (last.units - first.units)


def fixed(cases: Sequence[Case], seconds: Seconds) -> float:
    """Seconds of a call that has no operators, extrapolated."""
    return seconds[0] - cases[0].units * slope(cases, seconds)


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a row.

    ratio      target: ours / best peer at most this
    absolute   target: ours at most this, seconds
    against    targets against single peers: name -> ours / that peer at most
    floor      the row's roofline applies (see roofline.py)
    """

    name: str
    unit: str
    scale: float  # seconds a printed unit
    value: Callable[[Sequence[Case], Seconds], float] = per_unit
    ratio: float | None = None
    absolute: float | None = None
    against: Mapping[str, float] = field(default_factory=dict)
    floor: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """A workload of given sizes with what it is compared to.

    kind       which implementation an adapter needs: lstm, gru, treelstm, ...
    sizes      the workload's sizes, for adapters and roofline
    programs   Relay text by name
    module     instead of programs: the module "main" with its weights bound
    entry      the function that is called
    params     all weights by name; a program takes those that it declares
    reference  numpy: (weights, case) -> outputs
    """

    name: str
    title: str
    kind: str
    sizes: Mapping[str, Any]
    programs: Callable[[], dict[str, str]]
    params: Callable[[], dict[str, Array]]
    cases: Callable[[], list[Case]]
    reference: Callable[[dict[str, Array], Case], tuple[Array, ...]]
    peers: tuple[str, ...]
    metrics: tuple[Metric, ...]
    size_name: str = "length"
    module: Callable[[dict[str, Array]], IRModule] | None = None
    entry: str = "main"
    tolerance: tuple[float, float] = (1e-3, 1e-4)  # relative, absolute
    quick_cases: Callable[[], list[Case]] | None = None
    from_c: float | None = None  # target: seconds that a call from C costs at most, operators apart
    vm_share: float | None = None  # target: the VM's own part of the run time at most this

    def shortened(self) -> Row:
        """The same with at most three cases, for a quick look."""
        if self.quick_cases is not None:
            return replace(self, cases=self.quick_cases)

        def few() -> list[Case]:
            found = sorted(self.cases(), key=lambda case: case.size)
            return found if len(found) <= 3 else [found[0], found[len(found) // 2], found[-1]]

        return replace(self, cases=few)


def _vectors(count: int, low: int, high: int, mean: float, inputs: int) -> list[Case]:
    rng = np.random.default_rng(11)
    return [
        Case(n, n, (rng.standard_normal((n, inputs)).astype(np.float32),))
        for n in lengths(count, low, high, mean, seed=1)
    ]


_RNN_PEERS = ("onnxruntime", "openvino", "torch", "tvm", "numpy")


def _lstm(
    name: str, title: str, inputs: int, hidden: int, layers: int, ratio: float, peers: Any
) -> Row:
    return Row(
        name=name,
        title=title,
        kind="lstm",
        sizes={"inputs": inputs, "hidden": hidden, "layers": layers},
        programs=lambda: {"main": lstm.text(inputs, hidden, layers)},
        params=lambda: lstm.params(inputs, hidden, layers),
        cases=lambda: _vectors(10, 10, 50, 26, inputs),
        reference=lambda w, case: (lstm.reference(case.inputs[0], **w),),
        peers=peers,
        metrics=(Metric("per token", "us/token", US, ratio=ratio),),
    )


def _gru(inputs: int = 300, hidden: int = 512) -> Row:
    return Row(
        name="gru",
        title=f"GRU {inputs}->{hidden}",
        kind="gru",
        sizes={"inputs": inputs, "hidden": hidden},
        programs=lambda: {"main": gru.text(inputs, hidden)},
        params=lambda: gru.params(inputs, hidden),
        cases=lambda: _vectors(10, 10, 50, 26, inputs),
        reference=lambda w, case: (gru.reference(case.inputs[0], **w),),
        peers=("onnxruntime", "openvino", "torch", "numpy"),
        metrics=(Metric("per token", "us/token", US, ratio=0.75),),
    )


def _trees(inputs: int) -> list[Case]:
    rng = np.random.default_rng(12)
    return [Case(n, n, (parse_like_tree(n, rng, inputs),)) for n in lengths(12, 4, 45, 21, seed=2)]


def _treelstm(inputs: int = 300, hidden: int = 150) -> Row:
    return Row(
        name="treelstm",
        title=f"TreeLSTM {inputs}->{hidden}",
        kind="treelstm",
        sizes={"inputs": inputs, "hidden": hidden},
        programs=lambda: {"main": treelstm.text(inputs, hidden)},
        params=lambda: treelstm.params(inputs, hidden),
        cases=lambda: _trees(inputs),
        reference=lambda w, case: treelstm.reference(case.inputs[0], **w),
        peers=("onnxruntime", "openvino", "torch", "torch-recursion", "numpy"),
        metrics=(
            Metric("per word", "us/word", US, ratio=0.40, against={"torch-recursion": 1 / 6}),
        ),
        size_name="words",
        vm_share=0.05,
    )


# Mixed lengths of encoders: 10 to 128, mean 69.
_MIXED = (64, 10, 128, 44, 94, 27, 111, 74)


def _tokens(length: int, vocabulary: int) -> Array:
    return np.random.default_rng(length).integers(0, vocabulary, length).astype(np.int32)


def _bert(config: bert.Config = bert.Config()) -> Row:  # noqa: B008 - frozen
    def cases() -> list[Case]:
        return [
            Case(n, n, (_tokens(n, config.vocabulary)[None], np.ones((1, n), np.float32)))
            for n in _MIXED
        ]

    return Row(
        name="bert",
        title="BERT-base",
        kind="bert",
        sizes={"config": config, "pooled": False},
        programs=lambda: {"main": bert.text(config)},
        params=lambda: bert.params(config),
        cases=cases,
        reference=lambda w, case: (bert.reference(case.inputs[0], case.inputs[1], w, config),),
        peers=("onnxruntime", "openvino", "torch"),
        metrics=(Metric("per token", "ms/token", MS, ratio=0.85),),
        tolerance=(1e-3, 1e-3),  # 12 layers of float32 products
    )


def _minilm(name: str, title: str, sizes: Sequence[int], ratio: float | None) -> Row:
    config = minilm.CONFIG
    return Row(
        name=name,
        title=title,
        kind="bert",
        sizes={"config": config, "pooled": True},
        programs=lambda: {"main": minilm.text(config)},
        params=lambda: bert.params(config),
        cases=lambda: [Case(n, n, (_tokens(n, config.vocabulary),)) for n in sizes],
        reference=lambda w, case: (minilm.reference(case.inputs[0], w, config),),
        peers=("onnxruntime", "openvino", "torch"),
        metrics=(Metric("per token", "ms/token", MS, ratio=ratio),),
    )


def _chain(short: int = 10, long: int = 100, size: int = 16) -> Row:
    def cases() -> list[Case]:
        x = np.random.default_rng(13).standard_normal((1, size)).astype(np.float32)
        return [Case(n, n, (x,), f"chain{n}") for n in (short, long)]

    def reference(weights: dict[str, Array], case: Case) -> tuple[Array, ...]:
        taken = {f"w{k}": weights[f"w{k}"] for k in range(case.units)}
        return (chain.reference(*case.inputs, **taken),)

    return Row(
        name="chain",
        title=f"{long} dense {size}x{size}, dynamic rows, 1 row",
        kind="chain",
        sizes={"size": size},
        programs=lambda: {f"chain{n}": chain.text(n, size) for n in (short, long)},
        params=lambda: chain.params(long, size),
        cases=cases,
        reference=reference,
        peers=("tvm", "onnxruntime", "openvino", "torch", "numpy"),
        metrics=(
            Metric("per op", "us/op", US, slope, absolute=0.10 * US, floor=False),
            Metric("fixed", "us/call", US, fixed, absolute=5 * US, floor=False),
        ),
        size_name="operators",
        from_c=0.5 * US,
    )


def _seq2seq(symbols: int = 1000, hidden: int = 512, limit: int = 40) -> Row:
    def cases() -> list[Case]:
        rng = np.random.default_rng(14)
        sources = [rng.integers(2, symbols, n).astype(np.int32) for n in lengths(8, 5, 30, 14, 3)]
        weights = seq2seq.params(symbols, hidden)
        counts = [len(s) + len(seq2seq.reference(s, limit, **weights)) for s in sources]
        return [
            Case(n, n, (s, np.int32(limit))) for n, s in zip(counts, sources, strict=True)
        ]  # fmt: skip

    return Row(
        name="seq2seq",
        title=f"seq2seq GRU {hidden}, {symbols} symbols, greedy",
        kind="seq2seq",
        sizes={"symbols": symbols, "hidden": hidden, "limit": limit},
        programs=lambda: {"main": seq2seq.text(symbols, hidden)},
        params=lambda: seq2seq.params(symbols, hidden),
        cases=cases,
        reference=lambda w, case: (seq2seq.reference(case.inputs[0], int(case.inputs[1]), **w),),
        peers=("onnxruntime", "torch", "numpy"),
        metrics=(Metric("per symbol", "us/symbol", US),),
        size_name="source and target symbols",
    )


def _decoder(prompt: int = 16, steps: int = 64, config: gpt2.Config = gpt2.Config()) -> Row:  # noqa: B008
    def written(count: int) -> list[Case]:
        return [Case(count, count, (_tokens(prompt, config.vocabulary), np.int32(count)))]

    return Row(
        name="gpt2",
        title=f"GPT-2 small sizes, greedy, {prompt} + {steps} tokens",
        kind="gpt2",
        sizes={"config": config},
        programs=dict,
        module=lambda weights: gpt2.module(weights, config),
        entry="generate",
        params=lambda: gpt2.params(config),
        cases=lambda: written(steps),
        quick_cases=lambda: written(4),
        reference=lambda w, case: (
            greedy(w, config.heads, config.epsilon, case.inputs[0], int(case.inputs[1])),
        ),
        peers=("onnxruntime", "openvino", "torch"),
        metrics=(Metric("per generated token", "ms/token", MS, ratio=0.88),),
        size_name="generated tokens",
    )


def _resnet(width: int = 64, classes: int = 1000) -> Row:
    def cases() -> list[Case]:
        rng = np.random.default_rng(15)
        return [
            Case(1, n, (rng.standard_normal((1, 3, n, n)).astype(np.float32),))
            for n in (64, 96, 160, 224)
        ]

    return Row(
        name="resnet18",
        title="ResNet-18, images of 64 to 224 pixels",
        kind="resnet",
        sizes={"width": width, "classes": classes},
        programs=lambda: {"main": resnet.text(width, classes)},
        params=lambda: resnet.params(width, classes),
        cases=cases,
        reference=lambda w, case: (resnet.reference(case.inputs[0], **w),),
        peers=("onnxruntime", "openvino", "torch"),
        metrics=(Metric("per image", "ms/image", MS),),
        size_name="pixels a side",
        tolerance=(1e-3, 1e-3),
    )


_ROWS = (
    _lstm("lstm", "LSTM 300->512", 300, 512, 1, 0.75, _RNN_PEERS),
    _lstm(
        "lstm2", "LSTM 300->512, 2 layers", 300, 512, 2, 0.70, ("onnxruntime", "openvino", "torch")
    ),
    _lstm(
        "lstm-heldback", "LSTM 257->384, untuned", 257, 384, 1, 0.75,
        ("onnxruntime", "openvino", "torch", "numpy"),
    ),
    _gru(),
    _treelstm(),
    _bert(),
    _minilm("minilm", "MiniLM-L6", _MIXED, 0.85),
    _decoder(),
    _chain(),
    _seq2seq(),
    _resnet(),
    # The VM's own share is measured on these; the second is the TreeLSTM row.
    replace(_minilm("minilm-8", "MiniLM-L6, 8 tokens", (8,), None), vm_share=0.01),
    # Small, for tests of the machinery.
    replace(
        _lstm("lstm-tiny", "LSTM 8->16", 8, 16, 1, 0.75, ("numpy",)),
        cases=lambda: _vectors(3, 2, 6, 4, 8),
    ),
)  # fmt: skip

ROWS: Mapping[str, Row] = MappingProxyType({row.name: row for row in _ROWS})
HIDDEN = frozenset({"lstm-tiny"})  # run only when named

__all__ = [
    "HIDDEN", "MS", "ROWS", "US", "Case", "Metric", "Row", "Seconds", "fixed", "per_unit", "slope",
]  # fmt: skip

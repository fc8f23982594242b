"""Every workload at a small size with seeded inputs, for tests that run all of them in another way: from C, on another
CPU, interpreted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm.bench.workloads import (
    bert,
    chain,
    charrnn,
    childsum,
    g2p,
    gpt2,
    gru,
    lstm,
    minilm,
    resnet,
    seq2seq,
    ssd,
    treelstm,
)
from nimblevm.driver import bind_params

SIZES = {"inputs": 12, "hidden": 16}
DECODER = gpt2.SMALL


@dataclass(frozen=True, slots=True)
class Small:
    """One workload.

    module      the program with its weights bound
    inputs      (executable, generator) -> arguments of one call, in order
    function    that is called
    """

    module: Callable[[], Any]
    inputs: Callable[[nvm.Executable, np.random.Generator], tuple[Any, ...]]
    function: str = "main"


def _bound(text: str, params: dict[str, Any], name: str) -> Any:
    return bind_params(nvm.relay.parse(text, source_name=f"{name}.rly"), params)


def _rows(exe: nvm.Executable, rng: np.random.Generator) -> tuple[Any, ...]:
    return (rng.standard_normal((int(rng.integers(0, 12)), SIZES["inputs"])).astype(np.float32),)


def _images(size: int, channels: int) -> Callable[..., tuple[Any, ...]]:
    def draw(exe: nvm.Executable, rng: np.random.Generator) -> tuple[Any, ...]:
        height, width = rng.integers(size, 2 * size, 2)
        return (rng.standard_normal((1, channels, height, width)).astype(np.float32),)

    return draw


def _tokens(vocabulary: int, most: int, least: int = 1) -> Callable[[np.random.Generator], Any]:
    def draw(rng: np.random.Generator) -> Any:
        return rng.integers(2, vocabulary, int(rng.integers(least, most))).astype(np.int32)

    return draw


def _tree(exe: nvm.Executable, rng: np.random.Generator) -> tuple[Any, ...]:
    tree = treelstm.random_tree(int(rng.integers(1, 12)), rng, SIZES["inputs"])
    return (treelstm.fold(tree, exe.constructor("Leaf"), exe.constructor("Node")),)


def _child_tree(exe: nvm.Executable, rng: np.random.Generator) -> tuple[Any, ...]:
    tree = childsum.random_tree(int(rng.integers(1, 12)), rng, SIZES["inputs"])
    return (childsum.to_adt(tree, exe.constructor),)


def _masked(exe: nvm.Executable, rng: np.random.Generator) -> tuple[Any, ...]:
    batch, length = int(rng.integers(1, 3)), int(rng.integers(1, bert.SMALL.positions))
    tokens = rng.integers(0, bert.SMALL.vocabulary, (batch, length)).astype(np.int32)
    return tokens, np.ones((batch, length), np.float32)


def _g2p_weights() -> dict[str, Any]:
    """Random ones: the trained ones come in a package of their own."""
    rng = np.random.default_rng(4)
    shapes = {"enc_emb": (29, 256), "dec_emb": (74, 256), "fc_w": (74, 256), "fc_b": (74,)}
    for side in ("enc", "dec"):
        for gate in ("ih", "hh"):
            shapes |= {f"{side}_w_{gate}": (768, 256), f"{side}_b_{gate}": (768,)}
    return {n: rng.standard_normal(s).astype(np.float32) / 16 for n, s in shapes.items()}


def _decoded(exe: nvm.Executable, rng: np.random.Generator) -> tuple[Any, ...]:
    ids = rng.integers(0, DECODER.vocabulary, 5).astype(np.int32)
    return ids, gpt2.empty_state(DECODER)


def _decoder() -> Any:
    return gpt2.module(gpt2.params(DECODER), DECODER)


SMALL: Mapping[str, Small] = MappingProxyType({
    "lstm": Small(lambda: _bound(lstm.text(**SIZES), lstm.params(**SIZES), "lstm"), _rows),
    "lstm2": Small(lambda: _bound(lstm.text(12, 16, 2), lstm.params(12, 16, 2), "lstm2"), _rows),
    "gru": Small(lambda: _bound(gru.text(**SIZES), gru.params(**SIZES), "gru"), _rows),
    "treelstm": Small(lambda: _bound(treelstm.text(**SIZES), treelstm.params(**SIZES), "treelstm"), _tree),
    "childsum": Small(lambda: _bound(childsum.text(**SIZES), childsum.params(**SIZES), "childsum"), _child_tree),
    "charrnn": Small(
        lambda: _bound(charrnn.text(20, 16), charrnn.params(20, 16), "charrnn"),
        lambda exe, rng: (rng.random(9).astype(np.float32), np.int32(3)),
    ),
    "seq2seq": Small(
        lambda: _bound(seq2seq.text(30, 16), seq2seq.params(30, 16), "seq2seq"),
        lambda exe, rng: (_tokens(30, 10)(rng), np.int32(12)),
    ),
    "g2p": Small(lambda: _bound(g2p.text(), _g2p_weights(), "g2p"), lambda exe, rng: (_tokens(29, 9)(rng),)),
    "chain": Small(
        lambda: _bound(chain.text(10, 16), chain.params(10, 16), "chain"),
        lambda exe, rng: (rng.standard_normal((3, 16)).astype(np.float32),),
    ),
    "bert": Small(lambda: _bound(bert.text(bert.SMALL), bert.params(bert.SMALL), "bert"), _masked),
    "minilm": Small(
        lambda: _bound(minilm.text(bert.SMALL), bert.params(bert.SMALL), "minilm"),
        lambda exe, rng: (_tokens(bert.SMALL.vocabulary, 12)(rng),),
    ),
    "gpt2": Small(_decoder, _decoded),
    "gpt2-generate": Small(
        _decoder,
        lambda exe, rng: (_tokens(DECODER.vocabulary, 9, 3)(rng), np.int32(6)),
        "generate",
    ),
    "resnet": Small(
        lambda: _bound(resnet.text(4, 10), resnet.params(4, 10), "resnet"), _images(24, 3)
    ),
    "ssd": Small(lambda: _bound(ssd.text(), ssd.params(), "ssd"), _images(4, 16)),
})  # fmt: skip

__all__ = ["SMALL", "Small"]

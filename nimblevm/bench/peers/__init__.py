"""Peers: the other systems that the benchmarks compare to, one small adapter each.

An adapter module has `version() -> str` and `prepare(row, threads, variant) -> Prepared`, and is imported in a worker
process of its own (see worker.py), so that a peer that is not installed is reported and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nimblevm.bench.cases import Case


class Unsupported(Exception):
    """The peer has no implementation of this row."""


@dataclass(frozen=True, slots=True)
class Peer:
    """module: the adapter; package: what to install; variant: which of several ways to write a model."""

    module: str
    package: str
    variant: str = ""


OURS = "nimblevm"
PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        OURS: Peer("nimblevm.bench.peers.nimble", "nimblevm[compiler]"),
        "onnxruntime": Peer("nimblevm.bench.peers.onnxruntime", "onnxruntime and onnx"),
        "openvino": Peer("nimblevm.bench.peers.openvino", "openvino and onnx"),
        "torch": Peer("nimblevm.bench.peers.torch", "torch"),
        "torch-recursion": Peer("nimblevm.bench.peers.torch", "torch", "recursion"),
        "tvm": Peer("nimblevm.bench.peers.tvm", "apache-tvm"),
        "numpy": Peer("nimblevm.bench.peers.numpy", "numpy"),
    }
)


Parts = Callable[[Any], Generator[None, None, Sequence[Any]]]


def whole(parts: Parts) -> Callable[[Any], Sequence[Any]]:
    """All parts in one call."""

    def run(value: Any) -> Sequence[Any]:
        going = parts(value)
        while True:
            try:
                next(going)
            except StopIteration as end:
                found: Sequence[Any] = end.value
                return found

    return run


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that is ready to run.

    load      puts the structure of a case's inputs (trees, which program) in the peer's own form; not timed.
              Numpy arrays stay numpy arrays
    run       what is timed: takes load's value, gives numpy arrays, conversions of tensors included
    options   what was chosen, for the report
    seconds   what compiling or loading the model took
    share     ours alone: the part of the run time that is not spent in kernels, by the same cycle counter
    parts     what `run` does, with a yield after each part that can be timed by itself (a token of a decoder): long
              calls are never undisturbed
    """

    run: Callable[[Any], Sequence[Any]]
    options: str
    seconds: float = 0.0
    load: Callable[[Case], Any] = lambda case: case.inputs
    share: Callable[[], float] | None = None
    parts: Parts | None = None


__all__ = ["OURS", "PEERS", "Parts", "Peer", "Prepared", "Unsupported", "whole"]

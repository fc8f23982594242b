"""Every workload in a small size: its program, its weights and an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm.bench.workloads import (
    bert,
    charrnn,
    childsum,
    gpt2,
    gru,
    lstm,
    resnet,
    seq2seq,
    ssd,
    treelstm,
)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """inputs: the arguments of main, given the executable (whose constructors make trees)."""

    text: str
    params: Mapping[str, Array]
    inputs: Callable[[nvm.Executable], tuple[Any, ...]]

    def module(self) -> nvm.relay.IRModule:
        return nvm.relay.parse(self.text, source_name="model.rly")

    def run(self, exe: nvm.Executable) -> list[Array]:
        """What main returns, its tensors from left to right."""
        with nvm.VirtualMachine(exe) as vm:
            return list(_flat(vm.run(*self.inputs(exe))))


def _flat(value: Any) -> Any:
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, tuple):
            yield from _flat(part)
        else:
            yield np.array(part.numpy())


def _floats(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def _binary(exe: nvm.Executable) -> tuple[Any, ...]:
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    x = _floats(3, 1, 12)
    return (node(node(leaf(x[0]), leaf(x[1])), leaf(x[2])),)


def _many(exe: nvm.Executable) -> tuple[Any, ...]:
    node, cons, nil = (exe.constructor(n) for n in ("CTree.Node", "More", "End"))
    x = _floats(3, 1, 12)
    leaves = [node(v, nil()) for v in x[:2]]
    return (node(x[2], cons(leaves[0], cons(leaves[1], nil()))),)


def _state(exe: nvm.Executable) -> tuple[Any, ...]:
    empty = np.zeros((0, 16), np.float32)
    return (np.array([1, 5, 2], np.int32), ((empty, empty), (empty, empty)))


def models() -> dict[str, Model]:
    small: dict[str, int] = {"inputs": 12, "hidden": 16}
    ids = np.array([3, 1, 4, 1], np.int32)
    tokens = (np.array([[1, 2, 3]], np.int32), np.ones((1, 3), np.float32))
    image = (_floats(1, 3, 32, 32),)
    return {
        "lstm": Model(lstm.text(**small), lstm.params(**small), lambda exe: (_floats(5, 12),)),
        "gru": Model(gru.text(**small), gru.params(**small), lambda exe: (_floats(5, 12),)),
        "charrnn": Model(
            charrnn.text(10, 16), charrnn.params(10, 16), lambda exe: (np.abs(_floats(4)) % 1, 3)
        ),
        "childsum": Model(childsum.text(**small), childsum.params(**small), _many),
        "treelstm": Model(treelstm.text(**small), treelstm.params(**small), _binary),
        "seq2seq": Model(seq2seq.text(10, 16), seq2seq.params(10, 16), lambda exe: (ids, 6)),
        "bert": Model(bert.text(), bert.params(), lambda exe: tokens),
        "gpt2": Model(gpt2.text(), gpt2.params(), _state),
        "resnet": Model(resnet.text(4, 10), resnet.params(4, 10), lambda exe: image),
        "ssd": Model(ssd.text(), ssd.params(), lambda exe: (_floats(1, 16, 6, 5),)),
    }

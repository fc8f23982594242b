"""What the studies of memory and of compile time share: models of the benchmark's rows, and static copies of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm.bench.cases import Case
from nimblevm.bench.rows import ROWS, Row
from nimblevm.bench.workloads import treelstm

Array = np.ndarray[Any, Any]
_PARAMETER = re.compile(r"%(\w+)\s*:\s*Tensor\[\(([^()]*)\)")

MODELS = (
    "lstm",
    "lstm2",
    "gru",
    "treelstm",
    "minilm",
    "bert",
    "gpt2",
    "seq2seq",
    "chain",
    "resnet18",
)
"""Rows that are studied."""


@dataclass(frozen=True, slots=True)
class Model:
    """A row's program with its weights, still to be parsed. text: None where the row builds a module."""

    row: Row
    text: str | None
    weights: dict[str, Array]

    @classmethod
    def of(cls, name: str, program: str = "main") -> Model:
        row = ROWS[name]
        return cls(row, row.programs().get(program), row.params())

    def module(self, text: str | None = None) -> Any:
        """Parsed, and inferred if the row builds it; `text`: another text of the same program."""
        if self.text is None:
            if self.row.module is None:
                raise ValueError(f"row {self.row.name} has no program main")
            return self.row.module(self.weights)
        return nvm.relay.parse(text or self.text)

    def bound(self, mod: Any) -> dict[str, Array] | None:
        """The weights that are parameters of main."""
        if self.text is None:
            return None
        declared = {p.name_hint for p in mod.function("main").params}
        return {key: value for key, value in self.weights.items() if key in declared}

    def static_text(self, case: Case) -> str | None:
        """The program for this case's sizes only; None if no parameter has a size to fix."""
        if self.text is None:
            return None
        sizes = dim_values(self.text, case.inputs)
        return with_sizes(self.text, sizes) if sizes else None


def dim_values(text: str, inputs: Sequence[Any]) -> dict[str, int]:
    """The values of main's named dims that these inputs give: `%x: Tensor[(?n, 300), float32]` and an array of 7 rows
    give n = 7. Parameters of other types count as none.
    """
    head = text[text.index("def @main(") :]
    declared = [(m.start(), m.group(2)) for m in _PARAMETER.finditer(head)]
    names = [m.start() for m in re.finditer(r"%\w+\s*:", head)]
    by_position = {names.index(start): dims for start, dims in declared if start in names}
    found: dict[str, int] = {}
    for position, value in enumerate(inputs):
        if isinstance(value, np.ndarray) and position in by_position:
            axes = [axis.strip() for axis in by_position[position].split(",") if axis.strip()]
            for axis, size in zip(axes, value.shape, strict=True):
                if re.fullmatch(r"\?\w+", axis):
                    found[axis[1:]] = size
    return found


def with_sizes(text: str, sizes: Mapping[str, int]) -> str:
    """The text with named dims replaced by numbers everywhere; inference refutes a text that this does not fit."""
    for name, size in sizes.items():
        text = re.sub(rf"\?{name}\b", str(size), text)
    return text


def runner(model: Model, exe: Any, vm: Any, case: Case) -> Callable[[], Any]:
    """Runs a case in a VM of the compiled model."""
    inputs = case.inputs
    if model.row.kind == "treelstm":
        leaf, node = (exe.constructor(name) for name in ("Leaf", "Node"))
        inputs = (treelstm.fold(inputs[0], leaf, node), *inputs[1:])
    run = vm.run if model.row.entry == "main" else partial(vm.invoke, model.row.entry)
    return partial(run, *inputs)


__all__ = ["MODELS", "Model", "dim_values", "runner", "with_sizes"]

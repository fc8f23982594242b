"""Write the models that the C examples run: python examples/c/models.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import nimblevm as nvm
from nimblevm.bench.workloads import gpt2, gru, treelstm

INPUTS, HIDDEN = 64, 64
DECODER = gpt2.Config(vocabulary=60, context=256, hidden=64, layers=2, heads=4, inner=64)


def step_text() -> str:
    """One step of a GRU that is fed as its input comes: main(x, h, weights) -> (y, h)."""
    shapes = gru.weight_shapes(INPUTS, HIDDEN)
    state = f"Tensor[(1, {HIDDEN}), float32]"
    return f"""#[version = "0.0.5"]
{gru.cell_text("cell", INPUTS, HIDDEN)}
def @main(%x: Tensor[(1, {INPUTS}), float32], %h: {state}, {gru.declarations(shapes)}) -> ({state}, {state}) {{
  let %next = @cell(%x, %h, {", ".join(f"%{name}" for name in shapes)});
  (tanh(%next), %next)
}}
"""


def main() -> None:
    folder = Path(sys.argv[1])
    step = nvm.compile(nvm.relay.parse(step_text()), params=gru.params(INPUTS, HIDDEN))
    tree = nvm.compile(nvm.relay.parse(treelstm.text(8, 4)), params=treelstm.params(8, 4))
    decoder = nvm.compile(gpt2.module(gpt2.params(DECODER), DECODER))
    for name, exe in (("rnn", step), ("tree", tree), ("decoder", decoder)):
        exe.save(folder / f"{name}.nvm")


if __name__ == "__main__":
    main()

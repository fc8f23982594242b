"""Small saved models that the C tests load: `python -m tests.native.models DIR` writes them and prints their paths."""

from __future__ import annotations

import sys
from pathlib import Path

import nimblevm as nvm
from nimblevm.bench.workloads import gpt2, lstm, treelstm
from tests.fuzz import corpus

INPUTS, HIDDEN = 4, 8
DECODER = gpt2.Config(vocabulary=16, context=16, hidden=8, layers=1, heads=2, inner=16)


def save(folder: Path) -> list[Path]:
    """LSTM, TreeLSTM and a decoder with a cache, with weights and machine code."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = {
        "lstm": (nvm.relay.parse(lstm.text(INPUTS, HIDDEN)), lstm.params(INPUTS, HIDDEN)),
        "treelstm": (
            nvm.relay.parse(treelstm.text(INPUTS, HIDDEN)),
            treelstm.params(INPUTS, HIDDEN),
        ),
        "decoder": (gpt2.module(gpt2.params(DECODER), DECODER), None),
    }
    for name, (module, params) in programs.items():
        nvm.compile(module, params=params).save(folder / f"{name}.nvm")
    return [folder / f"{name}.nvm" for name in programs]


def save_for_failures(folder: Path) -> list[Path]:
    """The same, one with constants on a device, a signed file, and a program whose weights stand beside it."""
    paths = save(folder)
    module = nvm.relay.parse(lstm.text(INPUTS, HIDDEN))
    placed = nvm.compile(module, lstm.params(INPUTS, HIDDEN), native=False, device="simulated")
    files = corpus.edges()
    for name, data in {
        "placed.nvm": placed.to_bytes(),
        "signed.nvm": files["signed, unasked"],
        "late.nvm": corpus.late_bound()[0],
        "late.safetensors": corpus.late_weights(),
    }.items():
        (folder / name).write_bytes(data)
        paths.append(folder / name)
    return paths


if __name__ == "__main__":
    print(*save(Path(sys.argv[1]).resolve()))

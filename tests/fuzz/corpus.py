"""The files that fuzzing starts from: small programs that between them use every part of the format.

`python -m tests.fuzz.corpus DIR` writes them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nimblevm as nvm
from nimblevm.bench.workloads import lstm, treelstm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize

ASM = Path(__file__).parent.parent / "asm"
SIZES = {"inputs": 4, "hidden": 8}


def assembled() -> dict[str, bytes]:
    """One file for each of tests/asm/*.nvmasm."""
    return {
        path.stem: serialize(assemble(path.read_text())) for path in sorted(ASM.glob("*.nvmasm"))
    }


def compiled() -> dict[str, bytes]:
    """LSTM and TreeLSTM without machine code; the weights are parameters of main, so that the files stay small."""
    programs = {"lstm": lstm.text(**SIZES), "treelstm": treelstm.text(**SIZES)}
    return {
        name: nvm.compile(nvm.relay.parse(text), native=False).to_bytes()
        for name, text in programs.items()
    }


def main(directory: str) -> None:
    for name, data in {**assembled(), **compiled()}.items():
        (Path(directory) / f"{name}.nvm").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])

"""Writes tests/data/released/<release>/: what is kept of a release, so that later ones load it.

    python -m tests.data.make_released 0.1.0

Run once when a release is made (devices.nvm of 0.2.0, for several devices, was made by hand), never for an old one: the point of these files is that they do not change. A model.nvm
has model.npz beside it: its inputs (`in0`, ...) and results (`out0`, ...), floats. One file has machine code and a
signature, one leaves its weights outside. The files of tests/asm use every instruction; cases.json says what each of their
functions does. tests/bytecode/test_released.py loads and runs all of them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import nimblevm as nvm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize
from tests.bytecode.models import models

FOLDER = Path(__file__).parent / "released"
ASM = Path(__file__).parent.parent / "asm"
SIGNING_KEY = bytes(range(32))
"""Of the signed file; not a secret."""
MODELS = ("lstm", "seq2seq", "ssd", "charrnn")
CASE = re.compile(r"^(?:; raises (\w+)\n)?\.func @((?:test|fail)_\w+)", re.MULTILINE)


def keep(folder: Path, name: str, exe: nvm.Executable) -> None:
    model = models()[name]
    arrays = {f"in{i}": np.asarray(a) for i, a in enumerate(model.inputs(exe))}
    arrays |= {f"out{i}": a for i, a in enumerate(model.run(exe))}
    np.savez_compressed(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]


def main(release: str) -> None:
    if release != nvm.__version__:
        raise SystemExit(f"this is nimblevm {nvm.__version__}, not {release}")
    folder = FOLDER / release
    folder.mkdir(parents=True)
    for name in MODELS:
        model = models()[name]
        exe = nvm.compile(model.module(), model.params, native=False)
        exe.save(folder / f"{name}.nvm")
        keep(folder, name, exe)
    model = models()["gru"]
    exe = nvm.compile(model.module(), model.params, target="x86-64-v2")
    exe.save(folder / "gru.nvm", private_key=SIGNING_KEY)
    keep(folder, "gru", exe)
    model = models()["bert"]
    exe = nvm.compile(
        model.module(), model.params, native=False, late_bound=True, weights_file="bert.safetensors"
    )
    exe.save(folder / "bert.nvm")
    save_file(dict(model.params), folder / "bert.safetensors")
    keep(folder, "bert", nvm.load(folder / "bert.nvm"))
    cases: dict[str, dict[str, str]] = {}
    for path in sorted(ASM.glob("*.nvmasm")):
        text = path.read_text()
        cases[path.stem] = {function: code for code, function in CASE.findall(text)}
        (folder / f"asm-{path.stem}.nvm").write_bytes(serialize(assemble(text)))
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

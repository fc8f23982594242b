"""Files of every released version load, pass full verification, and compute what they computed then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode import signature
from nimblevm.bytecode.serialize import FORMAT_VERSION
from nimblevm.errors import STATUSES
from tests.bytecode import plain_reader

RELEASED = Path(__file__).parent.parent / "data" / "released"
FILES = sorted(RELEASED.glob("*/*.nvm"))
CLASSES = {row.name: row.exception for row in STATUSES}
PUBLIC_KEY = signature.private_key(bytes(range(32))).public_key()


def ids(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_every_format_version_is_kept() -> None:
    kept = {int.from_bytes(path.read_bytes()[8:12], "little") for path in FILES}
    assert kept == set(range(1, FORMAT_VERSION + 1))
    assert sum(path.stat().st_size for path in RELEASED.rglob("*")) < 2_000_000


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_it_loads_in_full(path: Path) -> None:
    with nvm.load(path, verify="full") as exe:
        assert exe.to_bytes() == path.read_bytes()
        assert exe.is_bound
    with nvm.load(path, native=False, weights=False) as exe:
        assert exe.disassemble()
    plain_reader.read(path.read_bytes())


def flat(value: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(v.numpy()) for v in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("path", [p for p in FILES if p.with_suffix(".npz").exists()], ids=ids)
def test_it_computes_what_it_did(path: Path, native: bool) -> None:
    with np.load(path.with_suffix(".npz")) as kept:
        inputs = [kept[f"in{i}"] for i in range(sum(n.startswith("in") for n in kept.files))]
        expected = [kept[f"out{i}"] for i in range(sum(n.startswith("out") for n in kept.files))]
    with nvm.load(path, native=native) as exe, nvm.VirtualMachine(exe) as vm:
        got = flat(vm.run(*[a.item() if a.ndim == 0 else a for a in inputs]))
    for want, have in zip(expected, got, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "folder", sorted(p for p in RELEASED.iterdir() if p.is_dir()), ids=lambda p: p.name
)
def test_instructions_do_what_they_did(folder: Path) -> None:
    for stem, functions in json.loads((folder / "cases.json").read_text()).items():
        with nvm.load(folder / f"asm-{stem}.nvm") as exe, nvm.VirtualMachine(exe) as vm:
            for name, code in functions.items():
                if not code:
                    vm.invoke(name)
                    continue
                with pytest.raises(nvm.NimbleError) as caught:
                    vm.invoke(name)
                assert type(caught.value) is CLASSES[code], (stem, name)


def test_the_signed_file() -> None:
    for path in RELEASED.glob("*/gru.nvm"):
        with nvm.load(path, public_key=PUBLIC_KEY) as exe:
            assert exe.signature

"""Machine code in a file: used where it fits, else a warning and the kernel IR."""

from __future__ import annotations

import ctypes.util
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode.serialize import NATIVE
from tests.bytecode.forge import forge, split

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32]) -> Tensor[(?n, 4), float32] {{ {op}(%x) }}
"""
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def compiled(op: str) -> bytes:
    return nvm.compile(nvm.relay.parse(TEXT.format(op=op))).to_bytes()


@pytest.fixture(scope="module")
def data() -> bytes:
    data = compiled("tanh")
    if not any(row[0] == NATIVE for row in split(data)[0]["sections"]):
        pytest.skip("no linker: the file has no machine code")
    return data


def run(exe: nvm.Executable) -> Any:
    with nvm.VirtualMachine(exe) as vm:
        return vm.run(X).numpy()


def test_two_programs_keep_their_own_code(data: bytes) -> None:
    """dlopen knows objects by path: two files must not get one path."""
    other = compiled("sigmoid")
    first, second, again = nvm.load(data), nvm.load(other), nvm.load(data)
    assert all(k.native for exe in (first, second, again) for k in exe.kernels)
    np.testing.assert_allclose(run(second), 1 / (1 + np.exp(-X)), rtol=1e-5)
    np.testing.assert_allclose(run(first), np.tanh(X), rtol=1e-5)
    np.testing.assert_array_equal(run(first), run(again))
    first.close()
    np.testing.assert_allclose(run(again), np.tanh(X), rtol=1e-5)


def test_native_false_maps_nothing(data: bytes) -> None:
    exe = nvm.load(data, native=False)
    assert not any(k.native for k in exe.kernels)
    assert exe.warning == ""
    np.testing.assert_allclose(run(exe), np.tanh(X), rtol=1e-5)


def library(name: str) -> bytes:
    """Some shared object of the system, which needs others."""
    for folder in (
        "/lib/x86_64-linux-gnu",
        "/lib/aarch64-linux-gnu",
        sysconfig.get_config_var("LIBDIR") or "",
    ):
        for path in Path(folder).glob(f"{name}*"):
            if path.is_file():
                return path.read_bytes()
    pytest.skip(f"no {name} here ({ctypes.util.find_library('c')})")


def replaced(
    data: bytes, target: str | None = None, code: bytes | None = None, index: int | None = None
) -> bytes:
    def change(header: dict[str, Any], sections: list[bytes]) -> None:
        place = next(i for i, row in enumerate(header["sections"]) if row[0] == NATIVE)
        if target is not None:
            header["sections"][place][4] = target
        if code is not None:
            sections[place] = code
        if index is not None:
            header["kernels"][0]["native"] = index

    return forge(data, change)


def refused(data: bytes, message: str) -> None:
    with pytest.warns(RuntimeWarning, match=message):
        exe = nvm.load(data)
    assert not any(k.native for k in exe.kernels)
    np.testing.assert_allclose(run(exe), np.tanh(X), rtol=1e-5)


def test_code_that_does_not_fit_is_a_warning(data: bytes) -> None:
    code = split(data)[1][3]
    refused(replaced(data, target="mips"), r"machine code not used \(CPU: .*\): it is for mips")
    refused(replaced(data, target=""), "it is for $")
    refused(replaced(data, code=b""), "it is shorter than an ELF header")
    refused(
        replaced(data, code=b"\x7fELF" + bytes(100)),
        "it is no 64-bit little-endian ELF shared object",
    )
    refused(replaced(data, code=code[:1000]), "machine code not used ")
    refused(replaced(data, code=library("libm.so")), "it needs other libraries")
    refused(replaced(data, index=1000), "1 functions, expected 1001")


def test_features_are_checked(data: bytes) -> None:
    arch = split(data)[0]["sections"][3][4].split(":")[0]
    if arch == "x86_64":
        refused(replaced(data, target="x86_64:+sse2,+avx9000"), "this CPU lacks avx9000")
        refused(replaced(data, target="x86_64:+avx" + "x" * 80), "this CPU lacks avxxx")
    assert nvm.load(replaced(data, target=f"{arch}:,,-avx9000,+")).kernels[0].native


def test_no_section_at_all(data: bytes) -> None:
    def drop(header: dict[str, Any], sections: list[bytes]) -> None:
        del header["sections"][3], sections[3]

    refused(forge(data, drop), "the file has none")

"""Signed files: what a signature covers, and every way in which one can be wrong."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import nimblevm as nvm
from nimblevm.bytecode import signature
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import SIGNATURE_SIZE, serialize
from nimblevm.errors import (
    FileError,
    InvalidExecutable,
    SignatureMalformed,
    SignatureMismatch,
    SignatureMissing,
    WeightsMismatch,
)
from tests.bytecode.test_reader import TEXT as TABLES

TEXT = """
.type Tensor[(4), float32]
.const float32 [4] values 1 2 3 4
.func @main public [] -> t0
  LoadConst r0, c0
  Ret r0
.end
"""
PRIVATE, PUBLIC = signature.new_key()
OTHER_PRIVATE, OTHER_PUBLIC = signature.new_key()


def signed(path: Path, text: str = TEXT, key: bytes = PRIVATE) -> bytes:
    with nvm.load(serialize(assemble(text))) as exe:
        exe.save(path, private_key=key)
    return path.read_bytes()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    signed(tmp_path / "model.nvm")
    return tmp_path / "model.nvm"


def test_a_signed_file_loads_with_its_key_and_without(model: Path, tmp_path: Path) -> None:
    (tmp_path / "pub.pem").write_bytes(PUBLIC)
    raw = signature.public_key(PUBLIC).public_bytes_raw()
    data = model.read_bytes()
    for key in (None, PUBLIC, tmp_path / "pub.pem", raw, signature.public_key(PUBLIC)):
        for source in (model, data):
            exe = nvm.load(source, public_key=key)
            assert nvm.VirtualMachine(exe).run().tolist() == [1, 2, 3, 4]
            assert exe.to_bytes() == data
            assert len(exe.signature) == SIGNATURE_SIZE


@pytest.mark.parametrize("text", [TEXT, TABLES])
def test_signing_again_replaces_the_signature(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.nvm"
    plain = serialize(assemble(text))
    once = signed(path, text)
    assert len(once) == len(plain) + -len(plain) % 64 + SIGNATURE_SIZE
    with nvm.load(once, public_key=PUBLIC) as exe:
        exe.save(path, private_key=OTHER_PRIVATE)
    twice = path.read_bytes()
    assert len(twice) == len(once)
    assert twice[:-SIGNATURE_SIZE] == once[:-SIGNATURE_SIZE]
    nvm.load(twice, public_key=OTHER_PUBLIC)
    with pytest.raises(SignatureMismatch, match="not this key's of this file"):
        nvm.load(twice, public_key=PUBLIC)


def test_missing() -> None:
    with pytest.raises(SignatureMissing, match="the file is not signed"):
        nvm.load(serialize(assemble(TEXT)), public_key=PUBLIC)


def test_another_key(model: Path) -> None:
    with pytest.raises(SignatureMismatch, match=r"model\.nvm: signature: it is not this key's"):
        nvm.load(model, public_key=OTHER_PUBLIC)


@pytest.mark.parametrize("cut", [1, 16, 64, 127, 128])
def test_truncated(model: Path, cut: int) -> None:
    data = model.read_bytes()[:-cut]
    for key in (None, PUBLIC):
        with pytest.raises(SignatureMalformed, match="cut off"):
            nvm.load(data, public_key=key)
    with pytest.raises(InvalidExecutable, match="file_size is"):
        nvm.load(model.read_bytes()[:-129], public_key=PUBLIC)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"X", "no signature block at byte"),
        (8, b"\2", "algorithm 2 of 64 bytes"),
        (12, b"\1", "algorithm 1 of 1 bytes"),
        (127, b"\1", "no signature block"),
    ],
)
def test_malformed(model: Path, at: int, value: bytes, message: str) -> None:
    data = bytearray(model.read_bytes())
    place = len(data) - SIGNATURE_SIZE + at
    data[place : place + 1] = value
    with pytest.raises(SignatureMalformed, match=message):
        nvm.load(bytes(data))


def test_any_changed_byte_is_noticed(model: Path) -> None:
    data = model.read_bytes()
    for at in (*range(96), *range(96, len(data), 5), len(data) - 70, len(data) - 20):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises((InvalidExecutable, OSError)):
            nvm.load(bytes(changed), public_key=PUBLIC)


def test_a_file_with_repaired_digests_is_no_signed_file(model: Path) -> None:
    """Whoever changes a constant and repairs all digests is caught by the signature."""
    with nvm.load(serialize(assemble(TEXT.replace("1 2 3 4", "9 2 3 4")))) as other:
        forged = bytearray(b"".join(other._pieces(OTHER_PRIVATE)))
    block = model.read_bytes()[-SIGNATURE_SIZE:]
    forged[-SIGNATURE_SIZE:] = block
    assert nvm.VirtualMachine(nvm.load(bytes(forged))).run().tolist() == [9, 2, 3, 4]
    with pytest.raises(SignatureMismatch):
        nvm.load(bytes(forged), public_key=PUBLIC)


def test_a_constant_that_does_not_have_the_signed_digest(model: Path) -> None:
    data = bytearray(model.read_bytes())
    at = data.index(struct.pack("<4f", 1, 2, 3, 4))
    data[at] ^= 1
    assert nvm.load(bytes(data))  # its digest is not looked at
    with pytest.raises(InvalidExecutable, match="section 1: SHA-256"):
        nvm.load(bytes(data), public_key=PUBLIC)


@pytest.mark.parametrize("how", [{"verify": "full"}, {"public_key": PUBLIC}, {"copy": True}])
def test_a_file_rewritten_after_it_was_verified(model: Path, how: dict[str, Any]) -> None:
    exe = nvm.load(model, **how)
    expected, text = exe.to_bytes(), exe.disassemble()
    with open(model, "r+b") as file:
        file.write(os.urandom(model.stat().st_size))
    vm = nvm.VirtualMachine(exe)
    assert vm.run().tolist() == [1, 2, 3, 4]
    assert exe.to_bytes() == expected
    os.truncate(model, 0)
    assert vm.run().tolist() == [1, 2, 3, 4]
    assert exe.disassemble() == text


def test_only_constants_follow_a_mapped_file(model: Path) -> None:
    data = model.read_bytes()
    exe = nvm.load(model)
    header = exe._header()
    code = exe.functions["main"]
    constants = data.index(struct.pack("<4f", 1, 2, 3, 4))
    noise = bytearray(os.urandom(len(data)))
    noise[constants : constants + 16] = struct.pack("<4f", 5, 6, 7, 8)
    with open(model, "r+b") as file:
        file.write(noise)
    assert exe._header() == header
    assert exe.functions["main"] is code
    assert nvm.VirtualMachine(exe).run().tolist() == [5, 6, 7, 8]


def test_late_bound_weights_are_signed_by_their_digests(tmp_path: Path) -> None:
    mod = nvm.relay.parse(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(4), float32], %w: Tensor[(4), float32]) { %x + %w }'
    )
    w = {"w": np.arange(4, dtype=np.float32)}
    save_file(w, tmp_path / "w.safetensors")
    exe = nvm.compile(mod, w, late_bound=True, weights_file="w.safetensors", native=False)
    exe.save(tmp_path / "m.nvm", private_key=PRIVATE)
    bound = nvm.load(tmp_path / "m.nvm", public_key=PUBLIC)
    save_file({"w": w["w"] + 1}, tmp_path / "w.safetensors")
    assert nvm.VirtualMachine(bound).run(np.zeros(4, np.float32)).tolist() == [0, 1, 2, 3]
    with pytest.raises(WeightsMismatch, match="weight w: SHA-256"):
        nvm.load(tmp_path / "m.nvm", public_key=PUBLIC)
    assert nvm.load(tmp_path / "m.nvm")


def test_keys(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no public key in PEM form"):
        nvm.load(model, public_key=b"nothing")
    with pytest.raises(ValueError, match="no private key in PEM form"):
        signature.private_key(PUBLIC)
    with pytest.raises(FileError, match="No such file"):
        nvm.load(model, public_key=tmp_path / "none")
    with pytest.raises(FileError, match="No such file"):
        signature.private_key(str(tmp_path / "none"))


def test_a_runtime_without_cryptography(model: Path) -> None:
    """Signed files load; asking for a signature says which extra is missing."""
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import nimblevm as nvm\n"
        f"exe = nvm.load({str(model)!r}); print(nvm.VirtualMachine(exe).run().tolist())\n"
        f"try: nvm.load({str(model)!r}, public_key=b'1' * 32)\n"
        "except ImportError as error: print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.splitlines() == [
        "[1.0, 2.0, 3.0, 4.0]",
        "signatures need the cryptography package: pip install 'nimblevm[sign]'",
    ]

"""Files of weights, safetensors and numpy's archives: what is read of them, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import nimblevm as nvm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize
from nimblevm.errors import FileError, InvalidWeights, WeightsMismatch
from tests.bytecode.late_weights import LATE_ASM, weights


def archive(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


GOOD = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
BAD: list[tuple[bytes, str]] = [
    (b"", "expected 8 bytes, it has 0"),
    (b"1234567", "expected 8 bytes"),
    (archive(b"{}", length=3), "a header of 3 bytes in a file of 10"),
    (archive(b"{}", length=2**64 - 1), "a header of"),
    (archive(b""), "expected '{'"),
    (archive(b"[]"), "expected '{'"),
    (archive(b"{} x"), "behind the header's object"),
    (archive(b"{}", b"1"), "1 bytes behind the last tensor"),
    (archive(GOOD, b"123"), "lie outside of the file"),
    (archive(GOOD, b"12345"), "1 bytes behind the last tensor"),
    (archive(GOOD.replace(b"[1]", b"[2]"), b"1234"), "do not fit dtype and shape"),
    (archive(GOOD.replace(b"[0,4]", b"[4,0]"), b"1234"), "lie outside"),
    (archive(GOOD.replace(b"[0,4]", b"[-1,4]"), b"1234"), "expected a number >= 0"),
    (archive(GOOD.replace(b"[0,4]", b"[0]"), b"1234"), "expected two numbers"),
    (archive(GOOD.replace(b"[0,4]", b"[0,1,2]"), b"1234"), "too many numbers"),
    (archive(GOOD.replace(b"[1]", b"[1,1,1,1,1,1,1,1,1]"), b"1234"), "too many numbers"),
    (archive(GOOD.replace(b"[1]", b"[99999999999999999999]"), b"1234"), "too large"),
    (archive(GOOD.replace(b"[1]", b"[4294967296,4294967296,4294967296]"), b"1234"), "do not fit"),
    (archive(GOOD.replace(b"[1]", b"[01]"), b"1234"), "starts with 0"),
    (archive(GOOD.replace(b"[1]", b"[1.0]"), b"1234"), "expected ']'"),
    (archive(GOOD.replace(b'"shape":[1],', b""), b"1234"), "lacks dtype"),
    (archive(GOOD.replace(b'"shape"', b'"dtype"'), b"1234"), "expected '\"'"),
    (archive(GOOD.replace(b'"shape"', b'"form"'), b"1234"), "a field twice or too many"),
    (archive(GOOD[:-1] + b"," + GOOD[1:], b"1234"), "start at 0, expected 4"),
    (archive(GOOD[:-1] + b',"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', b"12345678"), "a occurs twice"),
    (archive(GOOD[:-1] + b',"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}', b"1" * 12), "start at 8, expected 4"),
    (archive(GOOD.replace(b'"a"', b'"\\u00"'), b"1234"), "no such escape"),
    (archive(GOOD.replace(b'"a"', b'"\\u0000"'), b"1234"), "no such escape"),
    (archive(GOOD.replace(b'"a"', b'"\\ud800"'), b"1234"), "no such escape"),
    (archive(GOOD.replace(b'"a"', b'"\\x"'), b"1234"), "no such escape"),
    (archive(GOOD.replace(b'"a"', b'"\n"'), b"1234"), "control character"),
    (archive(GOOD.replace(b'"a"', b'"\xff"'), b"1234"), "not UTF-8"),
    (archive(b'{"a'), "does not end"),
    (archive(b'{"a\\'), "does not end"),
    (archive(b'{"__metadata__":{"a":1}}'), "expected '\"'"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BAD)
def test_bad_safetensors(data: bytes, message: str, late: nvm.Executable, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    with pytest.raises(InvalidWeights, match=re.escape(message)):
        late.bind(path)


def test_every_cut_and_changed_byte_of_a_safetensors_file(
    late: nvm.Executable, tmp_path: Path
) -> None:
    path, rng = tmp_path / "w.safetensors", np.random.default_rng(3)
    save_file(weights(), path, metadata={"format": "np"})
    data = path.read_bytes()
    header = 8 + struct.unpack_from("<Q", data)[0]
    for at in range(0, header, 7):
        path.write_bytes(data[:at])
        with pytest.raises(InvalidWeights):
            late.bind(path)
        path.write_bytes(data[:at] + bytes([rng.integers(256)]) + data[at + 1 :])
        with contextlib.suppress(InvalidWeights, WeightsMismatch):
            late.bind(path)


def test_names_of_safetensors(tmp_path: Path) -> None:
    names = {'ä\n"\\/\t😀': '\\u00e4\\n\\"\\\\\\/\\t\\ud83d\\ude00', "plain.weight": "plain.weight"}
    header = ",".join(
        f'"{escaped}" : {{"shape":[ ], "data_offsets":[{i},{i + 1}],"dtype":"U8"}}'
        for i, escaped in enumerate(names.values())
    )
    path = tmp_path / "w.safetensors"
    path.write_bytes(archive(f'{{ "__metadata__":{{"k":"v"}}, {header} }}  '.encode(), b"\3\4"))
    words = "".join(f'.weight {json.dumps(n)} uint8 [] ""\n' for n in names)
    exe = nvm.load(serialize(assemble(f".type uint8\n{words}.const uint8 [] values 1\n{LATE_ASM}")))
    assert exe.bind(path).is_bound


def test_dtypes_that_no_program_has(late: nvm.Executable, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(
        archive(b'{"w":{"dtype":"BF16","shape":[40,5],"data_offsets":[0,400]}}', bytes(400))
    )
    with pytest.raises(WeightsMismatch, match=r"different: w is BF16 \(40, 5\), expected float32"):
        late.bind(path)


def test_other_files(late: nvm.Executable, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        late.bind(tmp_path / "none")
    with pytest.raises(FileError, match="directory"):
        late.bind(tmp_path)
    (tmp_path / "w.npz").write_bytes(b"PK\3\4 no archive")
    with pytest.raises(InvalidWeights, match="no archive of arrays"):
        late.bind(tmp_path / "w.npz")
    np.savez(tmp_path / "p.npz", w=np.array([{}], object))
    with pytest.raises(InvalidWeights, match="allow_pickle"):
        late.bind(tmp_path / "p.npz")


def header_of(data: bytes, old: bytes, new: bytes) -> bytes:
    """An archive of one member, stored, with another header in the member and the sum that fits."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        name = archive.namelist()[0]
        content = archive.read(name)
    assert old in content
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, content.replace(old, new, 1))
    return out.getvalue()


def damaged_archives() -> dict[str, bytes]:
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, w=np.zeros((5, 40), np.float32))
    np.savez_compressed(packed, w=np.arange(200, dtype=np.float32).reshape(5, 40))
    good, small = plain.getvalue(), packed.getvalue()
    at = small.index(b"w.npy") + 40
    entry = good.index(b"PK\1\2")
    return {
        "cut": good[:-40],
        "sum": good[:300] + b"\1" + good[301:],
        "stream": small[:at] + bytes(20) + small[at + 20 :],
        "method": good[:8] + b"\x63" + good[9 : entry + 10] + b"\x63" + good[entry + 11 :],
        "locked": good[:6] + b"\1" + good[7 : entry + 8] + b"\1" + good[entry + 9 :],
        "place": good[: entry + 42] + b"\xff\xff\xff\xef" + good[entry + 46 :],
        "no dict": header_of(good, b"'descr'", b"'d\xb0scr'"),
        "open bracket": header_of(good, b"(5, 40), }", b"(5, 40(, }"),
        "nested": header_of(good, b"(5, 40)", b"(" * 3000),
        "huge": header_of(good, b"(5, 40), }", b"(9999999999999,)}"),
        "negative": header_of(good, b"(5, 40)", b"(-5,-4)"),
        "object": header_of(good, b"'<f4'", b"'|O8'"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", damaged_archives())
def test_damaged_archives(kind: str, late: nvm.Executable, tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    path.write_bytes(damaged_archives()[kind])
    with pytest.raises(InvalidWeights, match=re.escape(f"{path}: no archive of arrays: ")):
        late.bind(path)

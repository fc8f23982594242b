"""Constants that stay outside of the file: what is bound, what is refused, and that results are the same bits."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import struct
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import nimblevm as nvm
from nimblevm import dtypes
from nimblevm._ffi import check, ffi, lib
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize
from nimblevm.errors import (
    CompileError,
    FileError,
    InvalidExecutable,
    InvalidWeights,
    WeightsMismatch,
    WeightsNotBound,
)
from tests.bytecode.forge import forge
from tests.bytecode.models import models

Array = np.ndarray[Any, Any]
TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 5), float32], %w: Tensor[(40, 5), float32], %b: Tensor[(40), float32],
          %u: Tensor[(10, 20), float32], %v: Tensor[(20, 6), float32], %s: float32, %t: Tensor[(6), float32])
    -> (Tensor[(?n, 6), float32], Tensor[(40), float32]) {
  let %g = split(nn.dense(%x, %w) + %b, indices_or_sections=4, axis=1);
  let %h = sigmoid(%g.0) * tanh(%g.1) + %g.2 * %g.3;
  ((nn.matmul(nn.matmul(%h, %u), %v) * %s + %t) + exp(%t * 2f), %b)
}
"""
SHAPES = {"w": (40, 5), "b": (40,), "u": (10, 20), "v": (20, 6), "s": (), "t": (6,)}


def weights(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: np.asarray(rng.standard_normal(s), np.float32) for n, s in SHAPES.items()}


def module() -> Any:
    return nvm.relay.parse(TEXT)


def outputs(exe: nvm.Executable, rows: int = 3) -> list[bytes]:
    x = np.random.default_rng(5).standard_normal((rows, 5)).astype(np.float32)
    with nvm.VirtualMachine(exe) as vm:
        return [out.numpy().tobytes() for out in vm.run(x)]


@pytest.fixture(scope="module")
def late() -> nvm.Executable:
    return nvm.compile(module(), late_bound=list(SHAPES), native=False)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with model.nvm and the weights beside it."""
    save_file(weights(), tmp_path / "w.safetensors")
    exe = nvm.compile(
        module(), weights(), late_bound=True, weights_file="w.safetensors", native=False
    )
    exe.save(tmp_path / "model.nvm")
    return tmp_path


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
def test_late_and_baked_weights_give_the_same_bits(stored: str) -> None:
    native = stored == "float32"  # else: the interpreter alone, to save time
    off = ["fold_constant"]
    baked = outputs(nvm.compile(module(), weights(), weights=stored, passes_off=off, native=native))
    exe = nvm.compile(module(), late_bound=SHAPES, weights=stored, native=native)
    assert outputs(exe.bind(weights())) == baked


def test_sources_of_weights(saved: Path, late: nvm.Executable) -> None:
    given = weights()
    expected = outputs(late.bind(given))
    np.savez(saved / "w.npz", **given)  # type: ignore[arg-type]
    np.savez_compressed(saved / "c.npz", **given)  # type: ignore[arg-type]
    for source in ("w.safetensors", "w.npz", "c.npz"):
        assert outputs(late.bind(saved / source)) == expected
        assert outputs(late.bind(str(saved / source), verify="full")) == expected
        for verify in (None, "full"):
            loaded = nvm.load(saved / "model.nvm", verify=verify, weights=saved / source)
            assert outputs(loaded) == expected
    assert outputs(nvm.load(saved / "model.nvm")) == expected
    assert outputs(nvm.load(saved / "model.nvm", copy=True)) == expected
    assert outputs(nvm.load((saved / "model.nvm").read_bytes(), weights=given)) == expected
    assert outputs(nvm.load(saved / "model.nvm", native=False)) is not None


def test_what_is_not_laid_out_anew_stays_mapped(saved: Path, late: nvm.Executable) -> None:
    path = saved / "w.safetensors"
    bound = late.bind(path)
    before = outputs(bound)
    data = bytearray(path.read_bytes())
    at = data.index(weights()["b"].tobytes())
    data[at : at + 160] = bytes(160)
    with open(path, "r+b") as file:
        file.write(data)
    after = outputs(bound)
    assert after[1] == bytes(160)  # %b is returned as it lies in the file
    assert before[1] != after[1]


def test_verified_weights_do_not_follow_the_file(saved: Path) -> None:
    path = saved / "w.safetensors"
    loaded = [
        nvm.load(saved / "model.nvm", verify="full"),
        nvm.load(saved / "model.nvm", copy=True),
    ]
    before = [outputs(exe) for exe in loaded]
    with open(path, "r+b") as file:
        file.write(b"\xff" * os.path.getsize(path))
    assert [outputs(exe) for exe in loaded] == before
    os.truncate(path, 0)
    assert [outputs(exe) for exe in loaded] == before


def test_a_program_is_bound_to_several_sets(late: nvm.Executable) -> None:
    first, second = late.bind(weights(1)), late.bind(weights(2))
    again = second.bind(weights(1))
    assert outputs(first) == outputs(again) != outputs(second)
    assert not late.is_bound
    assert first.is_bound
    vm = nvm.VirtualMachine(first)
    first.close()
    late_bytes = late.to_bytes()
    assert vm.run(np.zeros((0, 5), np.float32))[0].shape == (0, 6)
    assert second.to_bytes() == late_bytes  # weights stay outside


def test_arrays_are_copied(late: nvm.Executable) -> None:
    given = weights()
    bound = late.bind(given)
    before = outputs(bound)
    for array in given.values():
        array[...] = 7
    assert outputs(bound) == before


def test_strided_arrays_and_other_wrappers(late: nvm.Executable) -> None:
    given = weights()
    odd: dict[str, Any] = dict(given)
    odd["w"] = np.asfortranarray(given["w"])
    odd["b"] = np.repeat(given["b"], 2)[::2]
    assert outputs(late.bind(odd)) == outputs(late.bind(given))


def test_bound_programs_in_threads(late: nvm.Executable) -> None:
    expected = outputs(late.bind(weights()))
    wrong: list[object] = []

    def work() -> None:
        for _ in range(10):
            if outputs(late.bind(weights())) != expected:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- what is refused ------------------------------------------------------------------------------


def opened(path: Path, flags: int) -> Any:
    """A set of weights that the C API read from a file."""
    out = ffi.new("nvm_weights **")
    check(lib.nvm_weights_open(os.fsencode(path), flags, out))
    return ffi.gc(out[0], lib.nvm_weights_release)


def add(handle: Any, name: str, array: Array, flags: int = 0) -> None:
    data = ffi.cast("void *", array.ctypes.data)
    number = dtypes.BY_NAME[array.dtype.name].number
    check(lib.nvm_weights_add(handle, name.encode(), number, array.ndim, array.shape, data, flags))


def names_of(handle: Any) -> list[str]:
    record = ffi.new("nvm_weight_info *")
    names = []
    for index in range(lib.nvm_weights_count(handle)):
        check(lib.nvm_weights_get(handle, index, record))
        names.append(ffi.string(record.name).decode())
    return names


@pytest.mark.parametrize("flags", [0, lib.NVM_LOAD_BORROW])
def test_what_is_added_to_a_verified_file_is_copied(flags: int, tmp_path: Path) -> None:
    """A file that was read with NVM_LOAD_COPY is private, what is added to the set is not."""
    save_file({"other": np.zeros(2, np.float32)}, tmp_path / "other.safetensors")
    handle = opened(tmp_path / "other.safetensors", lib.NVM_LOAD_COPY)
    mine = np.arange(1, 5, dtype=np.float32)
    add(handle, "w", mine, flags)
    exe = nvm.load(layout_program('float32 [4] of "w" [0, 1, 4, 1, 0]'))
    out = ffi.new("nvm_program **")
    bind = lib.NVM_BIND_ALLOW_EXTRA | lib.NVM_LOAD_VERIFY_FULL
    check(lib.nvm_program_bind(exe.handle, handle, bind, out))
    bound = ffi.gc(out[0], lib.nvm_program_release)
    mine[:] = 0
    data = lib.nvm_program_constant(
        bound, 0, ffi.new("int32_t *"), ffi.new("uint32_t *"), ffi.new("int64_t **")
    )
    assert list(ffi.cast("float *", data)[0:4]) == [1, 2, 3, 4]


def test_a_set_is_in_the_order_of_names(tmp_path: Path) -> None:
    """From the start: programs in several threads may look into one set at once."""
    save_file({n: np.zeros(1, np.float32) for n in "hbe"}, tmp_path / "w.safetensors")
    handle = opened(tmp_path / "w.safetensors", 0)
    assert names_of(handle) == ["b", "e", "h"]
    for n, name in enumerate("gacfi"):
        add(handle, name, np.zeros(n, np.float32))
        assert names_of(handle) == sorted("hbe" + "gacfi"[: n + 1])
    for name in "abi":
        with pytest.raises(InvalidWeights, match=f"weight {name} occurs twice"):
            add(handle, name, np.zeros(1, np.float32))


def test_a_vm_needs_its_weights(saved: Path, late: nvm.Executable) -> None:
    with pytest.raises(WeightsNotBound, match=r"6 weights .*\(b, \.\.\.\)"):
        nvm.VirtualMachine(late)
    unbound = nvm.load(saved / "model.nvm", weights=False)
    assert str(unbound.weights[0]) == "b: Tensor[(40), float32]"
    with pytest.raises(WeightsNotBound, match=r"they should lie in w\.safetensors"):
        nvm.VirtualMachine(unbound)


def test_mismatches_are_listed_together(late: nvm.Executable) -> None:
    given: dict[str, Any] = weights()
    del given["b"], given["s"]
    given["w"] = given["w"].T
    given["t"] = given["t"].astype(np.float64)
    given["z"] = np.zeros(3, np.int8)
    with pytest.raises(WeightsMismatch) as caught:
        late.bind(given)
    assert str(caught.value).splitlines() == [
        "5 of the weights are not what the program wants:",
        "  missing: b, float32 (40,)",
        "  missing: s, float32 ()",
        "  different: t is float64 (6,), expected float32 (6,)",
        "  different: w is float32 (5, 40), expected float32 (40, 5)",
        "  extra: z",
    ]
    error = caught.value
    assert (error.missing, error.extra, error.different) == (("b", "s"), ("z",), ("t", "w"))


def test_extra_weights_may_be_left_aside(late: nvm.Executable) -> None:
    given: dict[str, Any] = weights()
    given["z"] = np.zeros(3)
    with pytest.raises(WeightsMismatch, match="extra: z"):
        late.bind(given)
    assert outputs(late.bind(given, strict=False)) == outputs(late.bind(weights()))


def test_digests(saved: Path) -> None:
    other = weights(1)
    save_file(other, saved / "w.safetensors")
    assert outputs(nvm.load(saved / "model.nvm"))  # not looked at
    with pytest.raises(WeightsMismatch, match="weight w: SHA-256 is"):
        nvm.load(saved / "model.nvm", verify="full")
    exe = nvm.load(saved / "model.nvm", weights=False)
    with pytest.raises(WeightsMismatch, match="SHA-256"):
        exe.bind(other, verify="full")
    with pytest.raises(WeightsMismatch, match="SHA-256"):
        nvm.load(saved / "model.nvm", verify="full", weights=False).bind(other)


def test_numbers_beyond_float16() -> None:
    exe = nvm.compile(module(), late_bound=SHAPES, weights="float16", native=False)
    given = weights()
    given["w"][3, 2] = 1e6
    with pytest.raises(WeightsMismatch, match="weight w has numbers that do not fit in float16"):
        exe.bind(given)
    given["w"][3, 2] = np.inf
    given["w"][3, 3] = np.nan
    assert exe.bind(given).is_bound


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((40, 5), ">f4"), "byte order"),
        (np.zeros((40, 5), object), "dtype object"),
        (np.zeros((1,) * 9, np.float32), "rank 9"),
    ],
)
def test_what_is_no_weight(late: nvm.Executable, value: Any, message: str) -> None:
    with pytest.raises(InvalidWeights, match=message):
        late.bind({**weights(), "w": value})
    with pytest.raises(TypeError, match="mapping of names to arrays, not list"):
        late.bind([1, 2])  # type: ignore[arg-type]


def test_what_can_not_be_bound_late() -> None:
    text = "def @main(%x: Tensor[(?n), float32], %n: int32) { %x }"
    mod = nvm.relay.parse('#[version = "0.0.5"]\n' + text)
    with pytest.raises(CompileError, match=r"%x is declared as .* static sizes"):
        nvm.compile(mod, late_bound=["x"])
    with pytest.raises(CompileError, match="%n is one integer"):
        nvm.compile(mod, late_bound=["n"])
    with pytest.raises(CompileError, match="params names y"):
        nvm.compile(mod, late_bound="y")
    with pytest.raises(ValueError, match="late_bound names none"):
        nvm.compile(mod, weights_file="w.safetensors")
    assert nvm.compile(mod, {"x": np.ones(3, np.float32)}, late_bound=True).weights[0].shape == (3,)


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/passwd", "../w", "a/../w", "./w", "a//w", "..", ".", "a/"])
def test_paths_that_leave_the_folder(path: str, saved: Path) -> None:
    with pytest.raises(ValueError, match="below the executable's folder"):
        nvm.compile(module(), late_bound=SHAPES, weights_file=path)
    data = (saved / "model.nvm").read_bytes()
    forged = forge(data, lambda header, _: header.__setitem__("weights_file", path))
    with pytest.raises(InvalidExecutable, match="weights_file leaves the folder"):
        nvm.load(forged)


def test_symbolic_links_that_a_file_names(saved: Path) -> None:
    os.rename(saved / "w.safetensors", saved / "real")
    os.symlink("real", saved / "w.safetensors")
    with pytest.raises(FileError, match="symbolic link"):
        nvm.load(saved / "model.nvm")
    assert nvm.load(
        saved / "model.nvm", weights=saved / "w.safetensors"
    ).is_bound  # the user names it
    os.mkdir(saved / "inner")
    os.rename(saved / "real", saved / "inner" / "real")
    os.symlink("inner", saved / "outer")
    data = (saved / "model.nvm").read_bytes()
    for path, good in (
        ("inner/real", True),
        ("outer/real", False),
        ("inner", False),
        ("no", False),
    ):
        forged = forge(data, lambda header, _, p=path: header.__setitem__("weights_file", p))
        (saved / "forged.nvm").write_bytes(forged)
        if good:
            assert nvm.load(saved / "forged.nvm").is_bound
        else:
            with pytest.raises(FileError):
                nvm.load(saved / "forged.nvm")


# --- safetensors ----------------------------------------------------------------------------------


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


# --- hostile layouts ------------------------------------------------------------------------------

LATE_ASM = """
.func @main public [] -> t0
  LoadConst r0, c0
  Ret r0
.end
"""


def layout_program(constant: str, weight: str = "[4]") -> bytes:
    dims = re.search(r"\[(.*?)\]", constant)
    assert dims is not None
    kind = f".type Tensor[({dims[1]}), {constant.split()[0]}]"
    text = f'{kind}\n.weight "w" float32 {weight} ""\n.const {constant}\n{LATE_ASM}'
    return serialize(assemble(text))


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("constant", "message"),
    [
        ('float32 [4] of "w" [0, 1, 4, 1]', "a layout of 4 words"),
        ('float32 [4] of "w" [0]', "a layout of 1 words"),
        ('float32 [1] of "w" [0, 1' + ", 1" * 27 + "]", "a layout of 29 words"),
        ('float32 [4] of "w" [0, 1, 5, 1, 0]', "sizes do not give 4 elements"),
        (f'float32 [4] of "w" [0, 1, {MOST}, {MOST}, 1, 1, 0, 0]', "sizes do not give 4"),
        ('float32 [79] of "w" [0, 1, 79, 0, 0]', ""),
        ('float32 [80] of "w" [0, 1, 80, 0, 0]', "80 elements of a weight of 4"),
        ('float64 [4] of "w" [0, 1, 4, 1, 0]', "dtype float64 of a weight of float32"),
        (f'float32 [4] of "w" [{MOST}, 1, 4, 1, 0]', "too large"),
        (f'float32 [4] of "w" [0, 1, 4, {MOST}, 0]', "too large"),
        (f'float32 [4] of "w" [0, 1, 4, 1, {MOST}]', "too large"),
    ],
)
def test_layouts_of_no_sense(constant: str, message: str) -> None:
    data = layout_program(constant)
    if not message:
        nvm.load(data)
        return
    with pytest.raises(InvalidExecutable, match=re.escape(message)):
        nvm.load(data)


def many_layouts(count: int) -> nvm.Executable:
    """A program that wants a weight of 256 KiB in `count` layouts 16 times as large."""
    constants = "".join(
        f'.const float32 [1048576] of "w" [{base}, 1, 1048576, 0, 0]\n' for base in range(count)
    )
    head = '.type Tensor[(1048576), float32]\n.weight "w" float32 [65536] ""\n'
    return nvm.load(serialize(assemble(head + constants + LATE_ASM)))


def test_layouts_are_bounded_by_the_weights() -> None:
    """A hostile header asks for one weight again and again: 16 times the weights and 16 MiB are the most."""
    w = {"w": np.zeros(65536, np.float32)}
    assert many_layouts(5).bind(w).is_bound
    with pytest.raises(nvm.errors.MemoryLimit, match="more than 20971520 bytes, which is 16 times"):
        many_layouts(6).bind(w)
    assert many_layouts(6).bind(w, max_bytes=24 << 20).is_bound
    with pytest.raises(nvm.errors.MemoryLimit, match="more than 1000 bytes, which is the limit"):
        many_layouts(1).bind(w, max_bytes=1000)
    with pytest.raises(ValueError, match="max_bytes is 0"):
        many_layouts(1).bind(w, max_bytes=0)


@pytest.mark.parametrize(
    "layout",
    [
        "[1, 1, 4, 1, 0]", "[0, 1, 4, 2, 0]", "[4, 1, 4, 0, 0]", "[0, 1, 4, 1152921504606846976, 0]",
        "[0, 100, 4, 3, 1]", "[0, 1, 2, 2, 3, 1, 0, 0]",
    ],
)  # fmt: skip
def test_layouts_that_lead_out_of_the_weight(layout: str) -> None:
    exe = nvm.load(layout_program(f'float32 [4] of "w" {layout}'))
    with pytest.raises(InvalidExecutable, match="the layout of w leads out of it"):
        exe.bind({"w": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ('float32 [4] of "w" [0, 1, 4, 1, 0]', [1, 2, 3, 4]),
        ('float32 [2] of "w" [2, 1, 2, 1, 0]', [3, 4]),
        ('float32 [2, 2] of "w" [0, 1, 2, 2, 1, 2, 0, 0]', [[1, 3], [2, 4]]),
        ('float32 [4] of "w" [0, 1, 2, 2, 1, 2, 0, 0]', [1, 3, 2, 4]),
        ('float32 [2, 3] of "w" [0, 4, 2, 3, 2, 1, 3, 1]', [[1, 2, 3], [3, 0, 0]]),
        ('float32 [3] of "w" [3, 2, 3, 7, 2]', [4, 0, 0]),
        ('float32 [] of "w" [3, 1]', 4),
        ('float32 [] of "w" [3, 0]', 0),
        ('float32 [1, 1] of "w" [3, 1]', [[4]]),
        ('float32 [0, 3] of "w" [99, 1, 0, 3, 7, 7, 0, 0]', np.zeros((0, 3))),
        (f'float32 [0, 3] of "w" [{MOST}, 1, 0, 3, {MOST}, 1, 0, {MOST}]', np.zeros((0, 3))),
        ('float32 [2, 1, 2] of "w" [1, 9, 2, 1, 2, 1, 5, 1, 1, 9, 1]', [[[2, 3]], [[3, 4]]]),
    ],
)
def test_layouts(constant: str, expected: Any) -> None:
    for verify in (None, "full"):
        exe = nvm.load(layout_program(constant), verify=verify)  # type: ignore[arg-type]
        bound = exe.bind({"w": np.arange(1, 5, dtype=np.float32)})
        np.testing.assert_array_equal(nvm.VirtualMachine(bound).run().numpy(), expected)


CONV = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 9, ?), float32], %w: Tensor[(32, 3, 3, 3), float32], %b: Tensor[(32, 1, 1), float32],
          %v: Tensor[(3, 1, 32, 20), float32]) {
  let %a = nn.relu(nn.conv2d(%x, %w, padding=[1, 1]) + %b);
  nn.conv2d(%a, %v, kernel_layout="HWIO", kernel_size=[3, 1])
}
"""


@pytest.mark.parametrize("native", [False, True])
def test_weights_of_convolutions(native: bool) -> None:
    mod, rng = nvm.relay.parse(CONV), np.random.default_rng(1)
    shapes = {"w": (32, 3, 3, 3), "b": (32, 1, 1), "v": (3, 1, 32, 20)}
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    x = rng.standard_normal((1, 3, 9, 11)).astype(np.float32)
    off = ["fold_constant"]
    baked = nvm.VirtualMachine(nvm.compile(mod, given, passes_off=off, native=native)).run(x)
    late = nvm.compile(mod, late_bound=given, native=native)
    out = nvm.VirtualMachine(late.bind(given)).run(x)
    assert out.numpy().tobytes() == baked.numpy().tobytes()


@pytest.mark.parametrize("name", models())
def test_workloads(name: str) -> None:
    model = models()[name]
    baked = nvm.compile(model.module(), model.params, native=False)
    late = nvm.compile(model.module(), late_bound=model.params, native=False)
    assert len(late.to_bytes()) < len(baked.to_bytes())
    bound = late.bind(model.params)
    for want, got in zip(model.run(baked), model.run(bound), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)  # less is folded


def test_header_faults_of_weights(saved: Path) -> None:
    data = (saved / "model.nvm").read_bytes()

    def refused(change: Any, message: str) -> None:
        with pytest.raises(InvalidExecutable, match=re.escape(message)):
            nvm.load(forge(data, change))

    def of(*path: Any) -> Any:
        *keys, last, value = path

        def change(header: Any, _: Any) -> None:
            for key in keys:
                header = header[key]
            header[last] = value

        return change

    refused(of("weights", 0, 3, b"1"), "digest: expected 0 or 32 bytes, got 1")
    refused(of("weights", 0, 1, 99), "dtype: expected 0 .. 11")
    refused(of("weights", 0, 2, [1] * 9), "rank 9")
    refused(of("weights", 0, 2, [2**62, 2**62]), "too large")
    refused(of("weights", 1, 0, "b"), "in the order of their names, b behind b")
    refused(of("constants", 0, 2, 64), "offset 64 of a constant that is bound late")
    refused(of("constants", 0, 5, 6), "weight: expected -1 .. 5")
    refused(of("constants", 0, 5, -1), "a layout without a weight")

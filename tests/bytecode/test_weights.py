"""Constants that stay outside of the file: what is bound, what is refused, and that results are the same bits."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import nimblevm as nvm
from nimblevm import dtypes
from nimblevm._ffi import check, ffi, lib
from nimblevm.errors import (
    CompileError,
    FileError,
    InvalidExecutable,
    InvalidWeights,
    WeightsMismatch,
    WeightsNotBound,
)
from tests.bytecode.forge import forge
from tests.bytecode.late_weights import SHAPES, Array, layout_program, module, weights
from tests.bytecode.models import models


def outputs(exe: nvm.Executable, rows: int = 3) -> list[bytes]:
    x = np.random.default_rng(5).standard_normal((rows, 5)).astype(np.float32)
    with nvm.VirtualMachine(exe) as vm:
        return [out.numpy().tobytes() for out in vm.run(x)]


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


def test_late_weights_of_single_rows() -> None:
    """Columns that lie in pairs, some of them empty."""
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(1, 5), float32], %w: Tensor[(126, 5), float32], %v: Tensor[(5, 64), float32]) {
      (nn.dense(%x, %w), nn.matmul(%x, %v)) }"""
    rng = np.random.default_rng(0)
    w, v, x = (rng.standard_normal(s).astype("float32") for s in ((126, 5), (5, 64), (1, 5)))
    late = nvm.compile(
        nvm.relay.parse(text), late_bound={"w": w.shape, "v": v.shape}, weights="bfloat16"
    )
    found = nvm.VirtualMachine(late.bind({"w": w, "v": v})).run(x)
    baked = nvm.compile(nvm.relay.parse(text), params={"w": w, "v": v}, weights="bfloat16")
    for got, same, expected in zip(
        found, nvm.VirtualMachine(baked).run(x), (x @ w.T, x @ v), strict=True
    ):
        np.testing.assert_array_equal(got.numpy(), same.numpy())
        np.testing.assert_allclose(got.numpy(), expected, rtol=2e-2, atol=5e-2)


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

        def rename(header: dict[str, Any], _: object, to: str = path) -> None:
            header["weights_file"] = to

        forged = forge(data, rename)
        (saved / "forged.nvm").write_bytes(forged)
        if good:
            assert nvm.load(saved / "forged.nvm").is_bound
        else:
            with pytest.raises(FileError):
                nvm.load(saved / "forged.nvm")


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

"""nvm-run: what it reads and writes is what `nimblevm run` reads and writes; whatever it is given, it says what is
wrong in one paragraph."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.cli.json_text import dumps
from nimblevm.cli.values import from_json, to_json
from tests.native.build import NATIVE, built, make

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

TEXT = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
type Pair[A, B] { Pair(A, B) }
type Nest[A] { End, Deep(A, Nest[Pair[A, A]]) }
type Chain { Last, Link(Chain) }
def @main(%x: Tensor[(?n, 4), float32], %k: int32) { (%x * cast(%k, dtype="float32"), %k + 1) }
def @one(%x: Tensor[(?n, ?m), float64]) { %x + 1f64 }
def @tensors(%f: Tensor[(?d, 2), float32], %i: Tensor[(?), int8], %b: Tensor[(?), bool], %u: uint64, %h: float16) {
  (%f, %i, %b, %u, %h) }
def @tuple(%t: (int32, (bool, Tensor[(2), float32]))) { %t }
def @pairs(%p: List[Pair[int32, List[bool]]]) { %p }
def @nest(%n: Nest[int32]) { %n }
def @chain(%c: Chain) { %c }
def @reference(%r: ref(int32)) { %r }
def @open[A](%x: A) -> A { %x }
def @loop(%i: int32) -> int32 { if (%i < 0) { 0 } else { @loop(%i) } }
def @numbers(%x: Tensor[(?), float32]) { %x }
"""


class Run:
    """nvm-run in a folder with an executable."""

    def __init__(self, folder: Path, exe: nvm.Executable, name: str = "model.nvm") -> None:
        self.folder = folder
        self.name = name
        self.exe = exe

    def __call__(self, *words: str, code: int = 0, timeout: float = 60) -> str:
        """stdout, or what stderr says behind `error: `."""
        command = [str(built() / "nvm-run"), self.name, *words]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=timeout
        )
        assert done.returncode == code, f"{done.returncode}: {done.stdout}\n{done.stderr}"
        if code == 0:
            assert done.stderr == ""
            return done.stdout
        assert done.stderr.startswith("error: ")
        assert "\n\n" not in done.stderr
        return done.stderr[7:]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("nvm_run")
    with nvm.compile(nvm.relay.parse(TEXT), native=False) as exe:
        exe.save(folder / "model.nvm")
        yield Run(folder, exe)


def test_arrays_in_and_out(run: Run) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(run.folder / "x.npy", x)
    out = run("--input", "x.npy", "--input", "3", "-o", "./")
    assert "result 0: [[0.0, 3.0, 6.0, 9.0]," in out
    assert "result 1: 4\n" in out
    y = np.load(run.folder / "result0.npy")
    assert y.dtype == np.float32
    assert np.array_equal(y, x * 3)
    assert np.load(run.folder / "result1.npy") == 4
    assert run("x=x.npy", "k=3", "-q") == ""
    assert run("k=3", "%x=x.npy", "--repeat=3", "--stats").count("of 3 runs\nruns 3,") == 1


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "rank 2": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(12.0).reshape(4, 3)[::2],
    "empty": np.zeros((0, 3)),
    "fortran empty": np.asfortranarray(np.zeros((2, 0))),
    "one": np.full((1, 1), -0.0),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy(name: str, version: tuple[int, int], run: Run) -> None:
    with open(run.folder / "a.npy", "wb") as file:
        np.lib.format.write_array(file, ARRAYS[name], version=version)
    run("-f", "one", "a.npy", "-o", "b.npy")
    got = np.load(run.folder / "b.npy")
    assert got.shape == ARRAYS[name].shape
    assert np.array_equal(got, ARRAYS[name] + 1)


def test_archives_in_and_out(run: Run) -> None:
    """What numpy.savez writes; numpy reads what comes out."""
    x, extra = np.arange(12, dtype=np.float32).reshape(3, 4), np.asfortranarray(np.ones((2, 3)))
    np.savez(run.folder / "all.npz", x=x, k=np.int32(3))
    np.savez(run.folder / "some.npz", other=extra, x=x)
    np.savez(run.folder / "one.npz", extra)
    for words in (["all.npz"], ["x=some.npz", "k=all.npz:k"], ["some.npz:x", "k=3"]):
        run(*words, "-o", "out.npz", "-q")
        with np.load(run.folder / "out.npz") as archive:
            assert archive.files == ["result0", "result1"]
            assert np.array_equal(archive["result0"], x * 3)
            assert archive["result1"] == 4
    run("-f", "one", "x=one.npz", "-o", "out.npz")
    with np.load(run.folder / "out.npz") as archive:
        assert np.array_equal(archive["result0"], extra + 1)
    run("-f", "one", "out.npz:result0", "-o", "again.npz")


def test_bad_archives(run: Run) -> None:
    x = np.ones((2, 2))
    np.savez(run.folder / "a.npz", x=x)
    np.savez(run.folder / "two.npz", y=x, z=x)
    np.savez_compressed(run.folder / "small.npz", x=x)
    data = (run.folder / "a.npz").read_bytes()
    (run.folder / "cut.npz").write_bytes(data[:-1])
    (run.folder / "flipped.npz").write_bytes(data[:150] + bytes([data[150] ^ 1]) + data[151:])
    for name, message in {
        "small": "array x is compressed (method 8); nvm-run reads what numpy.savez writes",
        "cut": "has no directory at its end",
        "flipped": "array x is damaged: its checksum differs",
        "two": "two.npz has no array x; it has 2, the first is y",
        "none": "none.npz: No such file",
    }.items():
        assert message in run("-f", "one", f"x={name}.npz", code=2)
    assert "no parameter %y" in run("-f", "one", "two.npz", code=2)
    assert "x is given twice" in run("-f", "one", "x=a.npz", "a.npz", code=2)


SAME: dict[str, dict[str, Any]] = {
    "tensors": {"f": [[1, 2.5], [3, 1e-7]], "i": [-128, 127], "b": [True, False], "u": 2**64 - 1, "h": 0.1},
    "no elements": {"f": [], "i": [], "b": [], "u": 0, "h": -65504},
    "no numbers": {"f": [[float("nan"), float("inf")]], "i": [0], "b": [True], "u": 1, "h": float("-inf")},
    "small": {"f": [[1e-45, 1.17549435e-38], [3.4028234e38, -1e16]], "i": [1], "b": [False], "u": 10, "h": 6e-8},
    "in full": {"f": {"dtype": "float32", "shape": [2, 2], "data": [1, 2, 3, 4]}, "i": [1], "b": [], "u": 7, "h": 1},
    "tuple": {"t": [1, [True, [1, 2]]]},
    "pairs": {"p": [{"constructor": "Pair", "fields": [7, [True, False]]}, {"constructor": "Pair", "fields": [-1, []]}]},
    "nil": {"p": "Nil"},
    "cons": {"p": {"constructor": "List.Cons", "fields": [{"constructor": "Pair", "fields": [7, "Nil"]}, []]}},
    "nest": {"n": {"constructor": "Deep", "fields": [1, {"constructor": "Deep", "fields": [{"constructor": "Pair", "fields": [2, 3]}, "End"]}]}},
}  # fmt: skip
FUNCTIONS = {"no elements": "tensors", "no numbers": "tensors", "small": "tensors", "in full": "tensors", "nil": "pairs", "cons": "pairs"}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_json_as_from_python(name: str, run: Run) -> None:
    function = run.exe.functions[FUNCTIONS.get(name, name)]
    values = SAME[name]
    with nvm.VirtualMachine(run.exe) as vm:
        named = {
            p.name: from_json(values[p.name], p.type, run.exe, p.name) for p in function.params
        }
        expected = "".join(dumps(to_json(vm.invoke(function.name, **named)))) + "\n"
    (run.folder / "in.json").write_text(json.dumps(values))
    run("-f", function.name, "in.json", "-o", "out.json")
    assert (run.folder / "out.json").read_text() == expected
    (run.folder / "in.json").write_text(json.dumps(values), encoding="utf-8-sig")
    run("-f", function.name, "in.json", "-o", "out.json")
    assert (run.folder / "out.json").read_text() == expected
    texts = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    run("-f", function.name, *texts, "-o", "again.json")
    assert (run.folder / "again.json").read_text() == expected


def test_deep_values(run: Run) -> None:
    deep = 100_000
    text = '{"constructor": "Link", "fields": [' * deep + '"Last"' + "]}" * deep
    (run.folder / "deep.json").write_text(text)
    run("-f", "chain", "c=deep.json", "-o", "out.json", "-q")
    assert (run.folder / "out.json").read_text() == text + "\n"
    flat = "[" + ", ".join(['{"constructor": "Pair", "fields": [1, []]}'] * 50_000) + "]"
    (run.folder / "long.json").write_text(flat)
    run("-f", "pairs", "p=long.json", "-o", "out.json", "-q")
    assert (run.folder / "out.json").read_text() == flat + "\n"


BAD = {
    "no input": ([], "missing input for %x: Tensor[(?n, 4), float32]"),
    "unknown": (["z=1"], "no parameter %z; the function is @main("),
    "twice": (["k=1", "k=2"], "parameter %k is given twice"),
    "too many": (["-f", "one", "[[1]]", "[[1]]"], "no parameter left"),
    "no file": (["x=none.npy", "k=1"], "none.npy: No such file"),
    "no JSON": (["x=[[1, 2", "k=1"], "line 1, column 7: expected , or ]"),
    "names": (['x={"a": 1, "a": 2}', "k=1"], "the name stands twice"),
    "dim": (["x=[[1, 2]]", "k=1"], "expected Tensor[(?n, 4), float32], got float32 of shape [1, 2]"),
    "rank": (["x=[1, 2]", "k=1"], "expected Tensor[(?n, 4), float32], got float32 of shape [2]"),
    "ragged": (["x=[[1, 2], [3]]", "k=1"], "parameter %x[1]: ragged array"),
    "kind": (["x=[[true]]", "k=1"], "parameter %x[0][0]: expected Tensor[(?n, 4), float32], got true"),
    "range": (["x=[[1,1,1,1]]", "k=2147483648"], "2147483648 does not fit int32"),
    "huge": (["x=[[1e39,1,1,1]]", "k=1"], "too large for float32"),
    "function": (["-f", "no"], "there is no function @no"),
    "option": (["--nothing"], "no option --nothing"),
    "value": (["--threads"], "--threads needs a value"),
    "threads": (["--threads", "0"], "at least 1"),
    "all threads": (["--threads", "4294967297"], "at most 2147483647"),
    "repeat": (["--repeat", "2305843009213693953"], "at most 4294967295"),
    "constructor": (["-f", "pairs", 'p=[{"constructor": "Pear"}]'], 'Pair has no constructor "Pear"; it has Pair'),
    "fields": (["-f", "pairs", 'p=[{"constructor": "Pair", "fields": [1]}]'], "takes 2 fields, got 1"),
    "inner": (["-f", "pairs", 'p=[{"constructor": "Pair", "fields": [1, [1]]}]'], "parameter %p[0].Pair[1][0]: expected bool, got 1"),
    "reference": (["-f", "reference", "r=1"], "can't be written down"),
    "open": (["-f", "open", "x=1"], "the type is open here"),
    "fuel": (["-f", "loop", "i=1", "--max-instructions", "1000"], "[INSTRUCTION_LIMIT]"),
    "time": (["-f", "loop", "i=1", "--seconds", "0.02"], "[TIME_LIMIT]"),
    "device": (["-f", "loop", "i=-1", "--device", "abacus"], 'no device backend "abacus"'),
    "output": (["-f", "tuple", "t=[1, [true, [1, 2]]]", "-o", "x.npy"], "use -o FILE.json"),
    "folder, before the inputs": (["-o", "none/x.npy"], "none/x.npy: No such file or directory"),
    "folder of files, before the inputs": (["-o", "none/"], "none/: No such file or directory"),
    "suffix": (["-o", "x.png"], "must end in .npy, .npz, .json or /"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_mistakes(name: str, run: Run) -> None:
    words, expected = BAD[name]
    assert expected in run(*words, code=2)


@pytest.mark.parametrize("name", ["o.npy", "o.npz", "o.json"])
def test_a_full_disk_leaves_no_half_files(name: str, run: Run) -> None:
    """A limit on the size of files refuses what is written in the midst of it, as a full disk does."""
    words = ("-f", "numbers", "x=random:2000", "-o", name)
    place = run.folder / name
    for before in (None, b"old"):
        if before is not None:
            place.write_bytes(before)
        names = sorted(os.listdir(run.folder))
        command = 'trap "" XFSZ; ulimit -f 1; exec "$@"'
        done = subprocess.run(
            ["bash", "-c", command, "-", str(built() / "nvm-run"), run.name, *words],
            cwd=run.folder, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (2, f"error: {name}: File too large\n")
        assert sorted(os.listdir(run.folder)) == names
    assert place.read_bytes() == b"old"
    run(*words)
    assert place.stat().st_size > 2000
    place.unlink()


def test_output_by_way_of_a_link_and_into_a_device(run: Run) -> None:
    link = run.folder / "link.json"
    link.symlink_to("target.json")
    (run.folder / "target.json").write_text("old")
    run("-f", "numbers", "x=[1]", "-o", "link.json")
    assert link.is_symlink()
    assert (run.folder / "target.json").read_text() == "[1.0]\n"
    (run.folder / "full.json").symlink_to("/dev/full")
    assert "full.json: No space left" in run("-f", "numbers", "x=[1]", "-o", "full.json", code=2)
    for name in ("link.json", "target.json", "full.json"):
        (run.folder / name).unlink()


def test_list_and_help(run: Run) -> None:
    listed = run("--list").splitlines()
    assert (
        "@main(%x: Tensor[(?n, 4), float32], %k: int32) -> (Tensor[(?n, 4), float32], int32)"
        in listed
    )
    assert "@pairs(%p: List[Pair[int32, List[bool]]]) -> List[Pair[int32, List[bool]]]" in listed
    assert "type List: Cons(T0, List[T0]), Nil" in listed
    assert run("--help").startswith("usage: nvm-run FILE.nvm")
    assert f"nvm-run {nvm.__version__}" in run("--version")


def test_weights_that_the_file_leaves_out(run: Run, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32], %w: Tensor[(2), float32]) { %x * %w }'
    weights = {"w": np.array([3, 5], np.float32)}
    exe = nvm.compile(
        nvm.relay.parse(text), weights, late_bound=True, weights_file="w.safetensors", native=False
    )
    exe.save(tmp_path / "late.nvm")
    late = Run(tmp_path, exe, "late.nvm")
    assert "w.safetensors" in late("x=[1, 2]", code=2)
    safetensors.save_file(weights, tmp_path / "w.safetensors")
    assert "[3.0, 10.0]" in late("x=[1, 2]")
    safetensors.save_file({"w": weights["w"] + 1}, tmp_path / "other.safetensors")
    assert "[4.0, 12.0]" in late("x=[1, 2]", "--weights", "other.safetensors")
    safetensors.save_file({"v": weights["w"]}, tmp_path / "other.safetensors")
    assert "[WEIGHTS_MISMATCH]" in late("x=[1, 2]", "--weights", "other.safetensors", code=2)


def test_not_an_executable(run: Run) -> None:
    (run.folder / "bad.nvm").write_bytes(b"MZ" * 100)
    done = subprocess.run(
        [str(built() / "nvm-run"), "bad.nvm"],
        cwd=run.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "[INVALID_EXECUTABLE]" in done.stderr


def mutants(seed: bytes, count: int, rng: random.Random) -> Iterator[bytes]:
    """Files with bytes changed, cut, doubled or numbers blown up."""
    for _ in range(count):
        data = bytearray(seed)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data)) if data else 0
            match rng.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([rng.randrange(256)])
                case 1:
                    del data[at : at + rng.randrange(1, 20)]
                case 2:
                    data[at:at] = data[at : at + rng.randrange(1, 20)]
                case _:
                    data[at : at + 1] = rng.choice(
                        [b"99999999999999999999", b"-1", b"(", b"[", b"0" * 30, b"\\u"]
                    )
        yield bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "npz", "json"])
def test_mutants_are_read_or_refused(kind: str, run: Run) -> None:
    """Under AddressSanitizer: any file gives a result or one paragraph, never a fault."""
    make("all", NVM_SANITIZE="address,undefined", NVM_TEST="1")
    tool = NATIVE / "build-address-undefined-test" / "nvm-run"
    np.save(run.folder / "seed.npy", np.arange(8.0).reshape(2, 4))
    np.savez(run.folder / "seed.npz", np.arange(8.0).reshape(2, 4))
    text = json.dumps(SAME["pairs"]["p"] + [{"constructor": "Pair", "fields": [3, "Nil"]}])
    seed = text.encode() if kind == "json" else (run.folder / f"seed.{kind}").read_bytes()
    words: Callable[[str], list[str]] = (
        (lambda name: ["-f", "pairs", f"p={name}"])
        if kind == "json"
        else (lambda name: ["-f", "one", f"x={name}"])
    )
    outcomes = set()
    for number, data in enumerate(mutants(seed, 400, random.Random(11))):
        (run.folder / f"m.{kind}").write_bytes(data)
        done = subprocess.run(
            [str(tool), "model.nvm", *words(f"m.{kind}")],
            cwd=run.folder,
            capture_output=True,
            check=False,
            timeout=60,
        )
        outcomes.add(done.returncode)
        assert done.returncode in (0, 2), f"mutant {number}: {data!r}\n{done.stderr.decode()}"
        assert done.returncode == 0 or done.stderr.startswith(b"error: ")
    assert outcomes == {0, 2}

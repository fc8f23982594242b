"""Several native sections in one file: the best that the CPU has is used, and the file says why not the others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.driver import compile_to_bytes
from nimblevm.errors import CompileError, MachineCodeWarning, Unsupported
from nimblevm.kernels import link, llvm
from tests.bytecode.forge import split

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32]) -> Tensor[(?n, 4), float32] { tanh(%x) }
"""
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="no linker")


@pytest.fixture(scope="module")
def data() -> bytes:
    mod = nvm.relay.parse(TEXT)
    return compile_to_bytes(mod, target="x86-64-v3,x86-64-v2, x86-64-v4,x86-64-v3")


def host() -> int:
    """The number of this CPU's level."""
    info = llvm.parse_target("native")
    if info is None or info.arch != "x86_64":
        pytest.skip("for x86-64")
    return max(i for i, name in enumerate(LEVELS) if _features(name) <= set(info.features))


def _features(level: str) -> set[str]:
    info = llvm.parse_target(level)
    assert info is not None
    return set(info.features)


def run(exe: nvm.Executable) -> np.ndarray:
    with nvm.VirtualMachine(exe) as vm:
        return np.array(vm.run(X).numpy())


def test_the_best_comes_first_and_producer_names_all(data: bytes) -> None:
    header = split(data)[0]
    assert header["producer"]["target"] == "x86-64-v4; x86-64-v3; x86-64-v2"
    exe = nvm.load(data, native=False)
    levels = [s.level for s in exe.sections if s.kind == "native code"]
    assert levels == ["x86-64-v4", "x86-64-v3", "x86-64-v2"]
    assert exe.native_target == ""
    assert {s.why_not for s in exe.sections[3:]} == {"it was not asked for"}


@pytest.mark.parametrize("level", LEVELS[1:])
def test_the_best_that_the_cpu_has_is_used(
    data: bytes, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVM_CPU", level)
    used = LEVELS[min(host(), LEVELS.index(level))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe = nvm.load(data, native="require")
    assert exe.native_target == used
    for section in exe.sections[3:]:
        assert section.used == (section.level == used)
        if LEVELS.index(section.level) < LEVELS.index(used):
            assert section.why_not == f"section {6 - LEVELS.index(used)} comes first"
        elif not section.used:
            assert section.why_not.startswith("this CPU lacks avx")
    np.testing.assert_allclose(run(exe), np.tanh(X), rtol=1e-6)


def test_none_fits(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is missing is said, of every section."""
    host()
    monkeypatch.setenv("NVM_CPU", "x86-64")
    message = (
        r"\(CPU: x86-64, as NVM_CPU limits it\): this CPU lacks avx, avx2, .*ssse3; .*lacks cx16"
    )
    with pytest.warns(MachineCodeWarning, match=message):
        exe = nvm.load(data)
    assert exe.native_target == ""
    np.testing.assert_allclose(run(exe), np.tanh(X), rtol=1e-6)
    with pytest.raises(Unsupported, match=message):
        nvm.load(data, native="require")
    for value in ("none", "z80"):
        monkeypatch.setenv("NVM_CPU", value)
        with pytest.raises(Unsupported, match="NVM_CPU"):
            nvm.load(data, native="require")


def test_require_of_files_without_machine_code() -> None:
    mod = nvm.relay.parse(TEXT)
    with pytest.raises(Unsupported, match="the file has none"):
        nvm.load(nvm.compile(mod, target="none").to_bytes(), native="require")
    plain = nvm.relay.parse(TEXT.replace("tanh(%x)", "%x"))
    nvm.load(nvm.compile(plain, target="none").to_bytes(), native="require").close()
    with pytest.raises(ValueError, match='True, False or "require"'):
        nvm.load(b"", native="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_explicit_targets_have_equal_bytes_in_any_process(data: bytes, seed: str) -> None:
    """`data` was made in this process, whose hashes have a seed of their own."""
    code = (
        "import sys, nimblevm as nvm\nfrom nimblevm.driver import compile_to_bytes\n"
        f"mod = nvm.relay.parse({TEXT!r})\n"
        "made = compile_to_bytes(mod, target=['x86-64-v2', 'x86-64-v4', 'x86-64-v3'])\n"
        "sys.stdout.buffer.write(made)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, cwd=".",
        env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "PYTHONPATH": "."},
    )  # fmt: skip
    assert done.stdout == data


def test_lists_of_targets() -> None:
    infos = llvm.parse_targets(["aarch64", "x86-64-v2", "native"])
    assert [i.arch for i in infos if i is not None] in (
        ["x86_64", "x86_64", "aarch64"],
        ["x86_64", "aarch64"],
    )
    assert llvm.parse_targets("none") == llvm.parse_targets(["ir"]) == ()
    for wrong, message in (
        ("none,x86-64", "'none' can't be combined"), ([], "an empty list"), ("", "unknown target ''"),
        ("x86-64-v3,", "unknown target ''"), ("x86-64-v5", "known: native, llvm, generic, x86-64, "),
    ):  # fmt: skip
        with pytest.raises(CompileError, match=message):
            llvm.parse_targets(wrong)
    with pytest.raises(TypeError, match="or a list of names"):
        llvm.parse_targets(3)  # type: ignore[arg-type]


def test_no_linker_for_one_of_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    real = link.link

    def no_foreign(objects: list[bytes], arch: str) -> tuple[bytes, str]:
        if arch == "aarch64":
            raise link.LinkError("no linker works for aarch64")
        return real(objects, arch)

    monkeypatch.setattr(link, "link", no_foreign)
    message = "no linker works for aarch64: .*no machine code for aarch64 .*interpreted there"
    with pytest.warns(MachineCodeWarning, match=message):
        made = compile_to_bytes(nvm.relay.parse(TEXT), target="aarch64,x86-64-v2")
    assert [row[4].split(":")[0] for row in split(made)[0]["sections"][3:]] == ["x86_64"]

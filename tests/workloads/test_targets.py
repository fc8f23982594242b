"""Every workload with machine code of every target: x86-64 levels in this process, aarch64 by nvm-run under qemu-user.

All give what the IR interpreter gives here: integers bit for bit, floats within the tolerance of sums in another order.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.cli.json_text import loads
from nimblevm.cli.values import to_json
from nimblevm.driver import compile_to_bytes
from nimblevm.kernels import llvm
from tests.native.aarch64 import nvm_run, tools_are_missing
from tests.workloads.small import SMALL, Small

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
RTOL, ATOL, CALLS = 1e-4, 1e-5, 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("ld") is None, reason="no linker"),
]


def compiled(work: Small, target: str | list[str]) -> bytes:
    return compile_to_bytes(work.module(), target=target)


def runnable() -> list[str]:
    host = llvm.parse_target("native")
    infos = {name: llvm.parse_target(name) for name in LEVELS}
    assert host is not None
    return [
        name
        for name, info in infos.items()
        if info is not None and info.arch == host.arch and {*info.features} <= {*host.features}
    ]


def results(exe: nvm.Executable, work: Small) -> list[Any]:
    """What a few calls give, as JSON values; the same calls every time."""
    rng = np.random.default_rng(11)
    with nvm.VirtualMachine(exe) as vm:
        return [to_json(vm.invoke(work.function, *work.inputs(exe, rng))) for _ in range(CALLS)]


def compare(got: Any, want: Any, where: str = "") -> None:
    """JSON values: floats within the tolerance, all else equal. Nests as deep as a result's types."""
    if isinstance(want, list):
        assert isinstance(got, list), where
        assert len(got) == len(want), where
        for number, (a, b) in enumerate(zip(got, want, strict=True)):
            compare(a, b, f"{where}[{number}]")
    elif isinstance(want, dict):
        assert got.keys() == want.keys(), where
        for key in want:
            compare(got[key], want[key], f"{where}.{key}")
    elif isinstance(want, float) and isinstance(got, float | int):
        close = math.isclose(got, want, rel_tol=RTOL, abs_tol=ATOL)
        assert close or (math.isnan(got) and math.isnan(want)), (where, got, want)
    else:
        assert got == want, where


@pytest.mark.parametrize("name", SMALL)
def test_x86_64_levels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = SMALL[name]
    levels = runnable()
    data = compiled(work, levels)
    want = results(nvm.load(data, native=False), work)
    for level in levels:
        monkeypatch.setenv("NVM_CPU", level)
        exe = nvm.load(data, native="require")
        assert exe.native_target == level
        compare(results(exe, work), want, level)


class AsJson:
    """In place of an executable: its constructors make the JSON of values."""

    def constructor(self, name: str) -> Callable[..., Any]:
        return lambda *fields: {"constructor": name, "fields": list(fields)} if fields else name


def plain(value: Any) -> Any:
    """For json.dumps: arrays in full, so that no size is lost."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.name,
            "shape": list(value.shape),
            "data": value.ravel().tolist(),
        }
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", SMALL)
def test_aarch64_under_emulation(name: str, tmp_path: Path) -> None:
    """Machine code of an aarch64 section, and the IR interpreter built for aarch64."""
    missing = tools_are_missing()
    if missing:
        pytest.skip(missing)
    work = SMALL[name]
    data = compiled(work, "aarch64")
    (tmp_path / "model.nvm").write_bytes(data)
    exe = nvm.load(data, native=False)
    want = results(exe, work)
    names = [p.name for p in exe.functions[work.function].params]
    rng = np.random.default_rng(11)
    for number, expected in enumerate(want):
        args = work.inputs(AsJson(), rng)  # type: ignore[arg-type]
        (tmp_path / "in.json").write_text(json.dumps(dict(zip(names, plain(args), strict=True))))
        for flags in ((), ("--no-native",)):
            said = nvm_run(
                tmp_path, "model.nvm", "in.json", "-f", work.function, "-o", "out.json", *flags
            )
            used = f"machine code {'not ' if flags else ''}used" in said
            assert used, said
            got = loads((tmp_path / "out.json").read_text())
            compare(got, expected, f"{name}, call {number}, {flags}")

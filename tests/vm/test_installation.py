"""build_info() and `nimblevm version`."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import pytest

import nimblevm as nvm
from nimblevm._ffi import lib


def test_build_info() -> None:
    info = nvm.build_info()
    assert info.version == nvm.__version__
    assert info.format_version == lib.nvm_format_version()
    assert info.compiler.split()[0] in ("gcc", "clang")
    assert info.dispatch in ("computed goto", "switch")
    assert "-O" in info.flags
    assert "/" not in info.flags.replace("-f", ""), "no paths of the machine that built it"
    assert (info.architecture, info.python) == (platform.machine(), platform.python_version())
    assert info.cpus >= 1
    assert "cpu:0" in info.devices or "cpu" in info.devices
    if info.architecture == "x86_64":
        assert info.cpu_level.startswith("x86-64")
        assert "avx2" not in info.cpu_features or "avx" in info.cpu_features
    json.dumps(info.to_json())
    for text in (info.version, info.compiler, info.cpu_level, "devices"):
        assert text in str(info)


def test_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert "llvmlite is not installed" in str(nvm.build_info())


@pytest.mark.parametrize("feature", ["", "avx9000", "a" * 200, "sse,avx", "\n"])
def test_unknown_features_are_missing(feature: str) -> None:
    assert lib.nvm_cpu_has(feature.encode()) == 0

"""Scripts that TVM's users could have written: they run here, and only their import lines name this library."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_script(path: Path) -> None:
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_only_imports_name_this_library(path: Path) -> None:
    for line in path.read_text().splitlines():
        assert "nimblevm" not in line or line.startswith(("from nimblevm", "import nimblevm")), line


def test_there_are_ten() -> None:
    assert len(SCRIPTS) >= 10

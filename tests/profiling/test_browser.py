"""The page in a headless browser, where there is one: its script runs, and names stay text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nimblevm.profiling import Machine, write_page
from nimblevm.vm.profiler import Profile
from tests.profiling.conftest import Make

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium"),
]
HOSTILE = '</script><img src=x onerror="document.title=1"><script>document.title=2</script>'


def shown(path: Path, folder: Path) -> str:
    """The document after its script ran, as markup."""
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}",
        "--dump-dom",
    ]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    return done.stdout


def test_a_profile_is_drawn(tree_profile: Profile, machine: Machine, tmp_path: Path) -> None:
    write_page(tree_profile, tmp_path / "p.html", machine, "tree.nvm", [("", "@main")])
    text = shown(tmp_path / "p.html", tmp_path / "browser")
    assert '<h1 id="title">tree.nvm</h1>' in text
    body = text.split("<main>", 1)[1]
    for kernel in tree_profile.kernels:
        assert f">{kernel.name}</button>" in body
    assert 'aria-sort="descending"' in body
    assert "circle" in body
    assert "2 runs, 1 thread" in body
    for section in ("flame", "timeline", "roofline", "lines", "instructions"):
        assert f'<section id="{section}-section">' in body, "shown"


def test_hostile_names_do_nothing(make: Make, machine: Machine, tmp_path: Path) -> None:
    events = [(0, 0, 5, 0, 0, 0), (1, 1, 99, 2, 0, 0), (2, 3, 4, 5, 0, 0), (9, 0, 0, 1, 0, 0)]
    profile = make(events, functions=(HOSTILE,), kernel=HOSTILE, source=HOSTILE)
    write_page(profile, tmp_path / "p.html", machine, HOSTILE, [(HOSTILE, HOSTILE)])
    text = shown(tmp_path / "p.html", tmp_path / "browser")
    assert "<img" not in text
    assert text.count("<script") == 2
    assert "<title>1" not in text
    assert "<title>2" not in text


def test_an_empty_profile_is_drawn(tmp_path: Path) -> None:
    write_page(Profile(0, 0.0, (), ()), tmp_path / "p.html")
    text = shown(tmp_path / "p.html", tmp_path / "browser")
    assert "No kernel was called." in text
    assert '<section id="flame-section" hidden' in text

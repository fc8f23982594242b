"""The command line as a user sees it: what it prints, and one paragraph and exit code 2 for mistakes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nimblevm.cli import app as cli

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?n, 3), float32], %w: Tensor[(3, 4), float32], %k: int32)
    -> Tensor[(?n, 3), float32] {
  let %loop = fn (%i: int32, %acc: Tensor[(?n, 3), float32]) -> Tensor[(?n, 3), float32] {
    if (less(%i, %k)) { %loop(%i + 1, tanh(add(%acc, nn.dense(%x, %w)))) } else { %acc }
  };
  %loop(0, %y)
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("model.rly").write_text(PROGRAM)
    np.savez("weights.npz", w=np.ones((3, 4), np.float32))
    np.save("x.npy", np.ones((2, 4), np.float32))
    np.save("y.npy", np.zeros((2, 3), np.float32))
    np.save("bad.npy", np.zeros((2, 5), np.float32))
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `nimblevm arguments`."""
    monkeypatch.setattr(sys, "argv", ["nimblevm", *arguments])
    monkeypatch.setattr("warnings.showwarning", None)  # restored behind the test
    for console in ("_out", "_err"):
        stream = sys.stdout if console == "_out" else sys.stderr
        monkeypatch.setattr(cli, console, cli.Console(file=stream, width=200))
    try:
        return cli.run_app()
    except SystemExit as end:
        return int(end.code or 0)


def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("compile", "model.rly", "--params", "weights.npz", "--target", "none")
    assert call(monkeypatch, *arguments) == 0


def test_session(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(monkeypatch)
    assert "wrote model.nvm" in capsys.readouterr().out
    arguments = ("run", "model.nvm", "x=x.npy", "%y=y.npy", "k=3", "-o", "out.npz")
    assert call(monkeypatch, *arguments) == 0
    assert "shape=(2, 3)" in capsys.readouterr().out
    with np.load("out.npz") as out:
        assert out["result0"].shape == (2, 3)
    assert call(monkeypatch, "disasm", "model.nvm") == 0
    assert ".func @main public" in capsys.readouterr().out


def test_inspect_says_what_is_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(monkeypatch)
    assert call(monkeypatch, "inspect", "model.nvm") == 0
    out = capsys.readouterr().out
    for text in ("%x: Tensor[(?n, 4), float32]", "?n from %x", "%x axis 1 = 4", "%y axis 0 = ?n"):
        assert text in out
    assert "main_loop" not in out
    assert "1 internal functions not shown (--all)" in out
    assert call(monkeypatch, "inspect", "model.nvm", "--all") == 0
    out = capsys.readouterr().out
    assert "main_loop" in out
    assert "(internal)" in out


MISTAKES = {
    "missing argument": (("run", "model.nvm", "x=x.npy"), "missing argument for %y, %k"),
    "wrong dim": (("run", "model.nvm", "x=bad.npy", "y=y.npy", "k=1"), "axis 1: expected 4, got 5"),
    "no such input": (("run", "model.nvm", "x=none.npy"), "none.npy: No such file"),
    "no value": (("run", "model.nvm", "x"), "write NAME=FILE.npy or NAME=NUMBER"),
    "no number": (("run", "model.nvm", "k=abc"), "neither a .npy file nor a number"),
    "no such file": (("run", "none.nvm"), "No such file"),
    "no executable": (("inspect", "x.npy"), "no nimblevm executable"),
    "no function": (("run", "model.nvm", "--function", "f"), "the executable has @main"),
    "no threads": (("run", "model.nvm", "--threads", "0"), "--threads"),
    "no device": (("run", "model.nvm", "--device", "abacus"), "abacus"),
    "no source": (("compile", "none.rly"), "No such file"),
    "no text": (("compile", "weights.npz"), "is no text"),
    "target": (("compile", "model.rly", "--target", "z80"), "unknown target 'z80'"),
    "params": (("compile", "model.rly", "--params", "x.npy"), "expected an .npz file"),
    "params text": (("compile", "model.rly", "--params", "model.rly"), "expected an .npz file"),
    "no folder": (("compile", "model.rly", "--target", "none", "-o", "no/m.nvm"), "no/m.nvm"),
    "command": (("frobnicate",), "frobnicate"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_one_paragraph(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(monkeypatch)
    capsys.readouterr()
    arguments, expected = MISTAKES[name]
    assert call(monkeypatch, *arguments) == 2
    caught = capsys.readouterr()
    assert expected in caught.err.replace("\n", " ")
    assert "Traceback" not in caught.err


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_extra_is_named(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from nimblevm.cli import main\nsys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"the command line needs {missing}: pip install 'nimblevm[cli]'\n"


def test_the_two_extras_are_enough() -> None:
    """click is imported by some versions of typer and part of others, so it can't be relied on."""
    roots = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(Path(cli.__file__).read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert "click" not in roots


def test_help_names_commands() -> None:
    command = [sys.executable, "-m", "nimblevm.cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    for name in ("compile", "run", "inspect", "disasm", "--version", "model.rly"):
        assert name in done.stdout

"""A folder with a program and its inputs, and the command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from rich.console import Console

import nimblevm as nvm
from nimblevm.cli import app, console

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?n, 3), float32], %w: Tensor[(3, 4), float32], %k: int32)
    -> Tensor[(?n, 3), float32] {
  let %loop = fn (%i: int32, %acc: Tensor[(?n, 3), float32]) -> Tensor[(?n, 3), float32] {
    if (less(%i, %k)) { %loop(%i + 1, tanh(add(%acc, nn.dense(%x, %w)))) } else { %acc }
  };
  %loop(0, %y)
}
"""

TREES = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
type Tree { Leaf, Node(Tree, Tensor[(?, 2), float32], Tree) }
def @sum(%t: Tree) -> float32 {
  match (%t) { Leaf => 0f, Node(%l, %v, %r) => sum(%v) + @sum(%l) + @sum(%r) }
}
def @pairs(%l: List[(int32, Tensor[(?), float32])]) -> List[int32] {
  match (%l) { Nil => Nil, Cons(%h, %t) => Cons(%h.0, @pairs(%t)) }
}
def @closure(%x: int32) -> fn (int32) -> int32 { fn (%y: int32) -> int32 { %x + %y } }
def @apply(%f: fn (int32) -> int32) -> int32 { %f(1) }
def @forever(%n: int32) -> int32 { @forever(%n + 1) }
def @main(%t: Tree, %x: Tensor[(?, 2), float32]) -> (Tree, Tensor[(?, 2), float32]) {
  (Node(%t, %x, Leaf), %x)
}
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `nimblevm arguments` in this process; lines are not broken."""

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["nimblevm", *arguments])
        monkeypatch.setattr("warnings.showwarning", None)  # restored behind the test
        monkeypatch.setattr(console, "out", Console(file=sys.stdout, width=250))
        monkeypatch.setattr(console, "err", Console(file=sys.stderr, width=250))
        capsys.readouterr()
        code = app.run_app()
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled programs and arrays; tests must not change them."""
    folder = tmp_path_factory.mktemp("cli")
    weights = np.ones((3, 4), np.float32)
    for name, text, params in (("model", PROGRAM, {"w": weights}), ("trees", TREES, {})):
        (folder / f"{name}.rly").write_text(text)
        mod = nvm.relay.parse(text, source_name=f"{name}.rly")
        nvm.compile(mod, params=params, native=False).save(folder / f"{name}.nvm")
    np.savez(folder / "weights.npz", w=weights)
    np.save(folder / "x.npy", np.ones((2, 4), np.float32))
    np.save(folder / "y.npy", np.zeros((2, 3), np.float32))
    np.save(folder / "bad.npy", np.zeros((2, 5), np.float32))
    np.savez(folder / "xy.npz", x=np.ones((2, 4), np.float32), y=np.zeros((2, 3), np.float32))
    np.savez(folder / "one.npz", a=np.ones((2, 4), np.float32))
    np.savez(folder / "extra.npz", x=np.ones((2, 4), np.float32), zz=np.zeros(1))
    (folder / "broken.json").write_text('{"x": [1, 2,\n  oops]}')
    (folder / "list.json").write_text("[1]")
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory of a test: links to `files`, and room for its own."""
    for file in files.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path

"""The C examples: built as their first comment says, against an installed tree, and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from tests.native.build import NATIVE, make

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("cc") is None or shutil.which("pkg-config") is None,
        reason="needs a C compiler and pkg-config",
    ),
]
ROOT = NATIVE.parent
EXAMPLES = ROOT / "examples" / "c"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, and an installed tree in `installed`."""
    path = tmp_path_factory.mktemp("examples")
    make("install", f"PREFIX={path / 'installed'}")
    subprocess.run(
        [sys.executable, str(EXAMPLES / "models.py"), str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    return path


def run(folder: Path, name: str, *words: str) -> str:
    """Build an example by the command in its comment; its output."""
    source = (EXAMPLES / f"{name}.c").read_text()
    found = re.search(rf"^ \*   (cc {name}\.c .*?) && \./{name} (.*)$", source, re.M)
    assert found is not None
    assert found[2].split() == list(words)
    shutil.copy(EXAMPLES / f"{name}.c", folder)
    lib = folder / "installed" / "lib"
    environment = os.environ | {
        "PKG_CONFIG_PATH": str(lib / "pkgconfig"),
        "LD_LIBRARY_PATH": str(lib),
    }
    command = found[1].replace("cc ", "cc -std=c11 -Wall -Wextra -Wpedantic -Werror -O1 ")
    subprocess.run(["sh", "-c", command], cwd=folder, env=environment, check=True)
    done = subprocess.run(
        [f"./{name}", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_predict(folder: Path) -> None:
    lines = run(folder, "predict", "tree.nvm").splitlines()
    assert lines[0].startswith(
        "@main(%t: BTree) -> (Tensor[(1, 4), float32], Tensor[(1, 4), float32])"
    )
    with nvm.load(folder / "tree.nvm") as exe, nvm.VirtualMachine(exe) as vm:
        leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
        words = np.zeros((3, 1, 8), np.float32)
        words[0, 0, :2], words[1, 0, 1:3], words[2, 0, 0] = (0.5, -1), (2, 1), 0.25
        expected = vm.run(node(node(leaf(words[0]), leaf(words[1])), leaf(words[2])))
    for line, name, value in zip(lines[1:], "hc", expected, strict=True):
        assert line == f"{name}: " + " ".join(f"{x:.6f}" for x in value.numpy()[0])


def test_stream(folder: Path) -> None:
    """The program itself fails if a step copies more than what is new; here its tokens are checked."""
    lines = run(folder, "stream", "rnn.nvm", "decoder.nvm").splitlines()
    assert lines[0].startswith("rnn: 200 steps, 256 bytes copied in each")
    with nvm.load(folder / "decoder.nvm") as exe, nvm.VirtualMachine(exe) as vm:
        empty = np.zeros((0, 64), np.float32)
        token, state, tokens = np.array([1], np.int32), ((empty, empty),) * 2, []
        for _ in range(10):
            token, _, state = vm.run(token, state)
            tokens.append(str(token.numpy()[0]))
    assert lines[-1] == f"tokens: {' '.join(tokens)} ..."

"""Weights that stay outside of the executable, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import nimblevm as nvm
from nimblevm.bytecode.weights import read_weights
from tests.cli.conftest import Cli

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(8, 4), float32]) { nn.dense(%x, %w) }
"""


def test_compile_and_run(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    w = {"w": np.arange(32, dtype=np.float32).reshape(8, 4)}
    x = np.ones((2, 4), np.float32)
    Path("model.rly").write_text(TEXT)
    Path("sub").mkdir()
    save_file(w, "sub/w.safetensors")
    np.savez("w.npz", w=w["w"])
    np.save("x.npy", x)
    for file, place in (("sub/w.safetensors", "sub/w.safetensors"), ("w.npz", "w.npz")):
        done = cli("compile", "model.rly", "--weights-file", file, "--target", "none")
        assert done.code == 0, done.err
        exe = nvm.load("model.nvm", weights=False)
        assert (exe.weights_file, exe.weights[0].name, len(exe.weights[0].digest)) == (
            place,
            "w",
            32,
        )
        for options in ((), ("--weights", "w.npz"), ("--weights", "sub/w.safetensors")):
            done = cli("run", "model.nvm", "x=x.npy", "-o", "out.npy", *options)
            assert done.code == 0, done.err
            assert np.array_equal(np.load("out.npy"), x @ w["w"].T)
    assert cli("inspect", "model.nvm").code == 0
    assert cli("disasm", "model.nvm").code == 0
    done = cli(
        "compile", "model.rly", "--weights-file", "w.npz", "-o", "sub/m.nvm", "--target", "none"
    )
    assert "outside of the folder of sub/m.nvm" in done.out
    done = cli("run", "sub/m.nvm", "x=x.npy")
    assert (done.code, "WeightsNotBound" in done.err) == (2, True)
    done = cli("compile", "model.rly", "--weights-file", "w.npz", "--params", "w.npz")
    assert "both --params and --weights-file have w" in done.err
    done = cli("compile", "model.rly", "--params", "sub/w.safetensors", "--target", "none")
    assert done.code == 0, done.err
    assert cli("run", "model.nvm", "x=x.npy").code == 0


def test_arrays_of_a_safetensors_file(tmp_path: Path) -> None:
    given: dict[str, np.ndarray] = {
        "a": np.arange(6, dtype=np.int16).reshape(2, 3),
        "b": np.zeros(0),
        "c": np.ones((), bool),
    }
    save_file(given, tmp_path / "w.safetensors")
    found = read_weights(tmp_path / "w.safetensors")
    assert list(found) == ["a", "b", "c"]
    for name, array in given.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
        assert not found[name].flags.writeable


def test_looking_at_files_without_their_weights(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.rly").write_text(TEXT)
    np.savez("w.npz", w=np.ones((8, 4), np.float32))
    np.save("x.npy", np.ones((2, 4), np.float32))
    assert cli("compile", "model.rly", "--weights-file", "w.npz", "--target", "none").code == 0
    assert cli("compile", "model.rly", "--params", "w.npz", "--target", "none", "-o", "whole.nvm").code == 0  # fmt: skip
    out = cli("inspect", "model.nvm", "--verify").out
    for text in (
        "weight left out",
        "w: Tensor[(8, 4), float32]",
        "weights lie in w.npz",
        "nothing of the 1 weights",
    ):
        assert text in out
    assert "weight left out" not in cli("inspect", "whole.nvm").out
    assert json.loads(cli("inspect", "model.nvm", "--json").out)["weights"][0]["bytes"] == 128
    assert cli("diff", "model.nvm", "model.nvm").code == 0
    done = cli("diff", "model.nvm", "whole.nvm")
    assert (done.code, "weights left out:" in done.out) == (1, True)
    done = cli("profile", "model.nvm", "x=x.npy", "--weights", "w.npz", "--limits", "none")
    assert (done.code, "kernel calls" in done.out) == (0, True)

"""nimblevm diff as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode.compare import compare
from tests.cli.conftest import PROGRAM, Cli


def save(name: str, text: str, **options: Any) -> None:
    options.setdefault("params", {"w": np.ones((3, 4), np.float32)})
    nvm.compile(nvm.relay.parse(text, source_name="model.rly"), native=False, **options).save(name)


def test_equal_files(folder: Path, cli: Cli) -> None:
    save("same.nvm", PROGRAM)
    done = cli("diff", "model.nvm", "same.nvm")
    assert tuple(done) == (0, "", "")
    found = json.loads(cli("diff", "model.nvm", "same.nvm", "--json").out)
    assert found["differ"] is False


def test_other_weights(folder: Path, cli: Cli) -> None:
    weights = np.ones((3, 4), np.float32)
    weights[1, 2] = 1.5
    weights[0, 0] = np.nan
    save("other.nvm", PROGRAM, params={"w": weights})
    done = cli("diff", "model.nvm", "other.nvm")
    assert done.code == 1
    assert "constant float32[3, 4] (c0, c0): 2 of 12 elements differ, by at most 0.5" in done.out
    assert "section constants:" in done.out
    assert "function" not in done.out
    (change,) = json.loads(cli("diff", "model.nvm", "other.nvm", "--json").out)["constants_changed"]
    assert (change["most"], change["elements"], change["of"]) == (0.5, 2, 12)


def test_other_code(folder: Path, cli: Cli) -> None:
    save("other.nvm", PROGRAM.replace("%i + 1", "%i + 2"))
    done = cli("diff", "model.nvm", "other.nvm")
    assert done.code == 1
    assert "function @main_loop differs:" in done.out
    assert any(
        line.startswith("-  LoadConsti i") and line.endswith(", 1")
        for line in done.out.splitlines()
    )
    assert any(
        line.startswith("+  LoadConsti i") and line.endswith(", 2")
        for line in done.out.splitlines()
    )
    assert "function @main differs" not in done.out


def test_other_kernels(folder: Path, cli: Cli) -> None:
    save("other.nvm", PROGRAM.replace("tanh", "exp"))
    done = cli("diff", "model.nvm", "other.nvm")
    assert done.code == 1
    assert "-kernel " in done.out
    assert "+kernel " in done.out
    nvm.compile(nvm.relay.parse('#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n), float32]) { clip(%x, a_min=0f, a_max=1f) }'), native=False).save("a.nvm")  # fmt: skip
    nvm.compile(nvm.relay.parse('#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n), float32]) { clip(%x, a_min=0f, a_max=2f) }'), native=False).save("b.nvm")  # fmt: skip
    done = cli("diff", "a.nvm", "b.nvm", "--kernels")
    assert "kernel clip differs:" in done.out
    assert "-body: " in done.out
    assert any(
        line.startswith(("+      out0[i0] = ", "+    out0[i0] = "))
        for line in done.out.splitlines()
    )
    assert list(json.loads(cli("diff", "a.nvm", "b.nvm", "--kernels", "--json").out)["bodies"]) == [
        "clip"
    ]


def test_other_functions_types_and_producers(folder: Path, cli: Cli) -> None:
    done = cli("diff", "model.nvm", "trees.nvm")
    assert done.code == 1
    for text in ("-function @main_loop", "+function @sum", "function @main differs:", "data types differ:",
                 "+Tree.Leaf()", "-constant c0 float32[3, 4]", "sources:", "-model.rly", "+trees.rly", "bytes:"):  # fmt: skip
        assert text in done.out, text
    back = cli("diff", "trees.nvm", "model.nvm")
    assert "+function @main_loop" in back.out


def test_one_more_constant_moves_nothing(folder: Path) -> None:
    """Numbers of table entries shift; functions that use the same entries are the same."""
    text = (
        '#[version = "0.0.5"]\nMORE'
        "def @b(%x: Tensor[(4), float32], %w: Tensor[(4), float32]) { add(%x, %w) }\n"
        "def @main(%x: Tensor[(4), float32], %w: Tensor[(4), float32]) { multiply(%x, %w) }\n"
    )
    params = {"w": np.arange(4, dtype=np.float32)}
    more = "def @a(%x: Tensor[(9), float64]) { sqrt(%x) }\n"
    with (
        nvm.compile(nvm.relay.parse(text.replace("MORE", "")), params=params, native=False) as one,
        nvm.compile(
            nvm.relay.parse(text.replace("MORE", more)), params=params, native=False
        ) as two,
    ):
        found = compare(one, two)
        assert found.functions_added == ("a",)
        assert found.functions_changed == ()
        assert found.kernels_changed == ()
        assert not compare(one, one)


@pytest.mark.parametrize(
    "args",
    [("diff", "model.nvm"), ("diff", "model.nvm", "none.nvm"), ("diff", "x.npy", "model.nvm")],
)
def test_mistakes(folder: Path, cli: Cli, args: tuple[str, ...]) -> None:
    assert cli(*args).code == 2

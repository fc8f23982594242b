"""compile, inspect, disasm and check as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import nimblevm as nvm
from nimblevm.cli import console
from tests.cli.conftest import Cli


def test_compile(folder: Path, cli: Cli) -> None:
    done = cli("compile", "model.rly", "--params", "weights.npz", "--target", "none", "-o", "m2.nvm")  # fmt: skip
    assert done.code == 0
    assert done.out.startswith("wrote m2.nvm (")
    assert done.err == ""  # no progress where no terminal is
    with nvm.load("m2.nvm") as exe:
        assert [p.name for p in exe.functions["main"].params] == ["x", "y", "k"]


def test_compile_names_the_file_after_the_source(folder: Path, cli: Cli) -> None:
    Path("own.rly").write_text('#[version = "0.0.5"]\ndef @main(%x: int32) { %x }\n')
    assert cli("compile", "own.rly").code == 0
    assert Path("own.nvm").exists()


def test_compile_stores_weights_in_16_bits(folder: Path, cli: Cli) -> None:
    Path("wide.rly").write_text(
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(1, 64), float32], %w: Tensor[(64, 64), float32]) { nn.dense(%x, %w) }\n"
    )
    np.savez("wide.npz", w=np.ones((64, 64), "float32"))
    sizes = []
    for weights in ("float32", "bfloat16"):
        args = ("wide.rly", "--params", "wide.npz", "--weights", weights, "--target", "none")
        assert cli("compile", *args).code == 0
        sizes.append(Path("wide.nvm").stat().st_size)
    assert 8000 < sizes[0] - sizes[1] < 8400
    assert cli("compile", "wide.rly", "--weights", "int4").code == 2


def test_inspect(folder: Path, cli: Cli) -> None:
    out = cli("inspect", "model.nvm").out
    for text in ("%x: Tensor[(?n, 4), float32]", "?n from %x", "%x axis 1 = 4", "%y axis 0 = ?n"):
        assert text in out
    assert "main_loop" not in out
    assert "1 internal functions not shown (--all)" in out
    out = cli("inspect", "model.nvm", "--all").out
    assert "main_loop" in out
    assert "(internal)" in out
    assert "Tree.Node" in cli("inspect", "trees.nvm").out


def test_disasm(folder: Path, cli: Cli) -> None:
    assert ".func @main public" in cli("disasm", "model.nvm").out


def test_check(folder: Path, cli: Cli) -> None:
    done = cli("check", "model.rly")
    assert done.code == 0
    lines = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done.out.splitlines() if "│" in line
    ]  # fmt: skip
    assert ["parameter %x", "0", "?n", "free", ""] in lines
    assert ["parameter %x", "1", "4", "static", ""] in lines
    assert ["parameter %y", "0", "?n", "checked", "axis 0 of %x"] in lines
    assert ["", "", "", "", "model.rly:2:41: parameter %y of @main: must be ?n"] in lines
    assert ["result", "0", "?n", "equal to", "axis 0 of %x"] in lines
    assert ["%loop result", "1", "3", "static", ""] in lines
    assert done.out.endswith("12 dims: 7 static, 2 equal to, 2 checked, 1 free\n")


def test_check_as_json(folder: Path, cli: Cli) -> None:
    report = json.loads(cli("check", "trees.rly", "--json", "--only", "checked").out)
    assert report["file"] == "trees.rly"
    dims = {f["name"]: f["dims"] for f in report["functions"]}
    (claim,) = dims["sum"]
    assert claim["value"] == "field 1 of Node"
    assert claim["checks"] == [
        {
            "function": "@sum", "source": "trees.rly", "line": 5, "column": 37, "why": "field 1 of Node",
            "demand": "must be 2",
        }
    ]  # fmt: skip


def test_check_of_an_executable(folder: Path, cli: Cli) -> None:
    done = cli("check", "model.nvm", "--function", "main")
    assert done.code == 0
    assert "parameter %y of @main: must be ?n" in done.out
    everything = json.loads(cli("check", "trees.nvm", "--json").out)
    assert {f["name"] for f in everything["functions"]} >= {"sum", "main"}


def test_check_of_some_functions_and_values(folder: Path, cli: Cli) -> None:
    out = cli("check", "trees.rly", "--function", "sum", "--values").out
    assert "@sum" in out
    assert "@main" not in out
    assert "%v" in out


# --- progress -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "shown"), [(0.0, True), (60.0, False)])
def test_progress_is_shown_on_a_terminal_after_a_while(
    after: float, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "PROGRESS_AFTER", after)
    monkeypatch.setattr(console, "err", Console(stderr=True, force_terminal=True, width=100))
    with console.progress_of("compiling m.rly") as report:
        report("fuse_ops", 3, 12)
        if shown:
            for _ in range(200):
                if "fuse_ops" in capsys.readouterr().err:
                    break
                console.time.sleep(0.05)
            else:
                pytest.fail("nothing was shown")
    assert shown or capsys.readouterr().err == ""


def test_compile_reports_stages() -> None:
    mod = nvm.relay.parse('#[version = "0.0.5"]\ndef @main(%x: Tensor[(?), float32]) { exp(%x) }')
    seen: list[tuple[str, int, int]] = []
    nvm.compile(mod, progress=lambda *stage: seen.append(stage))
    assert seen[0] == ("infer_type", 0, seen[0][2])
    assert [name for name, _, _ in seen][-3:] == ["emit", "machine code", "file"]
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert {total for _, _, total in seen} == {seen[-1][1] + 1}
    assert "fuse_ops" in [name for name, _, _ in seen]
    assert np.all(np.diff([done for _, done, _ in seen]) >= 0)

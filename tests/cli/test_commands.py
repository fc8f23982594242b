"""compile, inspect, disasm and check as a user sees them."""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import nimblevm as nvm
from nimblevm.bytecode.describe import describe
from nimblevm.bytecode.serialize import serialize
from nimblevm.cli import console
from nimblevm.cli.console import plain
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


def test_inspect_shows_kernels_constants_and_sections(folder: Path, cli: Cli) -> None:
    out = cli("inspect", "model.nvm").out
    for text in (
        "loop IR",
        "(float32[?n, 4], ",
        "float32[3, 4]",
        "48",
        "SHA-256",
        "bytecode",
        "kernel IR",
        "nimblevm",
    ):
        assert text in out
    assert "checked:" not in out


def test_inspect_verify_says_what_was_checked(folder: Path, cli: Cli) -> None:
    done = cli("inspect", "model.nvm", "--verify")
    assert done.code == 0
    assert done.out.count("checked: ") >= 5
    assert "2 functions" in done.out
    data = bytearray(Path("model.nvm").read_bytes())
    with nvm.load("model.nvm") as exe:
        constants = next(s for s in describe(exe).sections if s.kind == "constants")
    data[constants.offset] ^= 1
    Path("broken.nvm").write_bytes(data)
    assert cli("inspect", "broken.nvm").code == 0  # constants are not read
    done = cli("inspect", "broken.nvm", "--verify")
    assert (done.code, "section 1: SHA-256 is" in done.err) == (2, True)
    assert "the file was damaged or changed; get it again" in done.err


def test_inspect_as_json(folder: Path, cli: Cli) -> None:
    found = json.loads(cli("inspect", "model.nvm", "--json", "--verify").out)
    data = Path("model.nvm").read_bytes()
    assert found["bytes"] == len(data)
    for section in found["sections"]:
        part = data[section["offset"] : section["offset"] + section["bytes"]]
        assert hashlib.sha256(part).hexdigest() == section["sha256"]
    main = next(f for f in found["functions"] if f["name"] == "main")
    assert main["parameters"][0] == {"name": "x", "type": "Tensor[(?n, 4), float32]"}
    assert main["dims"] == [{"name": "n", "bound_by": "x"}]
    constant = {"dtype": "float32", "shape": [3, 4], "bytes": 48, "device": 0, "weight": None}
    assert constant in found["constants"]
    assert (found["weights"], found["signed"]) == ([], False)
    assert len(found["checked"]) >= 5
    constructors = json.loads(cli("inspect", "trees.nvm", "--json").out)["constructors"]
    assert {"type": "Tree", "name": "Leaf", "fields": []} in constructors


def test_disasm(folder: Path, cli: Cli) -> None:
    assert ".func @main public" in cli("disasm", "model.nvm", "--assembler").out
    out = cli("disasm", "model.nvm").out
    assert "@main(%x: Tensor[(?n, 4), float32]" in out
    assert "model.rly:4  let %loop = fn" in out  # the text lies beside the file
    assert "CallKernel k" in out
    assert "kernel " not in out.replace("CallKernel ", "")
    lines = out.splitlines()
    marked = {int(line.split()[0]) for line in lines if line[9:10] == ">"}
    targets = {int(t) for t in re.findall(r"\bL(\d+)\b", out)}
    assert marked == targets


def test_disasm_of_some_functions_and_kernels(folder: Path, cli: Cli) -> None:
    out = cli("disasm", "trees.nvm", "--function", "@sum").out
    assert "@sum(" in out
    assert "@main(" not in out
    with nvm.load("model.nvm") as exe:
        name = exe.kernels[0].name
    out = cli("disasm", "model.nvm", "--kernel", name).out
    assert out.startswith(f"kernel {name}(?n")
    assert "for i0 < ?n:" in out
    assert "@main(" not in out
    assert "for i0 < ?n:" in cli("disasm", "model.nvm", "--kernels").out
    done = cli("disasm", "model.nvm", "--function", "none")
    assert (done.code, "no function @none; the file has @main" in done.err) == (2, True)
    assert "no kernel none" in cli("disasm", "model.nvm", "--kernel", "none").err


def test_disasm_with_another_source(folder: Path, cli: Cli) -> None:
    Path("other.txt").write_text("\n".join(f"this is line {k}" for k in range(1, 9)))
    assert "model.rly:4  this is line 4" in cli("disasm", "model.nvm", "--source", "other.txt").out
    assert cli("disasm", "model.nvm", "--source", "none.txt").code == 2


def test_every_kernel_has_a_text(folder: Path, cli: Cli) -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n), float32], %y: Tensor[(?m), float32]) '
    text += "{ (sort(%x), add(%x, %y), concatenate((%x, %x)), arange(0f, 5f, 1f)) }"
    nvm.compile(nvm.relay.parse(text), native=False).save("many.nvm")
    out = cli("disasm", "many.nvm", "--kernels").out
    with nvm.load("many.nvm") as exe:
        assert out.count("\nkernel ") == len(exe.kernels)
        assert {k.kind for k in exe.kernels} == {"C", "loop IR"}
    assert ", in C: (float32[" in out
    assert " or 1]" in out  # a broadcast axis


def test_names_do_not_drive_the_terminal() -> None:
    assert plain("a\x1b[2Jb\u202ec") == "a?[2Jb?c"


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
    with console.progress_of("compiling m[/].rly") as report:
        report("fuse_ops", 3, 12)
        if shown:
            for _ in range(200):
                if "fuse_ops" in capsys.readouterr().err:
                    break
                time.sleep(0.05)
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


@pytest.mark.parametrize(
    "command",
    [
        ("disasm", "--kernels"), ("disasm", "--assembler"), ("inspect", "--all"), ("profile", "x.npy", "--limits", "none"),
        ("diff", "model.nvm", "--kernels"), ("run", "bad.npy"), ("run", "x.npy", "--function", "\x1b[2J"),
    ],
)  # fmt: skip
def test_names_of_a_file_give_the_terminal_no_orders(
    folder: Path, cli: Cli, command: tuple[str, ...]
) -> None:
    """Of kernels, parameters, dims, sources and whoever made the file."""
    bad = "a\x1b[31m\x07b\x7f\u202e\r"
    source = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n, 4), float32]) { exp(%x) }'
    record = nvm.compile(nvm.relay.parse(source), native=False).program_record()
    (function,) = record.functions
    hostile = replace(
        record,
        kernels=tuple(replace(k, name=bad) for k in record.kernels),
        sources=tuple(bad for _ in record.sources),
        functions=(
            replace(
                function,
                params=tuple(replace(p, name=bad) for p in function.params),
                dims=tuple(replace(d, name=bad) for d in function.dims),
            ),
        ),
        producer={"nimblevm": bad},
    )
    Path("hostile.nvm").write_bytes(serialize(hostile))
    done = cli(command[0], "hostile.nvm", *command[1:])
    for text in (done.out, done.err):
        assert not set(text) & set("\x1b\x07\x7f\u202e\r"), text
    assert done.out or done.err

"""nimblevm run: where inputs come from and where results go."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli

NODE = '{"constructor": "Node", "fields": ["Leaf", [[1, 2]], {"constructor": "Node", "fields": ["Leaf", [], "Leaf"]}]}'


def test_arrays_and_numbers(folder: Path, cli: Cli) -> None:
    done = cli("run", "model.nvm", "x=x.npy", "%y=y.npy", "k=3", "-o", "out.npz")
    assert done.code == 0
    assert "result 0: Tensor(shape=(2, 3), dtype=float32)" in done.out
    assert " us\n" in done.out
    with np.load("out.npz") as out:
        assert out["result0"].shape == (2, 3)


def test_profile(folder: Path, cli: Cli) -> None:
    done = cli("run", "model.nvm", "x=x.npy", "y=y.npy", "k=3", "--profile")
    assert done.code == 0, done.err
    assert "1 runs" in done.out
    assert "us a call" in done.out


EQUAL = {
    "archive": ("xy.npz", "k=3"),
    "array of an archive": ("x=xy.npz:x", "y=xy.npz:y", "k=3"),
    "only array": ("x=one.npz", "y=xy.npz", "k=3"),
    "JSON": ("x=[[1,1,1,1],[1,1,1,1.0]]", "y=[[0,0,0],[0,0,0]]", "k=3"),
    "files in JSON": ('x={"file": "x.npy"}', 'y={"file": "xy.npz:y"}', "k=3"),
    "JSON in full": ('x={"dtype": "float32", "shape": [2, 4], "data": [1,1,1,1,1,1,1,1]}', "y=y.npy", "k=3"),
    "JSON file": ("x=x.json", "y=y.npy", "k=3"),
    "JSON file of all": ("all.json",),
    "JSON file with a mark": ("marked.json",),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_inputs(name: str, folder: Path, cli: Cli) -> None:
    Path("x.json").write_text("[[1, 1, 1, 1], [1, 1, 1, 1]]")
    Path("all.json").write_text('{"x": {"file": "x.npy"}, "y": [[0, 0, 0], [0, 0, 0]], "k": 3}')
    Path("marked.json").write_text(Path("all.json").read_text(), encoding="utf-8-sig")
    assert cli("run", "model.nvm", "xy.npz", "k=3", "-o", "a.npy").code == 0
    done = cli("run", "model.nvm", *EQUAL[name], "-o", "b.npy")
    assert done.code == 0, done.err
    assert np.array_equal(np.load("a.npy"), np.load("b.npy"))


def test_random(folder: Path, cli: Cli) -> None:
    for seed, name in (("1", "a"), ("1", "b"), ("2", "c")):
        done = cli("run", "model.nvm", "x=random:5x4", "y=random:5x3", "k=1", "--seed", seed, "-o", f"{name}.npy")  # fmt: skip
        assert done.code == 0, done.err
    a, b, c = (np.load(f"{name}.npy") for name in "abc")
    assert a.shape == (5, 3)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_data_types(folder: Path, cli: Cli) -> None:
    done = cli("run", "trees.nvm", "--function", "sum", f"t={NODE}", "-o", "sum.json")
    assert done.code == 0, done.err
    assert json.loads(Path("sum.json").read_text()) == 3.0
    done = cli("run", "trees.nvm", "--function", "pairs", "l=[[1, [2, 3]], [4, []]]", "-o", "l.json")  # fmt: skip
    assert "result 0: [1, 4]\n" in done.out
    assert json.loads(Path("l.json").read_text()) == [1, 4]
    assert cli("run", "trees.nvm", "--function", "sum", "t=Leaf").code == 0
    assert cli("run", "trees.nvm", "--function", "sum", 't="Tree.Leaf"').code == 0


def test_results_can_be_inputs_again(folder: Path, cli: Cli) -> None:
    done = cli("run", "trees.nvm", f"t={NODE}", "x=[]", "-o", "out.json")
    assert done.code == 0, done.err
    tree, x = json.loads(Path("out.json").read_text())
    assert x == {"dtype": "float32", "shape": [0, 2], "data": []}
    assert tree["fields"][0]["fields"][1] == [[1, 2]]
    Path("again.json").write_text(json.dumps({"t": tree, "x": x}))
    assert cli("run", "trees.nvm", "again.json", "-o", "twice.json").code == 0
    assert json.loads(Path("twice.json").read_text())[0]["fields"][0] == tree


def test_wrong_values_name_the_place(folder: Path, cli: Cli) -> None:
    wrong = NODE.replace("[]", "[[1, 2, 3]]")
    done = cli("run", "trees.nvm", "--function", "sum", f"t={wrong}")
    assert done.code == 2
    assert "parameter %t.Node[2].Node[1]: expected Tensor[(?, 2), float32], got float32 of shape [1, 3]" in done.err  # fmt: skip


def test_long_values_are_cut_when_shown(folder: Path, cli: Cli) -> None:
    items = json.dumps([[i, []] for i in range(2000)])
    Path("long.json").write_text(items)
    done = cli("run", "trees.nvm", "--function", "pairs", "l=long.json", "-o", "out.json")
    assert done.out.splitlines()[0].endswith(" ...")
    assert len(done.out) < 2200
    assert json.loads(Path("out.json").read_text()) == list(range(2000))


def test_deep_values(folder: Path, cli: Cli) -> None:
    depth = 4_000
    opened = '{"constructor": "Node", "fields": ["Leaf", [[1, 1]], '
    Path("deep.json").write_text(opened * depth + '"Leaf"' + "]}" * depth)
    done = cli("run", "trees.nvm", "--function", "sum", "t=deep.json", "-o", "out.json")
    assert done.code == 0, done.err
    assert json.loads(Path("out.json").read_text()) == 2.0 * depth
    done = cli("run", "trees.nvm", "t=deep.json", "x=[]", "-o", "out.json")
    assert done.code == 0, done.err
    assert Path("out.json").read_text().count("Node") == depth + 1


def test_functions_in_results_are_shown_as_handles(folder: Path, cli: Cli) -> None:
    done = cli("run", "trees.nvm", "--function", "closure", "x=1")
    assert done.code == 0
    assert "result 0: <Handle" in done.out


def test_tuples_need_npz(folder: Path, cli: Cli) -> None:
    done = cli("run", "trees.nvm", "t=Leaf", "x=[[1, 2]]", "-o", "o.npy")
    assert done.code == 2
    assert "use -o FILE.json" in done.err


@pytest.mark.slow
def test_ctrl_c_stops_a_run(folder: Path) -> None:
    command = [sys.executable, "-m", "nimblevm.cli", "run", "trees.nvm", "--function", "forever", "n=0"]  # fmt: skip
    # A shell that starts tests in the background may have told them to ignore Ctrl-C, and children inherit that.
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            time.sleep(5)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "error: interrupted\n")

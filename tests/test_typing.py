"""The public API as a typed program sees it: a user's script passes mypy --strict, and mistakes in it are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = """
from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

import nimblevm as nvm
from nimblevm import Executable, Limits, Tensor, VirtualMachine


def build(text: str, weights: dict[str, npt.NDArray[np.float32]]) -> Executable:
    mod: nvm.relay.IRModule = nvm.relay.parse(text, source_name="model.rly")
    exe = nvm.compile(mod, params=weights, late_bound=True, weights_file="w.safetensors")
    exe.save(Path("model.nvm"), private_key="key.pem")
    return exe


def run(path: str) -> tuple[int, ...]:
    with nvm.load(path, weights="w.safetensors", public_key=b"") as exe:
        names: list[str] = [p.name for p in exe.functions["main"].params]
        missing: list[tuple[int, ...]] = [w.shape for w in exe.weights]
        with VirtualMachine(exe, threads=2, limits=Limits(seconds=1.0)) as vm:
            out: Tensor = vm.run(np.zeros((3, 4), np.float32))
            again: Tensor = vm.invoke("main", nvm.move(out), n=len(names) + len(missing))
            counters: dict[str, int] = vm.stats()
            array: npt.NDArray[np.float32] = again.numpy()
    return (*again.shape, array.size, counters["runs"])


def as_in_tvm() -> nvm.relay.Function:
    from nimblevm import relay

    x = relay.var("x", shape=(relay.Any(), 4), dtype="float32")
    y = 1.0 - relay.nn.relu(-x * 2 + 0.5) / x.astype("float32")
    pair = relay.Tuple([x, y])
    mod = relay.IRModule.from_expr(relay.Function([x], relay.TupleGetItem(pair, 1)))
    called = relay.Call(mod.get_global_var("main"), [x])
    main: relay.Function = mod["main"]
    return relay.Function(main.params, relay.If(called < 1, main.body, called), attrs={"Inline": 1})


def careful(exe: Executable, weights: dict[str, npt.NDArray[np.float32]]) -> str:
    try:
        bound: Executable = exe.bind(weights, strict=False, verify="full")
    except nvm.WeightsMismatch as error:
        return ", ".join(error.missing + error.extra)
    except nvm.SignatureError as error:
        return str(error)
    except nvm.errors.FileError as error:
        return str(error.filename)
    tree = bound.constructor("Node")(1, 2)
    return tree.constructor.name
"""
MISTAKES = """
import nimblevm as nvm
from nimblevm.bytecode.executable import Executable

nvm.frobnicate  # E: Module has no attribute
nvm.load(3)  # E: incompatible type "int"
nvm.load("m.nvm", verify="most")  # E: incompatible type "Literal['most']"
nvm.load("m.nvm", weights=[1])  # E: incompatible type
exe: int = nvm.load("m.nvm")  # E: incompatible type "int"|Incompatible types in assignment
nvm.Limits(minutes=3)  # E: Unexpected keyword argument
nvm.load("m.nvm").weights[0].colour  # E: has no attribute "colour"
nvm.VirtualMachine("m.nvm")  # E: incompatible type "str"
"""


def mypy(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    (folder / "none.ini").write_text("[mypy]\n")  # not the project's own
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "none.ini", "--cache-dir", str(folder / "cache")]  # fmt: skip
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--follow-imports", "silent", "script.py"],
        capture_output=True, text=True, cwd=folder, env=environment, check=False,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("script.py")]


@pytest.mark.slow
def test_a_users_script_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert mypy(tmp_path, SCRIPT) == []


@pytest.mark.slow
def test_mistakes_of_a_user_are_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    found = mypy(tmp_path, MISTAKES)
    for number, line in enumerate(MISTAKES.splitlines(), 1):
        if "# E: " in line:
            pattern = "|".join(re.escape(p) for p in line.split("# E: ")[1].split("|"))
            messages = [m for m in found if m.startswith(f"script.py:{number}:")]
            assert any(re.search(pattern, m) for m in messages), (line, messages)

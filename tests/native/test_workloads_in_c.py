"""A C program built by plain cc against the installed headers and library (the sources of nvm-run, which use nothing
else) runs every workload; its results are those of Python, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.cli.json_text import dumps, loads
from nimblevm.cli.values import to_json
from tests.native.build import NATIVE, make
from tests.workloads.small import SMALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The C program and the environment in which it finds the shared library."""
    prefix = tmp_path_factory.mktemp("prefix")
    make("install", f"PREFIX={prefix}")
    target = prefix / "program"
    command = ["cc", "-O1", "-D_GNU_SOURCE", f"-I{prefix}/include/nimblevm"]
    command += [*map(str, (NATIVE / "tools").glob("*.c")), f"-L{prefix}/lib", "-lnimblevm", "-lm"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target, os.environ | {"LD_LIBRARY_PATH": str(prefix / "lib")}


def as_json(value: Any, folder: Path, name: str) -> Any:
    """An argument in the forms of nvm-run; arrays of some size become .npy files."""
    if isinstance(value, nvm.ADTValue):
        fields = [as_json(f, folder, f"{name}_{i}") for i, f in enumerate(value.fields)]
        own = value.constructor.name
        return {"constructor": own, "fields": fields} if fields else own
    if isinstance(value, tuple):
        return [as_json(f, folder, f"{name}_{i}") for i, f in enumerate(value)]
    np.save(folder / f"{name}.npy", value)
    return {"file": f"{name}.npy"}


@pytest.mark.parametrize("native", [True, False], ids=["native", "interpreted"])
@pytest.mark.parametrize("name", SMALL)
def test_equal_to_python(
    name: str, native: bool, program: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    workload = SMALL[name]
    exe = nvm.compile(workload.module())
    exe.save(tmp_path / "model.nvm")
    exe = nvm.load(tmp_path / "model.nvm", native=native)
    params = exe.function(workload.function).params
    rng = np.random.default_rng(21)
    with nvm.VirtualMachine(exe) as vm:
        for turn in range(3):
            values = workload.inputs(exe, rng)
            expected = loads("".join(dumps(to_json(vm.invoke(workload.function, *values)))))
            named = {
                p.name: as_json(v, tmp_path, f"{p.name}{turn}")
                for p, v in zip(params, values, strict=True)
            }
            (tmp_path / "in.json").write_text(json.dumps(named))
            words = ["model.nvm", "in.json", "-f", workload.function, "-o", "out.json", "-q"]
            done = subprocess.run(
                [str(program[0]), *words, *([] if native else ["--no-native"])],
                cwd=tmp_path,
                env=program[1],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            assert loads((tmp_path / "out.json").read_text()) == expected

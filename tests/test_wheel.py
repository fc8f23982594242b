"""The wheel: built from the source distribution, checked, installed where nothing else is, runs a saved file."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm

ROOT = Path(__file__).parent.parent
TEXT = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
def @main(%x: Tensor[(?n, 8), float32], %w: Tensor[(8, 8), float32]) -> List[Tensor[(?, 8), float32]] {
  Cons(tanh(nn.dense(%x, %w)), Nil)
}
"""
SCRIPT = """
import importlib.util, sys, warnings
from importlib import metadata
from pathlib import Path
import numpy as np
import nimblevm as nvm
assert "site-packages" in nvm.__file__, nvm.__file__
assert importlib.util.find_spec("llvmlite") is None
assert nvm.__version__ == metadata.version("nimblevm") == sys.argv[1]
with nvm.load("model.nvm", native="require") as exe, nvm.VirtualMachine(exe) as vm:
    np.save("out.npy", vm.run(np.load("x.npy")).fields[0].numpy())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    again = nvm.compile(nvm.relay.parse(Path("model.rly").read_text()))
assert [w.category for w in caught] == [nvm.errors.MachineCodeWarning], caught
assert "pip install 'nimblevm[compiler]'" in str(caught[0].message)
with nvm.VirtualMachine(again) as vm:
    np.save("again.npy", vm.run(np.load("x.npy"), np.load("w.npy")).fields[0].numpy())
"""


def run(*command: str | Path, **options: str | Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NVM_"))}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=environment,
        cwd=options.get("cwd"),
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("build", "auditwheel", "pip")),
    reason="not installed: pip install 'nimblevm[wheel]'",
)
def test_the_wheel_runs_a_saved_file_in_an_empty_environment(tmp_path: Path) -> None:
    dist, wheels = tmp_path / "dist", tmp_path / "wheels"
    said = run(sys.executable, ROOT / "tools" / "build_wheel.py", dist)
    assert len(said.splitlines()) == 1, said
    assert [p.suffix for p in sorted(dist.iterdir())] == [".whl", ".gz"]
    needs = ("numpy", "cffi", "msgpack")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "download", "--only-binary", ":all:", "-d", wheels, *needs)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    places = ("--no-index", "--find-links", wheels, "--find-links", dist)
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *places, "nimblevm")

    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((5, 8), (8, 8)))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    (tmp_path / "model.rly").write_text(TEXT)
    nvm.compile(nvm.relay.parse(TEXT), params={"w": w}).save(tmp_path / "model.nvm")
    run(python, "-I", "-c", SCRIPT, nvm.__version__, cwd=tmp_path)
    for name in ("out.npy", "again.npy"):
        np.testing.assert_allclose(np.load(tmp_path / name), np.tanh(x @ w.T), rtol=1e-5, atol=1e-6)

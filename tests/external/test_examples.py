"""The tutorial's backends: they run as they stand, and refuse what is malformed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.external import Region
from nimblevm.external import Blob, External

ROOT = Path(nvm.__file__).parent.parent
EXAMPLES = ROOT / "examples" / "external"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_json_backend(capsys: pytest.CaptureFixture[str]) -> None:
    module = load("json_backend")
    module.main()
    assert capsys.readouterr().out == "the same as without the backend\n"
    lines = (EXAMPLES / "json_backend.py").read_text().splitlines()
    assert len(lines) < 300, "a tutorial"


def test_json_backend_owns_its_constants() -> None:
    """One region of five operators; the weights are in the blob and nowhere else."""
    module = load("json_backend")
    regions = []

    def watched(region: nvm.external.Region) -> Blob:
        regions.append(region)
        return module.codegen(region)

    external = External("json", module.PATTERNS, watched, merge=True, constants="owned")
    w = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    params = {"w": w, "b": np.ones(4, np.float32)}
    exe = nvm.compile(relay.parse(module.PROGRAM), params, external=external)
    (region,) = regions
    assert [
        m.op.attrs["Composite"] for m in region.matches if isinstance(m.op, relay.Function)
    ] == [f"json.{name}" for name in ("dense_add", "tanh", "dense", "add", "relu")]
    assert len(region.inputs) == 1
    assert len(region.dims) == 1, "rows stay unknown"
    assert exe.to_bytes().count(w.tobytes()) == 2  # two products, each with its copy in the blob


@pytest.mark.parametrize("blob", [b"", b"\4\0\0\0null", b"\2\0\0\0{}", b"\xff\xff\xff\xff"])
def test_json_runtime_refuses(blob: bytes) -> None:
    module = load("json_backend")
    external = External("json", module.PATTERNS, lambda region: Blob(blob), merge=True)
    exe = nvm.compile(relay.parse(module.PROGRAM), external=external)
    with pytest.raises(nvm.InvalidExecutable, match="no graph"):
        nvm.VirtualMachine(exe)
    graph = {"inputs": 1, "steps": [["exec", 0]], "outputs": [1]}
    text = json.dumps(graph).encode()
    with pytest.raises(nvm.InvalidExecutable, match="exec"):
        module.factory(len(text).to_bytes(4, "little") + text)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_c_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = tmp_path / "leaky_runtime.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion"]
    source = EXAMPLES / "leaky_runtime.c"
    subprocess.run(
        ["cc", *flags, "-I", str(ROOT / "native" / "include"), str(source), "-o", str(library)],
        check=True,
    )
    module = load("leaky_backend")
    module.main(str(library))
    assert capsys.readouterr().out == "the C runtime gives what numpy does\n"
    for blob, match in ((b"123", "a slope is 4 bytes"), (b"\0\0\x80\x3e", "one input, one output")):
        pattern = relay.dataflow_pattern.is_op("add")(
            relay.dataflow_pattern.wildcard(), relay.dataflow_pattern.wildcard()
        )

        def codegen(region: Region, code: bytes = blob) -> Blob:
            return Blob(code)

        external = External("leaky", [("leaky.add", pattern)], codegen)
        mod = relay.parse("""#[version = "0.0.5"]
def @main(%x: Tensor[(2), float32], %y: Tensor[(2), float32]) { %x + %y }""")
        with pytest.raises(nvm.InvalidExecutable, match=match):
            nvm.VirtualMachine(nvm.compile(mod, external=external))
    with pytest.raises(nvm.errors.FileError):
        nvm.external.load_runtime(tmp_path / "nothing.so")

"""The cases of this folder once more, on an interpreter built with NVM_DISPATCH=switch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = """
import sys
sys.path.insert(0, "native")
import build_ffi
build_ffi.ffibuilder.compile(tmpdir=sys.argv[1])
"""
RUN = """
import glob, importlib.util, sys
import pytest
(path,) = glob.glob(sys.argv[1] + "/nimblevm/_native*.so")
spec = importlib.util.spec_from_file_location("nimblevm._native", path)
module = importlib.util.module_from_spec(spec)
sys.modules["nimblevm._native"] = module
spec.loader.exec_module(module)
import nimblevm
nimblevm._native = module
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/asm/test_asm.py"]))
"""


@pytest.mark.slow
def test_all_cases_with_switch_dispatch(tmp_path: Path) -> None:
    environment = {**os.environ, "NVM_DISPATCH": "switch"}
    for script in (BUILD, RUN):
        result = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stdout + result.stderr

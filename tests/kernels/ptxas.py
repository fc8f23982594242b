"""NVIDIA's assembler, from the package nvidia-cuda-nvcc-cu12 (extra [ptxas]): what it says of PTX."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

ARCHS = ("sm_70", "sm_80", "sm_90")


@dataclass(frozen=True, slots=True)
class Use:
    """What one entry needs: 32-bit registers a thread, bytes of spills and of stack a thread, shared bytes a group."""

    entry: str
    registers: int
    spills: int
    stack: int
    shared: int


@cache
def path() -> str:
    """The program, "" where the package is not installed."""
    try:
        found = files("nvidia-cuda-nvcc-cu12") or []
    except PackageNotFoundError:
        return ""
    return next((str(f.locate()) for f in found if f.name == "ptxas"), "")


def assemble(source: bytes, arch: str) -> list[Use]:
    """Assemble PTX for a GPU. AssertionError with the assembler's text if it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "module.ptx"
        file.write_bytes(source)
        command = [path(), f"-arch={arch}", "-v", "-o", f"{folder}/module.cubin", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(_uses(done.stderr))


def _uses(text: str) -> list[Use]:
    found = []
    for part in text.split("Compiling entry function '")[1:]:
        numbers = {
            name: sum(map(int, re.findall(rf"(\d+) bytes {name}", part)))
            for name in ("stack frame", "spill stores", "spill loads", "smem")
        }
        registers = re.search(r"Used (\d+) registers", part)
        assert registers is not None, part
        spills = numbers["spill stores"] + numbers["spill loads"]
        entry = part.split("'")[0]
        found.append(Use(entry, int(registers[1]), spills, numbers["stack frame"], numbers["smem"]))
    return found


__all__ = ["ARCHS", "Use", "assemble", "path"]

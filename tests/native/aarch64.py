"""The C library cross-built for aarch64 and run under qemu-user (Debian: gcc-aarch64-linux-gnu, qemu-user)."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.native.build import NATIVE, make

PREFIX = "aarch64-linux-gnu-"
EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
CROSS = {"CC": f"{PREFIX}gcc", "AR": f"{PREFIX}ar", "BUILD": "build-aarch64"}


def tools_are_missing() -> str:
    """Which of the programs that are needed is not there; "" if all are."""
    names = (f"{PREFIX}gcc", f"{PREFIX}ld", EMULATOR[0])
    return ", ".join(n for n in names if shutil.which(n) is None) and "cross tools are missing"


@cache
def built() -> Path:
    """The build directory with both libraries and nvm-run. Warnings are errors, as in the build for this machine."""
    make("all", *(f"{name}={value}" for name, value in CROSS.items()))
    return NATIVE / CROSS["BUILD"]


def emulated(
    *command: str, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program for aarch64."""
    return subprocess.run(
        [*EMULATOR, *command], cwd=cwd, env=os.environ | env, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip


def nvm_run(folder: Path, *words: str) -> str:
    """nvm-run for aarch64 in a folder; what it logs. AssertionError with its message if it fails."""
    done = emulated(str(built() / "nvm-run"), *words, "-q", cwd=folder, NVM_LOG="info")
    assert done.returncode == 0, done.stderr
    return done.stderr


__all__ = ["CROSS", "EMULATOR", "built", "emulated", "nvm_run", "tools_are_missing"]

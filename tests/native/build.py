"""What the tests of the C library build once a session: the libraries, nvm-run, an installed tree."""

from __future__ import annotations

import fcntl
import os
import subprocess
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native"


def make(*words: str, **settings: str) -> str:
    """Run make in native/ with the variables of `settings`; AssertionError with its output if it fails."""
    environment = _clean()
    folder = NATIVE / "build"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes run beside each other
        done = subprocess.run(
            ["make", "-s", "-C", str(NATIVE), *words],
            env=environment | settings,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def run_target(target: str, *words: str, **settings: str) -> str:
    """Build what a target of tests/native/Makefile needs, beside no other process that builds, then run it."""
    make("-C", str(HERE), f"{target}-built", **settings)
    done = subprocess.run(
        ["make", "-s", "-C", str(HERE), target, *words],
        env=_clean() | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{settings}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _clean() -> dict[str, str]:
    """The environment without variables that would choose another build."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("NVM_", "MAKE"))}


@cache
def built() -> Path:
    """The build directory with both libraries and nvm-run."""
    make("all")
    return NATIVE / "build"


__all__ = ["NATIVE", "built", "make", "run_target"]

"""Object code that LLVM made for earlier tests, as ccache keeps a C compiler's.

Most of the time of tests with machine code is LLVM's, and most of what it compiles it compiled before: in another
test, in the other worker, in the last run. The key is all that object code depends on: text, target, llvmlite and the
module that calls it. Processes that tests start compile for themselves, and so does a run that may measure: one whose
-m does not say "not bench", but for --benchmark-disable.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from nimblevm.kernels import llvm, llvm_processes

HOME = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
PLACE = Path(HOME, "nimblevm", "test-objects")
KEPT = 3 * 24 * 3600  # seconds after the last use
Compile = Callable[[str, llvm.TargetInfo], bytes]


def kept(compile_text: Compile, place: Path = PLACE) -> Compile:
    """`compile_text`, asked once for each text and target."""
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    producer = Path(llvm.__file__).read_bytes() + version("llvmlite").encode()

    def compile_once(text: str, info: llvm.TargetInfo) -> bytes:
        key = hashlib.sha256(producer + f"\n{info.text}\n{text}".encode()).hexdigest()
        path = place / key
        try:
            found = path.read_bytes()
            os.utime(path)
            return found
        except OSError:
            pass
        found = compile_text(text, info)
        part = place / f"{key}.{os.getpid()}"
        with contextlib.suppress(OSError):  # a full disk costs time alone
            part.write_bytes(found)
            part.replace(path)  # at once: another process may look
        return found

    return compile_once


def install() -> None:
    """Let this process keep and find object code, and compile alone: other workers have the other cores."""
    if llvm.HAVE_LLVM:
        vars(llvm)["compile_text"] = kept(llvm.compile_text)
        vars(llvm_processes)["cores"] = lambda: 1


def clear_old() -> None:
    """Delete what no run has used for long."""
    for path in PLACE.glob("*"):
        with contextlib.suppress(OSError):  # another session may be at it
            if time.time() - path.stat().st_mtime > KEPT:
                path.unlink()


__all__ = ["clear_old", "install", "kept"]

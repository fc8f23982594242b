"""Compiles texts of LLVM IR in several processes: llvmlite lets one thread of a process work at a time.

Which texts there are does not depend on the number of processes, so the result does not either. A process that can't be
started or dies costs time, nothing else: this one does its work.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import Any, BinaryIO

_START = "import sys; sys.path[:] = {path!r}; from nimblevm.kernels.llvm import serve; serve()"


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


class _Work:
    """Indices still to be done, the largest text first, and results."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._left = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        self._lock = Lock()
        self.done: dict[int, bytes] = {}

    def take(self) -> int | None:
        with self._lock:
            return self._left.pop() if self._left else None

    def drop(self) -> None:
        """Start no more: all is taken, or something failed."""
        with self._lock:
            self._left.clear()

    def give_back(self, index: int) -> None:
        with self._lock:
            self._left.append(index)


def compile_all(
    texts: Sequence[str],
    target: Any,
    compile_text: Callable[[str, Any], bytes],
    characters: int = 1,
) -> list[bytes]:
    """Object code of each text: `compile_text` here and in as many processes as there are cores. characters: of text
    that make it worth while to start one.
    """
    work = _Work(texts)
    worth = sum(map(len, texts)) // characters
    count = min(len(texts) - 1, cores() - 1, worth) if sys.executable else 0
    threads = [Thread(target=_drive, args=(work, texts, target), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        _finish(work, texts, target, compile_text)
    finally:
        work.drop()
        for thread in threads:
            thread.join()
    _finish(work, texts, target, compile_text)  # what a process failed to do
    return [work.done[i] for i in range(len(texts))]


def _finish(
    work: _Work, texts: Sequence[str], target: Any, compile_text: Callable[[str, Any], bytes]
) -> None:
    while (index := work.take()) is not None:
        work.done[index] = compile_text(texts[index], target)


def _drive(work: _Work, texts: Sequence[str], target: Any) -> None:
    """Hand texts to one process until none is left or it fails."""
    command = [sys.executable, "-c", _START.format(path=sys.path)]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return
    with process:
        try:
            while (index := work.take()) is not None:
                try:
                    work.done[index] = _ask(process, (texts[index], target))
                except (OSError, EOFError, pickle.PickleError):
                    work.give_back(index)
                    return
        finally:
            process.kill()  # it waits for requests


def _ask(process: subprocess.Popen[bytes], request: Any) -> bytes:
    if process.stdin is None or process.stdout is None:
        raise EOFError
    pickle.dump(request, process.stdin)
    process.stdin.flush()
    answer: bytes = pickle.load(process.stdout)
    return answer


def serve(requests: BinaryIO, answers: BinaryIO, compile_text: Callable[[str, Any], bytes]) -> None:
    """The other side: answer until the pipe is closed."""
    while True:
        try:
            text, target = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(compile_text(text, target), answers)
        answers.flush()


__all__ = ["compile_all", "cores", "serve"]

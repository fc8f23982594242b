"""The door to libnimblevm: the only importer of nimblevm._native.

`check(status)` is the one place where a status becomes an exception. Exceptions carry what the error record says as
attributes: code (status number), function (Relay function, "" if none), pc (word offset in its code), source, line and
column of the span ("" and 0 if none), trace (tuple of lines, one a Relay frame, innermost first).
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from nimblevm import _native
from nimblevm.errors import NimbleError, status_row

ffi: Any = _native.ffi
lib: Any = _native.lib
_INTERRUPTED = 28


def _text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode("utf-8", "replace")) if pointer else ""


def _describe(message: str, place: str, trace: tuple[str, ...]) -> str:
    lines = [f"{message} ({place})" if place else message]
    if len(trace) > 1:
        lines += ["Relay calls, innermost first:", *(f"  {line}" for line in trace)]
    return "\n".join(lines)


def last_error(status: int) -> BaseException:
    """The exception that stands for `status`, with the details of this thread's error record."""
    record = lib.nvm_last_error()
    row = status_row(status)
    if status == _INTERRUPTED:
        return KeyboardInterrupt()
    kind = row.exception or NimbleError
    if record.code != status:  # a status without a record: a fault of ours, but still typed
        return kind(row.meaning)
    function, source = _text(record.function), _text(record.source)
    place = f"in @{function}" if function else ""
    if source:
        place += f"{' ' if place else ''}at {source}:{record.line}:{record.column}"
    trace = tuple(_text(record.trace).splitlines())
    error: Any = kind(_describe(_text(record.message) or row.meaning, place, trace))
    error.code, error.function, error.pc = int(status), function, int(record.pc)
    error.source, error.line, error.column = source, int(record.line), int(record.column)
    error.trace = trace
    return error


def check(status: int) -> None:
    """Return if status is 0, else raise its class from errors.py (KeyboardInterrupt for INTERRUPTED)."""
    if status:
        raise last_error(status)


def _check_version() -> None:
    built = _text(lib.nvm_version())
    try:
        installed = metadata.version("nimblevm")
    except metadata.PackageNotFoundError:  # used from a source tree
        return
    if built != installed:
        raise ImportError(
            f"nimblevm is {installed} but its C module was built from {built}; reinstall it (pip install -e .)"
        )


_check_version()

__all__ = ["check", "ffi", "last_error", "lib"]

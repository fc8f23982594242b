"""The door to libnimblevm: the only importer of nimblevm._native.

`check(status)` is the one place where a status becomes an exception. Exceptions carry what the error record says as
attributes: code (status number), function (Relay function, "" if none), pc (word offset in its code), source, line and
column of the span ("" and 0 if none), trace (tuple of lines, one a Relay frame, innermost first).
"""

from __future__ import annotations

import threading
from typing import Any

import nimblevm
from nimblevm.errors import INTERRUPTED, NimbleError, status_row

try:
    from nimblevm._native import ffi as _ffi
    from nimblevm._native import lib as _lib
except ModuleNotFoundError as error:
    if error.name != "nimblevm._native":
        raise
    raise ImportError(
        "nimblevm's C module is not built; in a clone run `make demo` or `pip install -e .` (a clone in the "
        "working directory hides an installed nimblevm)"
    ) from error

ffi: Any = _ffi
lib: Any = _lib


def _text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode("utf-8", "replace")) if pointer else ""


def _describe(message: str, place: str, trace: tuple[str, ...]) -> str:
    lines = [f"{message} ({place})" if place else message]
    if len(trace) > 1:
        lines += ["Relay calls, innermost first:", *(f"  {line}" for line in trace)]
    return "\n".join(lines)


def last_error(status: int) -> Any:
    """The exception that stands for `status`, with the details of this thread's error record.

    A NimbleError, or KeyboardInterrupt for a run that the poll callback stopped.
    """
    if status == INTERRUPTED:
        return KeyboardInterrupt()
    record = lib.nvm_last_error()
    row = status_row(status)
    recorded = record.code == status  # else a fault of ours, but still typed
    function, source = ("", "")
    message, trace = row.meaning, tuple[str, ...]()
    if recorded:
        function, source = _text(record.function), _text(record.source)
        message = _text(record.message) or message
        trace = tuple(_text(record.trace).splitlines())
    place = f"in @{function}" if function else ""
    if source:
        place += f"{' ' if place else ''}at {source}:{record.line}:{record.column}"
    error: Any = (row.exception or NimbleError)(_describe(message, place, trace))
    error.code, error.function, error.trace = int(status), function, trace
    error.pc, error.source = int(record.pc) if recorded else 0, source
    error.line, error.column = (int(record.line), int(record.column)) if source else (0, 0)
    return error


_causes = threading.local()


def note_cause(error: BaseException) -> None:
    """Python code that C called has failed with this; the next exception of `check` on this thread has it as cause."""
    _causes.error = error


def check(status: int) -> None:
    """Return if status is 0, else raise its class from errors.py (KeyboardInterrupt for INTERRUPTED)."""
    if status:
        cause = _causes.__dict__.pop("error", None)
        raise last_error(status) from cause


def _check_version() -> None:
    built = _text(lib.nvm_version())
    if built != nimblevm.__version__:
        raise ImportError(
            f"nimblevm is {nimblevm.__version__} but its C module was built from {built}; reinstall it "
            "(pip install -e .)"
        )


_check_version()

__all__ = ["check", "ffi", "last_error", "lib", "note_cause"]

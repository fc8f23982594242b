"""Where the runtime's log goes: which machine code a load took and why, fallbacks, failed runs, trims, threads.

The environment variable NVM_LOG (off, error, warning, info, debug) turns it on without a line of code; then it goes to
stderr. set_log() does the same from Python, and can hand the lines to `logging` or to a function:

    nvm.set_log("info")                        # to stderr
    nvm.set_log("debug", to="logging")         # to logging.getLogger("nimblevm")
    nvm.set_log("debug", to=lambda level, message: ...)
    nvm.set_log("off")
"""

from __future__ import annotations

import atexit
import logging
import traceback
from collections.abc import Callable
from typing import Any, Literal

from nimblevm._ffi import ffi, lib

LEVELS = ("off", "error", "warning", "info", "debug")
_NUMBERS = (0, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

Write = Callable[[str, str], object]
"""Called with the name of a level and a line, from the thread that has something to say."""


class _Sink:
    """The callback that C holds; kept as long as it does."""

    def __init__(self) -> None:
        self.callback: Any = ffi.NULL

    def set(self, level: int, write: Write | None) -> None:
        callback = ffi.NULL
        if write is not None:
            given = write

            @ffi.callback("void(void *, int32_t, const char *)")  # type: ignore[untyped-decorator]
            def emit(_context: Any, number: int, message: Any) -> None:
                try:
                    given(LEVELS[number], ffi.string(message).decode("utf-8", "replace"))
                except Exception:  # nobody could catch it: the caller is C
                    traceback.print_exc()

            callback = emit
        lib.nvm_log_set(level, callback, ffi.NULL)
        self.callback = callback  # after C has let the old one go

    def close(self) -> None:
        """C must not call a Python that is going away."""
        if self.callback != ffi.NULL:
            self.set(0, None)


_sink = _Sink()
atexit.register(_sink.close)


def _to_logging(level: str, message: str) -> None:
    logging.getLogger("nimblevm").log(_NUMBERS[LEVELS.index(level)], "%s", message)


def set_log(
    level: Literal["off", "error", "warning", "info", "debug"],
    to: Literal["stderr", "logging"] | Write = "stderr",
) -> None:
    """Log what is at most of `level`, of the whole process; replaces what NVM_LOG or an earlier call asked for.

    to   "stderr"; "logging": the logger "nimblevm", whose own level applies too; or a function of (level, message),
         which must not call this package

    Raises ValueError for another level, TypeError for another `to`.
    """
    if not isinstance(level, str) or level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    if to == "stderr":
        write: Write | None = None
    elif to == "logging":
        write = _to_logging
    elif callable(to):
        write = to
    else:
        raise TypeError(f'to must be "stderr", "logging" or a function, not {to!r}')
    _sink.set(LEVELS.index(level), write)


def log_level() -> str:
    """The level that applies now, by name."""
    return LEVELS[lib.nvm_log_level()]


__all__ = ["LEVELS", "log_level", "set_log"]

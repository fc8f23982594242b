"""Libraries of definitions that IRModule.import_from_std adds, by file name. relay/prelude.py registers itself here, so
that the nodes need not know it."""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOENT
from typing import Any

from nimblevm.errors import FileError

_LIBRARIES: dict[str, Callable[[Any], object]] = {}


def register_library(file_name: str, load: Callable[[Any], object]) -> None:
    """Install what adds a library to a module."""
    _LIBRARIES[file_name] = load


def add_library(mod: Any, file_name: str) -> None:
    """Add a library to a module; FileError for a name that is none."""
    if not isinstance(file_name, str) or file_name not in _LIBRARIES:
        there = ", ".join(_LIBRARIES)
        raise FileError(
            ENOENT, f"there is no such library of Relay; there is {there}", str(file_name)
        )
    _LIBRARIES[file_name](mod)


__all__ = ["add_library", "register_library"]

"""The text of programs behind the places in a file.

A file says "model.rly, line 7"; the text is looked for beside the file and in the current directory. Names are a
stranger's: only relative ones that stay inside these folders are opened, or what the user names himself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from nimblevm.cli.console import read_text

_MOST_BYTES = 16 << 20


def _inside(folder: Path, name: str) -> Path | None:
    """The regular file `name` of a folder, if it is one and lies inside."""
    try:
        path, home = (Path(os.path.realpath(p)) for p in (folder / name, folder))
        good = path.is_relative_to(home) and path.is_file()
        return path if good and path.stat().st_size <= _MOST_BYTES else None
    except (OSError, ValueError):  # a name with a NUL, a loop of links
        return None


def find_sources(
    names: Iterable[str], beside: Path, given: Path | None = None
) -> Mapping[str, list[str]]:
    """Lines by source name, of those that are there. `given`: the text of all of them. Raises what read_text raises."""
    if given is not None:
        lines = read_text(given).splitlines()
        return dict.fromkeys(names, lines)
    found: dict[str, list[str]] = {}
    for name in names:
        if not name or Path(name).is_absolute():
            continue
        for folder in (beside.resolve().parent, Path.cwd()):
            path = _inside(folder, name)
            if path is None:
                continue
            try:
                found[name] = path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            break
    return found


__all__ = ["find_sources"]

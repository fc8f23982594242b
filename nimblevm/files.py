"""Names of files that the system can take, and files that appear under their name only when they are complete.

Leaf module.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EINVAL, EIO, EISDIR, ENOENT
from pathlib import Path
from typing import BinaryIO

from nimblevm.errors import FileError

PathLike = str | os.PathLike[str]


def path_text(path: PathLike) -> str:
    """A path as text. Raises FileError for one that no file can have."""
    name = os.fsdecode(path)
    if "\0" in name:
        raise FileError(EINVAL, f"{name!r}: a path can't hold a NUL character")
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise FileError(EINVAL, f"{name!r}: no path: {error.reason}") from None
    return name


def check_new_file(path: PathLike) -> None:
    """Raises what `new_file` would where that can be told without writing: for work to end before it begins."""
    name = path_text(path)
    folder = os.path.dirname(os.path.realpath(name))
    if os.path.isdir(name):
        problem = EISDIR
    elif os.path.exists(name) and not os.path.isfile(name):
        return  # a pipe or a device
    elif not os.path.isdir(folder):
        problem = ENOENT
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = EACCES
    else:
        return
    raise FileError(problem, os.strerror(problem), name)


@contextmanager
def new_file(path: PathLike) -> Iterator[BinaryIO]:
    """A file to write to in the `with`, which takes its name, in place of one that has it, when that ends well; else
    all is as it was. A symbolic link stays one, and what is no file, as a pipe or /dev/stdout, is written to.

    Raises FileError, which names the path.
    """
    name = path_text(path)
    try:
        if os.path.exists(name) and not os.path.isfile(name):
            with open(name, "wb") as file:
                yield file
            return
        place = Path(os.path.realpath(name))
        temporary = place.with_name(f".nvm.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            with open(temporary, "wb") as file:
                yield file
            os.replace(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        # numpy's own errors of writing have no number.
        raise FileError(error.errno or EIO, error.strerror or str(error), name) from error


def write_text(path: PathLike, text: str) -> None:
    """A text file by way of `new_file`. What is no text, as bytes in the name of a file, becomes `?`."""
    with new_file(path) as file:
        file.write(text.encode("utf-8", "replace"))


__all__ = ["PathLike", "check_new_file", "new_file", "path_text", "write_text"]

"""Arrays in .npy and .npz files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nimblevm.bytecode.weights import damaged_as, read_weights
from nimblevm.cli.console import Mistake

Array = npt.NDArray[Any]

_STARTS = (b"\x93NUMPY", b"PK")
"""How files of numpy begin; np.load takes anything else for a pickle."""


@contextmanager
def numpy_file(path: Path | str, what: str) -> Iterator[Any]:
    """What numpy loads from a file (without pickles). OSError; Mistake if it is no numpy file."""
    with open(path, "rb") as file:
        if not file.read(6).startswith(_STARTS):
            raise Mistake(f"{path}: expected {what}, which numpy.save or numpy.savez writes")
        file.seek(0)
        with damaged_as(lambda why: Mistake(f"{path}: expected {what} ({_plain(why)})")):
            loaded = np.load(file)
        yield loaded


def _plain(why: str) -> str:
    """numpy's reason, without the advice to read objects, which run code."""
    return "it holds Python objects, not numbers" if "allow_pickle" in why else why


def split_name(text: str) -> tuple[str, str]:
    """("file.npz", "name") of file.npz:name; the name is "" where there is none."""
    path, separator, name = text.rpartition(".npz:")
    return (f"{path}.npz", name) if separator else (text, "")


def is_array_file(text: str) -> bool:
    return split_name(text)[0].endswith((".npy", ".npz"))


def read_array(text: str, wanted: str = "") -> Array:
    """The array of FILE.npy, FILE.npz:NAME or FILE.npz (its only array, or the one called `wanted`)."""
    path, name = split_name(text)
    with numpy_file(path, f"{'an .npz' if path.endswith('.npz') else 'a .npy'} file") as file:
        if not hasattr(file, "files"):
            return _array(file, path)
        names = list(file.files)
        if not name:
            name = wanted if wanted in names else names[0] if len(names) == 1 else ""
        if name not in names:
            which = f"no array {name!r}" if name else f"{len(names)} arrays"
            example = f"{path}:{names[0]}" if names else path
            raise Mistake(
                f"{path} has {which}; it has {', '.join(names) or 'none'}: write {example}"
            )
        return _array(member(file, name, path), f"{path}:{name}")


def member(file: Any, name: str, path: str) -> Array:
    """One array of an opened archive. Mistake if it can't be read."""
    with damaged_as(lambda why: Mistake(f"{path}:{name}: not readable ({_plain(why)})")):
        array = file[name]
    return _array(array, f"{path}:{name}")


def _array(value: Any, place: str) -> Array:
    if not isinstance(value, np.ndarray):
        raise Mistake(f"{place}: expected an array")
    return value


def weights_of(path: Path) -> dict[str, Any]:
    """The arrays of an .npz or .safetensors file by name."""
    if path.suffix == ".safetensors":
        return read_weights(path)
    with numpy_file(path, "an .npz file of weights") as file:
        if not hasattr(file, "files"):
            raise Mistake(f"{path}: expected an .npz file of weights by name, got one array")
        return {name: member(file, name, str(path)) for name in file.files}


__all__ = [
    "Array",
    "is_array_file",
    "member",
    "numpy_file",
    "read_array",
    "split_name",
    "weights_of",
]

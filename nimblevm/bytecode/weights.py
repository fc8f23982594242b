"""Weights that stay outside of an executable and are bound to it when it is loaded.

From a safetensors file (mapped: native/weights/safetensors.c), a numpy archive (.npz, read into memory) or a mapping of
names to arrays. Names, dtypes and shapes are checked in C (native/weights/bind.c), which lays each weight out as the
kernels read it, once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EINVAL
from typing import Any, BinaryIO

import numpy as np

from nimblevm import dtypes
from nimblevm._ffi import check, ffi, lib
from nimblevm.arguments import refuse_mask
from nimblevm.bytecode.types import text
from nimblevm.errors import FileError, InvalidWeights, WeightsMismatch
from nimblevm.files import path_text

Weights = str | os.PathLike[str] | Mapping[str, Any]
"""A path of a .safetensors or .npz file, or arrays by name."""


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """A tensor that an executable wants: dtype is a name, nbytes its size, digest the SHA-256 that its row-major bytes
    must have, b"" if any bytes are taken.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.name}: Tensor[({', '.join(map(str, self.shape))}), {self.dtype}]"


def _info(record: Any) -> WeightInfo:
    dims = tuple(record.dims[0 : record.rank]) if record.rank else ()
    digest = bytes(ffi.buffer(record.digest, 32)) if record.digest else b""
    return WeightInfo(text(record.name), text(record.dtype_name), dims, int(record.size), digest)


def wanted(program: Any) -> tuple[WeightInfo, ...]:
    """What an nvm_program wants, in the order of the names."""
    record = ffi.new("nvm_weight_info *")
    out: list[WeightInfo] = []
    for index in range(lib.nvm_program_weight_count(program)):
        check(lib.nvm_program_weight(program, index, record))
        out.append(_info(record))
    return tuple(out)


def bind(program: Any, weights: Weights, flags: int, max_bytes: int = 0) -> Any:
    """A new nvm_program (owned by the caller) with its weights; flags as nvm_program_bind takes them, max_bytes as
    nvm_weights_set_limit does.

    Raises InvalidWeights, WeightsMismatch, FileError, OutOfMemory, MemoryLimit.
    """
    if isinstance(weights, Mapping):
        with _from_arrays(weights) as handle:
            return _bound(program, handle, flags, max_bytes)
    if not isinstance(weights, (str, os.PathLike)):
        raise TypeError(
            f"weights are a path of a .safetensors or .npz file or a mapping of names to arrays, "
            f"not {type(weights).__name__}"
        )
    path = path_text(weights)
    try:
        with open(path, "rb") as file:
            return _bound_to_file(program, file, path, flags, max_bytes)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(error.errno, error.strerror, path) from error


def bind_below(program: Any, folder: str, name: str, flags: int) -> Any:
    """`bind` to a file that an executable names: below its folder, not by way of a symbolic link. Else FileError."""
    descriptor = ffi.new("int32_t *")
    check(lib.nvm_open_below(os.fsencode(folder), name.encode(), descriptor))
    path = os.path.join(folder, name)
    with os.fdopen(descriptor[0], "rb") as file:
        return _bound_to_file(program, file, path, flags)


def _bound_to_file(program: Any, file: BinaryIO, path: str, flags: int, max_bytes: int = 0) -> Any:
    if os.pread(file.fileno(), 4, 0) in (b"PK\3\4", b"PK\5\6"):
        with _from_arrays(_read_npz(file, path)) as handle:
            return _bound(program, handle, flags, max_bytes)
    out = ffi.new("nvm_weights **")
    check(lib.nvm_weights_read(file.fileno(), os.fsencode(path), flags, out))
    with _owned(out[0]) as handle:
        return _bound(program, handle, flags, max_bytes)


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a safetensors file by name: read-only arrays on the mapped file, which must not change meanwhile.

    Raises InvalidWeights, also for a dtype that numpy lacks (bfloat16), and FileError.
    """
    out, record = ffi.new("nvm_weights **"), ffi.new("nvm_weight_info *")
    check(lib.nvm_weights_open(os.fsencode(path_text(path)), 0, out))
    handle = ffi.gc(out[0], lib.nvm_weights_release)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for index in range(lib.nvm_weights_count(handle)):
        check(lib.nvm_weights_get(handle, index, record))
        info = _info(record)
        if record.dtype < 0:
            raise InvalidWeights(
                f"{os.fspath(path)}: {info.name} is {info.dtype}, which has no dtype here"
            )
        owner = ffi.gc(ffi.cast("char *", record.data), _keeping(handle))
        buffer = ffi.buffer(owner, info.nbytes)
        array = np.ndarray(info.shape, dtypes.BY_NAME[info.dtype].numpy, buffer)
        array.flags.writeable = False
        arrays[info.name] = array
    return arrays


def _keeping(handle: Any) -> Callable[[Any], None]:
    """A finalizer that does nothing but keep the file mapped until it is called."""

    def release(_pointer: Any) -> None:
        nonlocal handle
        handle = None

    return release


@contextmanager
def _owned(handle: Any) -> Iterator[Any]:
    try:
        yield handle
    finally:
        lib.nvm_weights_release(handle)


def _read_npz(file: BinaryIO, path: str) -> dict[str, Any]:
    """The arrays of an archive; nothing in it is executed (no pickles)."""
    with damaged_as(lambda why: InvalidWeights(f"{path}: no archive of arrays: {why}")):
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}


@contextmanager
def damaged_as(make: Callable[[str], Exception]) -> Iterator[None]:
    """What numpy's readers raise for damaged bytes becomes one error: `make` of the reason. It has a dozen classes, of
    zipfile, zlib, lzma, tokenize, ast and numpy's own allocation. An OSError of the system stays what it is, unless it
    says that a place in the file makes no sense (EINVAL).
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, EINVAL):
            raise
        raise make(str(error) or type(error).__name__) from error


@contextmanager
def _from_arrays(arrays: Mapping[str, Any]) -> Iterator[Any]:
    """An nvm_weights of arrays, which live as long as the context."""
    out = ffi.new("nvm_weights **")
    check(lib.nvm_weights_create(out))
    kept: list[Any] = []
    with _owned(out[0]) as handle:
        for name in sorted(arrays, key=str):  # the order that C keeps: none before has to move
            array = _array(name, arrays[name])
            kept.append(array)
            data = ffi.cast("void *", array.ctypes.data)
            number = dtypes.BY_NAME[array.dtype.name].number
            check(
                lib.nvm_weights_add(handle, name.encode(), number, array.ndim, array.shape, data, 0)
            )
        yield handle


def _is_text(name: str) -> bool:
    """Whether it is Unicode: without lone surrogates, which stand for bytes that are no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _array(name: object, value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(name, str) or "\0" in name or not _is_text(name):
        raise InvalidWeights(f"weights are named by strings without NUL, not {name!r}")
    refuse_mask(value, lambda: f"weight {name}")
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidWeights(f"weight {name}: no array: {error}") from error
    if array.dtype.name not in dtypes.BY_NAME or not array.dtype.isnative or array.ndim > 8:
        raise InvalidWeights(
            f"weight {name}: dtype {array.dtype}, rank {array.ndim}: expected one of "
            f"{', '.join(dtypes.BY_NAME)} in the machine's byte order and at most 8 axes"
        )
    return array


def _bound(program: Any, handle: Any, flags: int, max_bytes: int) -> Any:
    out = ffi.new("nvm_program **")
    lib.nvm_weights_set_limit(handle, max_bytes)
    try:
        check(lib.nvm_program_bind(program, handle, flags, out))
    except WeightsMismatch as error:
        _explain(error, program, handle, bool(flags & lib.NVM_BIND_ALLOW_EXTRA))
        raise
    return out[0]


def _explain(error: WeightsMismatch, program: Any, handle: Any, allow_extra: bool) -> None:
    """Names for programs that react, the message being for people."""
    record = ffi.new("nvm_weight_info *")
    given: dict[str, WeightInfo] = {}
    for index in range(lib.nvm_weights_count(handle)):
        check(lib.nvm_weights_get(handle, index, record))
        info = _info(record)
        given[info.name] = info
    asked = {info.name: info for info in wanted(program)}
    error.missing = tuple(n for n in asked if n not in given)
    error.extra = () if allow_extra else tuple(sorted(n for n in given if n not in asked))
    error.different = tuple(
        n
        for n, info in asked.items()
        if n in given and (given[n].dtype, given[n].shape) != (info.dtype, info.shape)
    )


__all__ = ["WeightInfo", "Weights", "bind", "bind_below", "damaged_as", "read_weights", "wanted"]

"""Tensors at the boundary: what users pass in becomes numpy views, what a VM returns becomes a Tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from operator import index
from types import MappingProxyType
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm._ffi import ffi, lib
from nimblevm.errors import InvalidInputType

DTYPE_NUMBERS: Mapping[np.dtype[Any], int] = MappingProxyType(
    {np.dtype(row.numpy): row.number for row in dtypes.DTYPES}
)
_NUMPY = {row.number: np.dtype(row.numpy) for row in dtypes.DTYPES}

# Bytes up to which a copy is cheaper than to keep storage alive: that takes a finalizer and three objects for the
# cycle collector to walk, 0.7 us at once and more in values of many tensors.
_COPIED = 4096


class Tensor:
    """A tensor that a VM returned: `shape` (tuple of int), `dtype` (name), host memory of its own.

    `numpy()`, `__array__` and `__dlpack__` share the memory without a copy; it lives as long as any of them.
    """

    __slots__ = ("_array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes; () for a scalar."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def dtype(self) -> str:
        """The name of the dtype, "float32"."""
        return str(self._array.dtype.name)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self._array.nbytes

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a numpy array of the same shape and dtype, no copy."""
        return self._array

    def item(self) -> Any:
        """The Python number of a tensor with one element; ValueError otherwise."""
        return self._array.item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for rank 0."""
        return self._array.tolist()

    def __getitem__(self, key: Any) -> Any:
        """What numpy gives for `self.numpy()[key]`: a view or a numpy scalar."""
        return self._array[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __len__(self) -> int:
        return len(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __index__(self) -> int:
        return index(self._array)

    def __bool__(self) -> bool:
        return bool(self._array)

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype})\n{self._array}"


def from_result(out: Any) -> Tensor:
    """A Tensor of an nvm_out of kind tensor: a copy if it is small, else on its storage, which it keeps alive."""
    dtype = _NUMPY[out.dtype]
    rank = out.rank
    shape = tuple(out.shape[0:rank]) if rank else ()
    size = dtype.itemsize * prod(shape)
    if size <= _COPIED:
        array = np.empty(shape, dtype)
        if size:
            ffi.memmove(array, out.data, size)
        return Tensor(array)
    storage = out.storage
    lib.nvm_storage_retain_handle(storage)
    # The buffer keeps this pointer alive, and the pointer's finalizer the storage.
    owner = ffi.gc(out.data, lambda _: lib.nvm_storage_release_handle(storage))
    return Tensor(np.ndarray(shape, dtype, ffi.buffer(owner, size)))


def as_array(value: Any, place: Callable[[], str]) -> np.ndarray[Any, Any]:
    """A numpy view of anything that is a tensor: DLPack, buffer protocol, __array__; no copy where possible.

    `place` names the argument in errors (it is asked only then). Raises InvalidInputType for what is no
    tensor or has a dtype that Relay lacks (byte-swapped, structured, complex, object).
    """
    array = _view(value, place)
    if array.dtype not in DTYPE_NUMBERS:
        raise InvalidInputType(
            f"{place()}: dtype {array.dtype} is not supported; supported are "
            f"{', '.join(dtypes.BY_NAME)} in the machine's byte order"
        )
    return array


def _view(value: Any, place: Callable[[], str]) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidInputType(f"{place()}: DLPack import failed: {error}") from error
    if hasattr(value, "__array__") or isinstance(value, (memoryview, bytearray, bytes)):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise InvalidInputType(
            f"{place()}: expected a tensor (numpy array, DLPack, buffer), a number, a tuple or an ADT "
            f"value, got {type(value).__name__}"
        ) from None


__all__ = ["DTYPE_NUMBERS", "Tensor", "as_array", "from_result"]

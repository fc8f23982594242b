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
from nimblevm.arguments import refuse_mask, shown
from nimblevm.devices.device import Device
from nimblevm.errors import DimOverflow, InvalidInput, InvalidInputType, ValueMoved

DTYPE_NUMBERS: Mapping[np.dtype[Any], int] = MappingProxyType(
    {np.dtype(row.numpy): row.number for row in dtypes.DTYPES}
)
_NUMPY = {row.number: np.dtype(row.numpy) for row in dtypes.DTYPES}

COPIED = 4096
"""Bytes of a result up to which a copy is cheaper than to keep storage alive: that takes a finalizer and three objects
for the cycle collector to walk, 0.7 us at once and more in values of many tensors."""

_ARRAY_PROTOCOLS = ("__array__", "__array_interface__", "__array_struct__")
_BYTES = (memoryview, bytearray, bytes)


class Tensor:
    """A tensor that a VM returned: `shape` (tuple of int), `dtype` (name), host memory of its own.

    `numpy()`, `__array__` and `__dlpack__` share the memory without a copy; it lives as long as any of them.
    After a call took it (`nvm.move`) every use but repr raises ValueMoved.
    """

    __slots__ = ("_array", "_memory")

    def __init__(self, array: np.ndarray[Any, Any], memory: tuple[Any, Any] | None = None) -> None:
        self._array = array  # deleted when the tensor is given away
        self._memory = memory  # (first element, block) of the VM that the array keeps alive

    def __getattr__(self, name: str) -> Any:
        if name == "_array":
            raise ValueMoved(
                "this tensor was given away by nvm.move to a call; go on with what that call returned"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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

    @property
    def moved(self) -> bool:
        """Whether a call took the tensor, so that it can't be used any more."""
        try:
            return self._array is None
        except ValueMoved:
            return True

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a numpy array of the same shape and dtype, no copy."""
        return self._array

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """As `numpy()`, by TVM's older name."""
        return self._array

    @property
    def device(self) -> Device:
        """Where the elements are: results are copied to the host."""
        return Device("cpu")

    def copyto(self, target: Tensor | Device) -> Tensor:
        """Copy the elements into another tensor of the same shape, whose dtype they take, or to a new one for a device
        (on the host, from where a call takes it). Gives that tensor."""
        if isinstance(target, Device):
            return Tensor(self._array.copy())
        if not isinstance(target, Tensor):
            raise InvalidInputType(f"copyto takes a tensor or a device, not {shown(target)}")
        return target.copyfrom(self)

    def copyfrom(self, source: Any) -> Tensor:
        """Copy elements of the same shape from a tensor or array; InvalidInput for another shape. Gives itself."""
        found = np.asarray(source)
        if found.shape != self.shape:
            raise InvalidInput(
                f"elements of shape {found.shape} for a tensor of shape {self.shape}"
            )
        self._array[...] = found
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[key] = value

    def same_as(self, other: Any) -> bool:
        """Whether both are one object."""
        return self is other

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
        if self.moved:
            return "Tensor(given away)"
        return f"Tensor(shape={self.shape}, dtype={self.dtype})\n{self._array}"


def from_result(out: Any) -> Tensor:
    """A Tensor of an nvm_out of kind tensor: a copy if it is small, else on its storage, which it keeps alive."""
    dtype = _NUMPY[out.dtype]
    rank = out.rank
    shape = ffi.unpack(out.shape, rank) if rank else ()
    size = dtype.itemsize
    for axis in shape:
        size *= axis
    if size <= COPIED:
        try:
            array = np.empty(shape, dtype)
        except ValueError as error:  # no elements, but sizes of which numpy takes no product
            raise DimOverflow(
                f"a result of shape {tuple(shape)} is none of numpy: {error}"
            ) from None
        if size:
            ffi.memmove(array, out.data, size)
        return Tensor(array)
    data, storage = out.data, out.storage
    lib.nvm_storage_retain_handle(storage)
    return Tensor(_on_storage(data, storage, tuple(shape), dtype), (data, storage))


def _on_storage(
    data: Any, storage: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """An array on memory of a VM; takes over one reference to the block."""
    # The buffer keeps this pointer alive, and the pointer's finalizer the storage.
    owner = ffi.gc(data, lambda _: lib.nvm_storage_release_handle(storage))
    return np.ndarray(shape, dtype, ffi.buffer(owner, dtype.itemsize * prod(shape)))


class Gift:
    """A tensor that goes into a call for good, unless the call fails.

    While the call runs Python's own reference is dropped, so that the VM can tell whether an array of the
    tensor lives on elsewhere (then what the call makes of it is copied on its way out); the reference taken here
    stands for the giver.
    """

    __slots__ = ("array", "data", "dtype", "place", "shape", "storage", "tensor")

    def __init__(self, tensor: Tensor, place: Callable[[], str]) -> None:
        self.place = place  # of the argument, for messages
        self.tensor = tensor
        self.array: np.ndarray[Any, Any] | None = tensor.numpy()
        self.shape, self.dtype = self.array.shape, self.array.dtype
        self.data, self.storage = tensor._memory or (ffi.from_buffer(self.array), ffi.NULL)

    def take(self) -> None:
        """The call begins."""
        if self.storage:
            lib.nvm_storage_retain_handle(self.storage)
            self.array = None
            del self.tensor._array

    def settle(self, gone: bool) -> None:
        """The call is over; `gone`: it succeeded. For a tensor that was not taken: nothing."""
        if not self.storage:
            if gone:
                del self.tensor._array
        elif self.array is None:
            if gone:
                lib.nvm_storage_release_handle(self.storage)
            else:
                array = _on_storage(self.data, self.storage, self.shape, self.dtype)
                self.tensor._array = array


class Moved:
    """What `move` returns: stands for its value as an argument of one call."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"move({self.value!r})"


def move(value: Any) -> Moved:
    """Give a value away to the call that it is passed to, so that the VM may build on its memory instead of copying it.

        token, state = vm.run(prompt, state)
        for _ in range(n):
            token, state = vm.run(token, nvm.move(state))       # a growing cache grows in place

    value: what a VM returned: a Tensor, a Handle, a tuple or ADT value of such. Once the call has succeeded, every
    Tensor and Handle in it raises ValueMoved when used. If the call raises, the value is as it was. An array that
    `numpy()` gave before keeps its elements. Numbers, numpy arrays and what another VM made are passed as always.
    Giving a tensor or handle away and passing it a second time in the same call is InvalidInput.
    """
    return value if isinstance(value, Moved) else Moved(value)


def as_array(value: Any, place: Callable[[], str]) -> np.ndarray[Any, Any]:
    """A numpy view of anything that is a tensor: DLPack, buffer protocol, __array__; no copy where possible.

    `place` names the argument in errors (it is asked only then). Raises InvalidInputType for what is no
    tensor, has masked elements or a dtype that Relay lacks (byte-swapped, structured, complex, object).
    """
    array = _view(value, place)
    if array.dtype in DTYPE_NUMBERS:
        return array
    if array.dtype.newbyteorder("=") in DTYPE_NUMBERS:
        raise InvalidInputType(
            f"{place()}: dtype {array.dtype} is not in the machine's byte order; "
            f'x.astype("{array.dtype.name}") is'
        )
    raise InvalidInputType(
        f"{place()}: dtype {array.dtype} is not supported; supported are {', '.join(dtypes.BY_NAME)}"
    )


def _view(value: Any, place: Callable[[], str]) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        refuse_mask(value, place)
        return value
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        negated = getattr(value, "is_neg", None)  # of torch, which exports it without its sign
        if callable(negated) and negated():
            raise InvalidInputType(
                f"{place()}: the tensor is a negated view, which DLPack can't say; x.resolve_neg() is none"
            )
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidInputType(f"{place()}: DLPack import failed: {error}") from error
    if any(hasattr(value, name) for name in _ARRAY_PROTOCOLS) or isinstance(value, _BYTES):
        try:
            return np.asarray(value)
        except (BufferError, TypeError, ValueError) as error:
            raise InvalidInputType(f"{place()}: no array: {error}") from error
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise InvalidInputType(
            f"{place()}: expected a tensor (numpy array, DLPack, buffer), a number, a tuple or an ADT "
            f"value, got {type(value).__name__}"
        ) from None


__all__ = ["COPIED", "DTYPE_NUMBERS", "Gift", "Moved", "Tensor", "as_array", "from_result", "move"]

"""Calls of functions on tensors, kept from one to the next: what is as it was is not made anew (native/kept_call.h)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm._ffi import ffi, lib
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.types import FunctionInfo, TensorType, TupleType, Type
from nimblevm.vm.arguments import results
from nimblevm.vm.tensor import COPIED, DTYPE_NUMBERS, Tensor, from_result

_FEW = 8
"""Parameters, and results, of functions whose calls are kept."""
_LEAST, _MOST = -(2**63), 2**63 - 1
_ARG_TENSOR, _ARG_INT = lib.NVM_ARG_TENSOR, lib.NVM_ARG_INT
_Array = np.ndarray[Any, Any]
# Looked up once: a call takes about as long as thirty look-ups.
_ndarray, _from_buffer = np.ndarray, ffi.from_buffer


class KeptCall:
    """A call of a function that takes nothing but tensors. `nvm_kept_invoke` runs it; for one caller at a time.

    struct   nvm_kept_call
    views    what the calls before returned, if that is small: arrays into which C copies what this one does
    """

    __slots__ = ("_alive", "_is_tensor", "_rows", "_seen", "_shapes", "struct", "views")

    def __init__(
        self, function: FunctionInfo, types: Sequence[TensorType], wanted: Sequence[Type] | None
    ) -> None:
        struct = self.struct = ffi.new("nvm_kept_call *")
        args = struct.args = ffi.new("nvm_arg[]", len(types))
        self._alive: list[Any] = [args]
        # nvm_arg, its sizes, dtype, its number, rank.
        self._rows: list[tuple[Any, Any, np.dtype[Any], int, int]] = []
        self._shapes: list[tuple[int, ...] | None] = [None] * len(types)  # that the sizes stand for
        for arg, type_ in zip(args, types, strict=True):
            rank = len(type_.dims)
            sizes = arg.shape = ffi.new("int64_t[]", rank)
            dtype = np.dtype(dtypes.dtype(type_.dtype).numpy)
            arg.dtype, arg.rank, arg.dl_device_type = DTYPE_NUMBERS[dtype], rank, 1
            self._rows.append((arg, sizes, dtype, arg.dtype, rank))
        struct.function, struct.n_args = function.index, len(types)
        self._is_tensor = isinstance(function.result, TensorType)
        struct.is_tuple = not self._is_tensor
        self.views: list[_Array] = []
        self._seen: list[tuple[int, ...]] | None = None if wanted is None else []

    @staticmethod
    def of(function: FunctionInfo) -> KeptCall | None:
        """For a function of tensors; None for another one."""
        types = [p.type for p in function.params if isinstance(p.type, TensorType)]
        if not 0 < len(types) == len(function.params) <= _FEW:
            return None
        result = function.result
        wanted = result.fields if isinstance(result, TupleType) else (result,)
        is_small = 0 < len(wanted) <= _FEW and all(
            isinstance(type_, TensorType) for type_ in wanted
        )
        return KeptCall(function, types, wanted if is_small else None)

    def fill(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Describe the arguments: compact arrays or tensors of the right dtype and rank, or ints for tensors of rank 0.

        returns: what must live until the call is over; None if one is something else
        """
        shapes = self._shapes
        for i, (arg, sizes, dtype, number, rank) in enumerate(self._rows):
            value = values[i]
            if type(value) is Tensor:
                value = value.numpy()
                values = (*values, value)  # the tensor may be given away meanwhile
            if type(value) is _ndarray:
                if value.dtype is not dtype:
                    return None
                shape = value.shape
                if shape != shapes[i]:
                    if len(shape) != rank:
                        return None
                    sizes[0:rank] = shape
                    shapes[i] = shape
                try:
                    arg.data = _from_buffer(value)
                except ValueError:  # not compact
                    return None
                if rank == 0 and arg.kind != _ARG_TENSOR:
                    arg.kind, arg.dtype = _ARG_TENSOR, number
            elif rank == 0 and type(value) is int and _LEAST <= value <= _MOST:
                if arg.kind != _ARG_INT:
                    arg.kind, arg.dtype = _ARG_INT, -1
                arg.int_value = value
            else:
                return None
        return values

    def values(self) -> Any:
        """What the call returned, which was what was expected."""
        if self._is_tensor:
            return Tensor(self.views[0].copy())
        return tuple([Tensor(view.copy()) for view in self.views])

    def read(self, exe: Executable, vm: object) -> Any:
        """What the call returned, which was not what was expected."""
        result = self.struct.result
        try:
            value: Any
            if self._is_tensor:
                value = from_result(lib.nvm_result_values(result))
            else:
                value = results(result, exe, vm)
        finally:
            lib.nvm_result_free(result)
        if self._seen is not None:
            self._learn([value.numpy()] if self._is_tensor else [v.numpy() for v in value])
        return value

    def _learn(self, arrays: Sequence[_Array]) -> None:
        """Expect from the next call what the last two returned, if it is small. To expect it after one would cost more
        than it gives where sizes change from call to call.
        """
        shapes = [array.shape for array in arrays]
        if shapes != self._seen:
            self._seen = shapes
            return
        if not all(0 < array.nbytes <= COPIED for array in arrays):
            return
        self.views = [np.empty_like(array) for array in arrays]
        outs = ffi.new("nvm_kept_out[]", len(arrays))
        for out, view in zip(outs, self.views, strict=True):
            out.dtype, out.rank, out.shape = DTYPE_NUMBERS[view.dtype], view.ndim, view.shape
            out.data, out.bytes = ffi.from_buffer(view), view.nbytes
        self.struct.outs, self.struct.n_outs = outs, len(arrays)
        self._alive[1:] = [outs]


__all__ = ["KeptCall"]

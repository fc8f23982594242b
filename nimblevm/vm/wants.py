"""What becomes of a call's results besides values: `out=` with buffers to fill and KEEP for state."""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm._ffi import ffi, lib
from nimblevm.bytecode.types import FunctionInfo, TupleType
from nimblevm.errors import InvalidInput, InvalidInputType
from nimblevm.vm.tensor import DTYPE_NUMBERS, as_array


class Keep:
    """The class of KEEP."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nimblevm.KEEP"

    def __reduce__(self) -> str:
        return "KEEP"


KEEP = Keep()
"""Stands in `out=` for a result that stays in the VM: the call returns a Handle in its place."""


class Wants:
    """The nvm_want array of one call. `buffers`: what the caller gave to be filled, in order."""

    __slots__ = ("_alive", "array", "buffers", "count")

    def __init__(self, out: Any, function: FunctionInfo) -> None:
        result = function.result
        is_tuple, given = isinstance(result, TupleType), isinstance(out, (tuple, list))
        wanted = len(result.fields) if isinstance(result, TupleType) else 1
        items = tuple(out) if given else (out,)
        if is_tuple != given or len(items) != wanted:
            returns = f"a tuple of {wanted}" if is_tuple else "one value"
            if given:
                got = f"a tuple of {len(items)}"
            else:
                got = "nimblevm.KEEP" if out is KEEP else type(out).__name__
            how = "; give one for each field" if is_tuple and not given else ""
            raise InvalidInput(f"out: @{function.name} returns {returns}, got {got}{how}")
        self.count = wanted
        self.array = ffi.new("nvm_want[]", wanted)
        self.buffers: list[Any] = []
        self._alive: list[Any] = []
        for position, item in enumerate(items):
            if item is KEEP:
                self.array[position].kind = lib.NVM_WANT_HANDLE
            elif item is not None:
                where = f"out[{position}]" if is_tuple else "out"
                self._fill(self.array[position], item, where)

    def _fill(self, want: Any, item: Any, where: str) -> None:
        if isinstance(item, np.generic) or not hasattr(item, "__len__"):
            raise InvalidInputType(
                f"{where}: expected an array to fill, KEEP or None, got {type(item).__name__}"
            )
        array = as_array(item, lambda: where)
        if not array.flags.writeable or not array.flags.c_contiguous:
            kind = "C-contiguous" if array.flags.writeable else "writable"
            raise InvalidInput(f"{where}: a buffer for a result must be {kind}")
        shape = ffi.new("int64_t[]", array.shape or (0,))
        want.kind, want.dtype = lib.NVM_WANT_BUFFER, DTYPE_NUMBERS[array.dtype]
        want.data = ffi.cast("void *", array.__array_interface__["data"][0])
        want.bytes, want.rank, want.shape = array.nbytes, array.ndim, shape
        self.buffers.append(item)
        self._alive += [array, shape]


__all__ = ["KEEP", "Keep", "Wants"]

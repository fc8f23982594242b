"""Python values <-> the flat postorder arrays of the C API (nvm_arg in, nvm_out out). Iterative: values may be deep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from nimblevm import dtypes
from nimblevm._ffi import ffi, lib
from nimblevm.bytecode.adt import ADTValue, Constructor
from nimblevm.bytecode.executable import Executable
from nimblevm.errors import InvalidInput, InvalidInputType, ValueMoved
from nimblevm.vm.tensor import DTYPE_NUMBERS, Gift, Moved, Tensor, as_array, from_result

_BOOL = dtypes.BY_NAME["bool"].number
_INT64 = range(-(2**63), 2**63)
# Looked up once: each costs a tenth of a microsecond in a call that takes a few.
_ARGS = ffi.typeof("nvm_arg[]")
_NUMBERS = ffi.typeof("int64_t[]")
_ARG_INT, _ARG_FLOAT = lib.NVM_ARG_INT, lib.NVM_ARG_FLOAT
_ARG_ADT, _ARG_HANDLE = lib.NVM_ARG_ADT, lib.NVM_ARG_HANDLE
_OUT_TENSOR, _OUT_ADT = lib.NVM_OUT_TENSOR, lib.NVM_OUT_ADT


class Handle:
    """A value that Python can't look into (closure, ref, ADT with refs). Goes back into the VM that made it."""

    __slots__ = ("_pointer", "vm")

    def __init__(self, pointer: Any, vm: object) -> None:
        lib.nvm_handle_retain(pointer)
        self._pointer = ffi.gc(pointer, lib.nvm_handle_release)
        self.vm = vm

    @property
    def pointer(self) -> Any:
        if self._pointer is None:
            raise ValueMoved("this handle was given away by nvm.move to a call")
        return self._pointer

    def give_up(self) -> None:
        """A call took it (nvm.move): release it; later uses raise ValueMoved."""
        self._pointer = None

    def __repr__(self) -> str:
        return f"<Handle of {self.vm!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Handle can't be pickled or copied; it belongs to its VirtualMachine")


# Where a value stands inside an argument: the parameter's text, or (where the parent stands, its constructor or None
# for a tuple, index of the field). Becomes text in errors only: values may be large and deep.
_Where = Any


def _place(where: _Where) -> str:
    steps: list[str] = []
    while not isinstance(where, str):
        where, constructor, index = where
        steps.append(f".{constructor.name}[{index}]" if constructor else f"[{index}]")
    steps.reverse()
    if len(steps) > 20:
        steps[10:-10] = [f" ({len(steps) - 20} more) "]
    return where + "".join(steps)


def _whole_strides(array: np.ndarray[Any, Any]) -> bool:
    """Whether strides count elements, which a field of packed records does not allow."""
    return not any(stride % array.itemsize for stride in array.strides)


class ArgumentList:
    """The nvm_arg array of one call. Keeps what it points to alive until the call is over."""

    __slots__ = ("_exe", "_numbers", "_values", "_vm", "gifts", "given_handles")

    def __init__(self, exe: Executable, vm: object) -> None:
        self._exe = exe
        self._vm = vm
        self.gifts: list[Gift] = []
        self.given_handles: list[Handle] = []
        self._values: list[Any] = []  # leaves, and (constructor index, n_fields) after their fields
        self._numbers: Any = None  # shapes and strides that the array points to

    def add(self, value: Any, place: str) -> None:
        """Append one parameter's value; `place` ("parameter %x") opens the messages of InvalidInput."""
        values = self._values
        stack: list[tuple[Any, _Where]] = [(value, place)]
        while stack:
            item, where = stack.pop()
            kind = type(item)
            if kind is np.ndarray and item.dtype in DTYPE_NUMBERS:
                values.append(item)
            elif kind is Tensor:
                values.append(item.numpy())
            elif kind is Moved:
                self._add_moved(item.value, where, stack)
            elif where is None:  # the fields are done
                values.append(item)
            elif kind is ADTValue:
                constructor, fields = item.constructor, item.fields
                stack.append(((self._constructor_index(constructor, where), len(fields)), None))
                for index in range(len(fields) - 1, -1, -1):
                    stack.append((fields[index], (where, constructor, index)))
            elif isinstance(item, (tuple, list)):
                stack.append(((0, len(item)), None))
                for index in range(len(item) - 1, -1, -1):
                    stack.append((item[index], (where, None, index)))
            else:
                values.append(self._leaf(item, where))

    def _add_moved(self, value: Any, where: _Where, stack: list[tuple[Any, _Where]]) -> None:
        """A value that is given away: its tensors become gifts, its fields are given away in turn."""
        if isinstance(value, Tensor):
            gift = Gift(value, lambda: _place(where))
            self.gifts.append(gift)
            self._values.append(gift)
            return
        if isinstance(value, ADTValue):
            value = ADTValue(value.constructor, tuple(Moved(f) for f in value.fields))
        elif isinstance(value, (tuple, list)):
            value = tuple(Moved(f) for f in value)
        elif isinstance(value, Handle):
            self.given_handles.append(value)
        elif isinstance(value, Moved):
            value = value.value
        stack.append((value, where))

    def _constructor_index(self, constructor: Constructor, where: _Where) -> int:
        table = self._exe.constructors
        if constructor.index < len(table) and table[constructor.index] is constructor:
            return constructor.index
        for own in table:  # a value made for another executable of the same types
            if (own.adt, own.name, own.tag) == (constructor.adt, constructor.name, constructor.tag):
                return own.index
        raise InvalidInput(
            f"{_place(where)}: the executable has no constructor {constructor.name} of {constructor.adt}"
        )

    def _leaf(self, value: Any, where: _Where) -> Any:
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            if isinstance(value, int) and value not in _INT64:
                raise InvalidInput(f"{_place(where)}: {value} does not fit int64")
            return value
        if isinstance(value, Handle):
            if value.vm is not self._vm:
                raise InvalidInput(f"{_place(where)}: the handle belongs to another VirtualMachine")
            return value
        if isinstance(value, Constructor):
            raise InvalidInputType(
                f"{_place(where)}: got the constructor {value.name} itself; call it: {value.name}(...)"
            )
        if value is None:
            raise InvalidInputType(f"{_place(where)}: expected a value, got None")
        return as_array(value, lambda: _place(where))

    def build(self) -> tuple[Any, int]:
        """(nvm_arg array, count)."""
        values = self._values
        if self.gifts:
            self._check_gifts()
        args = ffi.new(_ARGS, len(values))  # zeroed: kind tensor
        shapes: list[int] = []
        tensors: list[tuple[Any, int, int]] = []
        for position, value in enumerate(values):
            arg = args[position]
            if isinstance(value, np.ndarray):
                start, shape = len(shapes), value.shape
                shapes += shape
                arg.dtype = DTYPE_NUMBERS[value.dtype]
                arg.rank = rank = len(shape)
                arg.dl_device_type = 1
                contiguous = value.flags.c_contiguous
                if not contiguous and not _whole_strides(value):
                    value = values[position] = np.ascontiguousarray(value)
                    contiguous = True
                if contiguous:
                    arg.data = ffi.from_buffer(value)  # a third of what __array_interface__ takes
                    tensors.append((arg, start, 0))
                else:
                    arg.data = ffi.cast("void *", value.__array_interface__["data"][0])
                    tensors.append((arg, start, rank))
                    shapes += [stride // value.itemsize for stride in value.strides]
            elif isinstance(value, tuple):
                arg.kind = _ARG_ADT
                arg.ctor, arg.n_fields = value
            elif type(value) is Gift:
                arg.dtype = DTYPE_NUMBERS[value.dtype]
                arg.rank = len(value.shape)
                arg.dl_device_type = 1
                arg.data, arg.storage = value.data, value.storage
                tensors.append((arg, len(shapes), 0))
                shapes += value.shape
            else:
                self._scalar(arg, value)
        numbers = self._numbers = ffi.new(_NUMBERS, shapes)
        for arg, start, to_strides in tensors:
            arg.shape = numbers + start
            if to_strides:
                arg.strides = numbers + start + to_strides
        return args, len(values)

    def _check_gifts(self) -> None:
        """InvalidInput if a tensor that is given away is passed a second time."""
        passed = {id(value) for value in self._values if isinstance(value, np.ndarray)}
        for gift in self.gifts:
            if id(gift.array) in passed:
                raise InvalidInput(
                    f"{gift.place()}: the tensor is given away here and passed a second time in the same call"
                )
            passed.add(id(gift.array))

    def invoke(self, call: Callable[[], int]) -> int:
        """Run `call`, which gives a status, with the gifts taken; they are gone if it is 0."""
        gone = False
        try:
            for gift in self.gifts:
                gift.take()
            status = call()
            gone = status == 0
        finally:
            for gift in self.gifts:
                gift.settle(gone)
            for handle in self.given_handles if gone else ():
                handle.give_up()
        return status

    @staticmethod
    def _scalar(arg: Any, value: Any) -> None:
        if isinstance(value, bool):
            arg.kind, arg.dtype, arg.int_value = _ARG_INT, _BOOL, int(value)
        elif isinstance(value, int):
            arg.kind, arg.dtype, arg.int_value = _ARG_INT, -1, value
        elif isinstance(value, float):
            arg.kind, arg.dtype, arg.float_value = _ARG_FLOAT, -1, value
        else:
            arg.kind, arg.handle = _ARG_HANDLE, value.pointer


def results(result: Any, exe: Executable, vm: object) -> Any:
    """The Python value of an nvm_result (which stays owned by the caller): Tensor, tuple, ADTValue or Handle."""
    count = lib.nvm_result_count(result)
    values = lib.nvm_result_values(result)
    constructors = exe.constructors
    stack: list[Tensor | tuple[Any, ...] | ADTValue | Handle] = []
    for i in range(count):
        out = values[i]
        kind = out.kind
        if kind == _OUT_TENSOR:
            stack.append(from_result(out))
        elif kind == _OUT_ADT:
            start = len(stack) - out.n_fields
            fields = tuple(stack[start:])
            del stack[start:]
            stack.append(ADTValue(constructors[out.ctor], fields) if out.ctor else fields)
        else:
            stack.append(Handle(out.handle, vm))
    return stack[0]


__all__ = ["ArgumentList", "Handle", "results"]

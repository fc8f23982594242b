"""Python values <-> the flat postorder arrays of the C API (nvm_arg in, nvm_out out). Iterative: values may be deep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from nimblevm import dtypes
from nimblevm._ffi import ffi, lib
from nimblevm.bytecode.adt import ADTValue, Constructor
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.types import FunctionInfo, TensorType
from nimblevm.errors import InvalidInput, InvalidInputType, ValueMoved
from nimblevm.vm.tensor import DTYPE_NUMBERS, Gift, Moved, Tensor, as_array, from_result

# The dtype objects that arrays share: comparing them costs less than hashing.
_CODES = {id(dtype): number for dtype, number in DTYPE_NUMBERS.items()}
_BOOL = dtypes.BY_NAME["bool"].number
_LEAST, _MOST = -(2**63), 2**63 - 1
_INT64 = range(_LEAST, _MOST + 1)
# Looked up once: each costs a tenth of a microsecond in a call that takes a few.
_ARGS = ffi.typeof("nvm_arg[]")
_NUMBERS = ffi.typeof("int64_t[]")
_POINTERS = ffi.typeof("void *[]")
_LEAVE = 2**63 - 1
"""A code of nvm_args_fill: filled in afterwards."""
_FEW = 8
"""Parameters of functions whose argument array is kept."""
_ARG_TENSOR = lib.NVM_ARG_TENSOR
_ARG_INT, _ARG_FLOAT = lib.NVM_ARG_INT, lib.NVM_ARG_FLOAT
_ARG_ADT, _ARG_HANDLE = lib.NVM_ARG_ADT, lib.NVM_ARG_HANDLE
_OUT_TENSOR, _OUT_ADT = lib.NVM_OUT_TENSOR, lib.NVM_OUT_ADT


class Handle:
    """A value that stays in its VM: a closure or ref, or any result that was asked for with nvm.KEEP.

    It is an argument of further calls on that VM, whatever it holds at no cost, and stays as it is: calls make new
    values. Where one ends with it (`state = vm.run(x, state, out=KEEP)`), appends go on in its memory.
    """

    __slots__ = ("_pointer", "vm")

    def __init__(self, pointer: Any, vm: Any) -> None:
        lib.nvm_handle_retain(pointer)
        self._pointer = ffi.gc(pointer, lib.nvm_handle_release)
        self.vm = vm

    @property
    def pointer(self) -> Any:
        if self._pointer is None:
            raise ValueMoved("this handle was given away by nvm.move to a call")
        return self._pointer

    def read(self) -> Any:
        """What it holds: a Tensor, a tuple or an ADTValue (a Handle for a closure or ref). Copies tensors."""
        return self.vm.read(self)

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


def _place_of(value: Any, number: int, place: str) -> str:
    """Where item `number` of `ArgumentList._items` stands in an argument; for errors, so its cost does not matter."""
    stack: list[tuple[Any, _Where]] = [(value, place)]
    while stack:
        item, where = stack.pop()
        while type(item) is Moved:
            item = item.value
        if number == 0:
            return _place(where)
        number -= 1
        if type(item) is ADTValue:
            constructor = item.constructor
            stack += [(field, (where, constructor, i)) for i, field in enumerate(item.fields)]
        elif isinstance(item, (tuple, list)):
            stack += [(field, (where, None, i)) for i, field in enumerate(item)]
    return place


def _whole_strides(array: np.ndarray[Any, Any]) -> bool:
    """Whether strides count elements, which a field of packed records does not allow."""
    return not any(stride % array.itemsize for stride in array.strides)


class ArgumentList:
    """The nvm_arg array of one call. Keeps what it points to alive until the call is over.

    Compact arrays, tuples and ADT values, of which a call may have thousands, are collected in lists that C reads at
    once (nvm_args_fill); what else there is, is filled in one by one.
    """

    __slots__ = (
        "_arrays", "_codes", "_exe", "_keep", "_others", "_shapes", "_vm", "gifts", "given_handles",
    )  # fmt: skip

    def __init__(self, exe: Executable, vm: object) -> None:
        self._exe = exe
        self._vm = vm
        self.gifts: list[Gift] = []
        self.given_handles: list[Handle] = []
        self._codes: list[int] = []
        self._arrays: list[np.ndarray[Any, Any]] = []  # the compact ones
        self._shapes: list[int] = []  # of the compact arrays
        self._others: list[tuple[int, Any]] = []  # position and value of what C does not fill
        self._keep: list[Any] = []

    def add(self, value: Any, place: str) -> None:
        """Append one parameter's value; `place` ("parameter %x") opens the messages of InvalidInput."""
        if type(value) is int and value in _INT64:  # common in calls that take microseconds
            self._others.append((len(self._codes), value))
            self._codes.append(_LEAVE)
            return
        items = self._items(value, place)
        codes, arrays, table = self._codes, self._arrays, self._exe.constructors
        shapes, of_dtype = self._shapes, _CODES.get
        codes_of: dict[int, int] = {}  # constructors of this value
        number = len(items)
        for item in reversed(items):
            number -= 1
            kind = type(item)
            if kind is np.ndarray:
                code = of_dtype(id(item.dtype))
                if code is not None and item.flags.c_contiguous:
                    shape = item.shape
                    codes.append(code | len(shape) << 8)
                    shapes += shape
                    arrays.append(item)
                    continue
            elif kind is ADTValue:
                constructor = item.constructor
                known = codes_of.get(id(constructor))
                if known is None:
                    index = constructor.index
                    if index >= len(table) or table[index] is not constructor:
                        index = self._constructor_index(constructor, value, number, place)
                    known = codes_of[id(constructor)] = -1 - index
                codes.append(known - (len(item.fields) << 32))
                continue
            elif isinstance(item, (tuple, list)):
                codes.append(-1 - (len(item) << 32))
                continue
            self._add_other(item, partial(_place_of, value, number, place))

    def _items(self, value: Any, place: str) -> list[Any]:
        """The value and all that is in it in postorder, backwards: a value before its fields, the last field first."""
        items: list[Any] = []
        stack = [value]
        pop, extend, append = stack.pop, stack.extend, items.append
        while stack:
            item = pop()
            kind = type(item)
            if kind is ADTValue:
                extend(item.fields)
            elif kind is Moved:
                opened = self._opened(item.value, partial(_place_of, value, len(items), place))
                if type(opened) is not Gift:
                    stack.append(opened)
                    continue
                item = opened
            elif kind is not np.ndarray and isinstance(item, (tuple, list)):
                extend(item)
            append(item)
        return items

    def _opened(self, value: Any, place: Callable[[], str]) -> Any:
        """A value that is given away: a tensor as Gift, others as a value whose fields are given away."""
        if isinstance(value, Tensor):
            gift = Gift(value, place)
            self.gifts.append(gift)
            return gift
        if isinstance(value, ADTValue):
            return ADTValue(value.constructor, tuple(Moved(f) for f in value.fields))
        if isinstance(value, (tuple, list)):
            return tuple(Moved(f) for f in value)
        if isinstance(value, Handle):
            self.given_handles.append(value)
        return value

    def _add_other(self, item: Any, place: Callable[[], str]) -> None:
        value = item.numpy() if type(item) is Tensor else item
        if type(value) is not np.ndarray and type(value) is not Gift:
            value = self._leaf(value, place)
        if isinstance(value, np.ndarray):
            if value.dtype not in DTYPE_NUMBERS:
                value = as_array(value, place)
            if not value.flags.c_contiguous and not _whole_strides(value):
                value = np.ascontiguousarray(value)
            if value.flags.c_contiguous:
                self._codes.append(DTYPE_NUMBERS[value.dtype] | value.ndim << 8)
                self._shapes += value.shape
                self._arrays.append(value)
                return
        self._others.append((len(self._codes), value))
        self._codes.append(_LEAVE)

    def _constructor_index(
        self, constructor: Constructor, value: Any, number: int, place: str
    ) -> int:
        """The index of a constructor that was made for another executable of the same types."""
        for own in self._exe.constructors:
            if (own.adt, own.name, own.tag) == (constructor.adt, constructor.name, constructor.tag):
                return own.index
        raise InvalidInput(
            f"{_place_of(value, number, place)}: the executable has no constructor {constructor.name} "
            f"of {constructor.adt}"
        )

    def _leaf(self, value: Any, place: Callable[[], str]) -> Any:
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            if isinstance(value, int) and value not in _INT64:
                raise InvalidInput(f"{place()}: {value} does not fit int64")
            return value
        if isinstance(value, Handle):
            if value.vm is not self._vm:
                raise InvalidInput(f"{place()}: the handle belongs to another VirtualMachine")
            return value
        if isinstance(value, Constructor):
            raise InvalidInputType(
                f"{place()}: got the constructor {value.name} itself; call it: {value.name}(...)"
            )
        if value is None:
            raise InvalidInputType(f"{place()}: expected a value, got None")
        return as_array(value, place)

    def build(self) -> tuple[Any, int]:
        """(nvm_arg array, count)."""
        if self.gifts:
            self._check_gifts()
        count = len(self._codes)
        args = ffi.new(_ARGS, count)
        if self._arrays or len(self._others) < count:
            shapes = ffi.new(_NUMBERS, self._shapes)
            self._keep.append(shapes)
            data = ffi.new(_POINTERS, list(map(ffi.from_buffer, self._arrays)))
            lib.nvm_args_fill(args, count, ffi.new(_NUMBERS, self._codes), data, shapes)
        for position, value in self._others:
            self._fill(args[position], value)
        return args, count

    def _fill(self, arg: Any, value: Any) -> None:
        """A strided array, a gift, a number or a handle."""
        if isinstance(value, np.ndarray):
            strides = [stride // value.itemsize for stride in value.strides]
            arg.data = ffi.cast("void *", value.__array_interface__["data"][0])
            self._describe(arg, value, strides)
        elif isinstance(value, Gift):
            arg.data, arg.storage = value.data, value.storage
            self._describe(arg, value, [])
        else:
            self._scalar(arg, value)

    def _describe(self, arg: Any, value: np.ndarray[Any, Any] | Gift, strides: list[int]) -> None:
        rank = len(value.shape)
        numbers = ffi.new(_NUMBERS, [*value.shape, *strides])
        self._keep.append(numbers)
        arg.dtype, arg.rank, arg.dl_device_type = DTYPE_NUMBERS[value.dtype], rank, 1
        arg.shape = numbers
        if strides:
            arg.strides = numbers + rank

    def _check_gifts(self) -> None:
        """InvalidInput if a tensor that is given away is passed a second time."""
        strided = (value for _, value in self._others if isinstance(value, np.ndarray))
        passed = {id(array) for array in (*self._arrays, *strided)}
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


class KeptArguments:
    """The nvm_arg array of a function that takes nothing but tensors, kept from call to call: only addresses, sizes and
    numbers are new. `out` receives the result. Whoever fills it must hold `lock`; a call that can't have it makes an
    ArgumentList.
    """

    __slots__ = ("_numbers", "_rows", "args", "count", "lock", "out")

    def __init__(self, types: Sequence[TensorType]) -> None:
        self.lock = threading.Lock()
        self.count = len(types)
        self.args = ffi.new(_ARGS, self.count)
        self.out = ffi.new("nvm_result **")
        self._numbers = ffi.new(_NUMBERS, sum(len(type_.dims) for type_ in types))
        self._rows: list[
            tuple[Any, Any, int, int, int]
        ] = []  # nvm_arg, dtype, its number, rank, first size
        start = 0
        for position, type_ in enumerate(types):
            arg, rank = self.args[position], len(type_.dims)
            dtype = np.dtype(dtypes.dtype(type_.dtype).numpy)
            number = DTYPE_NUMBERS[dtype]
            arg.dtype, arg.rank, arg.dl_device_type = number, rank, 1
            arg.shape = self._numbers + start
            self._rows.append((arg, dtype, number, rank, start))
            start += rank

    @staticmethod
    def of(function: FunctionInfo) -> KeptArguments | None:
        """For a function of tensors; None for another one."""
        types = [p.type for p in function.params if isinstance(p.type, TensorType)]
        return KeptArguments(types) if 0 < len(types) == len(function.params) <= _FEW else None

    def fill(self, values: tuple[Any, ...]) -> bool:
        """Whether all values are compact arrays of the right dtype and rank, or an int for a tensor of rank 0, which
        then stand in `args`.
        """
        numbers = self._numbers
        for value, (arg, dtype, number, rank, at) in zip(values, self._rows, strict=True):
            if type(value) is np.ndarray:
                if value.dtype is not dtype or not value.flags.c_contiguous:
                    return False
                shape = value.shape
                if len(shape) != rank:
                    return False
                arg.data = ffi.from_buffer(value)
                for size in shape:
                    numbers[at] = size
                    at += 1
                if rank == 0:
                    arg.kind, arg.dtype = _ARG_TENSOR, number
            elif rank == 0 and type(value) is int and _LEAST <= value <= _MOST:
                arg.kind, arg.dtype, arg.int_value = _ARG_INT, -1, value
            else:
                return False
        return True


def tensor_result(result: Any) -> Tensor:
    """`results` of a function that returns a tensor, which is of its own."""
    out = lib.nvm_result_values(result)
    return from_result(out)


def results(result: Any, exe: Executable, vm: object, buffers: Sequence[Any] = ()) -> Any:
    """The Python value of an nvm_result (which stays owned by the caller): Tensor, tuple, ADTValue or Handle; for
    results that went into the caller's buffers those, in order.
    """
    filled = iter(buffers)
    count = lib.nvm_result_count(result)
    values = lib.nvm_result_values(result)
    constructors = exe.constructors
    stack: list[Any] = []
    for i in range(count):
        out = values[i]
        kind = out.kind
        if kind == _OUT_TENSOR:
            stack.append(from_result(out) if out.storage else next(filled))
        elif kind == _OUT_ADT:
            start = len(stack) - out.n_fields
            fields = tuple(stack[start:])
            del stack[start:]
            stack.append(ADTValue(constructors[out.ctor], fields) if out.ctor else fields)
        else:
            stack.append(Handle(out.handle, vm))
    return stack[0]


__all__ = ["ArgumentList", "Handle", "KeptArguments", "results", "tensor_result"]

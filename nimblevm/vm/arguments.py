"""Python values <-> the flat postorder arrays of the C API (nvm_arg in, nvm_out out). Iterative: values may be deep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from struct import pack
from typing import Any, NoReturn

import numpy as np

from nimblevm import dtypes
from nimblevm._ffi import check, ffi, lib
from nimblevm.bytecode.adt import ADTValue, Constructor, value_code
from nimblevm.bytecode.executable import Executable
from nimblevm.errors import InvalidInput, InvalidInputType, ValueMoved
from nimblevm.vm.tensor import DTYPE_NUMBERS, Gift, Moved, Tensor, as_array, from_result

# The dtype objects that arrays share: comparing them costs less than hashing.
_CODES = {id(dtype): number for dtype, number in DTYPE_NUMBERS.items()}
_OWN_DTYPES = {dtype: dtype for dtype in DTYPE_NUMBERS}
_BOOL = dtypes.BY_NAME["bool"].number
_LEAST, _MOST = -(2**63), 2**63 - 1
"""Of int64; `in range(...)` would count up to a number whose type is derived from int."""
_MANY_LISTS = 1 << 16
"""Lists of a call after which it is looked whether one holds itself."""
# Looked up once: each costs a tenth of a microsecond in a call that takes a few.
_ARGS = ffi.typeof("nvm_arg[]")
_NUMBERS = ffi.typeof("int64_t[]")
_POINTERS = ffi.typeof("void *[]")
_LEAVE = 1
"""A code of nvm_args_fill: filled in afterwards."""
_ALIKE = 1 << 16
"""In a tensor's code: those behind it have its dtype and shape too."""
_COPIED = 4096
"""Bytes of an array up to which a copy costs less than an address."""
_SHAPE, _DTYPE = attrgetter("shape"), attrgetter("dtype")
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
        if not isinstance(pointer, ffi.CData):
            raise InvalidInputType("handles come from runs: vm.run(..., out=nvm.KEEP)")
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


def _place_of(values: Sequence[Any], places: Sequence[str], number: int) -> str:
    """Where value `number` of `ArgumentList` stands in the arguments; for errors, so its cost does not matter."""
    found: list[tuple[Any, _Where]] = list(zip(values, places, strict=True))
    for item, where in found:
        if number == 0:
            return _place(where)
        number -= 1
        while type(item) is Moved:
            item = item.value
        if type(item) is ADTValue:
            constructor = item.constructor
            found += [(field, (where, constructor, i)) for i, field in enumerate(item.fields)]
        elif isinstance(item, (tuple, list)):
            found += [(field, (where, None, i)) for i, field in enumerate(item)]
    return places[0]


def _whole_strides(array: np.ndarray[Any, Any]) -> bool:
    """Whether strides count elements, which a field of packed records does not allow."""
    return not any(stride % array.itemsize for stride in array.strides)


class ArgumentList:
    """The nvm_arg array of one call. Keeps what it points to alive until the call is over.

    Values are listed breadth first in one list that grows while it is read, which takes the least work a value.
    Compact arrays, tuples and ADT values, of which a call may have thousands, are described by lists that C reads at
    once (nvm_args_fill); what else there is, is filled in one by one.

    exe, vm   what is called
    values    of the parameters
    places    of the parameters ("parameter %x"), which open the messages of InvalidInput
    """

    __slots__ = (
        "_arrays", "_codes", "_exe", "_keep", "_lists", "_others", "_places", "_values", "_vm", "gifts",
        "given_handles",
    )  # fmt: skip

    def __init__(
        self, exe: Executable, vm: object, values: Sequence[Any], places: Sequence[str]
    ) -> None:
        self._exe = exe
        self._vm = vm
        self._values, self._places = values, places
        self.gifts: list[Gift] = []
        self.given_handles: list[Handle] = []
        self._codes: list[int] = []
        self._arrays: list[np.ndarray[Any, Any]] = []  # of the codes 0, in order
        self._others: list[tuple[int, Any]] = []  # number and value of what C does not fill
        self._keep: list[Any] = []
        self._lists = 0  # opened so far
        self._list_values()

    def _list_values(self) -> None:
        home = self._exe.constructors[0].home
        items = list(self._values)
        extend, code, keep = items.extend, self._codes.append, self._arrays.append
        for item in items:
            kind = type(item)
            if kind is ADTValue:
                constructor, fields = item.constructor, item.fields
                if constructor.home is home and len(fields) == len(constructor.fields):
                    code(constructor.code)
                else:
                    code(self._foreign_code(constructor, len(fields)))
                extend(fields)
            elif kind is np.ndarray:
                code(0)
                keep(item)
            else:
                extend(self._add_other(item))

    def _place(self) -> str:
        """Where the value stands that is being listed."""
        return _place_of(self._values, self._places, len(self._codes))

    def _opened(self, value: Any) -> Any:
        """A value that is given away: a tensor as Gift, others as a value whose fields are given away."""
        if isinstance(value, Tensor):
            number = len(self._codes)
            gift = Gift(value, lambda: _place_of(self._values, self._places, number))
            self.gifts.append(gift)
            return gift
        if isinstance(value, ADTValue):
            return ADTValue(value.constructor, tuple(Moved(f) for f in value.fields))
        if isinstance(value, (tuple, list)):
            if isinstance(value, list):
                self._count_list()
            return tuple(Moved(f) for f in value)
        if isinstance(value, Handle):
            self.given_handles.append(value)
        return value

    def _add_other(self, item: Any) -> Sequence[Any]:
        """Append what is neither an ADT value nor an array; its fields, if it has some."""
        if type(item) is int and _LEAST <= item <= _MOST:  # common in calls that take microseconds
            self._others.append((len(self._codes), item))
            self._codes.append(_LEAVE)
            return ()
        if type(item) is Moved:
            item = self._opened(item.value)
        if type(item) is ADTValue:
            self._codes.append(self._foreign_code(item.constructor, len(item.fields)))
            return item.fields
        if isinstance(item, (tuple, list)) and not isinstance(item, np.ndarray):
            if isinstance(item, list):
                self._count_list()
            self._codes.append(value_code(0, len(item)))
            return item
        if type(item) is Tensor:
            item = item.numpy()
        elif type(item) is not Gift and type(item) is not np.ndarray:
            item = self._leaf(item)
        if isinstance(item, np.ndarray):
            self._arrays.append(item)
            self._codes.append(0)
        else:
            self._others.append((len(self._codes), item))
            self._codes.append(_LEAVE)
        return ()

    def _count_list(self) -> None:
        self._lists += 1
        if self._lists == _MANY_LISTS:
            self._refuse_cycles()

    def _refuse_cycles(self) -> None:
        """InvalidInput if a list holds itself, at any depth: listing its values would never end. Nothing else can: what
        is not a list is complete when it is made.
        """
        entered: set[int] = set()  # values whose fields have been seen, or are being
        inside: set[int] = set()  # those that hold the value at hand
        stack = [(value, False) for value in self._values]
        while stack:
            value, done = stack.pop()
            if type(value) is Moved:
                value = value.value
            fields = value.fields if type(value) is ADTValue else value
            if not isinstance(fields, (tuple, list)):
                continue
            if done:
                inside.remove(id(value))
            elif id(value) in inside:
                raise InvalidInput(f"{self._place()}: a list holds itself")
            elif id(value) not in entered:
                entered.add(id(value))
                inside.add(id(value))
                stack.append((value, True))
                stack += [(field, False) for field in fields]

    def _foreign_code(self, constructor: Constructor, fields: int) -> int:
        """The code of a value whose constructor was made for another executable of the same types, or that does not
        have its number of fields, which C refuses.
        """
        for own in self._exe.constructors:
            if (own.adt, own.name, own.tag) == (constructor.adt, constructor.name, constructor.tag):
                return value_code(own.index, fields)
        raise InvalidInput(
            f"{self._place()}: the executable has no constructor {constructor.name} of {constructor.adt}"
        )

    def _leaf(self, value: Any) -> Any:
        place = self._place
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            if isinstance(value, int) and not _LEAST <= value <= _MOST:
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
        if self.gifts or self.given_handles:
            self._check_gifts()
        count = len(self._codes)
        args = ffi.new(_ARGS, count)
        shapes, tensors, data = self._describe_arrays()
        listed = (*self._codes, *tensors, *shapes)
        # A third of what array("q") or ffi.new take.
        numbers = ffi.from_buffer(_NUMBERS, pack(f"{len(listed)}q", *listed))
        places = ffi.new(_NUMBERS, 2 * count)
        at = numbers + count
        check(
            lib.nvm_args_fill(
                args, count, len(self._values), numbers, at, data, at + len(tensors), places
            )
        )
        self._keep.append(numbers)
        for number, value in self._others:
            self._fill(args[places[number]], value)
        return args, count

    def _describe_arrays(self) -> tuple[Sequence[int], Sequence[int], Any]:
        """Shapes, dtypes and addresses of the arrays as nvm_args_fill reads them."""
        arrays = self._arrays
        if not arrays:
            return [], [], ffi.NULL
        shapes, kinds = list(map(_SHAPE, arrays)), list(map(_DTYPE, arrays))
        shape = shapes[0]
        number: Any = _CODES.get(id(kinds[0]))
        # Comparing with an equal object is comparing addresses.
        alike = shapes.count(shape) == kinds.count(kinds[0]) == len(arrays)
        numbers: list[Any] = [number] if alike else list(map(_CODES.get, map(id, kinds)))
        try:
            if None in numbers:
                raise ValueError("a dtype that is not one of numpy's own objects")
            data = self._addresses(alike and arrays[0].nbytes <= _COPIED)
        except (TypeError, ValueError):
            if not self._take_out_strided():
                raise
            return self._describe_arrays()
        if alike:
            return shape, [number | len(shape) << 8 | _ALIKE], data
        tensors = [number | len(shape) << 8 for number, shape in zip(numbers, shapes, strict=True)]
        return list(chain.from_iterable(shapes)), tensors, data

    def _addresses(self, copied: bool) -> Any:
        """The arrays' memory. TypeError or ValueError if one is not compact.

        copied   into one block, which for small arrays takes a third of the time that an address for each takes
        """
        arrays: list[Any] = self._arrays
        if not copied or len(arrays) < 3:
            return ffi.new(_POINTERS, list(map(ffi.from_buffer, arrays)))
        data = ffi.new(_POINTERS, len(arrays))
        data[0] = block = ffi.from_buffer(b"".join(arrays))
        self._keep.append(block)
        return data

    def _take_out_strided(self) -> bool:
        """Keep only compact arrays of numpy's own dtypes; whether there were others. InvalidInputType for what is no
        tensor.
        """
        arrays, self._arrays = self._arrays, []
        numbers = [number for number, code in enumerate(self._codes) if code == 0]
        changed = False
        for number, given in zip(numbers, arrays, strict=True):
            value = as_array(given, partial(_place_of, self._values, self._places, number))
            if id(value.dtype) not in _CODES:
                value = value.view(_OWN_DTYPES[value.dtype])
            if not value.flags.c_contiguous and not _whole_strides(value):
                value = np.ascontiguousarray(value)
            changed |= value is not given
            if value.flags.c_contiguous:
                self._arrays.append(value)
            else:
                self._others.append((number, value))
                self._codes[number] = _LEAVE
                changed = True
        return changed

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
        """InvalidInput if a tensor or handle that is given away is passed a second time."""
        strided = (value for _, value in self._others if isinstance(value, np.ndarray))
        passed = {id(array) for array in (*self._arrays, *strided)}
        for gift in self.gifts:
            if id(gift.array) in passed:
                raise InvalidInput(
                    f"{gift.place()}: the tensor is given away here and passed a second time in the same call"
                )
            passed.add(id(gift.array))
        given, seen = set(map(id, self.given_handles)), set()
        for number, value in self._others if given else ():
            if id(value) in given and id(value) in seen:
                place = _place_of(self._values, self._places, number)
                raise InvalidInput(
                    f"{place}: the handle is passed a second time in the call that it is given away to"
                )
            seen.add(id(value))

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


__all__ = ["ArgumentList", "Handle", "results"]

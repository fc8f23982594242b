"""Values of a program <-> JSON values, checked against the types of an executable.

    number, true, false             rank-0 tensor of the parameter's dtype
    [[1, 2], [3, 4]]                tensor of the parameter's dtype; [] takes the sizes that its type has, else 0
    {"dtype": "float32", "shape": [0, 4], "data": []}   tensor, said in full; data may be nested or flat
    {"file": "x.npy"}, {"file": "w.npz:name"}           tensor from a numpy file
    [a, b]                          tuple, a value for each field
    {"constructor": "Node", "fields": [a, b]}           value of a data type; "Leaf" alone is one without fields
    [a, b, c]                       also a list: a data type of Cons and Nil, as the prelude's List
    NaN, Infinity, -Infinity        are numbers, as in Python's json

What `to_json` writes, `from_json` reads. Nothing recurses: values may be a million cells deep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm import dtypes
from nimblevm.abi import MAX_RANK
from nimblevm.bytecode.adt import Constructor
from nimblevm.bytecode.types import (
    AdtType,
    FuncType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    type_text,
)
from nimblevm.cli.arrays import Array, read_array
from nimblevm.cli.console import Mistake

_SHOWN = 60  # characters of a wrong value in a message


@dataclass(frozen=True, eq=False, slots=True)
class _Bound:
    """A type with what its type variables stand for."""

    type: Type
    args: tuple[_Bound, ...] = ()

    def inner(self, part: Type) -> _Bound:
        """A part of this type, or of a constructor's field where this is a data type's `fields`."""
        if isinstance(part, TypeVar):
            return self.args[part.index] if part.index < len(self.args) else _Bound(part)
        return _Bound(part, self.args)

    def fields(self, adt: AdtType) -> _Bound:
        """This data type with its own variables bound, for the fields of its constructors."""
        return _Bound(adt, tuple([self.inner(a) for a in adt.args]))


class _Where:
    """A place inside a value, as text only for errors: `parameter %t.Node[1].Cons[0]`."""

    __slots__ = ("parent", "step")

    def __init__(self, step: str, parent: _Where | None = None) -> None:
        self.step = step
        self.parent = parent

    def __str__(self) -> str:
        steps: list[str] = []
        where: _Where | None = self
        while where is not None:
            steps.append(where.step)
            where = where.parent
        steps.reverse()
        if len(steps) > 21:
            steps[11:-10] = [f" ({len(steps) - 21} more) "]
        return "".join(steps)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:4])) or 'no names'}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def from_json(
    value: Any, type_: Type, exe: nvm.Executable, place: str, names: Sequence[str] = ()
) -> Any:
    """What `vm.run` takes for a JSON value of a type. Mistake with the place inside of it for what does not fit.

    `names` are those of the dims of the function that the value is for.
    """
    return _Converter(exe, names).convert(value, _Bound(type_), _Where(place))


class _Converter:
    def __init__(self, exe: nvm.Executable, names: Sequence[str]) -> None:
        self.names = names
        self.done: list[Any] = []
        self.todo: list[Callable[[], None]] = []
        self.by_adt: dict[str, list[Constructor]] = {}
        for constructor in exe.constructors[1:]:
            self.by_adt.setdefault(constructor.adt, []).append(constructor)

    def convert(self, value: Any, bound: _Bound, where: _Where) -> Any:
        self._one(value, bound, where)
        while self.todo:
            self.todo.pop()()
        return self.done.pop()

    def _later(self, value: Any, bound: _Bound, where: _Where) -> None:
        self.todo.append(lambda: self._one(value, bound, where))

    def _one(self, value: Any, bound: _Bound, where: _Where) -> None:
        match bound.type:
            case TensorType() as tensor:
                self.done.append(_tensor(value, tensor, type_text(tensor, self.names), where))
            case TupleType(fields=fields):
                if not isinstance(value, list) or len(value) != len(fields):
                    raise _wrong(where, f"an array of {len(fields)} for a tuple", value)
                self._build(tuple, len(fields))
                for i in range(len(fields) - 1, -1, -1):
                    self._later(value[i], bound.inner(fields[i]), _Where(f"[{i}]", where))
            case AdtType():
                self._adt(value, bound, bound.type, where)
            case FuncType() | RefType():
                raise Mistake(
                    f"{where}: a value of type {type_text(bound.type, self.names)} can't be written down; "
                    "call a function that takes only tensors, tuples and data types"
                )
            case _:
                self.done.append(_untyped(value, where))

    def _build(self, make: Callable[[list[Any]], Any], count: int) -> None:
        """When `count` more values are done, they become one."""

        def build() -> None:
            start = len(self.done) - count
            parts = self.done[start:]
            del self.done[start:]
            self.done.append(make(parts))

        self.todo.append(build)

    def _adt(self, value: Any, bound: _Bound, adt: AdtType, where: _Where) -> None:
        known = self.by_adt.get(adt.name, [])
        bound = bound.fields(adt)
        if isinstance(value, list):
            pair = _list_constructors(known)
            if pair is None:
                raise _wrong(where, _adt_text(adt, known), value)
            self._list(value, bound, pair, where)
            return
        name, fields = value, []
        if isinstance(value, dict) and set(value) in ({"constructor"}, {"constructor", "fields"}):
            name, fields = value["constructor"], value.get("fields", [])
        if not isinstance(name, str) or not isinstance(fields, list):
            raise _wrong(where, _adt_text(adt, known), value)
        found = next((c for c in known if name in (c.name, f"{adt.name}.{c.name}")), None)
        if found is None:
            raise Mistake(
                f"{where}: {adt.name} has no constructor {name!r}; it has {_names(known)}"
            )
        if len(fields) != len(found.types):
            raise Mistake(
                f"{where}: constructor {found.name} takes {len(found.types)} fields "
                f"({', '.join(found.fields)}), got {len(fields)}"
            )
        constructor = found
        self._build(lambda parts: constructor(*parts), len(fields))
        for i in range(len(fields) - 1, -1, -1):
            step = _Where(f".{found.name}[{i}]", where)
            self._later(fields[i], bound.inner(found.types[i]), step)

    def _list(
        self,
        value: list[Any],
        bound: _Bound,
        pair: tuple[Constructor, Constructor],
        where: _Where,
    ) -> None:
        cons, nil = pair

        def chain(parts: list[Any]) -> Any:
            tail = nil()
            for part in reversed(parts):
                tail = cons(part, tail)
            return tail

        self._build(chain, len(value))
        element = bound.inner(cons.types[0])
        for i in range(len(value) - 1, -1, -1):
            self._later(value[i], element, _Where(f"[{i}]", where))


def _names(constructors: list[Constructor]) -> str:
    return ", ".join(c.name for c in constructors) or "none"


def _adt_text(adt: AdtType, known: list[Constructor]) -> str:
    text = f'{{"constructor": ..., "fields": [...]}} for {adt.name}, one of {_names(known)}'
    return f"an array or {text}" if _list_constructors(known) else text


def _wrong(where: _Where, expected: str, value: Any) -> Mistake:
    return Mistake(f"{where}: expected {expected}, got {_short(value)}")


def _list_constructors(known: list[Constructor]) -> tuple[Constructor, Constructor] | None:
    """(Cons, Nil) of a data type that is a list."""
    by_name = {c.name: c for c in known}
    if set(by_name) != {"Cons", "Nil"}:
        return None
    cons, nil = by_name["Cons"], by_name["Nil"]
    if len(cons.types) != 2 or nil.types:
        return None
    tail = cons.types[1]
    return (cons, nil) if isinstance(tail, AdtType) and tail.name == cons.adt else None


# --- tensors --------------------------------------------------------------------------------------


def _tensor(value: Any, type_: TensorType, wanted: str, where: _Where) -> Array:
    """`wanted` is the type's text."""
    if isinstance(value, dict):
        array = _explicit(value, where)
    else:
        array = _nested(value, type_.dtype, wanted, where)
        if not array.size and array.ndim < len(type_.dims):
            # [] does not tell the sizes behind the empty axis
            rest = type_.dims[array.ndim :]
            array = array.reshape(*array.shape, *(d if isinstance(d, int) else 0 for d in rest))
    fits = len(type_.dims) == array.ndim and all(
        not isinstance(d, int) or d == n for d, n in zip(type_.dims, array.shape, strict=True)
    )
    if not fits or array.dtype.name != type_.dtype:
        found = f"{array.dtype.name} of shape {list(array.shape)}"
        raise Mistake(f"{where}: expected {wanted}, got {found}")
    return array


def _explicit(value: dict[str, Any], where: _Where) -> Array:
    """The forms that say dtype and shape, or name a file."""
    if set(value) == {"file"} and isinstance(value["file"], str):
        array = read_array(value["file"])
    elif set(value) == {"dtype", "shape", "data"}:
        dtype, shape = value["dtype"], value["shape"]
        if dtype not in dtypes.BY_NAME:
            raise Mistake(
                f"{where}: no dtype {_short(dtype)}; there are {', '.join(dtypes.BY_NAME)}"
            )
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise _wrong(where, "a shape of whole numbers", shape)
        array = _nested(value["data"], dtype, dtype, where)
        if array.size != int(np.prod(shape, dtype=object)) or len(shape) > MAX_RANK:
            raise Mistake(f"{where}: {array.size} numbers don't fill the shape {shape}")
        array = array.reshape(shape)
    else:
        raise _wrong(where, '{"file": ...} or {"dtype": ..., "shape": [...], "data": [...]}', value)
    return array


def _nested(value: Any, dtype: str, wanted: str, where: _Where) -> Array:
    """An array of nested lists, all numbers of which `dtype` holds."""
    shape: list[int] = []
    level: list[Any] = [value]
    while level and isinstance(level[0], list):
        size = len(level[0])
        for item in level:
            if not isinstance(item, list) or len(item) != size:
                got = f"one of {len(item)}" if isinstance(item, list) else _short(item)
                raise Mistake(f"{where}: ragged array: next to an array of {size} stands {got}")
        shape.append(size)
        if len(shape) > MAX_RANK:
            raise Mistake(f"{where}: an array of more than {MAX_RANK} axes")
        level = [item for inner in level for item in inner]
    row = dtypes.dtype(dtype)
    fits = _FITS[0 if row.is_bool else 1 if row.is_integer else 2]
    for item in level:
        if not fits(item):
            raise _wrong(where, wanted, item)
    return _filled(level, dtype, where).reshape(shape)


# By kind: bool, integer, float. JSON's true is no number.
_FITS: tuple[Callable[[Any], bool], ...] = (
    lambda v: isinstance(v, bool),
    lambda v: type(v) is int,
    lambda v: type(v) in (int, float),
)


def _filled(numbers: list[Any], dtype: str, where: _Where) -> Array:
    row = dtypes.dtype(dtype)
    if row.is_integer:
        limits = np.iinfo(row.numpy)
        for number in numbers:
            if not limits.min <= number <= limits.max:
                raise Mistake(f"{where}: {_short(number)} does not fit {dtype}")
        return np.array(numbers, row.numpy)
    try:
        with np.errstate(over="ignore"):
            array = np.array(numbers, row.numpy)
    except OverflowError:
        raise Mistake(f"{where}: a number is too large for {dtype}") from None
    if row.is_float and np.isinf(array).sum() > sum(n in (np.inf, -np.inf) for n in numbers):
        raise Mistake(f"{where}: a number is too large for {dtype}")
    return array


def _untyped(value: Any, where: _Where) -> Any:
    """A value where the program takes any type."""
    if isinstance(value, dict):
        return _explicit(value, where)
    raise _wrong(
        where, '{"dtype": ..., "shape": [...], "data": [...]} (the type is open here)', value
    )


# --- and out --------------------------------------------------------------------------------------


def to_json(value: Any, tensor: Callable[[Array], Any] | None = None) -> Any:
    """Dicts, lists, strings and numbers for a result. `tensor` makes what stands for a tensor; default: nested lists,
    or dtype, shape and data where those would not tell the shape. Mistake for closures and references.
    """
    write = tensor or _tensor_json
    done: list[Any] = []
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, _Close):
            start = len(done) - item.count
            parts = done[start:]
            del done[start:]
            done.append(item.make(parts))
        elif isinstance(item, nvm.ADTValue):
            items, close = _opened(item)
            todo.append(close)
            todo.extend(reversed(items))
        elif isinstance(item, tuple):
            todo.append(_Close(len(item), lambda parts: parts))
            todo.extend(reversed(item))
        elif isinstance(item, nvm.Tensor):
            done.append(write(item.numpy()))
        else:
            raise Mistake(
                "the result holds a function or a reference, which can't be written to a file"
            )
    return done[0]


@dataclass(frozen=True, slots=True)
class _Close:
    """The fields of a value are done: `make` takes the last `count`."""

    count: int
    make: Callable[[list[Any]], Any]


def _opened(value: nvm.ADTValue) -> tuple[list[Any], _Close]:
    """The parts of a value and what becomes of them; a list's cells at once."""
    constructor = value.constructor
    name = constructor.name
    if name in ("Cons", "Nil") and constructor.adt == "List":
        items: list[Any] = []
        while isinstance(value, nvm.ADTValue) and value.constructor.name == "Cons":
            items.append(value.fields[0])
            value = value.fields[1]
        if isinstance(value, nvm.ADTValue):
            return items, _Close(len(items), lambda parts: parts)
        raise Mistake("the result holds a reference, which can't be written to a file")
    if not value.fields:
        return [], _Close(0, lambda parts: name)
    fields = list(value.fields)
    return fields, _Close(len(fields), lambda parts: {"constructor": name, "fields": parts})


def _tensor_json(array: Array) -> Any:
    if array.size == 0 and array.ndim > 1:
        return {"dtype": array.dtype.name, "shape": list(array.shape), "data": []}
    return array.tolist()


__all__ = ["from_json", "to_json"]

"""Values of algebraic data types on the Python side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nimblevm.bytecode.types import Type
from nimblevm.errors import InvalidInput


def value_code(index: int, fields: int) -> int:
    """What nvm_args_fill is told of a value that constructor `index` made of so many fields."""
    return -1 - (index | fields << 32)


@dataclass(frozen=True, slots=True)
class Constructor:
    """A constructor of an executable: callable, makes ADTValues.

    index     position in the executable's table (0 is the tuple)
    name      "Cons"
    adt       name of its type, "List"
    tag       position in its type
    fields    field types as text, for messages
    types     field types as records; their type variables are those of the data type
    home      the same object for all constructors of an executable, by which a call knows its own
    code      constructor and number of fields as nvm_args_fill reads them
    """

    index: int
    name: str
    adt: str
    tag: int
    fields: tuple[str, ...]
    types: tuple[Type, ...] = field(default=(), compare=False)
    home: object = field(default=None, compare=False, repr=False)
    code: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", value_code(self.index, len(self.fields)))

    def __call__(self, *fields: Any) -> ADTValue:
        """A value; fields may be anything that run() takes. Their types are checked when the value enters a VM.

        Raises InvalidInput if the number of fields is wrong.
        """
        if len(fields) != len(self.fields):
            raise InvalidInput(
                f"constructor {self.name} of {self.adt} takes {len(self.fields)} fields "
                f"({', '.join(self.fields)}), got {len(fields)}"
            )
        return ADTValue(self, fields)

    def __repr__(self) -> str:
        return self.name or "tuple"


class ADTValue:
    """A constructor applied to fields: arrays, Tensors, numbers, tuples and further ADTValues. Compared by identity."""

    __slots__ = ("constructor", "fields")

    def __init__(self, constructor: Constructor, fields: tuple[Any, ...]) -> None:
        self.constructor = constructor
        self.fields = fields

    @property
    def tag(self) -> int:
        """The position of the constructor in its type."""
        return self.constructor.tag

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Any:
        return self.fields[index]

    def __bool__(self) -> bool:
        return True  # also without fields

    def __repr__(self) -> str:
        # Two levels deep: values may be a million cells deep.
        def inner(value: Any) -> str:
            if not isinstance(value, ADTValue):
                return repr(value)
            return value.constructor.name + ("(...)" if value.fields else "")

        if not self.fields:
            return self.constructor.name
        return f"{self.constructor.name}({', '.join(map(inner, self.fields))})"


__all__ = ["ADTValue", "Constructor", "value_code"]

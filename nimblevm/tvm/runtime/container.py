"""tvm.runtime.container: tuples and values of data types that a virtual machine takes and returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from nimblevm.arguments import explain_arguments
from nimblevm.bytecode import adt
from nimblevm.errors import NotProvided
from nimblevm.relay import values


class _Fielded(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, tuple | adt.ADTValue | values.ADTValue)


class ADT(metaclass=_Fielded):
    """What isinstance(result, ADT) asks: whether a result has fields. A tuple, or a value of a data type."""

    def __new__(cls, tag: Any, fields: Any) -> NoReturn:
        """NotProvided: a tag alone doesn't say of which data type."""
        raise NotProvided(
            'exe.inner.constructor("Cons")(head, tail) makes a value of a data type; a tuple is a Python tuple'
        )


def tuple_object(fields: Iterable[Any] | None = None) -> tuple[Any, ...]:
    """A tuple of these."""
    return tuple(fields or ())


__all__ = ["ADT", "tuple_object"]

explain_arguments(globals(), __all__)

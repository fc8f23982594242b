"""What a public function says of an argument of the wrong kind: function, parameter, what it takes, what came.

Leaf module. `explain_arguments` wraps the functions of a namespace so that a fault inside of one that is due to an
argument of the wrong kind becomes an InvalidInputType with that text; `check_arguments` looks before anything is
done. Both read the function's own annotations, so that there is no second list of what a function takes.
"""

from __future__ import annotations

import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from difflib import get_close_matches
from dis import opmap
from functools import cache, wraps
from inspect import isclass, isfunction, signature
from numbers import Real
from typing import Any, Literal, TypeVar, Union

import numpy as np

from nimblevm.errors import InvalidInputType, NimbleError

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)
_RAISE = opmap["RAISE_VARARGS"]
_FAULTS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
_SHOWN = 60  # characters of a wrong value
# What an annotation's name means to a reader.
_WORDS = {
    "Operand": "an expression, an array or a number",
    "AnyValue": "an array, a number or lists of numbers",
    "bool": "True or False",
    "Axes": "an axis, axes or None",
    "Sizes": "a number or a number for each axis",
    "Externals": "a backend's name, an External or a list of them",
    "OnPlacement": "a function (placement)",
    "Progress": "a function (stage, done, all)",
    "float": "a number",
    "int": "a whole number",
    "str": "a string",
}
_ADVICE = {
    ("Function", "IRModule"): "IRModule.from_expr(function) makes a module",
    ("IRModule", "Function"): 'mod["main"] is a module\'s function',
    ("IRModule", "Expr"): 'mod["main"] is a module\'s function',
    ("str", "IRModule"): "relay.parse(text) makes a module",
    ("Expr", "IRModule"): "IRModule.from_expr(expr) makes a module",
}


def explain_arguments(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Wrap the functions of these names, in place; everything else in the namespace stays as it is."""
    made: dict[Any, Any] = {}  # two names of one function stay one function
    for name in names:
        value = namespace.get(name)
        if isfunction(value) and not hasattr(value, "__wrapped__"):
            namespace[name] = made[value] = made.get(value) or explained(value)
            if value.__qualname__ == name:  # where pickle finds it; elsewhere is the unwrapped one
                made[value].__module__ = namespace["__name__"]


def explain_missing(module: str, names: Sequence[str]) -> Callable[[str], Any]:
    """A __getattr__ for a module of operators: its AttributeError says what comes close and where all are listed."""

    def missing(name: str) -> Any:
        close = "" if name.startswith("_") else ", ".join(get_close_matches(name, names, 3, 0.7))
        advice = f"; did you mean {close}?" if close else ""
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}{advice} (docs/operators.md lists the operators)"
        )

    return missing


def explained(function: Function) -> Function:
    """The function; where a call of it fails somewhere inside for an argument of the wrong kind the error says so.

    What nimblevm raises itself passes: it has a text of its own. Costs nothing where nothing fails but one more call.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except NimbleError:
            raise
        except _FAULTS as error:
            text = None if _raised_here(error) else misfit(function, args, kwargs)
            if text is None:
                raise
            raise InvalidInputType(text) from error

    return typing.cast(Function, call)


def explained_methods(kind: Kind) -> Kind:
    """A class whose constructor and public methods are `explained`."""
    for name, value in list(vars(kind).items()):
        if isfunction(value) and not name.startswith("_"):
            setattr(kind, name, explained(value))
    return explained_constructor(kind)


def explained_constructor(kind: Kind) -> Kind:
    """A class whose constructor is `explained`: for those whose methods run too often."""
    made = vars(kind).get("__init__")
    if isfunction(made):
        type.__setattr__(kind, "__init__", explained(made))
    return kind


def check_arguments(function: Callable[..., Any], **arguments: Any) -> None:
    """InvalidInputType if one of these arguments, by name, is not of the kind that the function declares."""
    text = misfit(function, (), arguments)
    if text is not None:
        raise InvalidInputType(text)


def misfit(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """What is wrong with the first argument that does not fit its annotation; None if all fit or nothing is known."""
    try:
        given = signature(function).bind_partial(*args, **kwargs).arguments
        hints = _hints(function)
    except (
        TypeError,
        NameError,
    ):  # a wrong call, which Python explains; names for type checkers alone
        return None
    for name, value in given.items():
        if name in hints and not fits(value, hints[name]):
            wanted = _wanted(function, name)
            return f"{_name(function)}: {name} must be {wanted}, not {shown(value)}{_advice(value, wanted)}"
    return None


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function)


def _name(function: Callable[..., Any]) -> str:
    """A function's name; for a method its class's too, a constructor is the class."""
    return function.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")


def shown(value: Any) -> str:
    """A wrong value for a message: its kind, and what it is where that is short."""
    kind = type(value).__name__
    if value is None or isclass(value):
        return "None" if value is None else f"the class {value.__name__}"
    if not isinstance(value, str | bytes | int | float | list | tuple | dict):
        return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"
    text = repr(value)
    return f"the {kind} {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"


def refuse_mask(value: object, place: Callable[[], str]) -> None:
    """Raises InvalidInputType for a numpy array with masked elements: a tensor would show what lies behind the mask.

    place: names the array in the error; asked only then.
    """
    # Who has such an array has loaded the module, which takes as long as all of numpy's others.
    if type(value) is np.ndarray or "numpy.ma" not in sys.modules:
        return
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInputType(
            f"{place()}: {int(np.sum(value.mask))} of {value.size} elements are masked, and a tensor has no mask; "
            "x.filled(value) gives them a value"
        )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind of an annotation. Numbers of numpy stand for Python's; in doubt it is."""
    if hint is Any:
        return True
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is not None:
        return _fits_generic(value, origin, parts)
    if hint is None or hint is types.NoneType:
        return value is None
    if hint is bool:
        return isinstance(value, bool) or (_is_index(value) and int(value) in (0, 1))
    if hint is int:
        return _is_index(value)
    if hint is float:
        return _is_number(value)
    return not isclass(hint) or isinstance(value, hint)


def _is_index(value: Any) -> bool:
    try:
        operator.index(value)  # a numpy array has the method, whatever it holds
    except TypeError:
        return type(value).__name__ == "bool"  # numpy's
    return True


def _is_number(value: Any) -> bool:
    """Also an array of one number, as numpy's functions return it."""
    if isinstance(value, Real):
        return True
    return getattr(value, "ndim", None) == 0 and getattr(value.dtype, "kind", "") in "biuf"


def _fits_generic(value: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    if origin is Callable:
        return callable(value)
    if origin is type:
        return isclass(value)
    if origin is tuple and parts and parts[-1] is not ...:
        return (
            isinstance(value, list | tuple)
            and len(value) == len(parts)
            and all(map(fits, value, parts))
        )
    if isclass(origin) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and (
            len(parts) != 2
            or all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
        )
    if isclass(origin) and issubclass(origin, Iterable) and parts:
        return _fits_iterable(value, origin, parts[0])
    return not isclass(origin) or isinstance(value, origin)


def _fits_iterable(value: Any, origin: Any, part: Any) -> bool:
    """Lists, tuples and arrays stand for each other; a string is no sequence of anything but strings."""
    if isinstance(value, str | bytes):
        return part in (str, Any) and isinstance(value, str)
    if isinstance(value, Sequence | Set):
        return all(fits(one, part) for one in value)
    if hasattr(value, "tolist") and hasattr(value, "ndim"):  # an array: one element stands for all
        return value.ndim > 0 and (value.size == 0 or value.ndim > 1 or fits(value[0], part))
    return isinstance(value, origin)


def _wanted(function: Callable[..., Any], name: str) -> str:
    """What a parameter takes, as the source annotates it."""
    text = str(function.__annotations__.get(name, "something else"))
    text = re.sub(r"Callable\[\[(.*?)\], (\w+)\]", r"a function (\1) -> \2", text)
    words = [_WORDS.get(word, word) for word in text.split(" | ")]
    return re.sub(r"\b(?:Sequence|Iterable)\[([\w., ]+)\]", r"a list of \1", " or ".join(words))


def _advice(value: Any, wanted: str) -> str:
    names = [kind.__name__ for kind in type(value).__mro__]
    for (have, want), text in _ADVICE.items():
        if have in names and want in wanted:
            return f"; {text}"
    return ""


def _raised_here(error: BaseException) -> bool:
    """Whether a raise statement of this package made the error, so that it has our text."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    ours = str(trace.tb_frame.f_globals.get("__name__", "")).startswith("nimblevm.")
    return ours and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


__all__ = [
    "check_arguments", "explain_arguments", "explain_missing", "explained", "explained_constructor",
    "explained_methods", "fits", "misfit", "refuse_mask", "shown",
]  # fmt: skip

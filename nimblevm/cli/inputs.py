"""The arguments of `nimblevm run`: NAME=VALUE and files that hold several."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm import dtypes
from nimblevm.bytecode.types import AdtType, FunctionInfo, ParamInfo, TensorType
from nimblevm.cli.arrays import is_array_file, member, numpy_file, read_array
from nimblevm.cli.console import Mistake, number_of
from nimblevm.cli.json_text import loads
from nimblevm.cli.values import from_json

_HOW = (
    "write NAME=FILE.npy, NAME=FILE.npz:ARRAY, NAME=FILE.json, NAME=NUMBER, NAME=JSON, NAME=random:2x3, or a file "
    "FILE.npz or FILE.json that holds several by name"
)
_JSON = ("[", "{", '"')
_RANDOM = re.compile(r"random(?::(\d+(?:x\d+)*)?)?", re.ASCII)


class Inputs:
    """Reads the arguments of one call of `function`."""

    def __init__(self, exe: nvm.Executable, function: FunctionInfo, seed: int) -> None:
        self.exe = exe
        self.function = function
        self.params = {p.name: p for p in function.params}
        self.rng = np.random.default_rng(seed)
        self.found: dict[str, Any] = {}

    def read(self, texts: list[str]) -> dict[str, Any]:
        """The arguments by name; which are missing is for the VM to say. Mistake, OSError."""
        for text in texts:
            name, separator, value = text.partition("=")
            if not text:
                raise Mistake(f"an argument is empty; {_HOW}")
            if separator and text[:1] not in _JSON:
                self._put(name.removeprefix("%"), text, lambda p, v=value: self._value(p, v))
            elif text.endswith(".npz"):
                with numpy_file(text, "an .npz file") as file:
                    for key in file.files if hasattr(file, "files") else ():
                        self._put(key, text, lambda p, f=file, t=text: member(f, p.name, t))
            elif text.endswith(".json"):
                self._object(text)
            else:
                free = [name for name in self.params if name not in self.found]
                if not free:
                    raise Mistake(
                        f"{text}: @{self.function.name} has no parameter left for it; {_HOW}"
                    )
                self._put(free[0], text, lambda p, v=text: self._value(p, v))
        return self.found

    def _object(self, path: str) -> None:
        values = _json_file(path)
        if not isinstance(values, dict):
            raise Mistake(f"{path}: expected an object of parameters by name; or write NAME={path}")
        for name, value in values.items():
            self._put(name, path, lambda p, v=value: self._json(p, v))

    def _put(self, name: str, origin: str, make: Any) -> None:
        if name not in self.params:
            raise Mistake(
                f"{origin}: @{self.function.name} has no parameter %{name}; it has "
                f"{', '.join(f'%{p.name}: {p.text}' for p in self.function.params) or 'none'}"
            )
        if name in self.found:
            raise Mistake(f"{origin}: parameter %{name} is given twice")
        self.found[name] = make(self.params[name])

    def _json(self, param: ParamInfo, value: Any) -> Any:
        names = [d.name for d in self.function.dims]
        return from_json(value, param.type, self.exe, f"parameter %{param.name}", names)

    def _value(self, param: ParamInfo, text: str) -> Any:
        """What stands behind the = of an argument."""
        if text[:1] in _JSON:
            try:
                return self._json(param, loads(text))
            except json.JSONDecodeError as error:
                raise Mistake(f"%{param.name}: no JSON: {_reason(error)}") from None
        if is_array_file(text):
            return read_array(text, param.name)
        if text.endswith(".json"):
            return self._json(param, _json_file(text))
        random = _RANDOM.fullmatch(text)
        if random:
            return self._random(param, random[1])
        if isinstance(param.type, AdtType):
            return self._json(param, text)  # a constructor without fields
        if text in ("true", "false"):
            return text == "true"
        if (
            len(text) > 640 and text.lstrip("+-").isdecimal()
        ):  # int() may refuse it, float() gives infinity
            raise Mistake(f"%{param.name}: the number is too large")
        number = number_of(text)
        if number is not None:
            return number
        place = f"%{param.name}={text}"
        if not text:
            raise Mistake(f"{place}: there is no value behind the =; {_HOW}")
        if Path(text).is_dir():
            raise Mistake(f"{place}: it is a directory; {_HOW}")
        if text.startswith("random"):
            raise Mistake(f"{place}: expected sizes, such as random:2x3")
        raise Mistake(f"{place}: neither a file, a number nor JSON; {_HOW}")

    def _random(self, param: ParamInfo, sizes: str | None) -> Any:
        type_ = param.type
        if not isinstance(type_, TensorType):
            raise Mistake(f"%{param.name}=random: only tensors can be random, not {param.text}")
        if sizes is not None:
            if len(sizes) > 640:
                raise Mistake(f"%{param.name}=random: the shape is too long")
            shape = tuple(map(int, sizes.split("x")))
        elif all(isinstance(d, int) for d in type_.dims):
            shape = tuple(d for d in type_.dims if isinstance(d, int))
        else:
            raise Mistake(f"%{param.name}=random: {param.text} needs a shape: random:2x3")
        row = dtypes.dtype(type_.dtype)
        try:
            if row.is_float:
                return np.asarray(self.rng.standard_normal(shape), row.numpy)
            return np.asarray(self.rng.integers(0, 2 if row.is_bool else 10, shape), row.numpy)
        except (MemoryError, ValueError, OverflowError) as error:  # of numpy, for sizes
            raise Mistake(f"%{param.name}=random:{sizes}: {error}") from None


def _json_file(path: str) -> Any:
    try:
        return loads(Path(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise Mistake(f"{path} is no text; expected JSON") from None
    except json.JSONDecodeError as error:
        raise Mistake(f"{path}: no JSON: {_reason(error)}") from None


def _reason(error: json.JSONDecodeError) -> str:
    return f"line {error.lineno}, column {error.colno}: {error.msg}"


__all__ = ["Inputs"]

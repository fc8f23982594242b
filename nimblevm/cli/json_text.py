"""JSON text <-> Python values without recursion: trees and lists of a program may be a million levels deep, where the
json module stops at a thousand.

loads gives dict, list, str, int, float, bool and None as json does, NaN and Infinity included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_STRINGS = json.JSONDecoder()  # reads strings alone, so it never nests
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS = {
    "true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}  # fmt: skip
_WORD = re.compile("|".join(sorted(_WORDS, key=len, reverse=True)))


def loads(text: str) -> Any:
    """The value of a JSON text. Raises json.JSONDecodeError, which says line and column; also for a key given twice."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        # Containers that are open, outermost first, and the key that an object's next value gets.
        self.open: list[list[Any] | dict[str, Any]] = []
        self.keys: list[str] = []

    def fail(self, message: str) -> JSONDecodeError:
        return JSONDecodeError(message, self.text, self.at)

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def read(self) -> Any:
        while True:
            value = self._value()
            if isinstance(value, list | dict) and not self._closes(value):
                self.open.append(value)
                if isinstance(value, dict):
                    self._key(value)
                continue
            while True:  # a value is complete; so may be the containers around it
                if not self.open:
                    if self.peek():
                        raise self.fail("expected the end of the text")
                    return value
                container = self.open[-1]
                if isinstance(container, dict):
                    container[self.keys.pop()] = value
                else:
                    container.append(value)
                if self.peek() == ",":
                    self.at += 1
                    if isinstance(container, dict):
                        self._key(container)
                    break
                if not self._closes(container):
                    raise self.fail(f"expected , or {']}'[isinstance(container, dict)]}")
                value = self.open.pop()

    def _closes(self, container: list[Any] | dict[str, Any]) -> bool:
        closes = self.peek() == "]}"[isinstance(container, dict)]
        self.at += closes
        return closes

    def _key(self, container: dict[str, Any]) -> None:
        if self.peek() != '"':
            raise self.fail("expected a name in double quotes")
        start = self.at
        key = self._string()
        if key in container:
            self.at = start
            raise self.fail(f"the name {key!r} stands twice")
        if self.peek() != ":":
            raise self.fail("expected :")
        self.at += 1
        self.keys.append(key)

    def _string(self) -> str:
        value, self.at = _STRINGS.raw_decode(self.text, self.at)
        return str(value)

    def _value(self) -> Any:
        """The next scalar, or an empty container that has just been opened."""
        first = self.peek()
        if first in ("[", "{") and first:
            self.at += 1
            return [] if first == "[" else {}
        if first == '"':
            return self._string()
        word = _WORD.match(self.text, self.at)
        if word:
            self.at = word.end()
            return _WORDS[word.group()]
        number = _NUMBER.match(self.text, self.at)
        if not number:
            raise self.fail("expected a value")
        self.at = number.end()
        if number[1] or number[2]:
            return float(number.group())
        try:
            return int(number.group())
        except ValueError:  # Python refuses integers of thousands of digits
            raise self.fail("the number is too large") from None


def dumps(value: Any) -> Iterator[str]:
    """Pieces of the JSON text of dicts, lists and what the json module writes."""
    stack: list[tuple[bool, Any]] = [(False, value)]  # (literal text?, text or value)
    while stack:
        literal, item = stack.pop()
        if literal:
            yield item
        elif isinstance(item, dict):
            stack.append((True, "}"))
            for position, (key, inner) in reversed(list(enumerate(item.items()))):
                stack.append((False, inner))
                stack.append((True, f"{', ' if position else ''}{json.dumps(key)}: "))
            yield "{"
        elif isinstance(item, list):
            stack.append((True, "]"))
            for position, inner in reversed(list(enumerate(item))):
                stack.append((False, inner))
                if position:
                    stack.append((True, ", "))
            yield "["
        else:
            yield json.dumps(item)


__all__ = ["dumps", "loads"]

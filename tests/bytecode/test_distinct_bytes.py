"""Equal constants are one, whatever their size and wherever others differ; few are hashed whole."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nimblevm.bytecode import distinct_bytes
from nimblevm.bytecode.distinct_bytes import PIECE, DistinctBytes

LONG = 10 * PIECE


def _numbers(strings: list[bytes], keys: str | None = None) -> list[int]:
    found = DistinctBytes()
    numbers: list[int] = []
    for key, string in zip(keys or "a" * len(strings), strings, strict=True):
        new = max(numbers, default=-1) + 1
        numbers.append(found.number(key, memoryview(string), new))
    return numbers


@pytest.mark.parametrize("size", [0, 1, PIECE, 3 * PIECE, 3 * PIECE + 1, LONG])
def test_equal_ones_have_one_number(size: int) -> None:
    other = bytes(size) + b"x"
    assert _numbers([bytes(size), other, bytes(size), other, bytes(size)]) == [0, 1, 0, 1, 0]
    assert _numbers([bytes(size), bytes(size), bytes(size)], "aba") == [0, 1, 0]


@pytest.mark.parametrize("size", [1, PIECE, 3 * PIECE, 3 * PIECE + 1, LONG])
def test_any_byte_tells_them_apart(size: int) -> None:
    places = sorted({0, size // 5, size // 2, size - 1})
    strings = [bytes(size)]
    for place in places:
        changed = bytearray(size)
        changed[place] = 1
        strings.append(bytes(changed))
    expected = list(range(len(strings)))
    assert _numbers(strings) == expected
    assert _numbers([*strings, *reversed(strings)]) == [*expected, *reversed(expected)]


def test_only_what_may_be_equal_is_hashed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def sha256(data: Any) -> Any:
        hashed.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr(distinct_bytes, "hashlib", SimpleNamespace(sha256=sha256))
    rng = np.random.default_rng(0)
    weights = [rng.bytes(LONG) for _ in range(5)]
    assert _numbers(weights) == [0, 1, 2, 3, 4]
    assert max(hashed) == PIECE
    hashed.clear()
    assert _numbers([*weights, weights[2], weights[2]]) == [0, 1, 2, 3, 4, 2, 2]
    assert sorted(hashed)[-4:] == [PIECE, LONG, LONG, LONG]

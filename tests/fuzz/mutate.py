"""Mutants of a valid file: bytes changed, fields swapped, sections cut; every digest repaired.

Most mutations leave the structure whole (code words, kernel IR, constants), because what gets past the structure check
is what tests the verifier and the interpreter.
"""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from nimblevm.bytecode.serialize import BYTECODE, CONSTANTS, KERNEL_IR
from tests.bytecode.forge import join, split

EDGES = (0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 63, 64, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31,
         (1 << 32) - 1)  # fmt: skip
WIDE = (*EDGES, -1, -2, -3, 1 << 32, 1 << 40, (1 << 62), (1 << 63) - 1, -(1 << 63))

Header = dict[str, Any]
Mutation = Callable[[random.Random, Header, list[bytes]], None]


def _word(rng: random.Random, words: list[int], at: int) -> int:
    """Something else for words[at]: near, from elsewhere in the code, an edge, anything."""
    return (
        rng.choice(
            (
                words[at] + rng.choice((-1, 1)),
                rng.choice(words),
                rng.randrange(8),
                rng.choice(EDGES),
                words[at] ^ 1 << 31,
                rng.randrange(1 << 32),
            )
        )
        & 0xFFFFFFFF
    )


def _words(rng: random.Random, sections: list[bytes], index: int) -> None:
    count = len(sections[index]) // 4
    if count < 2:
        return
    words = list(struct.unpack_from(f"<{count}I", sections[index]))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, other = rng.randrange(count), rng.randrange(count)
        if rng.random() < 0.2:
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = _word(rng, words, at)
    sections[index] = struct.pack(f"<{count}I", *words) + sections[index][4 * count :]


def code_words(rng: random.Random, _header: Header, sections: list[bytes]) -> None:
    _words(rng, sections, BYTECODE)


def kernel_words(rng: random.Random, _header: Header, sections: list[bytes]) -> None:
    _words(rng, sections, KERNEL_IR)


def _bytes(rng: random.Random, sections: list[bytes], index: int) -> None:
    data = bytearray(sections[index])
    for _ in range(rng.choice((1, 2, 8))):
        if data:
            data[rng.randrange(len(data))] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
    sections[index] = bytes(data)


def section_bytes(rng: random.Random, _header: Header, sections: list[bytes]) -> None:
    _bytes(rng, sections, rng.choice((BYTECODE, CONSTANTS, KERNEL_IR)))


def cut_section(rng: random.Random, _header: Header, sections: list[bytes]) -> None:
    index = rng.randrange(len(sections))
    sections[index] = sections[index][: rng.randrange(len(sections[index]) + 1)]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of the header but the section table's offsets and digests."""
    stack = [node]
    while stack:
        here = stack.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            if key == "sections":
                continue
            yield here, key
            if isinstance(here[key], (dict, list)):
                stack.append(here[key])


def _other(rng: random.Random, value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value + 1, value - 1, rng.choice(WIDE), rng.randrange(6)))
        case str():
            return rng.choice(("", value + "x", "x" * 300, "\u00e9"))
        case bytes():
            return rng.choice(
                (b"", value[:-1], value + b"\0", bytes(rng.randrange(256) for _ in value))
            )
        case list():
            return rng.choice((value[:-1], value + value[-1:], value[::-1], []))
        case _:
            return rng.choice((None, 0, [], {}))


def header_value(rng: random.Random, header: Header, _sections: list[bytes]) -> None:
    here, key = rng.choice(list(_places(header)))
    here[key] = _other(rng, here[key])


def header_swap(rng: random.Random, header: Header, _sections: list[bytes]) -> None:
    """Exchange two values of one type."""
    places = list(_places(header))
    here, key = rng.choice(places)
    there, other = rng.choice([p for p in places if type(p[0][p[1]]) is type(here[key])])
    first, second = copy.deepcopy(here[key]), copy.deepcopy(there[other])
    here[key], there[other] = second, first


def function_number(rng: random.Random, header: Header, _sections: list[bytes]) -> None:
    """A field whose value the structure check mostly lets pass."""
    if header["functions"] and rng.random() < 0.7:
        f = rng.choice(header["functions"])
        key = rng.choice(("ints", "objs", "public", "result"))
        f[key] = _other(rng, f[key])
    elif header["kernels"]:
        kernel = rng.choice(header["kernels"])
        operand = rng.choice(kernel["operands"])
        spot = rng.randrange(3)
        if spot < 2 or not operand[3]:
            operand[1] = rng.randrange(12)
        else:
            rng.choice(operand[3])[2] = rng.choice(EDGES)


MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (code_words, 42),
    (kernel_words, 22),
    (section_bytes, 12),
    (function_number, 8),
    (header_value, 8),
    (header_swap, 5),
    (cut_section, 3),
)


def mutants(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` mutants; the same for the same seed."""
    rng = random.Random(seed)
    header, sections = split(data)
    kinds, weights = zip(*MUTATIONS, strict=True)
    while count > 0:
        h, s = copy.deepcopy(header), list(sections)
        rng.choices(kinds, weights)[0](rng, h, s)
        if rng.random() < 0.1:
            rng.choices(kinds, weights)[0](rng, h, s)
        try:
            mutant = join(h, s)
        except (ValueError, OverflowError, TypeError, IndexError, KeyError):
            continue  # msgpack can't hold it, or there is no section table left
        count -= 1
        yield mutant

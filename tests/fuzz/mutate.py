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

from nimblevm.bytecode import isa
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


def _operands(
    header: Header, words: list[int]
) -> Iterator[tuple[Header, int, isa.Kind | None, list[int]]]:
    """(function, word index, kind, instruction starts of the function); kind None: the instruction's own number."""
    for f in header["functions"]:
        first, count = f["code"]
        starts: list[int] = []
        found: list[tuple[int, isa.Kind | None]] = []
        at = first
        while at < first + count:
            starts.append(at - first)
            found.append((at, None))
            row = isa.BY_NUMBER[words[at]]
            at += 1
            for operand in row.operands:
                element = isa.LIST_ELEMENT.get(operand.kind)
                if element is None:
                    found.append((at, operand.kind))
                    at += 2 if operand.kind is isa.Kind.IMM64 else 1
                elif words[at] > first + count - at:
                    raise IndexError("an earlier mutation made the list longer than the code")
                else:
                    found += [(at + 1 + i, element) for i in range(words[at])]
                    at += 1 + words[at]
        for place, kind in found:
            yield f, place, kind, starts


def _like(
    rng: random.Random,
    header: Header,
    f: Header,
    word: int,
    kind: isa.Kind | None,
    starts: list[int],
) -> int:
    """Another word of that kind which the verifier lets pass, most of the time."""
    ints, objs = max(f["ints"], 1), max(f["objs"], 1)
    match kind:
        case None:
            kinds = [o.kind for o in isa.BY_NUMBER[word].operands]
            return rng.choice([r.number for r in isa.ISA if [o.kind for o in r.operands] == kinds])
        case isa.Kind.INT_IN | isa.Kind.INT_OUT:
            return rng.randrange(ints)
        case isa.Kind.OBJ_IN | isa.Kind.OBJ_OUT | isa.Kind.OBJ_OPT:
            return rng.randrange(objs)
        case isa.Kind.ANY_IN | isa.Kind.ANY_OUT:
            return isa.INT_BIT | rng.randrange(ints) if word & isa.INT_BIT else rng.randrange(objs)
        case isa.Kind.DIM:
            return rng.choice(
                (
                    isa.INT_BIT | rng.randrange(ints),
                    rng.randrange(5),
                    rng.choice(EDGES) & 0x7FFFFFFF,
                )
            )
        case isa.Kind.LABEL:
            return rng.choice(starts)
        case isa.Kind.DTYPE:
            return rng.randrange(8)
        case isa.Kind.CONST:
            return rng.randrange(max(len(header["constants"]), 1))
        case isa.Kind.FUNC:
            return rng.randrange(len(header["functions"]))
        case isa.Kind.CTOR:
            return rng.randrange(len(header["constructors"]))
        case isa.Kind.IMM | isa.Kind.IMM64:
            return rng.choice((rng.randrange(4), rng.choice(EDGES)))
        case _:
            return word


def legal_words(rng: random.Random, header: Header, sections: list[bytes]) -> None:
    """Replace operands of valid code by others of their kind, so that the verifier has nothing against most."""
    count = len(sections[BYTECODE]) // 4
    words = list(struct.unpack_from(f"<{count}I", sections[BYTECODE]))
    try:
        places = list(_operands(header, words))
        for _ in range(rng.choice((1, 2, 4, 8))):
            f, at, kind, starts = rng.choice(places)
            words[at] = _like(rng, header, f, words[at], kind, starts)
    except (KeyError, IndexError, TypeError, ValueError):
        return  # an earlier mutation left code that can't be walked
    sections[BYTECODE] = struct.pack(f"<{count}I", *words)


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
    (legal_words, 24),
    (code_words, 20),
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

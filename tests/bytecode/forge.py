"""Files that lie: change the msgpack header or sections of a valid file and repair every digest."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import msgpack

from nimblevm.bytecode.serialize import ALIGNMENT, FIXED_HEADER_SIZE, seal


def split(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Header and sections of a valid file."""
    (size,) = struct.unpack_from("<Q", data, 16)
    end = FIXED_HEADER_SIZE + size
    header = msgpack.unpackb(data[FIXED_HEADER_SIZE:end])
    first = end + -end % ALIGNMENT
    sections = [data[first + s[1] : first + s[1] + s[2]] for s in header["sections"]]
    return header, sections


def join(header: Any, sections: list[bytes], relayout: bool = True) -> bytes:
    """The inverse; offsets, sizes and digests of the section table follow the sections if `relayout`."""
    end = 0
    if relayout:
        for row, section in zip(header["sections"], sections, strict=False):
            end += -end % ALIGNMENT
            row[1], row[2], row[3] = end, len(section), hashlib.sha256(section).digest()
            end += len(section)
    packed = header if isinstance(header, bytes) else msgpack.packb(header, use_bin_type=True)
    out = packed + bytes(-(FIXED_HEADER_SIZE + len(packed)) % ALIGNMENT)
    for i, section in enumerate(sections):
        out += (bytes(-len(out + bytes(FIXED_HEADER_SIZE)) % ALIGNMENT) if i else b"") + section
    return seal(packed, FIXED_HEADER_SIZE + len(out)) + out


def forge(
    data: bytes, change: Callable[[dict[str, Any], list[bytes]], None], relayout: bool = True
) -> bytes:
    header, sections = split(data)
    change(header, sections)
    return join(header, sections, relayout)

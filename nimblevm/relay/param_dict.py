"""Weights by name as TVM's .params files hold them.

Little endian: uint64 magic, uint64 reserved, uint64 number of names, each name (uint64 length, bytes), uint64 number of
tensors, each tensor as in a module's metadata (see metadata.py).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nimblevm.arguments import explain_arguments
from nimblevm.errors import InvalidInput
from nimblevm.relay.metadata import MetadataError, read_tensor, tensor_bytes

_MAGIC = 0xF7E58D4F05049CB7
_U64 = struct.Struct("<Q")

Array = npt.NDArray[Any]


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """The bytes of weights: arrays, or anything with `.numpy()`, by name."""
    pieces = [_U64.pack(_MAGIC), _U64.pack(0), _U64.pack(len(params))]
    for name in params:
        raw = name.encode()
        pieces += [_U64.pack(len(raw)), raw]
    pieces.append(_U64.pack(len(params)))
    for value in params.values():
        pieces.append(tensor_bytes(np.asarray(value.numpy() if hasattr(value, "numpy") else value)))
    return b"".join(pieces)


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Array]:
    """The arrays of such bytes by name. InvalidInput if they are damaged."""
    data = bytes(param_bytes)
    at = 0

    def number() -> int:
        nonlocal at
        at += 8
        if at > len(data):
            raise InvalidInput("the parameters end too early")
        return int(_U64.unpack_from(data, at - 8)[0])

    if number() != _MAGIC:
        raise InvalidInput("these are no parameters of TVM: the first eight bytes differ")
    number()
    names: list[str] = []
    for _ in range(number()):
        size = number()
        raw = data[at : at + size]
        if size > len(data) - at:
            raise InvalidInput("the parameters end too early")
        at += size
        names.append(raw.decode(errors="replace"))
    if number() != len(names):
        raise InvalidInput("the parameters have more names than tensors, or less")
    found: dict[str, Array] = {}
    for name in names:
        try:
            found[name], at = read_tensor(data, at)
        except MetadataError as error:
            raise InvalidInput(f"parameter {name!r}: {error}") from error
    return found


__all__ = ["load_param_dict", "save_param_dict"]

explain_arguments(globals(), __all__)

"""The `#[metadata]` section: TVM 0.18's save_json of a map from type key to arrays of nodes.

    {"root": 1, "nodes": [{"type_key": ""}, {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]}, ...],
     "b64ndarrays": ["..."], "attrs": {"tvm_version": "0.18.0"}}

Numbers in "data" and "attrs" are indexes into "nodes" (0 is null); a constant's "data" is an index into "b64ndarrays".
A tensor there is base64 of, little endian: uint64 magic, uint64 reserved, int32 device type, int32 device id, int32
rank, uint8 type code, uint8 bits, uint16 lanes, int64 per dim, int64 byte size, the bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.dtypes import DL_BOOL, DL_UINT, DTYPES, dtype
from nimblevm.relay.ir import Constant

MetaTable = dict[str, list[Any]]

_MAGIC = 0xDD5E40F096B4A13F
_HEAD = struct.Struct("<QQiiiBBH")
_CPU = 1
# What the file says wrote it; TVM reads the number to upgrade old files.
_TVM_VERSION = "0.18.0"
CONSTANT, STRING = "relay.Constant", "runtime.String"


class MetadataError(ValueError):
    """The section is damaged; the parser adds the place."""


@dataclass(frozen=True, slots=True)
class MetaNode:
    """A node of a kind that nimblevm has no class for (a virtual device...): its type key and raw attributes."""

    type_key: str
    attrs: Mapping[str, str]


def tensor_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """A tensor as TVM writes it into files."""
    row = dtype(array.dtype.name)
    # TVM's bool is a one-bit unsigned integer.
    code, bits = (DL_UINT, 1) if row.is_bool else (row.code, row.bits)
    head = _HEAD.pack(_MAGIC, 0, _CPU, 0, array.ndim, code, bits, 1)
    shape = struct.pack(f"<{array.ndim + 1}q", *array.shape, array.nbytes)
    return head + shape + array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def encode_tensor(array: np.ndarray[Any, Any]) -> str:
    """A tensor as TVM writes it into "b64ndarrays"."""
    return base64.b64encode(tensor_bytes(array)).decode("ascii")


def read_tensor(raw: bytes, start: int = 0) -> tuple[np.ndarray[Any, Any], int]:
    """The tensor that starts at a byte of `raw`, and where it ends; MetadataError if it is damaged."""
    try:
        magic, _, _, _, rank, code, bits, lanes = _HEAD.unpack_from(raw, start)
        if magic != _MAGIC or not 0 <= rank <= 64 or lanes != 1:
            raise MetadataError("a tensor has a bad header")
        *shape, size = struct.unpack_from(f"<{rank + 1}q", raw, start + _HEAD.size)
    except struct.error as error:
        raise MetadataError(f"a tensor is damaged: {error}") from error
    code, bits = (DL_BOOL, 8) if (code, bits) == (DL_UINT, 1) else (code, bits)
    row = next((r for r in DTYPES if (r.code, r.bits) == (code, bits)), None)
    if row is None:
        raise MetadataError(f"a tensor has the unknown dtype code {code} with {bits} bits")
    at = start + _HEAD.size + 8 * (rank + 1)
    count = 1
    for extent in shape:
        count *= extent
    if min(shape, default=0) < 0 or not 0 <= size <= len(raw) - at or count * row.itemsize != size:
        raise MetadataError(f"a tensor has {len(raw) - at} bytes for the shape {tuple(shape)}")
    little = np.dtype(row.numpy).newbyteorder("<")
    try:
        flat = np.frombuffer(raw, little, count, at).astype(row.numpy, copy=False)
        return flat.reshape(shape), at + size
    except ValueError as error:  # numpy has at most 64 axes, and sizes of axes must not overflow
        raise MetadataError(f"a tensor has the shape {tuple(shape)}: {error}") from error


def decode_tensor(text: str) -> np.ndarray[Any, Any]:
    """The tensor of a "b64ndarrays" entry; MetadataError if it is damaged."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MetadataError(f"a tensor of the metadata is damaged: {error}") from error
    try:
        array, end = read_tensor(raw)
    except MetadataError as error:
        raise MetadataError(f"in a tensor of the metadata: {error}") from error
    if end != len(raw):
        raise MetadataError(f"a tensor of the metadata has {len(raw) - end} bytes too many")
    return array


def encode(table: Mapping[str, Sequence[Any]]) -> str:
    """The JSON of a table of `relay.Constant` (Constants) and `runtime.String` (strings)."""
    arrays = {key: list(values) for key, values in table.items() if values}
    nodes: list[dict[str, Any]] = [{"type_key": ""}, {"type_key": "Map"}]
    nodes[1].update(keys=list(arrays), data=list(range(2, 2 + len(arrays))))
    nodes.extend({"type_key": "Array"} for _ in arrays)
    tensors: list[str] = []
    for index, (key, values) in enumerate(arrays.items()):
        nodes[2 + index]["data"] = list(range(len(nodes), len(nodes) + len(values)))
        for value in values:
            if key == STRING:
                nodes.append({"type_key": key, "repr_str": value})
                continue
            attrs = {
                "_checked_type_": "0",
                "data": str(len(tensors)),
                "span": "0",
                "virtual_device_": "0",
            }
            nodes.append({"type_key": key, "attrs": attrs})
            tensors.append(encode_tensor(value.data))
    document = {
        "root": 1,
        "nodes": nodes,
        "b64ndarrays": tensors,
        "attrs": {"tvm_version": _TVM_VERSION},
    }
    return json.dumps(document, indent=2)


def decode(text: str) -> MetaTable:
    """The table of a section's JSON; MetadataError if it is none."""
    try:
        document = json.loads(text)
        nodes, tensors = document["nodes"], document.get("b64ndarrays", [])
        root = nodes[document["root"]]
        if root["type_key"] != "Map":
            raise MetadataError(f"the root of the metadata is a {root['type_key']!r}, not a Map")
        pairs = list(zip(root.get("keys", ()), root.get("data", ()), strict=True))
        if not all(isinstance(key, str) for key, _ in pairs):
            raise MetadataError("a key of the metadata is no string")
        return {
            key: [_node(nodes[i], tensors) for i in nodes[at].get("data", ())] for key, at in pairs
        }
    except MetadataError:
        raise
    except json.JSONDecodeError as error:
        raise MetadataError(f"the metadata is no JSON: {error}") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise MetadataError(f"the metadata lacks a part: {error!r}") from error
    except (ValueError, OverflowError) as error:  # numbers that are none, or too long
        raise MetadataError(f"the metadata is damaged: {error}") from error
    except RecursionError as error:
        raise MetadataError("the metadata nests too deep") from error


def _node(node: Mapping[str, Any], tensors: Sequence[str]) -> Any:
    key, attrs = node["type_key"], node.get("attrs", {})
    match key:
        case "relay.Constant":
            return Constant(decode_tensor(tensors[int(attrs["data"])]))
        case "runtime.String":
            return str(node.get("repr_str", ""))
        case "IntImm":
            return bool(int(attrs["value"])) if attrs["dtype"] == "bool" else int(attrs["value"])
        case "FloatImm":
            return float(attrs["value"])
    return MetaNode(key, attrs)

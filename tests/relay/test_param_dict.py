"""Weights as bytes: TVM's layout."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from nimblevm import dtypes, relay
from nimblevm.errors import InvalidInput

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_round_trip() -> None:
    params = {row.name: np.ones((2, 1), row.numpy) for row in dtypes.DTYPES}
    params |= {
        "scalar": np.array(3, np.int32),
        "empty": np.zeros((0, 4), np.float64),
        "ä": W[:, ::2],
    }
    found = relay.load_param_dict(relay.save_param_dict(params))
    assert list(found) == list(params)
    for name, array in params.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
        assert found[name].shape == array.shape


def test_layout() -> None:
    """Written from the layout's description, byte by byte."""
    head = struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 1, 1) + b"w" + struct.pack("<Q", 1)
    tensor = struct.pack("<QQiiiBBHqqq", 0xDD5E40F096B4A13F, 0, 1, 0, 2, 2, 32, 1, 2, 3, 24)
    data = head + tensor + W.tobytes()
    assert relay.save_param_dict({"w": W}) == data
    assert np.array_equal(relay.load_param_dict(data)["w"], W)


def test_damage_is_an_error() -> None:
    data = relay.save_param_dict({"w": W})
    for size in range(len(data)):
        with pytest.raises(InvalidInput):
            relay.load_param_dict(data[:size])
    with pytest.raises(InvalidInput, match="no parameters of TVM"):
        relay.load_param_dict(b"x" * 100)
    with pytest.raises(
        InvalidInput, match="parameter 'w': a tensor has the unknown dtype code 2 with 31 bits"
    ):
        relay.load_param_dict(data.replace(b"\x02\x20\x01\x00", b"\x02\x1f\x01\x00"))
    with pytest.raises(InvalidInput, match="more names than tensors"):
        relay.load_param_dict(data.replace(b"w\x01", b"w\x02"))


def test_shapes_that_numpy_has_not() -> None:
    data = relay.save_param_dict({"w": np.zeros((0, 3, 5), np.float32)})
    sizes = b"".join(n.to_bytes(8, "little") for n in (0, 3, 5))
    huge = b"".join(n.to_bytes(8, "little") for n in (0, 2**62, 2**62))
    assert sizes in data
    with pytest.raises(InvalidInput, match="parameter 'w': a tensor has the shape"):
        relay.load_param_dict(data.replace(sizes, huge))

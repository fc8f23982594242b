"""Types as they are made: names of dtypes."""

from __future__ import annotations

import pytest

from nimblevm import dtypes, relay
from nimblevm.relay.types import TensorType


@pytest.mark.parametrize(("short", "name"), dtypes.SHORT.items())
def test_names_without_bits_are_tvms(short: str, name: str) -> None:
    """Its "int" is int32, "float" float32, and "uint1" its bool: in types, in text and in attributes."""
    assert TensorType((2,), short) is TensorType((2,), name)
    text = f"""#[version = "0.0.5"]
def @main(%x: {short}, %y: Tensor[(2), {short}]) {{ cast(%y, dtype="{short}") }}"""
    main = relay.parse(text).function("main")
    assert [str(p.checked_type) for p in main.params] == [name, f"Tensor[(2), {name}]"]
    assert str(main.body.checked_type) == f"Tensor[(2), {name}]"
    x = relay.var("x", shape=(2,), dtype=short)
    assert relay.cast(x, short).attrs["dtype"] == relay.zeros((2,), short).attrs["dtype"] == name
    assert relay.nn.dense(x, x, out_dtype=short).attrs["out_dtype"] == name


def test_other_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown dtype 'double'"):
        TensorType((), "double")

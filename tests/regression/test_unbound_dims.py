"""A dim that is written only inside expressions, where no parameter could bind it, has no number to compare with. The
error named the dim and nothing of the program that it stands in."""

from __future__ import annotations

import pytest

import nimblevm as nvm
from nimblevm.errors import CompileError

VECTOR, HALF = "Tensor[(?n), float32]", "Tensor[(floordiv(?m, 2)), float32]"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"def @main(%x: {VECTOR}) -> {HALF} {{ %x }}", "result of @main, axis 0"),
        (f"def @main(%x: {VECTOR}) {{ let %y: {HALF} = %x; %y }}", "%y in @main, axis 0"),
        (
            f"type Box {{ Full(Tensor[(?), float32]) }}\n"
            f"def @main(%x: {VECTOR}) {{ match (Full(%x)) {{ Full(%y: {HALF}) => {{ %y }} }} }}",
            "field 0 of Full, axis 0",
        ),
        (
            f"def @main(%x: {VECTOR}) -> (int32, {HALF}) {{ (1, %x) }}",
            r"result of @main\.1, axis 0",
        ),
    ],
)
def test_a_dim_without_a_number_is_named_with_its_place(text: str, place: str) -> None:
    mod = nvm.relay.parse(f'#[version = "0.0.5"]\n{text}', source_name="m.rly")
    expected = rf"^m\.rly:\d+:\d+: {place} \(floordiv\(\?m, 2\)\): dim \?m has no number .*write \?"
    with pytest.raises(CompileError, match=expected):
        nvm.compile(mod, native=False)

"""JSON without recursion agrees with Python's json."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nimblevm.cli.json_text import dumps, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, st.sampled_from([None, 2]))
def test_as_json_does(value: Any, indent: int | None) -> None:
    assert loads(json.dumps(value, indent=indent)) == value
    assert json.loads("".join(dumps(value))) == value


def test_numbers_that_json_lacks() -> None:
    found = loads(" [NaN, Infinity, -Infinity, -0, 1e3, -2.5E-1] ")
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 0, 1000.0, -0.25]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "expected a value"),
        ("[1,\n 2", 2, 3, "expected , or ]"),
        ('{"a": 1', 1, 8, "expected , or }"),
        ('{"a" 1}', 1, 6, "expected :"),
        ("{a: 1}", 1, 2, "expected a name in double quotes"),
        ('{"a": 1, }', 1, 10, "expected a name in double quotes"),
        ("[1, ]", 1, 5, "expected a value"),
        ("1 2", 1, 3, "expected the end of the text"),
        ("[01]", 1, 3, "expected , or ]"),
        ('{"a": 1, "a": 2}', 1, 10, "the name 'a' stands twice"),
        ('"abc', 1, 1, "Unterminated string starting at"),
        ("1" * 10_000, 1, 10_001, "the number is too large"),
    ],
)
def test_errors_have_a_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        loads(text)
    assert (caught.value.msg, caught.value.lineno, caught.value.colno) == (message, line, column)


def test_thirty_thousand_levels() -> None:
    depth = 30_000
    value = loads("[" * depth + '{"a":' * depth + "1" + "}" * depth + "]" * depth)
    text = "".join(dumps(value))
    assert text.count("[") == text.count("{") == depth

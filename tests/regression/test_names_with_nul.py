"""Names that the builder takes and a file does not hold: compile() said InvalidExecutable, with a byte of the file."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import CompileError

NAME = "a\0b"


def _of_a_dim() -> relay.IRModule:
    x = relay.var("x", shape=(relay.DimVar(NAME),))
    return relay.IRModule.from_expr(relay.Function([x], relay.exp(x)))


def _of_a_parameter() -> relay.IRModule:
    x = relay.var(NAME, shape=(2,))
    return relay.IRModule.from_expr(relay.Function([x], relay.exp(x)))


def _of_a_function() -> relay.IRModule:
    x = relay.var("x", shape=(2,))
    return relay.IRModule({relay.GlobalVar(NAME): relay.Function([x], relay.exp(x))})


def _of_a_source() -> relay.IRModule:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { exp(%x) }'
    return relay.parse(text, source_name=NAME)


@pytest.mark.parametrize("make", [_of_a_dim, _of_a_parameter, _of_a_function, _of_a_source])
def test_a_name_with_a_nul_character(make: Callable[[], relay.IRModule]) -> None:
    with pytest.raises(CompileError, match=r"name or text 'a\\x00b' holds a NUL character"):
        nvm.compile(make(), native=False)

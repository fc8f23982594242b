"""Programs by their text: their types, or why they are refused."""

from __future__ import annotations

import pytest

import nimblevm.relay.op  # noqa: F401  (fills the registry)
from nimblevm.errors import RelayTypeError
from nimblevm.relay import dims
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.text import type_text
from nimblevm.relay.types import DimVar, TensorType, Type
from nimblevm.relay.well_formed import check_well_formed

LIST = "type List[A] { Cons(A, List[A]), Nil }\n"
DOUBLE = """def @double(%x: Tensor[(?n, 3), float32]) -> Tensor[(?n * 2, 3), float32] {
  concatenate((%x, %x), axis=0)
}
"""
N, M = DimVar("n"), DimVar("m")


def typed(text: str) -> IRModule:
    """Parsed, checked and inferred; inferring again must change nothing."""
    mod = parse_module('#[version = "0.0.5"]\n' + text, "t.rly")
    check_well_formed(mod)
    done = infer_type(mod)
    check_well_formed(done)
    again = infer_type(done)
    for var in done:
        assert again.function(var) is done.function(var), f"@{var.name_hint} changed"
    return done


def result(mod: IRModule, name: str = "main") -> Type:
    ret = mod.function(name).ret_type
    assert ret is not None
    return ret


def text_of(text: str, name: str = "main") -> str:
    return type_text(result(typed(text), name))


def refused(text: str, *parts: str) -> None:
    with pytest.raises(RelayTypeError) as caught:
        typed(text)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def shape(type_: Type) -> tuple[dims.Dim, ...]:
    assert isinstance(type_, TensorType)
    return type_.shape

"""str() of types is Relay text."""

from __future__ import annotations

import pytest

from nimblevm import relay

F32 = relay.TensorType(())
N = relay.DimVar("n")


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (F32, "float32"),
        (relay.TensorType((relay.Any(), 4), "int8"), "Tensor[(?, 4), int8]"),
        (relay.TensorType((N,)), "Tensor[(?n), float32]"),
        (relay.TupleType([F32]), "(float32,)"),
        (relay.FuncType([F32, F32], relay.TupleType([])), "fn (float32, float32) -> ()"),
        (relay.RefType(F32), "ref(float32)"),
        (relay.TypeCall(relay.GlobalTypeVar("List"), [F32]), "List[float32]"),
        (relay.TypeVar("A"), "A"),
        (relay.IncompleteType(), "_"),
    ],
)
def test_text(type_: relay.Type, text: str) -> None:
    assert str(type_) == repr(type_) == text


def test_inferred_type_of_a_function() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x], relay.exp(x))))
    assert (
        str(mod["main"].checked_type) == "fn (Tensor[(?, 4), float32]) -> Tensor[(?, 4), float32]"
    )


def test_huge_text_is_cut() -> None:
    type_: relay.Type = F32
    for _ in range(60):
        type_ = relay.TupleType([type_, type_])
    assert len(str(type_)) < 30_000
    assert str(type_).endswith("...")

"""check_kind, detect_feature, list_op_freqs."""

from __future__ import annotations

import pytest

from nimblevm.errors import WellFormedError
from nimblevm.relay.ir import TypeData
from nimblevm.relay.kinds import Feature, TypeKind, check_kind, detect_feature, list_op_freqs
from nimblevm.relay.parser import parse_module
from nimblevm.relay.types import GlobalTypeVar, RefType, TensorType, TypeCall, TypeVar

MOD = parse_module("""#[version = "0.0.5"]
type Box[A] { Full(A), Empty }
def @main(%x: float32) { let %y = exp(%x); (%y + %y, exp(%y)) }
""")


def test_kinds() -> None:
    box = MOD.get_global_type_var("Box")
    assert check_kind(TensorType((2,))) is TypeKind.Type
    assert check_kind(TypeVar("A")) is TypeKind.Type
    assert check_kind(box) is TypeKind.AdtHandle
    assert check_kind(box(TensorType(())), MOD) is TypeKind.Type
    with pytest.raises(WellFormedError, match="no type List"):
        check_kind(RefType(TypeCall(GlobalTypeVar("List"), ())), MOD)
    with pytest.raises(WellFormedError, match="takes 1 types, got 0"):
        check_kind(TypeCall(box, ()), MOD)
    with pytest.raises(WellFormedError, match="name of a data type"):
        check_kind(RefType(box), MOD)


def test_features_and_operators() -> None:
    assert isinstance(MOD[MOD.get_global_type_var("Box")], TypeData)
    found = detect_feature(MOD)
    assert Feature.fLet in found
    assert Feature.fTuple in found
    assert Feature.fMatch not in found
    assert list_op_freqs(MOD) == {"exp": 2, "add": 1}

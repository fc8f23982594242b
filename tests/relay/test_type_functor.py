"""Walks over types."""

from __future__ import annotations

from typing import Any

import pytest

from nimblevm import relay
from nimblevm.relay import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeFunctor,
    TypeMutator,
    TypeVar,
    TypeVisitor,
)

A = TypeVar("A")
LIST = GlobalTypeVar("List")
F32 = TensorType((2, 3), "float32")
WHOLE = FuncType([TupleType([F32, A]), RefType(F32), IncompleteType()], TypeCall(LIST, [A]), [A])


def test_visitor_sees_every_part_once() -> None:
    seen: list[Type] = []

    class Tensors(TypeVisitor):
        def visit_tensor_type(self, tt: TensorType) -> None:
            seen.append(tt)

        def visit_global_type_var(self, gtv: GlobalTypeVar) -> None:
            seen.append(gtv)

        def visit_type_var(self, tv: TypeVar) -> None:
            seen.append(tv)

    Tensors().visit(WHOLE)
    assert sorted(seen, key=repr) == sorted([A, F32, LIST], key=repr)


def test_mutator_rebuilds_what_changed() -> None:
    class Half(TypeMutator):
        def visit_tensor_type(self, tt: TensorType) -> Type:
            return TensorType(tt.shape, "float16")

    new = Half().visit(WHOLE)
    assert new.arg_types[0].fields[0] == TensorType((2, 3), "float16")
    assert new.arg_types[1].value == TensorType((2, 3), "float16")
    assert new.ret_type == TypeCall(LIST, [A])
    assert Half().visit(A) is A
    assert TypeMutator().visit(WHOLE) == WHOLE


def test_mutator_renames_a_data_type() -> None:
    mod = relay.parse_module('#[version = "0.0.5"]\ntype List[A] { Cons(A, List[A]), Nil }')
    (data,) = mod.type_definitions.values()
    other = GlobalTypeVar("Other")

    class Rename(TypeMutator):
        def visit_global_type_var(self, gtv: GlobalTypeVar) -> Type:
            return other if gtv.name_hint == "List" else gtv

    new = Rename().visit(data)
    assert new.header is other
    assert [c.belong_to for c in new.constructors] == [other, other]
    assert new.constructors[0].inputs[1].func is other
    assert TypeMutator().visit(data) is data


def test_functor_wants_every_method() -> None:
    class Rank(TypeFunctor):
        def visit_tensor_type(self, tt: TensorType) -> int:
            return len(tt.shape)

        def visit_tuple_type(self, tt: TupleType) -> Any:
            return [self.visit(f) for f in tt.fields]

    assert Rank().visit(TupleType([F32, F32])) == [2, 2]
    with pytest.raises(NotImplementedError, match="Rank has no visit_ref_type"):
        Rank().visit(RefType(F32))
    with pytest.raises(TypeError, match="unknown type int"):
        Rank().visit(3)  # type: ignore[arg-type]


def test_deep_types() -> None:
    type_: Type = F32
    for _ in range(50_000):
        type_ = TupleType([type_])
    TypeVisitor().visit(type_)
    assert TypeMutator().visit(type_) is type_

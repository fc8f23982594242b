"""Every record has a kernel and the four generic tests; one that lacks them is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nimblevm.relay.op import all_ops, registry
from nimblevm.relay.op.registry import Effect, Op, OpPattern, register
from tests.relay.op.coverage import ANY_SHAPE, NO_UNKNOWNS, gaps, is_public
from tests.relay.op.mutants import (
    is_refused,
    largest_case,
    other_attributes,
    other_operands,
)

PUBLIC = [op for op in all_ops() if is_public(op)]


def test_nothing_is_missing() -> None:
    assert gaps(all_ops()) == []


def test_exceptions_are_operators() -> None:
    assert {op.name for op in PUBLIC} >= ANY_SHAPE | NO_UNKNOWNS


@dataclass(frozen=True, slots=True)
class FakeAttrs:
    """amount: anything."""

    amount: Any = 0


def fake(name: str, **changed: Any) -> Op:
    """A record like that of a unary operator; its relation takes what it gets."""
    return Op(
        **{
            "name": name, "args": ("data",), "relation": lambda ctx, types, attrs: types[0],
            "reference": lambda inputs, attrs, result: np.abs(inputs[0]), "pattern": OpPattern.ELEMWISE,
            "effect": Effect.TOTAL, "dtypes": (("float16", "float32", "float64"),), "doc": "", **changed,
        }
    )  # fmt: skip


def unfinished(ctx: Any, types: Any, attrs: Any) -> Any:
    raise ctx.fail("nothing is right")


FAKES = {
    # A unary operator that was only registered: its cases come by themselves, all the rest is missing.
    "fake.plain": (fake("fake.plain"), {"kernel", "errors"}),
    "fake.attributes": (
        fake("fake.attributes", attrs=FakeAttrs),
        {"kernel", "numpy", "unknown", "folded", "errors"},
    ),
    "fake.operands": (
        fake("fake.operands", args=("data", "other", "third")),
        {"kernel", "numpy", "unknown", "folded", "errors"},
    ),
    "fake.refusing": (
        fake("fake.refusing", relation=unfinished),
        {"kernel", "numpy", "unknown", "folded"},
    ),
    "fake.dtypes": (
        fake("fake.dtypes", dtypes=(("float32",),)),
        {
            "kernel",
            "errors",
            *(f"a reason for no {d}" for d in ("float16", "float64", "int8", "bool")),
        },
    ),
}


@pytest.fixture
def copied_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OPS", dict(registry._OPS))


@pytest.mark.usefixtures("copied_registry")
@pytest.mark.parametrize("name", FAKES)
def test_a_record_that_lacks_something_is_found(name: str) -> None:
    record, lacks = FAKES[name]
    register(record)
    assert record in all_ops()
    (found,) = gaps([record])
    assert found.startswith(f"{name}: ")
    said = set(found.removeprefix(f"{name}: ").split(", "))
    assert lacks <= said
    assert {"kernel", "numpy", "unknown", "folded", "errors"} & said <= lacks


def test_the_registry_is_as_before() -> None:
    assert not [op.name for op in all_ops() if op.name.startswith("fake.")]


@pytest.mark.slow
@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_no_call_is_so_wrong_that_the_relation_breaks(op: Op) -> None:
    """is_refused lets every error through that is not a located type error."""
    case = largest_case(op)
    types = case.types
    for _, attrs in other_attributes(case.attrs):
        is_refused(op, types, attrs)
    for changed in other_operands(types):
        is_refused(op, changed, case.attrs)

"""The order of effects: oracle = compiled with and without the optional passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import nimblevm as nvm
from nimblevm.errors import NimbleError
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same
from tests.properties.effects import effect_programs
from tests.properties.everywhere import PLAIN, outcome
from tests.properties.examples import examples

FEW = examples(12)
MANY = examples(1500)
ARGS = (np.int32(2), np.int32(5))


def check(text: str) -> None:
    """What fails may have been dead, so with optional passes only programs that do not fail are compared."""
    mod = nvm.relay.parse(text, source_name="random.rly")
    expected = outcome(evaluate, mod, ARGS)
    fails = isinstance(expected, NimbleError)
    for options in (PLAIN, {"verify": True}):
        with nvm.VirtualMachine(nvm.compile(mod, native=False, **options)) as vm:
            got = outcome(vm.run, *ARGS)
        if not fails:
            assert not isinstance(got, NimbleError), f"raised {got}"
            assert_same(got, expected)
        elif options is PLAIN:
            assert type(got) is type(expected)


@FEW
@given(text=effect_programs())
def test_order_of_effects(text: str) -> None:
    check(text)


@FEW
@given(text=effect_programs(failing=True))
def test_order_of_effects_and_failures(text: str) -> None:
    check(text)


@pytest.mark.slow
@MANY
@given(text=effect_programs(failing=True))
def test_order_of_effects_in_many_programs(text: str) -> None:
    check(text)

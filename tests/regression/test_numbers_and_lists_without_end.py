"""Arguments on which listing them hung: numbers whose type is derived from int, lists that hold themselves."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.vm import arguments

TEXT = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
def @next(%x: int64) -> int64 { %x + 1i64 }
def @pairs(%l: List[(int64, int64)]) -> int64 {
  match (%l) { Nil => 0i64, Cons(%h, %t) => %h.0 + @pairs(%t) }
}
"""


class Count(int):
    pass


class Level(enum.IntEnum):
    LOW = 3


@pytest.fixture(scope="module")
def vm() -> Iterator[nvm.VirtualMachine]:
    with (
        nvm.compile(nvm.relay.parse(TEXT), native=False) as exe,
        nvm.VirtualMachine(exe) as made,
    ):
        yield made


@pytest.mark.parametrize("value", [Count(3), Level.LOW, Count(-(2**63)), Count(2**63 - 2)])
def test_derived_from_int(value: int, vm: nvm.VirtualMachine) -> None:
    assert int(vm.invoke("next", value)) == int(value) + 1


@pytest.mark.parametrize("value", [Count(2**63), Count(-(2**63) - 1)])
def test_beyond_int64(value: int, vm: nvm.VirtualMachine) -> None:
    with pytest.raises(nvm.InvalidInput, match=r"parameter %x of @next: -?\d+ does not fit int64"):
        vm.invoke("next", value)


def a_loop() -> list[Any]:
    loop: list[Any] = []
    loop.append((1, [loop, loop]))
    return loop


def test_lists_that_hold_themselves(vm: nvm.VirtualMachine) -> None:
    cons, nil = (vm.executable.constructor(name) for name in ("Cons", "Nil"))
    for value in (a_loop(), (1, a_loop()), cons((1, a_loop()), nil()), nvm.move(a_loop())):
        with pytest.raises(nvm.InvalidInput, match=r"%l of @pairs.*: a list holds itself"):
            vm.invoke("pairs", value)


def test_many_lists_that_do_not(vm: nvm.VirtualMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One list in many places is no loop."""
    monkeypatch.setattr(arguments, "_MANY_LISTS", 50)
    cons, value = vm.executable.constructor("Cons"), vm.executable.constructor("Nil")()
    pair = [1, 2]
    for i in range(100):
        value = cons(pair if i % 2 else [1, np.int64(2)], value)
    assert int(vm.invoke("pairs", value)) == 100

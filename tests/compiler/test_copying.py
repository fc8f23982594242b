"""A function that a module has under two names."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.copying import unshared
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.well_formed import check_well_formed

TEXT = """#[version = "0.0.5"]
type L[A] { Cons(A, L[A]), Nil }
def @map_[A, B](%f: fn (A) -> B, %l: L[A]) -> L[B] {
  match (%l) { Cons(%h, %t) => Cons(%f(%h), @map_(%f, %t)), Nil => Nil }
}
def @a(%x: Tensor[(?n, 4), float32], %c: bool) -> Tensor[(?n, 4), float32] {
  let %y = cumsum(%x, axis=0);
  let %r = if (%c) { tanh(%x + %y) } else { %y };
  let %l = @map_(fn (%t: Tensor[(?n, 4), float32]) -> Tensor[(?n, 4), float32] { exp(%t) + %r }, Cons(%r, Nil));
  match (%l) { Cons(%h, _) => %h, Nil => %x }
}
def @main(%x: Tensor[(?n, 4), float32], %c: bool) { @a(%x, %c) }"""


def shared() -> relay.IRModule:
    """`a` and `map_` have a second name each."""
    mod = relay.parse(TEXT)
    mod["b"], mod["map2"] = mod["a"], mod["map_"]
    return mod


@pytest.mark.parametrize("device", [None, "simulated"])
def test_each_name_has_a_function_of_its_own(device: str | None) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    vm = nvm.VirtualMachine(nvm.compile(shared(), native=False, verify=True, device=device))
    alone = nvm.VirtualMachine(nvm.compile(relay.parse(TEXT), native=False))
    for flag in (True, False):
        want = alone.run(x, flag).numpy()
        for name in ("main", "a", "b"):
            np.testing.assert_allclose(vm.invoke(name, x, flag).numpy(), want, rtol=1e-6)


def test_copies_bind_other_variables() -> None:
    mod = infer_type(shared())
    found = unshared(mod)
    assert mod["b"] is mod["a"]
    assert found["a"] is mod["a"]
    parameters = [p for function in found.functions.values() for p in function.params]
    assert len(set(parameters)) == len(parameters)
    check_well_formed(found)
    assert unshared(found) is found

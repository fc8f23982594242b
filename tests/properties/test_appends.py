"""Random programs that grow tensors out of shared ones: every value is what the oracle says, whoever holds its memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.relay.interpreter import Interpreter
from tests.properties.compare import assert_same

VECTOR = "Tensor[(?), int64]"
HEAD = f"""#[version = "0.0.5"]
type Pair {{ Two({VECTOR}, {VECTOR}), None }}
def @echo(%x: {VECTOR}) -> {VECTOR} {{ %x }}
def @join(%x: {VECTOR}, %y: {VECTOR}) -> {VECTOR} {{ concatenate((%x, %y)) }}
def @repeat(%n: int32, %x: {VECTOR}, %y: {VECTOR}) -> {VECTOR} {{
  if (less(0, %n)) {{ @repeat(%n - 1, concatenate((%x, %y)), %y) }} else {{ %x }}
}}
def @main(%i: int32, %x: {VECTOR}, %y: {VECTOR}) {{
"""
FORMS = (
    "let %{new}: {vector} = concatenate((%{a}, %{b}));",
    "let %{new}: {vector} = concatenate((%{a}, %{b}));",
    "let %{new}: {vector} = concatenate((%{a}, %{b}, negative(%{a})));",
    "let %{new}: {vector} = negative(%{a}) + {k}i64;",
    "let %{new}: {vector} = reshape(concatenate((reshape(%{a}, newshape=[1, -1]), reshape(%{b}, newshape=[1, -1])), "
    "axis=1), newshape=[-1]);",
    "let %p{new} = (%{a}, (%{b}, {k})); let %{new}: {vector} = concatenate((%p{new}.1.0, %{b}));",
    "let %r{new} = ref(%{a}); let %u{new} = ref_write(%r{new}, concatenate((ref_read(%r{new}), %{b}))); "
    "let %{new}: {vector} = ref_read(%r{new});",
    "let %{new}: {vector} = @join(%{a}, %{b});",
    "let %{new}: {vector} = @repeat({k}, %{a}, %{b});",
    "let %{new}: {vector} = if (less(%i, {k})) {{ concatenate((%{a}, %{b})) }} else {{ %{a} }};",
    "let %{new}: {vector} = match (Two(%{a}, %{b})) {{ Two(%c{new}, %d{new}) => {{ concatenate((%c{new}, %d{new})) }}, "
    "None => {{ %{b} }}, }};",
    "let %f{new} = fn (%n: int32) -> {vector} {{ concatenate((%{a}, %{b})) }}; "
    "let %{new}: {vector} = concatenate((%f{new}({k}), %f{new}(0)));",
)  # fmt: skip


def program(source: random.Random) -> str:
    """A chain of FORMS on earlier values; the result is a random half of them."""
    names, lines = ["x", "y"], []
    for step in range(source.randint(2, 9)):
        form = source.choice(FORMS)
        a, b = source.choice(names[-4:]), source.choice(("y", source.choice(names)))
        lines.append(form.format(new=f"v{step}", a=a, b=b, k=source.randint(0, 3), vector=VECTOR))
        names.append(f"v{step}")
    kept = [f"%{n}" for n in names if source.random() < 0.5] + [f"%{names[-1]}"]
    return f"{HEAD}  {chr(10).join(lines)}\n  ({', '.join(kept)}, 0)\n}}\n"


def check(seed: int) -> None:
    source = random.Random(seed)
    text = program(source)
    mod = nvm.relay.parse(text)
    oracle = Interpreter(mod)
    exe = nvm.compile(mod, native=False, verify=True, unbox=bool(seed % 2))
    with nvm.VirtualMachine(exe) as vm:
        for n, m in ((0, 1), (2, 1), (1000, 3), (5, 0), (700, 600)):
            i, x, y = np.int32(source.randint(0, 3)), np.arange(n), -1 - np.arange(m)
            want = oracle.run("main", i, x, y)
            assert_same(vm.run(i, x, y), want)
            own, other = vm.invoke("echo", x), vm.invoke("echo", y)
            view = own.numpy() if source.random() < 0.3 else None
            got = vm.run(i, nvm.move(own), nvm.move(other))
            if view is not None:
                np.testing.assert_array_equal(view, x)
                view[:] = 77  # no result may see it, nor any other result
            scribbled: list[Any] = []
            for have, expected in zip(got, want, strict=True):
                assert_same(have, expected)
                if isinstance(have, nvm.Tensor) and have.shape:
                    have.numpy()[:] = 99
                    scribbled.append(have)
            assert x.tolist() == list(range(n))
        del own, other, view, got, scribbled, have
        assert vm.stats()["live_bytes"] == 0, text


@pytest.mark.parametrize("seed", range(12))
def test_programs(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_many_programs() -> None:
    for seed in range(1000, 1400):
        check(seed)

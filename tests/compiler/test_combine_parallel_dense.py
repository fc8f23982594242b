"""Products that attention reads as one product: values on all paths, kernels, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.module import IRModule

HEADS, SIZE = 2, 24
HIDDEN = HEADS * SIZE
Array = np.ndarray[Any, Any]


def weights(dtype: str = "float32", names: str = "qkv") -> dict[str, Array]:
    rng = np.random.default_rng(5)
    made: dict[str, Array] = {}
    for name in names:
        made[f"{name}_w"] = (rng.standard_normal((HIDDEN, HIDDEN)) / 7).astype(dtype)
        made[f"{name}_b"] = rng.standard_normal(HIDDEN).astype(dtype)
    return made


def dense(name: str, data: str = "%x") -> str:
    return f"nn.dense({data}, %{name}_w) + %{name}_b"


def steps(q: str, k: str, v: str) -> str:
    """Lets up to %o, of the shape of %x."""
    heads = f"newshape=[-1, {HEADS}, {SIZE}]), axes=[1, 0, 2])"
    return f"""
  let %q = {q};
  let %k = {k};
  let %v = {v};
  let %s = nn.batch_matmul(transpose(reshape(%q, {heads}, transpose(reshape(%k, {heads}, transpose_b=True);
  let %m = nn.batch_matmul(nn.softmax(%s, axis=-1), transpose(reshape(%v, {heads}, transpose_b=False);
  let %o = reshape(transpose(%m, axes=[1, 0, 2]), newshape=[-1, {HIDDEN}]);"""


def program(body: str, dtype: str = "float32", names: str = "qkv") -> IRModule:
    """A function of %x (?n, HIDDEN) and weights of these names."""
    params = "".join(
        f", %{n}_w: Tensor[({HIDDEN}, {HIDDEN}), {dtype}], %{n}_b: Tensor[({HIDDEN}), {dtype}]"
        for n in names
    )
    return nvm.relay.parse(f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, {HIDDEN}), {dtype}]{params}) {{{body}
}}""")


def attention(
    q: str = dense("q"),
    k: str = dense("k"),
    v: str = dense("v"),
    dtype: str = "float32",
    result: str = "%o",
) -> IRModule:
    """Attention of %x (?n, HIDDEN) to itself, where q, k and v are texts of values with these weights."""
    return program(f"{steps(q, k, v)}\n  {result}", dtype)


def rows(count: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(count).standard_normal((count, HIDDEN)).astype(dtype)


def check(
    mod: IRModule, count: int, dtype: str = "float32", names: str = "qkv", **options: Any
) -> tuple[int, int]:
    """Compare with the oracle; how many kernels with products ran, and how many kernels at all."""
    params, x = weights(dtype, names), rows(count, dtype)
    expected = np.asarray(evaluate(mod, (x, *params.values()), "main"))
    exe = nvm.compile(mod, params=params, native=False, **options)
    with nvm.VirtualMachine(exe, profile=True) as vm:
        found = np.asarray(vm.run(x))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        kernels = vm.profile().kernels
    return sum(k.calls for k in kernels if "dense_pack" in k.name), sum(k.calls for k in kernels)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_product_and_attention_in_place(dtype: str) -> None:
    assert check(attention(dtype=dtype), 30, dtype) == (1, 2)
    off: dict[str, Any] = {"passes_off": ("combine_parallel_dense",)}
    assert check(attention(dtype=dtype), 30, dtype, **off) == (3, 4)


def test_all_numbers_of_rows() -> None:
    """The same bits as apart; one and two rows are summed in the order that the number of columns suggests."""
    mod, params = attention(), weights()
    one, three = (
        nvm.VirtualMachine(nvm.compile(mod, params=params, passes_off=off))
        for off in ((), ("combine_parallel_dense",))
    )
    for count in (0, 1, 2, 3, 5, 12, 13, 17, 64, 75):
        x = rows(count)
        found, expected = one.run(x), three.run(x)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert count < 3 or np.array_equal(found, expected)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_few_rows(count: int) -> None:
    check(attention(), count)


def test_only_products_with_a_bias() -> None:
    """A query without one is left alone."""
    assert check(attention(q="nn.dense(%x, %q_w)"), 9)[0] == 2


def test_bias_add() -> None:
    assert check(attention(v="nn.bias_add(nn.dense(%x, %v_w), %v_b, axis=-1)"), 9)[0] == 1


def test_another_input() -> None:
    assert check(attention(q=dense("q", "exp(%x)")), 9)[0] == 2


def test_value_read_twice() -> None:
    """Keys that are the values too."""
    mod = attention(v="%k")
    assert check(mod, 9)[0] == 1


def test_read_elsewhere() -> None:
    """Keys that are part of the result stay a product of their own."""
    assert check(attention(result="%o + exp(%k)"), 9)[0] == 2


def test_scaled_query() -> None:
    assert check(attention(q=f"({dense('q')}) * 0.5f"), 9)[0] == 2


def test_shared_weight() -> None:
    """A weight of two products keeps its one place."""
    assert check(attention(v=dense("q", "exp(%x)")), 9)[0] == 3


def test_in_branches() -> None:
    """A product that only one branch evaluates."""
    branch = f"if (any(less(%x, 100f))) {{ {dense('k')} }} else {{ {dense('v')} }}"
    check(attention(k=branch), 9)


@pytest.mark.parametrize("place", ["branch", "function"])
@pytest.mark.parametrize("taken", [False, True])
def test_attention_that_may_not_run(place: str, taken: bool) -> None:
    """Its products are not computed with those of attention that does."""
    inner = steps(dense("a"), dense("b"), dense("c")) + " %o"
    condition = f"any({'less' if taken else 'greater'}(%x, 100f))"
    if place == "branch":
        end = f"if ({condition}) {{{inner}}} else {{ %o }}"
    else:
        end = f"let %f = fn () {{{inner}}}; if ({condition}) {{ %f() + exp(%f()) }} else {{ %o }}"
    first = steps(dense("q"), dense("k"), dense("v"))
    mod = program(f"{first} {end}", names="qkvabc")
    calls = {"branch": 1, "function": 2}[place]
    assert check(mod, 9, names="qkvabc")[0] == (1 + calls if taken else 1)


def test_bound_late() -> None:
    """Weights whose elements are not known are not joined."""
    params, x = weights(), rows(9)
    exe = nvm.compile(attention(), params=params, late_bound=True, native=False)
    with nvm.VirtualMachine(nvm.load(exe.to_bytes(), weights=params)) as vm:
        expected = evaluate(attention(), (x, *params.values()), "main")
        np.testing.assert_allclose(vm.run(x), np.asarray(expected), rtol=1e-5, atol=1e-5)


def test_sixteen_bits() -> None:
    params, x = weights(), rows(9)
    found = [
        nvm.VirtualMachine(nvm.compile(attention(), params=params, weights="float16", native=False, passes_off=off)).run(x)
        for off in ((), ("combine_parallel_dense",))
    ]  # fmt: skip
    np.testing.assert_array_equal(*found)


def test_threads() -> None:
    exe = nvm.compile(attention(), params=weights())
    one, two = nvm.VirtualMachine(exe, threads=1), nvm.VirtualMachine(exe, threads=2)
    for count in (64, 300):
        x = rows(count)
        np.testing.assert_array_equal(one.run(x), two.run(x))

"""Loops that became one kernel (fuse_loops): the same bits as a kernel a step, for any number of steps and threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import gru, lstm
from nimblevm.compiler.passes.fuse_loops import MAX_STEPS
from nimblevm.errors import NimbleError

Array = np.ndarray[Any, Any]
COUNTS = (0, 1, 2, MAX_STEPS - 1, MAX_STEPS, MAX_STEPS + 1, 2 * MAX_STEPS + 3)

LOOP = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 6), {dtype}], %h0: Tensor[({batch}, 18), {dtype}], %w: Tensor[(18, 18), {dtype}],
          %u: Tensor[(18, 6), {dtype}]) -> {result} {{
  let %n = {limit};
  let %loop = fn (%i: {counter}, %h: Tensor[({batch}, 18), {dtype}]{more}) -> {result} {{
    if (less(%i, %n)) {{
      let %xi = reshape(take(%x, {index}, axis=0), newshape=[1, 6]);
      let %next = tanh(nn.dense(%xi, %u) + nn.dense(%h, %w));
      %loop(%i + {one}, {again})
    }} else {{
      {end}
    }}
  }};
  %loop({zero}, {first})
}}
"""
STATE = "Tensor[({batch}, 18), {dtype}]"
PLAIN: dict[str, str] = {
    "dtype": "float32", "batch": "1", "counter": "int32", "limit": "take(shape_of(%x), 0)", "more": "", "one": "1",
    "zero": "0", "index": "%i", "again": "%next", "end": "%h", "first": "%h0", "result": STATE,
}  # fmt: skip
CASES: dict[str, dict[str, str]] = {
    "plain": {},
    "float64": {"dtype": "float64"},
    "batch": {"batch": "3"},
    "unknown batch": {"batch": "?b"},
    "int64": {
        "counter": "int64", "limit": 'cast(take(shape_of(%x), 0), dtype="int64")', "one": "1i64", "zero": "0i64",
    },
    "backwards": {"index": "%n - 1 - %i"},
    "two states": {
        "more": ", %c: Tensor[({batch}, 18), {dtype}]", "again": "%next, %next * %c + %h", "first": "%h0, %h0",
        "end": "(%h, %c)", "result": "(" + STATE + ", " + STATE + ")",
    },
    "rows": {
        "more": ", %rows: Tensor[(?, 18), {dtype}]", "again": "%next, concatenate((%rows, %next), axis=0)",
        "first": '%h0, zeros(shape=[0, 18], dtype="{dtype}")', "end": "(%h, %rows)",
        "result": "(" + STATE + ", Tensor[(?, 18), {dtype}])",
    },
}  # fmt: skip


def text_of(case: Mapping[str, str]) -> str:
    parts = {**PLAIN, **case}
    plain = {key: parts[key] for key in ("dtype", "batch")}
    return LOOP.format(**{key: value.format(**plain) for key, value in parts.items()})


def weights(dtype: str) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {
        "w": rng.standard_normal((18, 18)).astype(dtype) * 0.2,
        "u": rng.standard_normal((18, 6)).astype(dtype),
    }


def kernels_of(exe: nvm.Executable) -> list[str]:
    return [kernel.name for kernel in exe.program_record().kernels]


def arrays(found: Any) -> list[Array]:
    return [f.numpy() for f in (found if isinstance(found, tuple) else (found,))]


def expected(case: str, x: Array, h: Array, given: Mapping[str, Array]) -> list[Array]:
    c, rows, n = h, [], len(x)
    for i in range(n):
        at = n - 1 - i if case == "backwards" else i
        new = np.tanh(x[at] @ given["u"].T + h @ given["w"].T)
        h, c = new, new * c + h
        rows.append(new)
    if case == "two states":
        return [h, c]
    return [h, np.concatenate([np.zeros((0, 18), h.dtype), *rows])] if case == "rows" else [h]


SLOW = ("float64", "batch", "int64", "backwards", "two states")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES]
)
def test_steps_in_one_kernel_give_the_same_bits(name: str) -> None:
    case = CASES[name]
    dtype = case.get("dtype", "float32")
    given, text = weights(dtype), text_of(case)
    mod = nvm.relay.parse(text)
    # A product of several rows may add its terms in another order than one of one row.
    exe = nvm.compile(mod, given, verify=True, passes_off="move_projections")
    assert any(kernel.startswith("steps_of_") for kernel in kernels_of(exe)), kernels_of(exe)
    one_by_one = nvm.compile(mod, given, passes_off="fuse_loops")
    rng = np.random.default_rng(6)
    rows = {"batch": 3, "unknown batch": 2}.get(name, 1)
    h = rng.standard_normal((rows, 18)).astype(dtype)
    machines = [nvm.VirtualMachine(e) for e in (exe, one_by_one)]
    interpreted = nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=False))
    for count in COUNTS:
        x = rng.standard_normal((count, 6)).astype(dtype)
        found, before = (arrays(vm.run(x, h)) for vm in machines)
        for a, b, c, d in zip(
            found, before, expected(name, x, h, given), arrays(interpreted.run(x, h)), strict=True
        ):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(d, c, rtol=1e-4, atol=1e-5)


def test_a_step_reads_the_next_counter_too() -> None:
    """i + 1 is one value for the row and for the next turn; a kernel of several steps goes on by more."""
    text = text_of({"index": "%i + 1"}).replace("6]", "18]").replace("(?n, 6)", "(?n, 18)")
    given = {"w": weights("float32")["w"]}
    exe = nvm.compile(nvm.relay.parse(text.replace("nn.dense(%xi, %u)", "%xi")), given, verify=True)
    assert any(kernel.startswith("steps_of_") for kernel in kernels_of(exe)), kernels_of(exe)
    rng = np.random.default_rng(7)
    vm, u = nvm.VirtualMachine(exe), np.zeros((18, 6), np.float32)
    for count in COUNTS:
        x, h = (rng.standard_normal((n, 18)).astype(np.float32) for n in (count, 1))
        wanted = h
        for i in range(count):
            wanted = np.tanh(x[min(i + 1, count - 1)] + wanted @ given["w"].T)
        np.testing.assert_allclose(vm.run(x, h, u=u).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_lstm_is_a_kernel_a_layer_and_the_same_on_any_threads(layers: int) -> None:
    sizes = {"inputs": 20, "hidden": 130, "layers": layers}
    given = lstm.params(**sizes)
    exe = nvm.compile(nvm.relay.parse(lstm.text(**sizes)), given, passes_off="move_projections")
    assert sum(kernel.startswith("steps_of_") for kernel in kernels_of(exe)) == layers
    plain = nvm.compile(nvm.relay.parse(lstm.text(**sizes)), given, passes_off=("fuse_loops",))
    x = np.random.default_rng(1).standard_normal((MAX_STEPS + 5, 20)).astype(np.float32)
    wanted = nvm.VirtualMachine(plain).run(x).numpy()
    np.testing.assert_allclose(wanted, lstm.reference(x, **given), rtol=1e-4, atol=1e-5)
    for threads in (1, 2, 3):
        vm = nvm.VirtualMachine(exe, threads=threads)
        for _ in range(3):
            np.testing.assert_array_equal(vm.run(x).numpy(), wanted)


def test_gru_reads_its_state_twice() -> None:
    given = gru.params(inputs=9, hidden=70)
    exe = nvm.compile(nvm.relay.parse(gru.text(inputs=9, hidden=70)), given)
    assert any(kernel.startswith("steps_of_") for kernel in kernels_of(exe))
    x = np.random.default_rng(2).standard_normal((70, 9)).astype(np.float32)
    for native in (True, False):
        found = nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=native)).run(x).numpy()
        np.testing.assert_allclose(found, gru.reference(x, **given), rtol=1e-4, atol=1e-5)


def test_limits_hold_in_a_loop_of_a_billion_steps() -> None:
    text = text_of({"limit": "1000000000"}).replace("nn.dense(%xi, %u) + ", "")
    exe = nvm.compile(nvm.relay.parse(text), weights("float32"))
    assert any(kernel.startswith("steps_of_") for kernel in kernels_of(exe))
    x, h = np.ones((3, 6), np.float32), np.zeros((1, 18), np.float32)
    for limits in (nvm.Limits(instructions=20_000), nvm.Limits(seconds=0.05)):
        vm = nvm.VirtualMachine(exe, limits=limits)
        for _ in range(2):
            with pytest.raises(NimbleError):
                vm.run(x, h)
    limited = nvm.VirtualMachine(exe, limits=nvm.Limits(seconds=0.05))
    with pytest.raises(NimbleError):
        limited.run(x, h)


def test_a_limit_far_from_the_counter_wraps_to_single_steps() -> None:
    """The difference of limit and counter does not fit int32: the loop still goes on by what fits."""
    text = text_of({"limit": "2147483647", "zero": "-2147483648"})
    text = text.replace("nn.dense(%xi, %u) + ", "")
    exe = nvm.compile(nvm.relay.parse(text), weights("float32"))
    assert any(kernel.startswith("steps_of_") for kernel in kernels_of(exe))
    vm = nvm.VirtualMachine(exe, limits=nvm.Limits(instructions=5_000))
    with pytest.raises(NimbleError):
        vm.run(np.ones((3, 6), np.float32), np.zeros((1, 18), np.float32))

"""State and streaming: results into the caller's buffers (`out=`), values that stay in the VM (KEEP), an RNN fed step
by step and a decoder with its cache, with no copies beyond the new data."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import gpt2
from nimblevm.errors import InvalidInputType, ShapeMismatch
from nimblevm.vm.wants import KEEP as SAME_KEEP

HIDDEN = 512  # 2 KiB a row: more than what is copied because it is small
TEXT = f"""#[version = "0.0.5"]
type Box {{ Full(Tensor[(?, {HIDDEN}), float32], int32), Empty }}
def @main(%x: Tensor[(1, {HIDDEN}), float32], %h: Tensor[(1, {HIDDEN}), float32], %n: int32) {{
  let %new = tanh(%x * 0.5f + %h * 0.25f);
  (%new * 2f, %new, %n + 1)
}}
def @append(%x: Tensor[(1, {HIDDEN}), float32], %s: (Tensor[(?n, {HIDDEN}), float32], int32)) {{
  let %all = concatenate((%s.0, %x));
  (sum(%all, axis=0), (%all, %s.1 + 1))
}}
def @box(%x: Tensor[(1, {HIDDEN}), float32], %b: Box) -> Box {{
  match (%b) {{
    Full(%t, %n) => {{ Full(concatenate((%t, %x)), %n + 1) }},
    Empty => {{ Full(%x, 1) }},
  }}
}}
def @echo(%s: Tensor[(?n, {HIDDEN}), float32]) -> Tensor[(?n, {HIDDEN}), float32] {{ %s }}
def @swap(%a: Tensor[(?n), int64], %b: Tensor[(?n), int64]) {{ (%b, %a) }}
def @out(%out: Tensor[(?n), int64], %name: int32) {{ %out + cast(%name, dtype="int64") }}
def @constant() -> Tensor[(2), int64] {{ meta[relay.Constant][0] }}
def @pair(%x: int32) {{ (%x, %x) }}
def @one(%x: int32) {{ (%x,) }}
def @closure(%x: int32) {{ fn (%y: int32) -> int32 {{ %x + %y }} }}
def @call(%f: fn (int32) -> int32, %y: int32) -> int32 {{ %f(%y) }}
def @grow(%n: int32) {{ cast(arange(0, %n, 1, dtype="int32"), dtype="int64") }}
"""
TEXT = TEXT.replace(
    "meta[relay.Constant][0]", 'cast(zeros(shape=[2], dtype="int32"), dtype="int64") + 7i64'
)


@pytest.fixture(scope="module")
def exe() -> Iterator[nvm.Executable]:
    with nvm.compile(nvm.relay.parse(TEXT), verify=True) as executable:
        yield executable


@pytest.fixture(params=[True, False], ids=["native", "interpreted"])
def vm(exe: nvm.Executable, request: pytest.FixtureRequest) -> Iterator[nvm.VirtualMachine]:
    with nvm.load(exe.to_bytes(), native=request.param) as own, nvm.VirtualMachine(own) as machine:
        yield machine


def row(value: float) -> np.ndarray[Any, Any]:
    return np.full((1, HIDDEN), value, np.float32)


def copied(vm: nvm.VirtualMachine) -> int:
    return vm.stats()["copied_bytes"]


# --- buffers ---


def test_buffers_are_filled_and_returned(vm: nvm.VirtualMachine) -> None:
    y, h = np.empty((1, HIDDEN), np.float32), np.empty((1, HIDDEN), np.float32)
    n = np.empty((), np.int32)
    expected = vm.run(row(1), row(2), 5)
    got = vm.run(row(1), row(2), 5, out=(y, h, n))
    assert got[0] is y
    assert got[1] is h
    assert got[2] is n
    for have, want in zip(got, expected, strict=True):
        assert np.array_equal(have, want.numpy())
    before = copied(vm)
    vm.run(row(1), row(2), 5, out=(y, None, n))
    assert copied(vm) - before == y.nbytes + n.nbytes


def test_one_result(vm: nvm.VirtualMachine) -> None:
    buffer = np.empty((3, HIDDEN), np.float32)
    source = np.arange(3 * HIDDEN, dtype=np.float32).reshape(3, HIDDEN)
    assert vm.invoke("echo", source, out=buffer) is buffer
    assert np.array_equal(buffer, source)
    empty = np.empty((0, HIDDEN), np.float32)
    assert vm.invoke("echo", np.empty((0, HIDDEN), np.float32), out=empty) is empty
    constant = np.empty(2, np.int64)
    assert vm.invoke("constant", out=constant).tolist() == [7, 7]
    two = np.empty((), np.int32), np.empty((), np.int32)
    assert [int(x) for x in vm.invoke("pair", 3, out=two)] == [3, 3]
    (only,) = vm.invoke("one", 4, out=(np.empty((), np.int32),))
    assert only == 4


def test_a_buffer_may_be_an_argument(vm: nvm.VirtualMachine) -> None:
    a, b = np.arange(1000), np.arange(1000) * 2
    vm.invoke("swap", a, b, out=(a, b))
    assert np.array_equal(a, np.arange(1000) * 2)
    assert np.array_equal(b, np.arange(1000))
    _, h, _ = vm.run(row(1), row(0), 0)
    shared = h.numpy()
    vm.run(row(1), nvm.move(h), 0, out=(None, shared, None))
    want = np.tanh(0.5 + 0.25 * np.tanh(0.5))
    assert np.allclose(shared, want)


def test_a_tensor_and_other_buffers_may_be_filled(vm: nvm.VirtualMachine) -> None:
    tensor = vm.invoke("echo", np.zeros((2, HIDDEN), np.float32))
    assert vm.invoke("echo", np.ones((2, HIDDEN), np.float32), out=tensor) is tensor
    assert float(tensor.numpy().min()) == 1.0
    memory = memoryview(bytearray(8 * 3)).cast("q")
    vm.invoke("grow", 3, out=memory)
    assert memory.tolist() == [0, 1, 2]


BAD: dict[str, tuple[str, Any, type[Exception], str]] = {
    "count": ("pair", (None,), nvm.InvalidInput, "@pair returns a tuple of 2, got a tuple of 1"),
    "no tuple": ("pair", nvm.KEEP, nvm.InvalidInput, "@pair returns a tuple of 2, got nimblevm.KEEP; give one for each field"),
    "a tuple": ("grow", (None,), nvm.InvalidInput, "@grow returns one value, got a tuple of 1"),
    "kind": ("grow", 3, InvalidInputType, "out: expected an array to fill, KEEP or None, got int"),
    "dtype": ("grow", np.empty(3, np.int32), nvm.InvalidInput, "of dtype int64, the buffer for it of int32"),
    "rank": ("grow", np.empty((3, 1), np.int64), ShapeMismatch, "can't have the shape of the buffer"),
    "shape": ("grow", np.empty(4, np.int64), ShapeMismatch, r"result 0 is \(3,\) int64, the buffer for it \(4,\) int64"),
    "order": ("grow", np.empty(6, np.int64)[::2], nvm.InvalidInput, "must be C-contiguous"),
    "closure": ("closure", np.empty(3, np.int64), nvm.InvalidInput, "is no tensor"),
    "read-only": ("grow", np.broadcast_to(np.int64(1), (3,)), nvm.InvalidInput, "must be writable"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_buffers_that_do_not_fit(name: str, vm: nvm.VirtualMachine) -> None:
    function, out, error, text = BAD[name]
    with pytest.raises(error, match=text):
        vm.invoke(function, 3, out=out)
    assert vm.invoke("grow", 2).tolist() == [0, 1]


def test_no_buffer_is_touched_if_one_does_not_fit(vm: nvm.VirtualMachine) -> None:
    a, b = np.full(3, -1), np.full(4, -1)
    with pytest.raises(ShapeMismatch):
        vm.invoke("swap", np.arange(3), np.arange(3), out=(a, b))
    assert a.tolist() == [-1, -1, -1]
    assert b.tolist() == [-1] * 4


def test_no_two_results_go_into_the_same_memory(vm: nvm.VirtualMachine) -> None:
    memory = np.full(6, -1)
    for a, b in ((memory[:3], memory[:3]), (memory[:3], memory[2:5]), (memory[1:4], memory[:3])):
        with pytest.raises(nvm.InvalidInput, match="results 0 and 1 share memory"):
            vm.invoke("swap", np.arange(3), np.arange(3), out=(a, b))
        assert memory.tolist() == [-1] * 6
    vm.invoke("swap", np.arange(3), np.arange(3, 6), out=(memory[:3], memory[3:]))
    assert memory.tolist() == [3, 4, 5, 0, 1, 2]
    vm.invoke("swap", np.arange(0), np.arange(0), out=(memory[:0], memory[:0]))


def test_a_parameter_may_be_called_out(vm: nvm.VirtualMachine) -> None:
    assert vm.invoke("out", out=np.arange(2), name=3).tolist() == [3, 4]
    buffer = np.empty(2, np.int64)
    assert vm.invoke_into(buffer, "out", out=np.arange(2), name=3) is buffer
    assert buffer.tolist() == [3, 4]


# --- handles ---


def test_kept_values_of_every_kind(vm: nvm.VirtualMachine) -> None:
    state = vm.invoke("echo", row(3), out=nvm.KEEP)
    assert isinstance(state, nvm.Handle)
    again = vm.invoke("echo", state, out=nvm.KEEP)
    assert np.array_equal(again.read().numpy(), row(3))
    number = vm.invoke("call", vm.invoke("closure", 4), 5, out=nvm.KEEP)
    assert int(number.read()) == 9
    assert int(vm.invoke("call", vm.invoke("closure", 1), number)) == 10
    _, _, n = vm.run(row(0), row(0), number, out=(None, None, nvm.KEEP))
    assert int(n.read()) == 10
    box = vm.invoke("box", row(1), vm.executable.constructor("Empty")(), out=nvm.KEEP)
    box = vm.invoke("box", row(2), box, out=nvm.KEEP)
    value = box.read()
    assert value.constructor.name == "Full"
    assert np.array_equal(value.fields[0].numpy()[:, 0], [1, 2])
    assert int(value.fields[1]) == 2
    closure = vm.invoke("closure", 4, out=nvm.KEEP)
    assert int(vm.invoke("call", closure.read(), 1)) == 5


def test_a_kept_argument_is_checked(vm: nvm.VirtualMachine) -> None:
    state = vm.invoke("grow", 3, out=nvm.KEEP)
    with pytest.raises(
        InvalidInputType, match="expected a tensor of float32, rank 2, got a handle of"
    ):
        vm.invoke("echo", state)
    with pytest.raises(
        nvm.InvalidInput, match=r"%b of @swap: axis 0: expected 3 \(\?n, from parameter %a\), got 2"
    ):
        vm.invoke("swap", state, np.arange(2))
    rows = vm.invoke("echo", np.zeros((2, HIDDEN), np.float32), out=nvm.KEEP)
    with pytest.raises(nvm.InvalidInput, match="%h of @main: axis 0: expected 1, got 2"):
        vm.run(row(0), rows, 0)
    with (
        nvm.VirtualMachine(vm.executable) as other,
        pytest.raises(nvm.InvalidInput, match="another"),
    ):
        other.invoke("echo", rows)


def test_a_kept_value_is_its_own(vm: nvm.VirtualMachine) -> None:
    """Whatever happens to the array that it came from, or to the buffer that was filled beside it."""
    source = row(5)
    kept = vm.invoke("echo", source, out=nvm.KEEP)
    source[:] = 6
    assert kept.read().numpy()[0, 0] == 5
    a = np.arange(1000)
    buffer, state = vm.invoke("swap", a, a, out=(a, nvm.KEEP))
    buffer[:] = -1
    assert state.read().numpy()[999] == 999
    first = vm.invoke("echo", source, out=nvm.KEEP).read()
    first.numpy()[:] = 0
    assert vm.invoke("echo", source, out=nvm.KEEP).read().numpy()[0, 0] == 6


def test_branches_of_one_state(vm: nvm.VirtualMachine) -> None:
    """A handle is a value: two continuations of one state, as in beam search, do not see each other."""
    _, state = vm.invoke(
        "append", row(1), (np.zeros((0, HIDDEN), np.float32), 0), out=(None, nvm.KEEP)
    )
    for value in (2.0, 3.0):
        _, state = vm.invoke("append", row(value), state, out=(None, nvm.KEEP))
    ends = [vm.invoke("append", row(v), state, out=(None, nvm.KEEP))[1] for v in (10.0, 20.0)]
    seen = [end.read()[0].numpy()[:, 0].tolist() for end in ends]
    assert seen == [[1, 2, 3, 10], [1, 2, 3, 20]]
    assert [int(end.read()[1]) for end in ends] == [4, 4]
    assert state.read()[0].numpy()[:, 0].tolist() == [1, 2, 3]


def test_moved_into_a_handle(vm: nvm.VirtualMachine) -> None:
    """A tensor that was given away and is part of a kept value; the giver's array keeps its elements."""
    _, (cache, n) = vm.invoke("append", row(1), (np.zeros((0, HIDDEN), np.float32), 0))
    array = cache.numpy()
    _, state = vm.invoke("append", row(2), nvm.move((cache, n)), out=(None, nvm.KEEP))
    assert array[:, 0].tolist() == [1]
    assert state.read()[0].numpy()[:, 0].tolist() == [1, 2]
    with pytest.raises(nvm.ValueMoved):
        cache.numpy()


def test_handles_after_the_vm(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        state = vm.invoke("echo", row(3), out=nvm.KEEP)
        value = state.read()
        assert vm.stats()["live_objects"] == 1
        del state
        assert vm.stats()["live_objects"] == 0
        state = vm.invoke("echo", row(3), out=nvm.KEEP)
    assert value.numpy()[0, 0] == 3
    with pytest.raises(nvm.errors.Closed):
        state.read()


def test_keep_is_one_object() -> None:
    assert repr(nvm.KEEP) == "nimblevm.KEEP"
    assert pickle.loads(pickle.dumps(nvm.KEEP)) is SAME_KEEP is nvm.KEEP


# --- streams ---


def test_an_rnn_fed_step_by_step(vm: nvm.VirtualMachine) -> None:
    rng = np.random.default_rng(3)
    xs = rng.standard_normal((20, 1, HIDDEN)).astype(np.float32)
    y = np.empty((1, HIDDEN), np.float32)
    want = np.zeros((1, HIDDEN), np.float32)
    h: Any = np.zeros((1, HIDDEN), np.float32)
    n: Any = 0
    for step, x in enumerate(xs):
        before = vm.stats()
        _, h, n = vm.run(x, h, n, out=(y, nvm.KEEP, nvm.KEEP))
        after = vm.stats()
        want = np.tanh(x * np.float32(0.5) + want * np.float32(0.25))
        assert np.allclose(y, want * 2, rtol=1e-5, atol=1e-6)
        if step > 5:  # the pools are warm
            assert after["copied_bytes"] - before["copied_bytes"] == y.nbytes
            assert after["system_allocations"] == before["system_allocations"]
    assert int(n.read()) == 20


def test_a_cache_grows_in_place(vm: nvm.VirtualMachine) -> None:
    state: Any = (np.zeros((0, HIDDEN), np.float32), 0)
    quiet = 0
    for step in range(200):
        before = copied(vm)
        _, state = vm.invoke("append", row(step), state, out=(None, nvm.KEEP))
        quiet += copied(vm) - before == 4 * HIDDEN  # the new row alone
    assert quiet >= 185  # the others moved the cache to a larger block
    assert state.read()[0].numpy()[:, 0].tolist() == list(range(200))


def test_a_decoder_with_its_cache() -> None:
    """Token by token with the whole state kept in the VM: equal to the run that takes and returns it by value."""
    config = gpt2.Config(vocabulary=60, context=64, hidden=256, layers=2, heads=4, inner=32)
    exe = nvm.compile(gpt2.module(gpt2.params(config), config), native=False)
    tokens = np.random.default_rng(5).integers(0, 60, 40).astype(np.int32)
    logits = np.empty((1, 60), np.float32)
    row_bytes = 2 * config.layers * config.hidden * 4
    with nvm.VirtualMachine(exe) as vm, nvm.VirtualMachine(exe) as other:
        empty = np.zeros((0, config.hidden), np.float32)
        state: Any = ((empty, empty),) * config.layers
        values: Any = state
        quiet = 0
        for token in tokens:
            ids = np.array([token], np.int32)
            _, expected, values = other.run(ids, values)
            before = copied(vm)
            _, _, state = vm.run(ids, state, out=(None, logits, nvm.KEEP))
            assert np.array_equal(logits, expected.numpy())
            quiet += copied(vm) - before <= row_bytes + logits.nbytes + 64
        assert quiet >= 30
        for have, want in zip(state.read(), values, strict=True):
            for a, b in zip(have, want, strict=True):
                assert np.array_equal(a.numpy(), b.numpy())

"""Growing tensors: what a loop appends to copies a number of bytes linear in its turns, and no earlier value changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.relay.loops import while_loop

TEXT = """#[version = "0.0.5"]
def @grow(%n: int32, %x: Tensor[(1, 64), float32]) -> Tensor[(?, 64), float32] {
  let %loop = fn (%i: int32, %acc: Tensor[(?, 64), float32]) -> Tensor[(?, 64), float32] {
    if (less(%i, %n)) {
      %loop(%i + 1, concatenate((%acc, %x * cast(%i, dtype="float32")), axis=0))
    } else { %acc }
  };
  %loop(0, zeros(shape=[0, 64], dtype="float32"))
}
def @plus(%acc: Tensor[(?k), int64], %x: Tensor[(?m), int64]) -> Tensor[(?), int64] { concatenate((%acc, %x)) }
def @call(%n: int32, %x: Tensor[(3), int64]) -> Tensor[(?), int64] {
  let %loop = fn (%i: int32, %acc: (Tensor[(?), int64], int32)) -> Tensor[(?), int64] {
    if (less(%i, %n)) {
      let %more = @plus(%acc.0, %x);
      %loop(%i + 1, (%more, %acc.1))
    } else { %acc.0 }
  };
  %loop(0, (%x, 7))
}
type Chain { End, Link(Tensor[(?), int64], Chain) }
def @prefixes(%n: int32, %x: Tensor[(1), int64]) -> Chain {
  let %loop = fn (%i: int32, %acc: Tensor[(?), int64], %kept: Chain) -> Chain {
    if (less(%i, %n)) {
      %loop(%i + 1, concatenate((%acc, %x + cast(%i, dtype="int64"))), Link(%acc, %kept))
    } else { Link(%acc, %kept) }
  };
  %loop(0, zeros(shape=[0], dtype="int64"), End)
}
def @twice(%x: Tensor[(?), int64], %y: Tensor[(?), int64]) {
  let %a0 = concatenate((%x, %y));
  let %a = concatenate((%a0, %y));  // its block has room
  let %b = concatenate((%a, %y));
  let %c = concatenate((%a, negative(%y)));
  let %d = concatenate((%a, %a));
  (%a, %b, %c, %d, %x)
}
def @cell(%x: Tensor[(?), int64], %n: int32) {
  let %r = ref(%x);
  let %loop = fn (%i: int32) -> Tensor[(?), int64] {
    if (less(%i, %n)) {
      let %old = ref_read(%r);
      ref_write(%r, concatenate((%old, %x)));
      %loop(%i + 1)
    } else { ref_read(%r) }
  };
  let %out = %loop(0);
  (%out, %x)
}
"""


@pytest.fixture(scope="module", params=[True, False], ids=["native", "interpreted"])
def vm(request: pytest.FixtureRequest) -> Iterator[nvm.VirtualMachine]:
    exe = nvm.load(nvm.compile(nvm.relay.parse(TEXT), verify=True).to_bytes(), native=request.param)
    with nvm.VirtualMachine(exe) as machine:
        yield machine
        assert machine.stats()["live_objects"] == 0


def counted(vm: nvm.VirtualMachine, name: str, *args: object) -> tuple[Any, int]:
    """The result, and the bytes that the VM copied and its kernels wrote."""
    before = vm.stats()
    out = vm.invoke(name, *args)
    after = vm.stats()
    return out, sum(after[k] - before[k] for k in ("copied_bytes", "written_bytes"))


@pytest.mark.parametrize("turns", [0, 1, 7, 500, 4000])
def test_a_loop_that_appends_copies_linearly(vm: nvm.VirtualMachine, turns: int) -> None:
    out, moved = counted(vm, "grow", turns, np.ones((1, 64), np.float32))
    want = np.repeat(np.arange(turns, dtype=np.float32)[:, None], 64, 1)
    np.testing.assert_array_equal(out, want)
    assert moved <= 6 * 256 * turns


def test_appending_in_a_callee_to_a_field_copies_linearly(vm: nvm.VirtualMachine) -> None:
    x = np.arange(3)
    out, moved = counted(vm, "call", 2000, x)
    np.testing.assert_array_equal(out, np.tile(x, 2001))
    assert moved <= 6 * 24 * 2000


def test_all_prefixes_stay_as_they_were(vm: nvm.VirtualMachine) -> None:
    chain, moved = counted(vm, "prefixes", 200, np.zeros(1, np.int64))
    for size in range(200, -1, -1):
        prefix, chain = chain.fields
        np.testing.assert_array_equal(prefix, np.arange(size))
    # Each prefix leaves the VM in memory of its own.
    assert moved <= 8 * (200 * 201 // 2 + 6 * 200)


def test_two_that_grow_out_of_one_are_apart(vm: nvm.VirtualMachine) -> None:
    for size in (0, 1, 3, 8, 40):
        x, y = np.arange(size), np.arange(5)
        a, b, c, d, same = vm.invoke("twice", x, y)
        first = np.concatenate((x, y, y))
        for got, want in zip((a, b, c, d, same), (
            first, np.concatenate((first, y)), np.concatenate((first, -y)), np.concatenate((first, first)), x,
        ), strict=True):  # fmt: skip
            np.testing.assert_array_equal(got, want)


def test_the_content_of_a_ref_grows(vm: nvm.VirtualMachine) -> None:
    x = np.arange(40)
    (out, same), moved = counted(vm, "cell", x, 500)
    np.testing.assert_array_equal(out, np.tile(x, 501))
    np.testing.assert_array_equal(same, x)
    assert moved <= 6 * 320 * 501


def test_a_while_loop_of_relay_copies_linearly() -> None:
    relay = nvm.relay
    n, start = relay.var("n", shape=(), dtype="int32"), relay.var("start", shape=(relay.Any(), 32))
    i = relay.var("i", shape=(), dtype="int32")
    rows = relay.var("rows", shape=(relay.Any(), 32), dtype="float32")

    def body(i: Any, rows: Any) -> list[Any]:
        row = relay.broadcast_to(relay.reshape(relay.cast(i, "float32"), (1, 1)), (1, 32))
        return [i + relay.const(1, "int32"), relay.concatenate([rows, row], axis=0)]

    loop = while_loop(lambda i, rows: relay.less(i, n), [i, rows], body)
    result = loop(relay.const(0, "int32"), start)
    exe = nvm.compile(relay.Function([n, start], relay.TupleGetItem(result, 1)))
    with nvm.VirtualMachine(exe) as vm:
        for turns in (1, 100, 3000):
            before = np.full((5, 32), -1, np.float32)
            out, moved = counted(vm, "main", turns, before)
            want = np.repeat(np.arange(turns, dtype=np.float32)[:, None], 32, 1)
            np.testing.assert_array_equal(out, np.concatenate((before, want)))
            assert moved <= 6 * 128 * (turns + 5)


def test_an_input_is_left_alone(vm: nvm.VirtualMachine) -> None:
    backing = np.arange(100)
    out = vm.invoke("plus", backing[:50], np.full(10, -1))
    np.testing.assert_array_equal(out, np.concatenate((np.arange(50), np.full(10, -1))))
    np.testing.assert_array_equal(backing, np.arange(100))
    again = vm.invoke("plus", out, np.full(10, -2))
    np.testing.assert_array_equal(out, again.numpy()[:60])


def test_room_to_grow_is_no_reason_to_exceed_a_limit() -> None:
    """What fits exactly runs: blocks with room are taken only where the limit leaves some."""
    exe = nvm.compile(nvm.relay.parse(TEXT))
    rows, need = 1000, 2 * 256 * 1000
    with nvm.VirtualMachine(exe, limits=nvm.Limits(bytes=int(need * 1.3))) as vm:
        x = np.ones((1, 64), np.float32)
        assert vm.invoke("grow", rows, x).shape == (rows, 64)
        with pytest.raises(nvm.errors.MemoryLimit):
            vm.invoke("grow", 10 * rows, x)
        assert vm.invoke("grow", rows, x).shape == (rows, 64)

"""Reading a handle is no part of the run that made it: neither its deadline nor a cancel that came late ends it, and
Ctrl-C during it is what a signal handler raised, at once and not in a later run.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from threading import Timer

import numpy as np
import pytest

import nimblevm as nvm

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n), int8]) -> Tensor[(?n), int8] { %x + 1i8 }
def @fail(%x: Tensor[(?n), int8]) -> Tensor[(?n), int8] { reshape(%x, newshape=[3]) }"""
LARGE = np.zeros(80 << 20, np.int8)
"""Several pieces of the copies that poll (32 MiB)."""


@pytest.fixture
def vm() -> Iterator[nvm.VirtualMachine]:
    with (
        nvm.compile(nvm.relay.parse(TEXT), native=False) as exe,
        nvm.VirtualMachine(exe) as made,
    ):
        yield made


def test_after_the_deadline(vm: nvm.VirtualMachine) -> None:
    limits = nvm.Limits(seconds=20)
    vm.set_limits(limits)
    state = vm.run(LARGE, out=nvm.KEEP)
    vm.set_limits(nvm.Limits(seconds=1e-9))
    with pytest.raises(nvm.errors.TimeLimit):
        vm.run(LARGE)
    with pytest.raises(nvm.errors.TimeLimit):
        state.read()  # of its own time
    vm.set_limits(limits)
    assert state.read().shape == LARGE.shape


def test_after_a_cancel_that_came_late(vm: nvm.VirtualMachine) -> None:
    state = vm.run(LARGE, out=nvm.KEEP)
    vm.cancel()
    assert state.read().shape == LARGE.shape


def read_for_a_while(state: nvm.Handle) -> None:
    end = time.perf_counter() + 20
    while time.perf_counter() < end:
        state.read()


class Own(Exception):
    pass


def test_signals(vm: nvm.VirtualMachine) -> None:
    """What the handler raises comes out of read(), and nothing of it out of the next run that fails."""
    state = vm.run(LARGE, out=nvm.KEEP)

    def handler(*_: object) -> None:
        raise Own

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Own):
            read_for_a_while(state)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(nvm.NimbleError):
        vm.invoke("fail", LARGE[:4])
    assert state.read().shape == LARGE.shape


def test_cancel_during_it(vm: nvm.VirtualMachine) -> None:
    state = vm.run(LARGE, out=nvm.KEEP)
    timers = [Timer(0.01 * i, vm.cancel) for i in range(1, 100)]
    for timer in timers:
        timer.start()
    try:
        with pytest.raises(nvm.Cancelled):
            read_for_a_while(state)
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()
    assert state.read().shape == LARGE.shape

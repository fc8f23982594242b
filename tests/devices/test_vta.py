"""Programs on the device "vta": equal bit for bit to the CPU, any number of rows, small networks, damaged code."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.devices import Placement
from nimblevm.devices import vta
from nimblevm.devices.vta_isa import Config
from nimblevm.external.vta import backend
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType
from tests.external.vta_models import conv2d, dense, int8, requantized


def module(shape: tuple[Dim, ...], build: Callable[[Expr], Expr]) -> IRModule:
    x = relay.var("x", TensorType(shape, "int8"))
    made: IRModule = IRModule.from_expr(Function((x,), build(x)))
    return made


def both(mod: IRModule, *values: np.ndarray, config: Config | None = None) -> vta.Stats:
    """Runs a program on the CPU and on VTA, twice each value; the work of the last run."""
    host = nvm.VirtualMachine(nvm.compile(mod, native=False))
    device = {"external": [backend(config)]} if config else {"device": "cpu,vta"}
    machine = nvm.VirtualMachine(nvm.compile(mod, **device))
    work = vta.stats()
    for value in values:
        expected = host.run(value).numpy()
        for _ in range(2):
            before = vta.stats()
            assert np.array_equal(machine.run(value).numpy(), expected)
            work = vta.stats() - before
    return work


@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(1, 50),
    st.lists(st.integers(0, 70), min_size=1, max_size=3),
    st.integers(0, 99),
)
def test_dense_of_any_rows(k: int, n: int, rows: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    weight, bias = int8(generator, n, k), generator.integers(-(2**14), 2**14, n)
    mod = module((DimVar("n"), k), lambda x: requantized(dense(x, weight), bias, -1))
    both(mod, *(int8(generator, m, k) for m in rows))


@settings(max_examples=8, deadline=None)
@given(st.sampled_from((1, 2, 3, 5)), st.integers(1, 20), st.integers(1, 40), st.integers(1, 2), st.integers(0, 2),
       st.lists(st.integers(0, 3), min_size=1, max_size=2), st.integers(0, 99))  # fmt: skip
def test_conv2d_of_any_batch(
    kernel: int, c: int, o: int, stride: int, pad: int, batches: list[int], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    weight, bias = int8(generator, o, c, kernel, kernel), generator.integers(-(2**14), 2**14, o)
    attrs = {"strides": (stride, stride), "padding": (pad, pad)}
    mod = module(
        (DimVar("n"), c, 7, 6),
        lambda x: requantized(conv2d(x, weight, **attrs), bias, 1, relu=True),
    )
    both(mod, *(int8(generator, batch, c, 7, 6) for batch in batches))


def network(x: Expr) -> Expr:
    """A small quantised image classifier: three convolutions, two dense layers."""
    generator = np.random.default_rng(3)

    def bias(n: int) -> np.ndarray:
        return generator.integers(-500, 500, n)

    x = requantized(
        conv2d(x, int8(generator, 16, 3, 3, 3), padding=(1, 1)), bias(16), 1, 8, relu=True
    )
    x = requantized(
        conv2d(x, int8(generator, 32, 16, 3, 3), padding=(1, 1), strides=(2, 2)),
        bias(32),
        1,
        8,
        relu=True,
    )
    x = requantized(conv2d(x, int8(generator, 24, 32, 1, 1)), bias(24), 1, 8, relu=True)
    x = relay.nn.batch_flatten(x)
    x = requantized(dense(x, int8(generator, 48, 24 * 64)), bias(48), -1, 10, relu=True)
    return requantized(dense(x, int8(generator, 10, 48)), bias(10), -1, 6)


def test_a_network() -> None:
    """Equal to the CPU; the input goes to the device once and the result comes back once, nothing between."""
    generator = np.random.default_rng(4)
    mod = module((DimVar("n"), 3, 16, 16), network)
    placements: list[Placement] = []
    nvm.compile(mod, device="cpu,vta", on_placement=placements.append)
    assert len(placements[-1].copies) == 2
    work = both(mod, *(int8(generator, n, 3, 16, 16) for n in (1, 4, 0, 3)))
    assert (work.runs, work.uop_loads) == (5, 0)
    assert work.uop_reuses > 0


def test_micro_kernels_stay_from_call_to_call() -> None:
    """Loaded by the first call, found by the second; equal ones of two layers are one."""
    generator = np.random.default_rng(4)
    weights = [int8(generator, 32, 32) for _ in range(3)]

    def build(x: Expr) -> Expr:
        for weight in weights:
            x = requantized(dense(x, weight), np.zeros(32), -1)
        return x

    machine = nvm.VirtualMachine(nvm.compile(module((DimVar("n"), 32), build), device="cpu,vta"))
    loads = []
    for rows in (5, 5, 60):
        before = vta.stats()
        machine.run(int8(generator, rows, 32))
        work = vta.stats() - before
        loads.append((work.uop_loads, work.uop_bytes > 0))
    assert loads[0][0] > 0
    assert loads[1:] == [(0, False), (0, False)]


def test_micro_kernels_that_do_not_fit_side_by_side() -> None:
    """With few micro-ops, layers of one kernel take turns in the scratchpad: each loads what another has dropped."""
    generator = np.random.default_rng(4)
    config = Config(log_uop_bytes=6, log_inp_bytes=9, log_wgt_bytes=13, log_acc_bytes=11)
    weights = [int8(generator, n, k) for k, n in ((48, 32), (32, 80), (80, 16))]

    def build(x: Expr) -> Expr:
        for weight in weights:
            x = requantized(dense(x, weight), np.zeros(len(weight)), -1)
        return x

    work = both(module((4, 48), build), int8(generator, 4, 48), config=config)
    assert (work.runs, work.layout_cycles) == (3, 0)
    assert work.uop_loads > 0


def test_a_program_with_control_flow() -> None:
    """A loop on the host around a layer on VTA: the state is copied, results are equal."""
    generator = np.random.default_rng(4)
    weight = int8(generator, 16, 16)
    x = relay.var("x", TensorType((DimVar("n"), 16), "int8"))
    i = relay.var("i", TensorType((), "int32"))
    main = relay.GlobalVar("main")
    step = requantized(dense(x, weight), np.zeros(16), -1)
    again = relay.Call(main, (relay.subtract(i, relay.const(np.int32(1))), step))
    result = TensorType((DimVar("n"), 16), "int8")
    body = relay.If(relay.less_equal(i, relay.const(np.int32(0))), x, again)
    mod = IRModule({main: Function((i, x), body, result)})
    value = int8(generator, 3, 16)
    host, device = (
        nvm.VirtualMachine(nvm.compile(mod)),
        nvm.VirtualMachine(nvm.compile(mod, device="cpu,vta")),
    )
    for count in (0, 1, 5):
        assert np.array_equal(host.run(count, value).numpy(), device.run(count, value).numpy())


def test_limits_end_a_run() -> None:
    """Time and cancel are looked at between instructions; the VM works on."""
    generator = np.random.default_rng(4)
    mod = module(
        (DimVar("n"), 2048),
        lambda x: requantized(dense(x, int8(generator, 1024, 2048)), np.zeros(1024), -1),
    )
    exe = nvm.compile(mod, device="cpu,vta")
    small, large = int8(generator, 2, 2048), int8(generator, 2000, 2048)
    machine = nvm.VirtualMachine(exe, limits=nvm.Limits(seconds=0.05))
    expected = nvm.VirtualMachine(nvm.compile(mod)).run(small).numpy()
    with pytest.raises(nvm.errors.TimeLimit):
        machine.run(large)
    assert np.array_equal(machine.run(small).numpy(), expected)


def test_devices_of_two_threads() -> None:
    """Each VM has a device of its own; what they did is counted together."""
    generator = np.random.default_rng(4)
    mod = module(
        (DimVar("n"), 64),
        lambda x: requantized(dense(x, int8(generator, 48, 64)), np.zeros(48), -1),
    )
    exe, host = nvm.compile(mod, device="cpu,vta"), nvm.VirtualMachine(nvm.compile(mod))
    values = [int8(generator, n, 64) for n in (1, 20, 90, 7)]
    expected = [host.run(value).numpy() for value in values]

    def work(_: int) -> bool:
        machine = nvm.VirtualMachine(exe)
        return all(
            np.array_equal(machine.run(v).numpy(), e)
            for v, e in zip(values * 5, expected * 5, strict=True)
        )

    before = vta.stats()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert (vta.stats() - before).runs == 4 * 5 * len(values)


def test_one_file_for_two_devices() -> None:
    """What VTA takes goes to it, what is left to the other device; results are the CPU's."""
    generator = np.random.default_rng(4)
    weight = int8(generator, 20, 30)

    def build(x: Expr) -> Expr:
        y = requantized(dense(x, weight), np.zeros(20), -1)
        return relay.nn.softmax(relay.cast(y, "float32"))

    mod = module((DimVar("n"), 30), build)
    value = int8(generator, 6, 30)
    expected = nvm.VirtualMachine(nvm.compile(mod)).run(value).numpy()
    exe = nvm.compile(mod, device="cpu,simulated,vta")
    before = vta.stats()
    assert np.allclose(nvm.VirtualMachine(exe).run(value).numpy(), expected, rtol=1e-6)
    assert (vta.stats() - before).runs == 1

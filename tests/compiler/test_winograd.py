"""winograd and the passes before it: which convolutions are written how, and that results agree with numpy's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.bench.workloads.resnet import conv2d
from nimblevm.relay import nn

PLAIN = "contrib_conv2d_pack"
WINOGRAD = "contrib_conv2d_winograd"


def _weight(outer: int, inner: int, size: int = 3, dtype: str = "float32") -> relay.Constant:
    rng = np.random.default_rng(outer + inner)
    return relay.const(rng.standard_normal((outer, inner, size, size)).astype(dtype))


@cache
def _compiled(
    inner: int,
    outer: int,
    padding: tuple[int, ...] = (1, 1),
    off: tuple[str, ...] = (),
    dtype: str = "float32",
    native: bool = True,
) -> nvm.Executable:
    x = relay.var("x", shape=(relay.Any(), inner, relay.Any(), relay.Any()), dtype=dtype)
    body = nn.relu(nn.conv2d(x, _weight(outer, inner, dtype=dtype), padding=padding))
    mod = relay.IRModule.from_expr(relay.Function([x], body))
    return nvm.compile(mod, passes_off=off, native=native)


@pytest.mark.parametrize(
    ("inner", "outer", "more", "expected"),
    [
        (32, 32, {}, WINOGRAD),
        (256, 512, {}, WINOGRAD),
        (512, 512, {}, PLAIN),
        (31, 64, {}, PLAIN),
        (64, 24, {}, PLAIN),
        (64, 64, {"strides": (2, 2)}, PLAIN),
        (64, 64, {"dilation": (2, 2), "padding": (2, 2)}, PLAIN),
    ],
)
def test_where_it_pays(inner: int, outer: int, more: dict[str, object], expected: str) -> None:
    x = relay.var("x", shape=(1, inner, relay.Any(), 8))
    body = nn.conv2d(x, _weight(outer, inner), **{"padding": (1, 1), **more})  # type: ignore[arg-type]
    mod = relay.IRModule.from_expr(relay.Function([x], body))
    assert expected in nvm.compile(mod, target="none").disassemble()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_results_agree_with_numpy(dtype: str) -> None:
    """Images of odd, even and smallest sizes, on one and two threads, and with the pass turned off."""
    exe = _compiled(33, 40, dtype=dtype)
    plain = _compiled(33, 40, off=("winograd",), dtype=dtype)
    machines = [
        nvm.VirtualMachine(exe),
        nvm.VirtualMachine(exe, threads=2),
        nvm.VirtualMachine(plain),
    ]
    rng = np.random.default_rng(3)
    weight = _weight(40, 33, dtype=dtype).data
    for shape in ((1, 1, 1), (1, 2, 3), (2, 5, 4), (1, 14, 14), (0, 3, 3), (3, 1, 9)):
        x = rng.standard_normal((shape[0], 33, *shape[1:])).astype(dtype)
        want = np.maximum(conv2d(x, weight, 1), 0)
        for vm in machines:
            np.testing.assert_allclose(vm.run(x).numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "padding",
    [
        pytest.param((0, 0), marks=pytest.mark.slow),
        (0, 1, 2, 1),
        pytest.param((3, 0, 0, 2), marks=pytest.mark.slow),
    ],
)
def test_paddings(padding: tuple[int, ...]) -> None:
    exe = _compiled(32, 32, padding)
    assert WINOGRAD in exe.disassemble()
    rng = np.random.default_rng(4)
    before_after = (padding * 2)[:4]
    for height, width in ((3, 3), (4, 7), (9, 6)):
        x = rng.standard_normal((2, 32, height, width)).astype("float32")
        pads = [
            (0, 0),
            (0, 0),
            (before_after[0], before_after[2]),
            (before_after[1], before_after[3]),
        ]
        padded = np.pad(x, pads)
        want = np.maximum(conv2d(padded, _weight(32, 32).data, 1)[:, :, 1:-1, 1:-1], 0)
        got = nvm.VirtualMachine(exe).run(x).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_native_off() -> None:
    exe = _compiled(32, 32, native=False)
    x = np.random.default_rng(5).standard_normal((1, 32, 5, 4)).astype("float32")
    want = np.maximum(conv2d(x, _weight(32, 32).data, 1), 0)
    got = nvm.VirtualMachine(exe).run(x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_an_infinite_element_stays_in_its_windows() -> None:
    """Sums that it meets are infinite or NaN, all others what they were."""
    exe = _compiled(32, 32)
    assert WINOGRAD in exe.disassemble()
    vm = nvm.VirtualMachine(exe)
    x = np.random.default_rng(6).standard_normal((1, 32, 7, 8)).astype("float32")
    before = vm.run(x).numpy()
    for y, column in ((0, 0), (3, 4), (4, 3), (6, 7)):
        changed = x.copy()
        changed[0, 5, y, column] = np.inf
        after = vm.run(changed).numpy().copy()
        meets = np.zeros((7, 8), bool)
        meets[max(y - 1, 0) : y + 2, max(column - 1, 0) : column + 2] = True
        np.testing.assert_array_equal(after[..., ~meets], before[..., ~meets])

"""What is special in elementwise mathematics: integer powers, shifts, tests of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import DivisionByZero, RelayTypeError
from nimblevm.relay.op import get
from nimblevm.relay.op.registry import Effect
from nimblevm.relay.types import TensorType


def reference(name: str, *inputs: Any) -> Any:
    return get(name).reference(inputs, None, None)


def compiled(name: str, *inputs: Any, native: bool = True) -> Any:
    params = [relay.var(f"p{i}", shape=v.shape, dtype=v.dtype.name) for i, v in enumerate(inputs)]
    body = relay.Call(get(name), params)
    mod = relay.IRModule.from_expr(relay.Function(params, body))
    with nvm.compile(mod, native=native) as exe, nvm.VirtualMachine(exe) as vm:
        return vm.run(*inputs).numpy()


def test_integers_to_a_power() -> None:
    base = np.asarray([2, -3, 1, -1, -1, 7, 0, 0, 5], "int32")
    exponent = np.asarray([31, 3, -5, -3, -4, -1, 0, 2, -(2**31)], "int32")
    expected = [-(2**31), -27, 1, -1, 1, 0, 1, 0, 0]
    assert reference("power", base, exponent).tolist() == expected
    for native in (True, False):
        assert compiled("power", base, exponent, native=native).tolist() == expected
        wrapped = compiled(
            "power", np.asarray([3], "uint8"), np.asarray([200], "uint8"), native=native
        )
        assert wrapped.tolist() == [pow(3, 200, 256)]


def test_zero_to_a_negative_power_is_an_error() -> None:
    zero, minus = np.asarray([0], "int32"), np.asarray([-1], "int32")
    with pytest.raises(DivisionByZero):
        reference("power", zero, minus)
    for native in (True, False):
        with pytest.raises(DivisionByZero):
            compiled("power", zero, minus, native=native)
    signed, unsigned = (TensorType((1,), dtype) for dtype in ("int8", "uint8"))
    assert get("power").effect_of((signed, signed), None) is Effect.MAY_FAIL
    assert get("power").effect_of((unsigned, unsigned), None) is Effect.TOTAL


def test_shift_counts_are_taken_modulo_the_width() -> None:
    value, count = np.asarray([-128, 1, 5], "int8"), np.asarray([7, 8, -1], "int8")
    assert reference("right_shift", value, count).tolist() == [-1, 1, 0]
    assert reference("left_shift", value, count).tolist() == [0, 1, -128]
    for native in (True, False):
        assert compiled("right_shift", value, count, native=native).tolist() == [-1, 1, 0]
        assert compiled("left_shift", value, count, native=native).tolist() == [0, 1, -128]


@pytest.mark.parametrize("native", [True, False])
def test_bitwise_not_of_scalars(native: bool) -> None:
    """Rank 0: integer instructions, bool among them."""
    for value in (True, False):
        assert compiled("bitwise_not", np.asarray(value), native=native) == (not value)
    assert compiled("bitwise_not", np.asarray(5, "uint8"), native=native) == 250
    assert compiled("bitwise_not", np.asarray(5, "int32"), native=native) == -6
    assert compiled("trunc", np.asarray(-7, "int32"), native=native) == -7


def test_reinterpret_keeps_the_bits() -> None:
    quiet, loud = 0x7FC00001, 0x7F800001
    bits = np.asarray([0, 1, quiet, loud, 0xFF800000, 0x3F800000], "uint32")
    x = relay.var("x", shape=(relay.Any(),), dtype="uint32")
    body = relay.reinterpret(relay.reinterpret(x, "float32"), "int32")
    mod = relay.IRModule.from_expr(relay.Function([x], body))
    for native in (True, False):
        with nvm.compile(mod, native=native) as exe, nvm.VirtualMachine(exe) as vm:
            np.testing.assert_array_equal(vm.run(bits).numpy(), bits.view("int32"))
    with pytest.raises(RelayTypeError, match=r"float64 has another width than uint32"):
        relay.infer_type(
            relay.IRModule.from_expr(relay.Function([x], relay.reinterpret(x, "float64")))
        )


def test_numbers_beside_tests_and_casts_take_the_right_dtype() -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    other = relay.logical_and(relay.isnan(x), True).args[1]
    assert other.checked_type == relay.TensorType((), "bool")

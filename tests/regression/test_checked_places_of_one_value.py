"""An index was not checked where the elements of the data are one value, known at compile time or read at one place:
the value at the index did not depend on it."""

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import IndexOutOfRange
from nimblevm.relay.interpreter import evaluate
from tests.properties.everywhere import fails_everywhere, run_everywhere

READS = {
    "take": 'take({data}, %i, axis=0, mode="fast")',
    "flat take": 'take({data}, %i, mode="fast")',
    "gather": "gather({data}, %i, axis=0)",
    "gather_nd": "gather_nd({data}, reshape(%i, newshape=[1, 1]))",
    "adv_index": "adv_index(({data}, %i))",
}
DATA = {
    "zeros": 'zeros(shape=[3], dtype="float32")',
    "one": 'zeros(shape=[1], dtype="float32")',
    "stretched": "broadcast_to(%x, shape=[3])",
    "computed": "exp(broadcast_to(%x, shape=[3]))",
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("index", [5, -4])
def test_an_index_outside(data: str, read: str, index: int) -> None:
    program = (
        "def @main(%x: Tensor[(1), float32], %i: Tensor[(1), int32]) { "
        f"{READS[read].format(data=DATA[data])} }}"
    )
    fails_everywhere(program, IndexOutOfRange, np.ones(1, "float32"), np.array([index], "int32"))
    run_everywhere(program, np.ones(1, "float32"), np.array([0], "int32"))


@pytest.mark.parametrize("index", [5, -7])
def test_constants(index: int) -> None:
    one, i = relay.const(np.ones(1, "float32")), relay.const(np.array([index], "int32"))
    for read in (relay.take(one, i, 0, mode="fast"), relay.gather(one, 0, i)):
        mod = relay.IRModule.from_expr(relay.Function([], read))
        with pytest.raises(IndexOutOfRange):
            evaluate(mod, [])
        with nvm.VirtualMachine(nvm.compile(mod)) as vm, pytest.raises(IndexOutOfRange):
            vm.run()


def test_labels_of_a_loss_with_weights_of_one() -> None:
    program = (
        'def @main(%t: Tensor[(1), int32]) { nn.nll_loss(zeros(shape=[1, 3], dtype="float32"), %t, '
        'ones(shape=[3], dtype="float32"), reduction="sum", ignore_index=-100) }'
    )
    fails_everywhere(program, IndexOutOfRange, np.array([3], "int32"))
    run_everywhere(program, np.array([2], "int32"))


def test_nothing_is_read_of_a_result_without_elements() -> None:
    program = (
        "def @main(%x: Tensor[(3, ?), float32], %i: Tensor[(1), int32]) "
        '{ take(%x, %i, axis=0, mode="fast") }'
    )
    found = run_everywhere(program, np.zeros((3, 0), "float32"), np.array([7], "int32"))
    assert found.shape == (1, 0)


@pytest.mark.parametrize("shape", [(), (1,), (5,)])
def test_the_power_one_half(shape: tuple[int, ...]) -> None:
    """numpy took its square root for one exponent of 0.5, which differs from C's pow."""
    program = "def @main(%x: Tensor[(5), float32], %y: Tensor[{}, float32]) {{ power(%x, %y) }}"
    sizes = f"({shape[0]})" if shape else "()"
    values = np.array([0.0, -0.0, -np.inf, -3.0, 4.0], "float32")
    found = run_everywhere(program.format(sizes), values, np.full(shape, 0.5, "float32"))
    np.testing.assert_array_equal(found, np.array([0, 0, np.inf, np.nan, 2], "float32"))
    assert not np.signbit(found[1])

"""dyn.reshape took -2, -3 and -4 in the interpreter alone, with a result of another rank than its type says. TVM's takes
-3, and refuses -2 and -4."""

import itertools

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import NimbleError, RelayTypeError, ShapeMismatch
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.op.dyn import DynReshapeAttrs
from nimblevm.relay.op.registry import get
from tests.properties.everywhere import fails_everywhere, run_everywhere

MERGES = [
    ((2, 3, 4), (-3, 4), (6, 4)),
    ((2, 3, 4, 5), (-3, -3), (6, 20)),
    ((2, 3, 4), (0, -3), (2, 12)),
    ((2, 3, 4), (-3, 0), (6, 4)),
    ((2, 3, 4, 5), (-3, 0, -1), (6, 4, 5)),
    ((2, 3, 4, 5), (-1, -3, 5), (2, 12, 5)),
    ((0, 3, 4), (-3, -1), (0, 4)),
    ((3, 4, 0), (-1, -3), (3, 0)),
]


def text(rank: int, entries: int) -> str:
    sizes = ", ".join("?" for _ in range(rank))
    return (
        f"def @main(%x: Tensor[({sizes}), float32], %s: Tensor[({entries}), int64]) "
        "{ dyn.reshape(%x, %s) }"
    )


@pytest.mark.parametrize(("source", "newshape", "expected"), MERGES)
def test_merged_axes(
    source: tuple[int, ...], newshape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    data = np.arange(np.prod(source), dtype="float32").reshape(source)
    program = text(len(source), len(newshape))
    assert run_everywhere(program, data, np.array(newshape), native=False).shape == expected


@pytest.mark.parametrize(
    "newshape", [(-2, 1, 1), (1, -4, 1), (-5, 2, 3), (0, 0, -3), (-3, -3, 4), (-3, 0, 0)]
)
def test_entries_that_are_refused(newshape: tuple[int, ...]) -> None:
    fails_everywhere(text(3, 3), ShapeMismatch, np.zeros((2, 3, 4), "float32"), np.array(newshape))


def test_every_short_newshape_means_the_same_in_the_vm() -> None:
    data = np.arange(24, dtype="float32").reshape(2, 3, 4)
    mod = relay.parse('#[version = "0.0.5"]\n' + text(3, 3))
    with nvm.VirtualMachine(nvm.compile(mod, native=False)) as vm:
        for newshape in itertools.product((-4, -3, -2, -1, 0, 1, 2, 6), repeat=3):
            args = data, np.array(newshape)
            try:
                expected = evaluate(mod, args)
            except ShapeMismatch:
                with pytest.raises(ShapeMismatch, match="reshape"):
                    vm.run(*args)
            else:
                np.testing.assert_array_equal(vm.run(*args).numpy(), expected)


@pytest.mark.parametrize("entry", [-2, -4])
def test_errors_say_what_is_taken(entry: int) -> None:
    x, s = relay.var("x", shape=(2, 3)), relay.var("s", shape=(2,), dtype="int64")
    newshape = np.array([entry, 3])
    constant = relay.Call(get("dyn.reshape"), [x, relay.const(newshape)], DynReshapeAttrs())
    with pytest.raises(RelayTypeError, match=rf"entry 0 of newshape is {entry}.*static reshape"):
        relay.infer_type(relay.IRModule.from_expr(constant))
    mod = relay.IRModule.from_expr(relay.Function([x, s], relay.reshape(x, s)))
    args = np.zeros((2, 3), "float32"), newshape
    with pytest.raises(ShapeMismatch, match=rf"entry 0 of newshape is {entry}.*static reshape"):
        evaluate(mod, args)
    with (
        nvm.VirtualMachine(nvm.compile(mod, native=False)) as vm,
        pytest.raises(NimbleError, match=r"newshape, which takes sizes, 0, -1 and -3"),
    ):
        vm.run(*args)

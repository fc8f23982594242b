"""Numbers that no result can have ended in errors from inside: MemoryError, ValueError."""

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import (
    CompileError,
    DimOverflow,
    InvalidInput,
    NimbleError,
    OutOfMemory,
    RelaySyntaxError,
    RelayTypeError,
)
from nimblevm.relay.interpreter import evaluate

HUGE = 2**63 - 1


def parsed(body: str, param: str = "%x: Tensor[(?n), float32]") -> relay.IRModule:
    return relay.parse(f'#[version = "0.0.5"]\ndef @main({param}) {{ {body} }}')


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"split(%x, indices_or_sections={HUGE})", "at most 1048576 fields"),
        (f"expand_dims(%x, axis=0, num_newaxis={HUGE})", "num_newaxis must be at most 1024"),
        (f"dyn.expand_dims(%x, 0, num_newaxis={HUGE})", "num_newaxis must be at most 1024"),
        ("dyn.reshape(%x, %s)", "argument 1 has 4294967296 sizes"),
        ("dyn.broadcast_to(%x, %s)", "argument 1 has 4294967296 sizes"),
        ("dyn.tile(%x, %s)", "argument 1 has 4294967296 sizes"),
        ('dyn.zeros(%s, dtype="float32")', "argument 0 has 4294967296 sizes"),
        ('dyn.full(0f, %s, dtype="float32")', "argument 1 has 4294967296 sizes"),
    ],
)
def test_parts_and_axes(body: str, text: str) -> None:
    with pytest.raises(RelayTypeError, match=text):
        parsed(body, "%x: Tensor[(?n), float32], %s: Tensor[(4294967296), int32]")


def test_a_result_without_elements_that_numpy_has_no_array_for() -> None:
    for body in (
        f'zeros(shape=[{HUGE}, 0], dtype="float32")',
        f"reshape(%x, newshape=[{HUGE}, 0], allowzero=True)",
    ):
        with nvm.VirtualMachine(nvm.compile(parsed(body), native=False)) as vm:
            with pytest.raises(DimOverflow, match="is none of numpy"):
                vm.run(np.zeros(0, "float32"))


def test_scratch_beyond_int64() -> None:
    pool = f"nn.max_pool2d(%x, pool_size=[{HUGE}, 1], padding=[{HUGE}, 0, 0, 0])"
    mod = parsed(pool, "%x: Tensor[(1, 3, 8, 8), float32]")
    with pytest.raises(CompileError, match=r"from_string:2:\d+: kernel \w+: dim \d+ does not fit"):
        nvm.compile(mod, native=False)


@pytest.mark.parametrize("dim", [2**63, -1, 1.5, "a", None])
def test_dims_that_are_none(dim: object) -> None:
    with pytest.raises(InvalidInput):
        relay.TensorType((dim,), "float32")  # type: ignore[arg-type]


def test_the_interpreter_without_memory() -> None:
    mod = parsed('full(1f, shape=[1099511627776], dtype="float32")')
    with pytest.raises(OutOfMemory, match="full: no memory to compute"):
        evaluate(mod, [np.zeros(0, "float32")])


@pytest.mark.parametrize("index", ["nanf", "1f", "0i8"])
def test_the_index_of_metadata(index: str) -> None:
    constant = relay.IRModule.from_expr(relay.Function([], relay.const(np.zeros((2, 2)))))
    text = constant.astext()
    assert "[relay.Constant][0]" in text
    with pytest.raises(RelaySyntaxError, match=f"is a whole number, not {index}"):
        relay.parse(text.replace("[relay.Constant][0]", f"[relay.Constant][{index}]"))
    assert issubclass(RelaySyntaxError, NimbleError)

"""dyn operators whose sizes turn out to be constants."""

from __future__ import annotations

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.dynamic_to_static import DYNAMIC_TO_STATIC
from nimblevm.driver import evaluate_call
from nimblevm.errors import RelayTypeError
from nimblevm.relay.interpreter import evaluate

PARAMS = "%x: Tensor[(4, 6), float32], %w: Tensor[(?n), float32]"
CASES = {
    "folded sizes": ("dyn.reshape(%x, shape_of(%x) / 2 * 2)", "reshape(%x, newshape=[4, 6])"),
    "in a chain": (
        "let %s = shape_of(%x); let %y = dyn.tile(%x, %s); dyn.reshape(%y, stack((-1, 6), axis=0))",
        "let %s = [S]; let %y = tile(%x, reps=[4, 6]); reshape(%y, newshape=[-1, 6])",
    ),
    "slice": (
        "dyn.strided_slice(%x, shape_of(%x) - 3, shape_of(%x), shape_of(%x) * 0 + 1)",
        "strided_slice(%x, begin=[1, 3], end=[4, 6], strides=[1, 1])",
    ),
    "pad": (
        "dyn.nn.pad(%x, reshape(concatenate((shape_of(%x), shape_of(%x)), axis=0), newshape=[2, 2]), 0f)",
        "nn.pad(%x, 0f, pad_width=[[4, 6], [4, 6]])",
    ),
    "topk": ("dyn.topk(%x, 3)", "topk(%x, k=3)"),
    "unknown": ("dyn.reshape(%x, stack((take(shape_of(%w), 0), -1), axis=0))", None),
}  # fmt: skip


def parse(body: str) -> relay.IRModule:
    return relay.parse(f'#[version = "0.0.5"]\ndef @main({PARAMS}) {{ {body} }}')


@pytest.mark.parametrize("name", CASES)
def test_rewrites(name: str) -> None:
    before, after = CASES[name]
    mod = parse(before)
    found = DYNAMIC_TO_STATIC(mod, PassContext(verify=True, evaluate=evaluate_call))
    if after is None:
        assert relay.structural_equal(found, mod)
        return
    assert "dyn." not in found.astext()
    if "[S]" not in after:
        assert relay.structural_equal(found, parse(after)), found.astext()
    x, w = np.arange(24, dtype="float32").reshape(4, 6), np.zeros(2, "float32")
    expected, got = evaluate(mod, (x, w)), evaluate(found, (x, w))
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, expected)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_functions_that_are_called_keep_their_types() -> None:
    mod = relay.parse(
        """#[version = "0.0.5"]
        def @zeros(%x: Tensor[(2), int64]) -> Tensor[(?, ?), int8] { dyn.zeros(%x, dtype="int8") }
        def @make(%x: Tensor[(3), int8]) -> Tensor[(?), int8] { dyn.zeros(shape_of(%x), dtype="int8") }
        def @main(%x: Tensor[(3), int8]) { @make(%x) }"""
    )
    found = DYNAMIC_TO_STATIC(mod, PassContext(verify=True, evaluate=evaluate_call))
    assert "-> Tensor[(?), int8]" in found.astext()
    assert found.astext().count("dyn.") == 1


def test_constants_that_do_not_fit_are_errors_of_the_static_operator() -> None:
    mod = parse("dyn.reshape(%x, stack((5, -1), axis=0))")
    with pytest.raises(RelayTypeError, match="newshape does not fit"):
        DYNAMIC_TO_STATIC(mod, PassContext(evaluate=evaluate_call))

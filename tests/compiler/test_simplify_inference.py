"""SimplifyInference keeps values up to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.simplify_inference import SIMPLIFY_INFERENCE
from nimblevm.relay import Function, IRModule, nn, var
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("flags", [(True, True), (False, True), (True, False)])
def test_batch_norm(axis: int, flags: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(0)
    data = rng.random((2, 3, 4), "float32")
    vectors = rng.random((4, data.shape[axis]), "float32")
    x = var("x", shape=data.shape)
    names = ("gamma", "beta", "mean", "variance")
    params = gamma, beta, mean, variance = [var(name, shape=vectors[0].shape) for name in names]
    call = nn.batch_norm(x, gamma, beta, mean, variance, axis, center=flags[0], scale=flags[1])[0]
    mod = infer_type(IRModule.from_expr(Function([x, *params], call)))
    new = infer_type(SIMPLIFY_INFERENCE(mod, PassContext(verify=True)))
    assert "batch_norm" not in new.astext()
    args = (data, *vectors)
    np.testing.assert_allclose(evaluate(new, args), evaluate(mod, args), rtol=1e-4, atol=1e-5)

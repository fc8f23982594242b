"""Strided three-dimensional windows of unknown sizes: the positions' bound outgrew the dim algebra and had no number."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same

X, W = "Tensor[(?n, ?c, ?a, ?b, ?d), float32]", "Tensor[(?o, ?i, ?e, ?f, ?g), float32]"
CALLS = {
    "conv3d": "nn.conv3d(%x, %w, strides=[1, 3, 2], padding=[1, 2, 0, 1, 2, 1], dilation=[2, 1, 2])",
    "conv3d_transpose": "nn.conv3d_transpose(%x, %w, strides=[1, 3, 2], padding=[1, 1, 0, 1, 1, 0])",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("native", [True, False])
def test_strided_windows(call: str, native: bool) -> None:
    text = f'#[version = "0.0.5"]\ndef @main(%x: {X}, %w: {W}) {{ {CALLS[call]} }}'
    mod = nvm.relay.parse(text)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype("float32") for s in ((2, 2, 2, 3, 5), (2, 2, 1, 2, 2))]
    with nvm.compile(mod, native=native) as exe, nvm.VirtualMachine(exe) as vm:
        assert_same(vm.run(*args), evaluate(mod, args))

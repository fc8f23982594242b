"""Recursive functions that are brought to their start give what the interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import gru
from nimblevm.driver import bind_params
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.module import IRModule
from tests.properties.compare import assert_same

STATE = "Tensor[(1, 6), float32]"
GRU = f"""#[version = "0.0.5"]
{gru.cell_text("gru", 5, 6)}
def @layer(%x: Tensor[(?n, 5), float32], %h: {STATE}, %i: int32, %w: Tensor[(18, 5), float32],
           %u: Tensor[(18, 6), float32], %b: Tensor[(18), float32]) -> {STATE} {{
  if (less(%i, take(shape_of(%x), 0))) {{
    let %row = reshape(take(%x, %i, axis=0), newshape=[1, 5]);
    @layer(%x, @gru(%row, %h, %w, %u, %b, %b), %i + 1, %w, %u, %b)
  }} else {{
    %h
  }}
}}
def @main(%x: Tensor[(?m, 5), float32], %w: Tensor[(18, 5), float32], %u: Tensor[(18, 6), float32],
          %b: Tensor[(18), float32]) -> {STATE} {{
  let %first = @layer(%x, zeros(shape=[1, 6], dtype="float32"), 0, %w, %u, %b);
  @layer(%x, %first, 0, %w, %u * 2f, %b)
}}
"""
# The states of all trips; the table grows, so that its size is no dim of the start's.
GROWING = """#[version = "0.0.5"]
def @states(%i: int32, %all: Tensor[(?k, 6), float32], %u: Tensor[(6, 6), float32]) -> Tensor[(?, 6), float32] {
  if (less(%i, 4)) {
    let %last = strided_slice(%all, begin=[-1], end=[2147483647], axes=[0]);
    @states(%i + 1, concatenate((%all, tanh(nn.dense(%last, %u))), axis=0), %u)
  } else {
    %all
  }
}
def @main(%x: Tensor[(?m, 6), float32], %u: Tensor[(6, 6), float32]) -> Tensor[(?, 6), float32] {
  @states(0, %x, %u)
}
"""


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def programs() -> dict[str, tuple[IRModule, int]]:
    rng = np.random.default_rng(5)
    weights = {"w": draw(rng, 18, 5), "u": draw(rng, 18, 6), "b": draw(rng, 18)}
    return {
        "gru": (bind_params(nvm.relay.parse(GRU), weights), 5),
        "growing": (bind_params(nvm.relay.parse(GROWING), {"u": draw(rng, 6, 6)}), 6),
    }


@pytest.mark.parametrize("name", ["gru", "growing"])
def test_specialized_functions_agree_with_the_interpreter(name: str) -> None:
    mod, width = programs()[name]
    with nvm.compile(mod, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
        for rows in (0, 1, 4):
            x = draw(np.random.default_rng(rows), rows, width)
            assert_same(vm.run(x), evaluate(infer_type(mod), [x]))

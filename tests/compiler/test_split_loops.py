"""Stacked layers that get loops of their own give what the interpreter gives, for any number of trips."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import lstm
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.insert_checks import INSERT_CHECKS
from nimblevm.compiler.passes.name_effects import NAME_EFFECTS
from nimblevm.compiler.passes.simplify import SIMPLIFY
from nimblevm.compiler.passes.split_inputs import SPLIT_INPUTS
from nimblevm.compiler.passes.split_loops import SPLIT_LOOPS
from nimblevm.compiler.rewrite import postorder
from nimblevm.driver import bind_params
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Function, Let
from nimblevm.relay.module import IRModule
from tests.properties.compare import assert_same

STATE = "Tensor[(1, 6), float32]"
MIXED = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 5), float32], %w: Tensor[(6, 5), float32], %u: Tensor[(12, 6), float32]) -> ({STATE}, {STATE}) {{
  let %n = take(shape_of(%x), 0);
  let %loop = fn (%i: int32, %h: {STATE}, %g: {STATE}, %steps: int32) -> ({STATE}, {STATE}) {{
    if (less(%i, %n)) {{
      let %a = tanh(nn.dense(reshape(take(%x, %i, axis=0), newshape=[1, 5]), %w) + 0.5f * nn.dense(%h, strided_slice(%u, begin=[0], end=[6])));
      let %z = split(nn.dense(%a * 2f, %u) + nn.dense(%g, %u), indices_or_sections=2, axis=1);
      %loop(%i + 1, %a, sigmoid(%z.0) * tanh(%z.1), %steps + 1)
    }} else {{
      (%h * cast(%steps, dtype="float32"), %g)
    }}
  }};
  let %zero = zeros(shape=[1, 6], dtype="float32");
  %loop(0, %zero, %zero, 0)
}}
"""


def three_layers() -> IRModule:
    return bind_params(nvm.relay.parse(lstm.text(5, 6, 3)), lstm.params(5, 6, 3))


def mixed() -> IRModule:
    rng = np.random.default_rng(2)
    w, u = (rng.standard_normal(s).astype(np.float32) for s in ((6, 5), (12, 6)))
    return bind_params(nvm.relay.parse(MIXED), {"w": w, "u": u})


def loops_of(mod: IRModule) -> int:
    """Local functions after the pass."""
    mod = infer_type(mod)
    for step in (NAME_EFFECTS, INSERT_CHECKS, SIMPLIFY, SPLIT_INPUTS, SPLIT_LOOPS):
        mod = step(mod, PassContext(verify=True))
    nodes = postorder(mod.function("main").body)
    return sum(isinstance(n, Let) and isinstance(n.value, Function) for n in nodes)


@pytest.mark.parametrize(("program", "loops"), [(three_layers, 3), (mixed, 2)])
def test_split_loops_agree_with_the_interpreter(
    program: Callable[[], IRModule], loops: int
) -> None:
    mod = program()
    assert loops_of(mod) == loops
    with nvm.compile(mod, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
        for rows in (0, 1, 2, 9):
            x = np.random.default_rng(rows).standard_normal((rows, 5)).astype(np.float32)
            assert_same(vm.run(x), evaluate(infer_type(mod), [x]))

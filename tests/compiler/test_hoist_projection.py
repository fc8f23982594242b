"""Loops whose projections are hoisted give what the interpreter gives, for any number of trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.dead_code import DEAD_CODE
from nimblevm.compiler.passes.hoist_projection import HOIST_PROJECTION
from nimblevm.compiler.passes.insert_checks import INSERT_CHECKS
from nimblevm.compiler.passes.name_effects import NAME_EFFECTS
from nimblevm.compiler.passes.simplify import SIMPLIFY
from nimblevm.compiler.rewrite import postorder
from nimblevm.driver import bind_params
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Call, Function, Let
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType
from tests.properties.compare import assert_same

HIDDEN, INPUTS = 6, 5


def products_in_loops(mod: IRModule) -> int:
    """nn.dense calls inside of local functions after the pass."""
    mod = infer_type(mod)
    for step in (NAME_EFFECTS, INSERT_CHECKS, SIMPLIFY, HOIST_PROJECTION, DEAD_CODE):
        mod = step(mod, PassContext(verify=True))
    found = 0
    for node in postorder(mod.function("main").body):
        if isinstance(node, Let) and isinstance(node.value, Function):
            inner = postorder(node.value.body)
            found += sum(
                isinstance(n, Call) and getattr(n.op, "name", "") == "nn.dense" for n in inner
            )
    return found


def state() -> relay.Var:
    return relay.var("h", shape=(1, HIDDEN), dtype="float32")


def while_loop_program() -> IRModule:
    x = relay.var("x", shape=(relay.Any(), INPUTS), dtype="float32")
    w = relay.var("w", shape=(HIDDEN, INPUTS), dtype="float32")
    u = relay.var("u", shape=(HIDDEN, HIDDEN), dtype="float32")
    n = relay.take(relay.shape_of(x), relay.const(0))

    def body(i: Any, h: Any) -> list[Any]:
        row = relay.expand_dims(relay.take(x, i, axis=0), axis=0)
        return [
            i + relay.const(1),
            relay.tanh(relay.nn.dense(row, w) + relay.nn.dense(h, u)),
        ]

    i = relay.var("i", shape=(), dtype="int32")
    loop = relay.loops.while_loop(lambda i, h: relay.less(i, n), [i, state()], body)
    start = relay.zeros(shape=(1, HIDDEN), dtype="float32")
    result = relay.TupleGetItem(relay.Call(loop, (relay.const(0), start)), 1)
    return IRModule.from_expr(relay.Function([x, w, u], result))


CELL = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 1, {INPUTS}), float32], %w: Tensor[({3 * HIDDEN}, {INPUTS}), float32],
          %u: Tensor[({3 * HIDDEN}, {HIDDEN}), float32]) -> Tensor[(1, {HIDDEN}), float32] {{
  let %n = take(shape_of(%x), 0);
  let %peep = full(0.5f, shape=[{HIDDEN}], dtype="float32");
  let %loop = fn (%i: int32, %h: Tensor[(1, {HIDDEN}), float32], %c: Tensor[(1, {HIDDEN}), float32]) {{
    if (greater(%n, %i)) {{
      let %xi = take(%x, %n - 1 - %i, axis=0);
      let %z = nn.bias_add(nn.dense(%h, %u), full(0.25f, shape=[{3 * HIDDEN}], dtype="float32"), axis=1) + nn.dense(%xi, %w);
      let %g = split(%z, indices_or_sections=[{HIDDEN}, {2 * HIDDEN}], axis=-1);
      let %f = sigmoid(%g.0 + %c * %peep);
      let %next_c = %f * %c + (1f - %f) * tanh(%g.1);
      %loop(1 + %i, sigmoid(%g.2 + %next_c * %peep) * tanh(%next_c), %next_c)
    }} else {{
      %h
    }}
  }};
  let %zero = zeros(shape=[1, {HIDDEN}], dtype="float32");
  %loop(0, %zero, %zero)
}}
"""


def peephole_program() -> IRModule:
    return nvm.relay.parse(CELL)


@pytest.mark.parametrize("program", [while_loop_program, peephole_program])
@pytest.mark.parametrize("bound", [False, True])
def test_hoisted_loops_agree_with_the_interpreter(
    program: Callable[[], IRModule], bound: bool
) -> None:
    def shape_of(param: relay.Var) -> tuple[Any, ...]:
        assert isinstance(param.type_annotation, TensorType)
        return param.type_annotation.shape

    mod = program()
    assert products_in_loops(mod) == 1
    rng = np.random.default_rng(1)
    x, *weights = (shape_of(p) for p in mod.function("main").params)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in weights]
    if bound:
        mod = bind_params(mod, {"w": values[0], "u": values[1]})
        values = []
    exe = nvm.compile(mod, native=bound, verify=True)
    with nvm.VirtualMachine(exe) as vm:
        for rows in (0, 1, 7):
            sizes = [d if isinstance(d, int) else rows for d in x]
            given = [rng.standard_normal(sizes).astype(np.float32), *values]
            assert_same(vm.run(*given), evaluate(infer_type(mod), given))

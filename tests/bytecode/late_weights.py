"""A program whose weights are bound late, and programs of one laid-out weight."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize

Array = np.ndarray[Any, Any]
TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 5), float32], %w: Tensor[(40, 5), float32], %b: Tensor[(40), float32],
          %u: Tensor[(10, 20), float32], %v: Tensor[(20, 6), float32], %s: float32, %t: Tensor[(6), float32])
    -> (Tensor[(?n, 6), float32], Tensor[(40), float32]) {
  let %g = split(nn.dense(%x, %w) + %b, indices_or_sections=4, axis=1);
  let %h = sigmoid(%g.0) * tanh(%g.1) + %g.2 * %g.3;
  ((nn.matmul(nn.matmul(%h, %u), %v) * %s + %t) + exp(%t * 2f), %b)
}
"""
SHAPES = {"w": (40, 5), "b": (40,), "u": (10, 20), "v": (20, 6), "s": (), "t": (6,)}


def weights(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: np.asarray(rng.standard_normal(s), np.float32) for n, s in SHAPES.items()}


def module() -> Any:
    return nvm.relay.parse(TEXT)


LATE_ASM = """
.func @main public [] -> t0
  LoadConst r0, c0
  Ret r0
.end
"""


def layout_program(constant: str, weight: str = "[4]") -> bytes:
    dims = re.search(r"\[(.*?)\]", constant)
    assert dims is not None
    kind = f".type Tensor[({dims[1]}), {constant.split()[0]}]"
    text = f'{kind}\n.weight "w" float32 {weight} ""\n.const {constant}\n{LATE_ASM}'
    return serialize(assemble(text))

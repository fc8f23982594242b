"""A GRU layer over a sequence of any length; gate order r, z, n, reset gate after the product.

    r = sigmoid(Wr x + Ur h);  z = sigmoid(Wz x + Uz h);  n = tanh(Wn x + r (Un h));  h' = (1 - z) n + z h    (+ biases)

Source: Cho et al. 2014 (arXiv 1406.1078), in the form of cuDNN and PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.workloads.lstm import sigmoid

Array = np.ndarray[Any, Any]


def cell_text(name: str, inputs: int, hidden: int) -> str:
    """A Relay function @name(x, h, w_ih, w_hh, b_ih, b_hh) -> h'."""
    state = f"Tensor[(1, {hidden}), float32]"
    return f"""def @{name}(%x: Tensor[(1, {inputs}), float32], %h: {state},
    %w_ih: Tensor[({3 * hidden}, {inputs}), float32], %w_hh: Tensor[({3 * hidden}, {hidden}), float32],
    %b_ih: Tensor[({3 * hidden}), float32], %b_hh: Tensor[({3 * hidden}), float32]) -> {state} {{
  let %i = split(add(nn.dense(%x, %w_ih), %b_ih), indices_or_sections=3, axis=1);
  let %s = split(add(nn.dense(%h, %w_hh), %b_hh), indices_or_sections=3, axis=1);
  let %r = sigmoid(%i.0 + %s.0);
  let %z = sigmoid(%i.1 + %s.1);
  let %n = tanh(%i.2 + %r * %s.2);
  (1f - %z) * %n + %z * %h
}}
"""


def weight_shapes(inputs: int, hidden: int, prefix: str = "") -> dict[str, tuple[int, ...]]:
    """Shapes of a layer's weights by name."""
    return {
        f"{prefix}w_ih": (3 * hidden, inputs), f"{prefix}w_hh": (3 * hidden, hidden),
        f"{prefix}b_ih": (3 * hidden,), f"{prefix}b_hh": (3 * hidden,),
    }  # fmt: skip


def declarations(shapes: dict[str, tuple[int, ...]]) -> str:
    """Float32 parameters of these names and shapes."""
    return ",\n          ".join(
        f"%{n}: Tensor[({', '.join(map(str, s))}), float32]" for n, s in shapes.items()
    )


def text(inputs: int = 300, hidden: int = 512) -> str:
    """Relay text: main(x: (?n, inputs), weights) -> last h: (1, hidden)."""
    state = f"Tensor[(1, {hidden}), float32]"
    return f"""#[version = "0.0.5"]
{cell_text("gru", inputs, hidden)}
def @main(%x: Tensor[(?n, {inputs}), float32],
          {declarations(weight_shapes(inputs, hidden))}) -> {state} {{
  let %n = take(shape_of(%x), 0);
  let %loop = fn (%i: int32, %h: {state}) -> {state} {{
    if (less(%i, %n)) {{
      let %xi = reshape(take(%x, %i, axis=0), newshape=[1, {inputs}]);
      %loop(%i + 1, @gru(%xi, %h, %w_ih, %w_hh, %b_ih, %b_hh))
    }} else {{
      %h
    }}
  }};
  %loop(0, zeros(shape=[1, {hidden}], dtype="float32"))
}}
"""


def draw(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Seeded float32 weights of these shapes: normal, standard deviation 1 / sqrt(last axis)."""
    rng = np.random.default_rng(seed)
    return {
        n: (rng.standard_normal(s) * s[-1] ** -0.5).astype(np.float32) for n, s in shapes.items()
    }


def params(inputs: int = 300, hidden: int = 512, seed: int = 0) -> dict[str, Array]:
    """Seeded weights."""
    return draw(weight_shapes(inputs, hidden), seed)


def cell(x: Array, h: Array, w_ih: Array, w_hh: Array, b_ih: Array, b_hh: Array) -> Array:
    """One step in numpy float32: x (1, inputs), h (1, hidden) -> (1, hidden)."""
    ir, iz, inew = np.split(x @ w_ih.T + b_ih, 3, axis=1)
    hr, hz, hnew = np.split(h @ w_hh.T + b_hh, 3, axis=1)
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    result: Array = (1 - z) * np.tanh(inew + r * hnew) + z * h
    return result


def reference(x: Array, **weights: Array) -> Array:
    """The last hidden state (1, hidden) of x (n, inputs), in numpy float32."""
    h: Array = np.zeros((1, weights["w_hh"].shape[1]), np.float32)
    for row in x:
        h = cell(row[None, :], h, **weights)
    return h

"""One LSTM layer over a sequence of any length, as a recursive function; gate order i, f, g, o.

    z = W [x_t, h] + b;  i, f, g, o = split(z)
    c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')

Source: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def text(inputs: int = 300, hidden: int = 512) -> str:
    """Relay text: main(x: (?n, inputs), w: (4 hidden, inputs + hidden), b: (4 hidden)) -> last h: (1, hidden)."""
    state = f"Tensor[(1, {hidden}), float32]"
    return f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, {inputs}), float32],
          %w: Tensor[({4 * hidden}, {inputs + hidden}), float32],
          %b: Tensor[({4 * hidden}), float32]) -> {state} {{
  let %n = take(shape_of(%x), 0);
  let %loop = fn (%i: int32, %h: {state}, %c: {state}) -> {state} {{
    if (less(%i, %n)) {{
      let %xi = reshape(take(%x, %i, axis=0), newshape=[1, {inputs}]);
      let %z = add(nn.dense(concatenate((%xi, %h), axis=1), %w), %b);
      let %g = split(%z, indices_or_sections=4, axis=1);
      let %c1 = sigmoid(%g.1) * %c + sigmoid(%g.0) * tanh(%g.2);
      let %h1 = sigmoid(%g.3) * tanh(%c1);
      %loop(%i + 1, %h1, %c1)
    }} else {{
      %h
    }}
  }};
  let %zero = zeros(shape=[1, {hidden}], dtype="float32");
  %loop(0, %zero, %zero)
}}
"""


def params(inputs: int = 300, hidden: int = 512, seed: int = 0) -> dict[str, Array]:
    """Weights w and b, float32, drawn from a normal of standard deviation 1 / sqrt(fan-in)."""
    rng = np.random.default_rng(seed)
    scale = (inputs + hidden) ** -0.5
    return {
        "w": (rng.standard_normal((4 * hidden, inputs + hidden)) * scale).astype(np.float32),
        "b": (rng.standard_normal(4 * hidden) * scale).astype(np.float32),
    }


def reference(x: Array, w: Array, b: Array) -> Array:
    """The last hidden state (1, hidden) of x (n, inputs), in numpy float32."""
    hidden = b.shape[0] // 4
    h = np.zeros((1, hidden), np.float32)
    c = np.zeros((1, hidden), np.float32)
    for row in x:
        z = np.concatenate([row[None, :], h], axis=1) @ w.T + b
        i, f, g, o = np.split(z, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    half: Array = np.tanh(x * np.float32(0.5))
    return half * np.float32(0.5) + np.float32(0.5)

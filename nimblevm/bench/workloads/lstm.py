"""LSTM layers over a sequence of any length, as a recursive function; gate order i, f, g, o.

    z = W [x_t, h] + b;  i, f, g, o = split(z)
    c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')

Source: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def text(inputs: int = 300, hidden: int = 512, layers: int = 1) -> str:
    """Relay text: main(x: (?n, inputs), w, b, w1, b1, ...) -> last h of the top layer: (1, hidden).

    w: (4 hidden, inputs + hidden), b: (4 hidden); layer k > 0 has wk: (4 hidden, 2 hidden), bk. All layers stand in one
    time loop, as a user writes it.
    """
    state = f"Tensor[(1, {hidden}), float32]"
    declared, states, step, following, zeros = [], [], [], [], []
    below = "%xi"
    for k in map(_suffix, range(layers)):
        size = inputs if k == "" else hidden
        declared.append(f"%w{k}: Tensor[({4 * hidden}, {size + hidden}), float32]")
        declared.append(f"%b{k}: Tensor[({4 * hidden}), float32]")
        states.append(f"%h{k}: {state}, %c{k}: {state}")
        step += [
            f"let %z{k} = add(nn.dense(concatenate(({below}, %h{k}), axis=1), %w{k}), %b{k});",
            f"let %g{k} = split(%z{k}, indices_or_sections=4, axis=1);",
            f"let %next_c{k} = sigmoid(%g{k}.1) * %c{k} + sigmoid(%g{k}.0) * tanh(%g{k}.2);",
            f"let %next_h{k} = sigmoid(%g{k}.3) * tanh(%next_c{k});",
        ]
        below = f"%next_h{k}"
        following.append(f"%next_h{k}, %next_c{k}")
        zeros.append("%zero, %zero")
    lines = "\n      ".join(step)
    return f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, {inputs}), float32],
          {", ".join(declared)}) -> {state} {{
  let %n = take(shape_of(%x), 0);
  let %loop = fn (%i: int32, {", ".join(states)}) -> {state} {{
    if (less(%i, %n)) {{
      let %xi = reshape(take(%x, %i, axis=0), newshape=[1, {inputs}]);
      {lines}
      %loop(%i + 1, {", ".join(following)})
    }} else {{
      %h{_suffix(layers - 1)}
    }}
  }};
  let %zero = zeros(shape=[1, {hidden}], dtype="float32");
  %loop(0, {", ".join(zeros)})
}}
"""


def _suffix(layer: int) -> str:
    return str(layer) if layer else ""


def params(
    inputs: int = 300, hidden: int = 512, layers: int = 1, seed: int = 0
) -> dict[str, Array]:
    """Weights, float32, drawn from a normal of standard deviation 1 / sqrt(fan-in)."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for layer in range(layers):
        fan = (hidden if layer else inputs) + hidden
        w = rng.standard_normal((4 * hidden, fan)) * fan**-0.5
        b = rng.standard_normal(4 * hidden) * fan**-0.5
        made[f"w{_suffix(layer)}"] = w.astype(np.float32)
        made[f"b{_suffix(layer)}"] = b.astype(np.float32)
    return made


def reference(x: Array, **weights: Array) -> Array:
    """The top layer's last hidden state (1, hidden) of x (n, inputs), in numpy float32."""
    rows = x
    for layer in range(len(weights) // 2):
        w, b = weights[f"w{_suffix(layer)}"], weights[f"b{_suffix(layer)}"]
        hidden = b.shape[0] // 4
        h = c = np.zeros((1, hidden), np.float32)
        states = np.zeros((len(rows), hidden), np.float32)
        for t, row in enumerate(rows):
            z = np.concatenate([row[None, :], h], axis=1) @ w.T + b
            i, f, g, o = np.split(z, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states[t] = h
        rows = states
    return h


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    half: Array = np.tanh(x * np.float32(0.5))
    return half * np.float32(0.5) + np.float32(0.5)

"""A character model that samples from its own predictions until an end token, driven by given uniform numbers.

    h' = gru(embedding[last], h);  p = softmax(W h' + b);  next = number of k with cumulated p_0..p_k <= u_i

Source: Karpathy 2015, "The unreasonable effectiveness of recurrent neural networks", with a GRU cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.workloads import gru

Array = np.ndarray[Any, Any]
END = 0


def weight_shapes(symbols: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    return {
        "embedding": (symbols, hidden), **gru.weight_shapes(hidden, hidden),
        "w": (symbols, hidden), "b": (symbols,), "lower": (symbols, symbols),
    }  # fmt: skip


def text(symbols: int = 64, hidden: int = 128) -> str:
    """Relay text: main(u: (?n) uniform numbers, first: int32, weights) -> symbols (?) int32, at most n.

    The end token is left out.
    """
    state, out = f"Tensor[(1, {hidden}), float32]", "Tensor[(?), int32]"
    return f"""#[version = "0.0.5"]
{gru.cell_text("gru", hidden, hidden)}
def @main(%u: Tensor[(?n), float32], %first: int32,
          {gru.declarations(weight_shapes(symbols, hidden))}) -> {out} {{
  let %n = take(shape_of(%u), 0);
  let %sample = fn (%i: int32, %last: int32, %h: {state}, %out: {out}) -> {out} {{
    if (less(%i, %n)) {{
      let %x = reshape(take(%embedding, %last, axis=0), newshape=[1, {hidden}]);
      let %h1 = @gru(%x, %h, %w_ih, %w_hh, %b_ih, %b_hh);
      let %p = nn.softmax(add(nn.dense(%h1, %w), %b), axis=-1);
      let %cumulated = nn.dense(%p, %lower);
      let %below = sum(cast(less_equal(%cumulated, take(%u, %i)), dtype="int32"), axis=[0, 1]);
      let %next = minimum(%below, {symbols - 1});
      if (equal(%next, {END})) {{
        %out
      }} else {{
        %sample(%i + 1, %next, %h1, concatenate((%out, reshape(%next, newshape=[1])), axis=0))
      }}
    }} else {{
      %out
    }}
  }};
  %sample(0, %first, zeros(shape=[1, {hidden}], dtype="float32"), zeros(shape=[0], dtype="int32"))
}}
"""


def params(symbols: int = 64, hidden: int = 128, seed: int = 0) -> dict[str, Array]:
    """Seeded weights; `lower` is the lower triangle of ones, which makes sums of all earlier probabilities."""
    made = gru.draw(weight_shapes(symbols, hidden), seed)
    made["w"] *= 4  # peaked predictions
    made["lower"] = np.tril(np.ones((symbols, symbols), np.float32))
    return made


def reference(u: Array, first: int, **weights: Array) -> Array:
    """The sampled symbols, int32, in numpy float32."""
    cell = {name: weights[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")}
    h = np.zeros((1, weights["w_hh"].shape[1]), np.float32)
    last, out = first, []
    for uniform in u:
        h = gru.cell(weights["embedding"][last][None, :], h, **cell)
        logits = h @ weights["w"].T + weights["b"]
        p = np.exp(logits - logits.max())
        cumulated = np.cumsum(p / p.sum(), dtype=np.float32)
        last = min(int((cumulated <= uniform).sum()), len(cumulated) - 1)
        if last == END:
            break
        out.append(last)
    return np.array(out, np.int32)

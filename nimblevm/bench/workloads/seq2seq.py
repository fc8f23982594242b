"""A GRU encoder-decoder with greedy decoding until the end token, for seeded weights of any size.

    h = encoder GRU over the source;  then  h = gru(embedding[last], h);  next = argmax(W h + b)

Source: Sutskever et al. 2014 (arXiv 1409.3215), with GRU cells. workloads/g2p.py is a trained model of this kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.workloads import gru

Array = np.ndarray[Any, Any]
START, END = 1, 0


def weight_shapes(symbols: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    return {
        "source": (symbols, hidden), **gru.weight_shapes(hidden, hidden, "enc_"),
        "target": (symbols, hidden), **gru.weight_shapes(hidden, hidden, "dec_"),
        "w": (symbols, hidden), "b": (symbols,),
    }  # fmt: skip


def text(symbols: int = 100, hidden: int = 128) -> str:
    """Relay text: main(ids: (?n) int32, limit: int32, weights) -> target symbols (?) int32, at most `limit`."""
    state, out = f"Tensor[(1, {hidden}), float32]", "Tensor[(?), int32]"
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    encoder = ", ".join(f"%enc_{n}" for n in names)
    decoder = ", ".join(f"%dec_{n}" for n in names)
    return f"""#[version = "0.0.5"]
{gru.cell_text("gru", hidden, hidden)}
def @main(%ids: Tensor[(?n), int32], %limit: int32,
          {gru.declarations(weight_shapes(symbols, hidden))}) -> {out} {{
  let %n = take(shape_of(%ids), 0);
  let %encode = fn (%i: int32, %h: {state}) -> {state} {{
    if (less(%i, %n)) {{
      let %x = reshape(take(%source, take(%ids, %i), axis=0), newshape=[1, {hidden}]);
      %encode(%i + 1, @gru(%x, %h, {encoder}))
    }} else {{
      %h
    }}
  }};
  let %decode = fn (%i: int32, %last: int32, %h: {state}, %out: {out}) -> {out} {{
    if (less(%i, %limit)) {{
      let %x = reshape(take(%target, %last, axis=0), newshape=[1, {hidden}]);
      let %h1 = @gru(%x, %h, {decoder});
      let %p = reshape(argmax(add(nn.dense(%h1, %w), %b), axis=[1]), newshape=[1]);
      let %next = reshape(%p, newshape=[]);
      if (equal(%next, {END})) {{
        %out
      }} else {{
        %decode(%i + 1, %next, %h1, concatenate((%out, %p), axis=0))
      }}
    }} else {{
      %out
    }}
  }};
  %decode(0, {START}, %encode(0, zeros(shape=[1, {hidden}], dtype="float32")), zeros(shape=[0], dtype="int32"))
}}
"""


def params(symbols: int = 100, hidden: int = 128, seed: int = 0) -> dict[str, Array]:
    """Seeded weights; larger ones at the output, so that predictions vary."""
    made = gru.draw(weight_shapes(symbols, hidden), seed)
    for name in ("source", "target", "w"):
        made[name] *= 5
    return made


def reference(ids: Array, limit: int, **weights: Array) -> Array:
    """The target symbols, int32, in numpy float32."""

    def step(symbol: int, h: Array, table: str, prefix: str) -> Array:
        cell = {n: weights[f"{prefix}{n}"] for n in ("w_ih", "w_hh", "b_ih", "b_hh")}
        return gru.cell(weights[table][symbol][None, :], h, **cell)

    h: Array = np.zeros((1, weights["w"].shape[1]), np.float32)
    for symbol in ids:
        h = step(int(symbol), h, "source", "enc_")
    last, out = START, []
    for _ in range(limit):
        h = step(last, h, "target", "dec_")
        last = int(np.argmax(h @ weights["w"].T + weights["b"]))
        if last == END:
            break
        out.append(last)
    return np.array(out, np.int32)

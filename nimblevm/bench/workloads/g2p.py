"""g2p-en's trained grapheme-to-phoneme model: a GRU encoder and a GRU decoder that stops at its end token.

The weights come from the package g2p-en 2.1.0 (g2p_en/checkpoint20.npz), which need not be importable.
GRU with gate order r, z, n:

    r, z = split(sigmoid(Wi x + bi + Wh h + bh)[rz])
    n = tanh((Wi x + bi)[n] + r (Wh h + bh)[n])
    h' = (1 - z) n + z h

Source: Cho et al. 2014 (arXiv 1406.1078), variant with the reset gate after the product.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

GRAPHEMES = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_OTHERS = "B CH D DH F G HH JH K L M N NG P R S SH T TH UW V W Y Z ZH"
# The package lists its phonemes in plain alphabetical order, vowels with the three stresses.
PHONEMES = [
    "<pad>", "<unk>", "<s>", "</s>",
    *sorted([v + stress for v in _VOWELS.split() for stress in "012"] + _OTHERS.split()),
]  # fmt: skip
START, END, MAX_STEPS = 2, 3, 20


def weights_path() -> Path | None:
    """The checkpoint inside the installed package, found without importing it; None if it is not installed."""
    spec = importlib.util.find_spec("g2p_en")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "checkpoint20.npz"
    return path if path.exists() else None


def params(path: Path) -> dict[str, Array]:
    """The weights by the names of the program's parameters, as the file holds them."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def encode(word: str) -> Array:
    """Grapheme numbers of a lower-case word and the end token: int32 (len + 1)."""
    index = {g: i for i, g in enumerate(GRAPHEMES)}
    return np.array([*(index.get(c, 1) for c in word), 2], np.int32)


def decode(numbers: Array) -> list[str]:
    """Phoneme names."""
    return [PHONEMES[i] for i in numbers]


def text() -> str:
    """Relay text: main(word: (?n) int32, weights...) -> phoneme numbers (?) int32, without the end token."""
    weights = {
        "enc_emb": "(29, 256)", "enc_w_ih": "(768, 256)", "enc_w_hh": "(768, 256)",
        "enc_b_ih": "(768)", "enc_b_hh": "(768)",
        "dec_emb": "(74, 256)", "dec_w_ih": "(768, 256)", "dec_w_hh": "(768, 256)",
        "dec_b_ih": "(768)", "dec_b_hh": "(768)", "fc_w": "(74, 256)", "fc_b": "(74)",
    }  # fmt: skip
    declared = ",\n          ".join(f"%{n}: Tensor[{s}, float32]" for n, s in weights.items())
    state = "Tensor[(1, 256), float32]"
    return f"""#[version = "0.0.5"]
def @gru(%x: {state}, %h: {state}, %w_ih: Tensor[(768, 256), float32], %w_hh: Tensor[(768, 256), float32],
         %b_ih: Tensor[(768), float32], %b_hh: Tensor[(768), float32]) -> {state} {{
  let %i = split(add(nn.dense(%x, %w_ih), %b_ih), indices_or_sections=3, axis=1);
  let %s = split(add(nn.dense(%h, %w_hh), %b_hh), indices_or_sections=3, axis=1);
  let %r = sigmoid(%i.0 + %s.0);
  let %z = sigmoid(%i.1 + %s.1);
  let %n = tanh(%i.2 + %r * %s.2);
  (1f - %z) * %n + %z * %h
}}

def @main(%word: Tensor[(?n), int32],
          {declared}) -> Tensor[(?), int32] {{
  let %length = take(shape_of(%word), 0);
  let %encode = fn (%i: int32, %h: {state}) -> {state} {{
    if (less(%i, %length)) {{
      let %x = reshape(take(%enc_emb, take(%word, %i), axis=0), newshape=[1, 256]);
      %encode(%i + 1, @gru(%x, %h, %enc_w_ih, %enc_w_hh, %enc_b_ih, %enc_b_hh))
    }} else {{
      %h
    }}
  }};
  let %decode = fn (%i: int32, %last: int32, %h: {state}, %out: Tensor[(?), int32]) -> Tensor[(?), int32] {{
    if (less(%i, {MAX_STEPS})) {{
      let %x = reshape(take(%dec_emb, %last, axis=0), newshape=[1, 256]);
      let %h1 = @gru(%x, %h, %dec_w_ih, %dec_w_hh, %dec_b_ih, %dec_b_hh);
      let %p = reshape(argmax(add(nn.dense(%h1, %fc_w), %fc_b), axis=[1]), newshape=[1]);
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
  let %h = %encode(0, zeros(shape=[1, 256], dtype="float32"));
  %decode(0, {START}, %h, zeros(shape=[0], dtype="int32"))
}}
"""

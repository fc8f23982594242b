"""A stack of GPT-2 decoder blocks with a growing cache: the prompt at once, then token by token, greedily.

    x = words[ids] + positions[n .. n + t)
    a block:  x = x + Wo attention(layer_norm(x)) + bo;  x = x + W2 gelu(W1 layer_norm(x) + b1) + b2
    attention:  q, k, v = W x + b;  keys = cache, k;  values = cache, v;  softmax(q keys^T / sqrt(d)) values, head by
                head, each token seeing itself and those before it
    logits = words layer_norm(x of the last token);  next = argmax(logits)

The cache of a layer is two tensors (tokens, heads * d), so that a token is a row and appending one moves nothing. The
state is a tuple of one pair a layer. Source: Radford et al. 2019, "Language models are unsupervised multitask
learners"; gelu by tanh as there, or exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, pi
from typing import Any

import numpy as np

from nimblevm.driver import bind_params
from nimblevm.relay import parse
from nimblevm.relay.module import IRModule

Array = np.ndarray[Any, Any]
State = tuple[tuple[Array, Array], ...]


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes. The defaults are GPT-2 small's. gelu: "tanh" or "erf"."""

    vocabulary: int = 50257
    context: int = 1024
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    epsilon: float = 1e-5
    gelu: str = "tanh"


SMALL = Config(vocabulary=60, context=64, hidden=16, layers=2, heads=4, inner=32)


def block_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shapes of one block's weights by name. Matrices are (out, in); q, k and v are one."""
    hidden, inner = config.hidden, config.inner
    return {
        "norm1_g": (hidden,), "norm1_b": (hidden,), "qkv_w": (3 * hidden, hidden), "qkv_b": (3 * hidden,),
        "o_w": (hidden, hidden), "o_b": (hidden,), "norm2_g": (hidden,), "norm2_b": (hidden,),
        "in_w": (inner, hidden), "in_b": (inner,), "out_w": (hidden, inner), "out_b": (hidden,),
    }  # fmt: skip


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights by parameter name, in the order of main's parameters."""
    shapes: dict[str, tuple[int, ...]] = {
        "words": (config.vocabulary, config.hidden),
        "positions": (config.context, config.hidden),
    }
    for layer in range(config.layers):
        shapes |= {f"l{layer}_{name}": shape for name, shape in block_shapes(config).items()}
    return shapes | {"norm_g": (config.hidden,), "norm_b": (config.hidden,)}


def _declared(shapes: dict[str, tuple[int, ...]]) -> str:
    return ",\n          ".join(
        f"%{name}: Tensor[({', '.join(map(str, shape))}), float32]"
        for name, shape in shapes.items()
    )


def _state_type(config: Config, rows: str) -> str:
    cache = f"Tensor[({rows}, {config.hidden}), float32]"
    return f"({', '.join([f'({cache}, {cache})'] * config.layers)},)"


def _norm(config: Config, value: str, prefix: str) -> str:
    weights = f"%{prefix}_g, %{prefix}_b"
    return f"nn.layer_norm({value}, {weights}, axis=-1, epsilon={config.epsilon!r}f64)"


def _gelu(config: Config, x: str) -> str:
    if config.gelu == "erf":
        return f"{x} * 0.5f * (1f + erf({x} * {0.5**0.5!r}f))"
    cubic = f"({x} + 0.044715f * {x} * {x} * {x})"
    return f"{x} * 0.5f * (1f + tanh({(2 / pi) ** 0.5!r}f * {cubic}))"


def _block_text(config: Config) -> str:
    hidden, heads = config.hidden, config.heads
    x, cache = f"Tensor[(?t, {hidden}), float32]", f"Tensor[(?n, {hidden}), float32]"
    longer = f"Tensor[(?n + ?t, {hidden}), float32]"
    split = f"newshape=[-1, {heads}, {hidden // heads}]"
    return f"""def @block(%x: {x}, %k: {cache}, %v: {cache}, %seen: Tensor[(1, ?t, ?n + ?t), bool],
          {_declared(block_shapes(config))}) -> ({x}, {longer}, {longer}) {{
  let %qkv = split(nn.dense({_norm(config, "%x", "norm1")}, %qkv_w) + %qkv_b, indices_or_sections=3, axis=1);
  let %keys = concatenate((%k, %qkv.1), axis=0);
  let %values = concatenate((%v, %qkv.2), axis=0);
  let %q = reshape(%qkv.0, {split});
  let %s = einsum((%q, reshape(%keys, {split})), equation="ihd,jhd->hij") * {(hidden // heads) ** -0.5!r}f;
  let %p = nn.softmax(where(%seen, %s, -1e30f), axis=-1);
  let %c = reshape(einsum((%p, reshape(%values, {split})), equation="hij,jhd->ihd"), newshape=[-1, {hidden}]);
  let %y = %x + nn.dense(%c, %o_w) + %o_b;
  let %u = nn.dense({_norm(config, "%y", "norm2")}, %in_w) + %in_b;
  let %g = {_gelu(config, "%u")};
  (%y + nn.dense(%g, %out_w) + %out_b, %keys, %values)
}}"""


def text(config: Config = SMALL) -> str:
    """Relay text: main(ids: (?t) int32, t >= 1, state of ?n tokens, weights) -> (next (1) int32,
    logits (1, vocabulary), state of ?n + ?t tokens).
    """
    lines = [
        "let %n = take(shape_of(%state.0.0), 0);",
        "let %total = %n + take(shape_of(%ids), 0);",
        'let %at = arange(%n, %total, 1, dtype="int32");',
        'let %all = arange(0, %total, 1, dtype="int32");',
        "let %seen: Tensor[(1, ?t, ?n + ?t), bool] = "
        "less_equal(reshape(%all, newshape=[1, 1, -1]), reshape(%at, newshape=[1, -1, 1]));",
        f"let %place: Tensor[(?t, {config.hidden}), float32] = "
        'take(%positions, %at, axis=0, mode="fast");',
        'let %x0 = take(%words, %ids, axis=0, mode="fast") + %place;',
    ]
    for i in range(config.layers):
        weights = ", ".join(f"%l{i}_{name}" for name in block_shapes(config))
        x = f"%b{i - 1}.0" if i else "%x0"
        lines.append(f"let %b{i} = @block({x}, %state.{i}.0, %state.{i}.1, %seen, {weights});")
    last = f"reshape(take(%b{config.layers - 1}.0, %total - %n - 1, axis=0), newshape=[1, {config.hidden}])"
    lines += [
        f"let %logits = nn.dense({_norm(config, last, 'norm')}, %words);",
        'let %next = cast(argmax(%logits, axis=[1]), dtype="int32");',
        f"(%next, %logits, ({', '.join(f'(%b{i}.1, %b{i}.2)' for i in range(config.layers))},))",
    ]
    logits = f"Tensor[(1, {config.vocabulary}), float32]"
    return f"""#[version = "0.0.5"]
{_block_text(config)}
def @main(%ids: Tensor[(?t), int32], %state: {_state_type(config, "?n")},
          {_declared(weight_shapes(config))})
    -> (Tensor[(1), int32], {logits}, {_state_type(config, "?n + ?t")}) {{
{chr(10).join(f"  {line}" for line in lines)}
}}
"""


def generate_text(config: Config = SMALL) -> str:
    """Relay text beside a @main whose weights are bound: generate(prompt: (?t) int32, steps) -> (the next max(steps, 1)
    tokens, state).
    """
    state = _state_type(config, "?")
    result = f"(Tensor[(?), int32], {state})"
    zero = f'zeros(shape=[0, {config.hidden}], dtype="float32")'
    return f"""#[version = "0.0.5"]
def @generate(%prompt: Tensor[(?t), int32], %steps: int32) -> {result} {{
  let %loop = fn (%i: int32, %last: Tensor[(1), int32], %state: {state}, %out: Tensor[(?), int32]) -> {result} {{
    if (less(%i, %steps)) {{
      let %r = @main(%last, %state);
      %loop(%i + 1, %r.0, %r.2, concatenate((%out, %r.0), axis=0))
    }} else {{
      (%out, %state)
    }}
  }};
  let %first = @main(%prompt, ({", ".join([f"({zero}, {zero})"] * config.layers)},));
  %loop(1, %first.0, %first.2, %first.0)
}}
"""


def module(weights: dict[str, Array], config: Config = SMALL) -> IRModule:
    """@main (a step) and @generate with these weights."""
    bound = bind_params(parse(text(config), source_name="gpt2.rly"), weights)
    return parse(generate_text(config), source_name="generate.rly", init_module=bound)


def empty_state(config: Config = SMALL) -> State:
    """The state before the first token."""
    empty = np.zeros((0, config.hidden), np.float32)
    return ((empty, empty),) * config.layers


def params(config: Config = SMALL, seed: int = 0) -> dict[str, Array]:
    """Seeded weights: matrices normal with standard deviation 1 / sqrt(fan-in), gains near 1, biases small."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, shape in weight_shapes(config).items():
        drawn = rng.standard_normal(shape, np.float32)
        drawn *= np.float32(shape[-1] ** -0.5 if len(shape) == 2 else 0.1)
        made[name] = drawn + np.float32(name.endswith("_g"))
    return made


def reference(
    ids: Array, weights: dict[str, Array], config: Config = SMALL
) -> tuple[Array, Array, State]:
    """What main gives after all of `ids` (t >= 1), in numpy float32 and without a cache."""
    size, half = config.hidden // config.heads, np.float32(0.5)

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(config.epsilon))
        result: Array = centred * scale * weights[f"{name}_g"] + weights[f"{name}_b"]
        return result

    def dense(x: Array, name: str) -> Array:
        result: Array = x @ weights[f"{name}_w"].T + weights[f"{name}_b"]
        return result

    def gelu(x: Array) -> Array:
        if config.gelu == "erf":
            inside = np.asarray(np.frompyfunc(erf, 1, 1)(x * half**half), np.float32)
        else:
            inside = np.tanh(np.float32((2 / pi) ** 0.5) * (x + np.float32(0.044715) * x**3))
        return x * half * (1 + inside)

    count = len(ids)
    later = np.triu(np.ones((count, count), bool), 1)
    x = weights["words"][ids] + weights["positions"][:count]
    state = []
    for i in range(config.layers):
        q, k, v = np.split(dense(norm(x, f"l{i}_norm1"), f"l{i}_qkv"), 3, axis=1)
        state.append((k, v))
        mixed = []
        for head in range(config.heads):
            own = slice(head * size, (head + 1) * size)
            scores = q[:, own] @ k[:, own].T / np.float32(size**0.5)
            scores[later] = -np.inf
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed.append(scores / scores.sum(axis=-1, keepdims=True) @ v[:, own])
        x = x + dense(np.concatenate(mixed, axis=1), f"l{i}_o")
        x = x + dense(gelu(dense(norm(x, f"l{i}_norm2"), f"l{i}_in")), f"l{i}_out")
    logits = norm(x[-1:], "norm") @ weights["words"].T
    return np.argmax(logits, axis=1).astype(np.int32), logits, tuple(state)

"""Fused functions and arguments for tests of lowering and of generated code: name -> (Relay text, arguments)."""

from __future__ import annotations

from typing import Any

import numpy as np

_RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape).astype("float32")


def _chain(length: int) -> str:
    """A chain of elementwise operators: each uses the one before twice, so paths double at each step."""
    lines = ["let %a0 = tanh(%x);"]
    for i in range(1, length):
        other = f"tanh(%a{i - 1})" if i % 10 == 0 else f"multiply(%a{i - 1}, 0.25f)"
        lines.append(f"let %a{i} = {'add' if i % 2 else 'subtract'}(%a{i - 1}, {other});")
    return " ".join(lines) + f" %a{length - 1}"


_TWO = "def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?, 4), float32]) "
FUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "broadcast_first_stretched": (_TWO + "{ tanh(add(%x, %y)) }", (floats(1, 4), floats(3, 4))),
    "broadcast_second_stretched": (_TWO + "{ tanh(add(%x, %y)) }", (floats(3, 4), floats(1, 4))),
    "broadcast_none_stretched": (_TWO + "{ tanh(add(%x, %y)) }", (floats(3, 4), floats(3, 4))),
    "broadcast_empty": (_TWO + "{ tanh(add(%x, %y)) }", (floats(0, 4), floats(1, 4))),
    "broadcast_unknown_with_static": (
        "def @main(%x: Tensor[(5), float32], %y: Tensor[(?), float32]) { add(%x, %y) }",
        (floats(5), floats(1)),
    ),
    "broadcast_three": (
        "def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32], %z: Tensor[(?, ?), float32]) "
        "{ multiply(add(%x, %y), %z) }",
        (floats(1, 4), floats(3, 4), floats(3, 1)),
    ),
    "one_operand_stretched_and_whole": (
        _TWO + "{ add(sum(%y, axis=[0], keepdims=True), add(%x, %y)) }",
        (floats(3, 4), floats(1, 4)),
    ),
    "lstm_cell": (
        """def @main(%g: Tensor[(?n, 32), float32], %c: Tensor[(?n, 8), float32]) {
        let %s = split(%g, indices_or_sections=4, axis=1);
        let %c2 = add(multiply(sigmoid(%s.1), %c), multiply(sigmoid(%s.0), tanh(%s.3)));
        (multiply(sigmoid(%s.2), tanh(%c2)), %c2) }""",
        (floats(3, 32), floats(3, 8)),
    ),
    "dense_with_prologue_and_epilogue": (
        """def @main(%x: Tensor[(?n, 30), float32], %h: Tensor[(?n, 8), float32],
        %w: Tensor[(18, 38), float32], %b: Tensor[(18), float32]) {
        tanh(nn.bias_add(nn.dense(concatenate((%x, %h), axis=1), %w), %b)) }""",
        (floats(5, 30), floats(5, 8), floats(18, 38), floats(18)),
    ),
    "dense_of_computed_rows": (
        """def @main(%x: Tensor[(?n, 6), float32], %w: Tensor[(5, 6), float32]) {
        nn.dense(sigmoid(tanh(%x)), %w) }""",
        (floats(3, 6), floats(5, 6)),
    ),
    "softmax_by_hand": (
        """def @main(%x: Tensor[(?n, 6), float32]) { let %m = max(%x, axis=[1], keepdims=True);
        let %e = exp(subtract(%x, %m)); divide(%e, sum(%e, axis=[1], keepdims=True)) }""",
        (floats(3, 6),),
    ),
    "softmax_along_rows": (
        """def @main(%x: Tensor[(?n, 6), float32]) { let %m = max(%x, axis=[0], keepdims=True);
        let %e = exp(subtract(%x, %m)); divide(%e, sum(%e, axis=[0], keepdims=True)) }""",
        (floats(3, 6),),
    ),
    "outputs_that_use_each_other": (
        """def @main(%x: Tensor[(?n, 6), float32], %w: Tensor[(6, 6), float32]) {
        let %y = nn.dense(%x, %w); (%y, sum(%y, axis=[1]), add(%y, nn.relu(%y))) }""",
        (floats(3, 6), floats(6, 6)),
    ),
    "product_used_at_two_places": (
        """def @main(%x: Tensor[(6, 6), float32], %w: Tensor[(6, 6), float32]) {
        let %y = nn.dense(%x, %w); add(%y, transpose(%y)) }""",
        (floats(6, 6), floats(6, 6)),
    ),
    "concatenate_then_relu": (
        """def @main(%x: Tensor[(?n, 6), float32], %y: Tensor[(?m, 6), float32]) {
        nn.relu(concatenate((%x, %y), axis=0)) }""",
        (floats(3, 6), floats(2, 6)),
    ),
    "concatenate_with_an_empty_part": (
        """def @main(%x: Tensor[(?n, 6), float32], %y: Tensor[(?m, 6), float32]) {
        sum(concatenate((%x, %y, %x), axis=0), axis=[0]) }""",
        (floats(0, 6), floats(2, 6)),
    ),
    "moved_data": (
        """def @main(%x: Tensor[(3, 6), float32]) {
        nn.softmax(transpose(reshape(%x, newshape=[6, 3])), axis=0) }""",
        (floats(3, 6),),
    ),
    "take_by_a_scalar": (
        """def @main(%i: Tensor[(), int32], %t: Tensor[(?n, 6), float32]) {
        tanh(take(%t, %i, axis=0)) }""",
        (np.asarray(2, "int32"), floats(4, 6)),
    ),
    "take_checked": (
        """def @main(%i: Tensor[(2), int32], %t: Tensor[(?n, 6), float32]) {
        take(%t, add(%i, 1), axis=0, mode="fast") }""",
        (np.asarray([1, 2], "int32"), floats(4, 6)),
    ),
    "tuple_parameter": (
        """def @main(%p: (Tensor[(?n), float32], Tensor[(?n), float32])) { add(%p.0, %p.1) }""",
        ((floats(3), floats(3)),),
    ),
    "a_parameter_as_result": (
        "def @main(%x: Tensor[(?n), float32]) { (%x, negative(%x)) }",
        (floats(3),),
    ),
    "two_hundred_operators": (
        "def @main(%x: Tensor[(?n, 6), float32]) {" + _chain(200) + "}",
        (floats(3, 6),),
    ),
}

__all__ = ["FUSED", "floats"]

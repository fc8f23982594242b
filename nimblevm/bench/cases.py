"""Seeded inputs of benchmark rows: lengths with a given mean, and trees shaped like parses of sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.bench.workloads.treelstm import Tree

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One input of a row.

    units     what the time is divided by: tokens, words, images, operators, calls
    size      the abscissa of plots: length, words, pixels a side
    inputs    arguments in the order of main's parameters: numpy arrays, numbers, or a tree
    program   which of the row's programs takes it
    """

    units: int
    size: int
    inputs: tuple[Any, ...]
    program: str = "main"


def lengths(count: int, low: int, high: int, mean: float, seed: int) -> list[int]:
    """`count` lengths in [low, high] from a scaled beta distribution, moved by ones until their mean is `mean`
    (rounded to a whole sum).
    """
    rng = np.random.default_rng(seed)
    a = 1.2
    b = a * (high - mean) / (mean - low)
    drawn = np.rint(low + (high - low) * rng.beta(a, b, count)).astype(int)
    missing = round(mean * count) - int(drawn.sum())
    while missing:
        step = 1 if missing > 0 else -1
        at = int(rng.integers(count))
        if low <= drawn[at] + step <= high:
            drawn[at] += step
            missing -= step
    return [int(n) for n in drawn]


def parse_like_tree(words: int, rng: np.random.Generator, inputs: int = 300) -> Tree:
    """A random binary tree over `words` >= 1 leaves, leaning to the right as parses of English do.

    A span is split after 1 + floor((n - 1) u^4) words, u uniform: trees of 21 words have about 10.7 levels above the
    leaves, where joining neighbours at random gives 7.8. Leaves are normal vectors (1, inputs).
    """
    stack: list[tuple[int, bool]] = [(words, False)]
    done: list[Tree] = []
    while stack:
        count, joined = stack.pop()
        if joined:
            right = done.pop()
            done.append((done.pop(), right))
        elif count == 1:
            done.append(rng.standard_normal((1, inputs)).astype(np.float32))
        else:
            left = 1 + int((count - 1) * rng.random() ** 4)
            stack += [(count, True), (count - left, False), (left, False)]
    return done[0]


def height(tree: Tree) -> int:
    """Levels above the leaves."""
    level, deepest = [(tree, 0)], 0
    while level:
        node, depth = level.pop()
        if isinstance(node, tuple):
            level += [(child, depth + 1) for child in node]
        else:
            deepest = max(deepest, depth)
    return deepest


@dataclass(frozen=True, slots=True)
class FlatTree:
    """A tree as arrays, the form that peers without algebraic data types take.

    words      leaf vectors, left to right, (n, inputs) float32
    children   the two children of each inner node, bottom-up, (n - 1, 2) int64; leaves are 0..n-1,
               inner node k is n + k
    levels     inner nodes by height, lowest first: arrays of indices into `children`
    """

    words: Array
    children: Array
    levels: tuple[Array, ...]


def flatten(tree: Tree) -> FlatTree:
    """The tree as arrays."""
    words: list[Array] = []
    pairs: list[tuple[tuple[str, int], tuple[str, int]]] = []
    heights: list[int] = []
    done: list[tuple[tuple[str, int], int]] = []
    stack: list[tuple[Tree, bool]] = [(tree, False)]
    while stack:
        node, visited = stack.pop()
        if not isinstance(node, tuple):
            done.append((("leaf", len(words)), 0))
            words.append(node)
        elif visited:
            right, left = done.pop(), done.pop()
            heights.append(1 + max(left[1], right[1]))
            done.append((("node", len(pairs)), heights[-1]))
            pairs.append((left[0], right[0]))
        else:
            stack += [(node, True), (node[1], False), (node[0], False)]
    leaves = len(words)
    number = {"leaf": 0, "node": leaves}
    children = np.array(
        [[number[kind] + at for kind, at in pair] for pair in pairs], np.int64
    ).reshape(-1, 2)
    by_height = np.array(heights, np.int64)
    levels = tuple(np.flatnonzero(by_height == h) for h in range(1, max(heights, default=0) + 1))
    return FlatTree(np.concatenate(words), children, levels)


__all__ = ["Case", "FlatTree", "flatten", "height", "lengths", "parse_like_tree"]

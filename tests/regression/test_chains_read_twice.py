"""Chains in which every link reads the one before it twice, at different indices: fused whole, they would be written
twice as often with every link.
"""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from tests.properties.everywhere import module, run_everywhere

LINKS = 20


def _program(links: int) -> str:
    lines = ["def @main(%u0: Tensor[(?n), float32]) {"]
    for i in range(links):
        lines.append(f"""
  let %p{i} = nn.pad(%u{i}, 0f, pad_width=[[0, 1]]);
  let %q{i} = strided_slice(%p{i}, begin=[0], end=[2147483647], strides=[2], axes=[0]);
  let %r{i} = strided_slice(%u{i}, begin=[{i % 3}], end=[2147483647], strides=[3], axes=[0]);
  let %u{i + 1} = concatenate((%q{i}, %r{i}), axis=0);""")
    return "".join([*lines, f"\n  exp(%u{links}) }}"])


def _expected(u: np.ndarray, links: int) -> np.ndarray:
    for i in range(links):
        u = np.concatenate([np.pad(u, (0, 1))[::2], u[i % 3 :: 3]])
    return np.exp(u)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_chain_gives_what_numpy_gives(size: int) -> None:
    u = np.linspace(-1, 1, size, dtype=np.float32)
    np.testing.assert_allclose(run_everywhere(_program(6), u), _expected(u, 6), rtol=1e-6)


def test_the_file_grows_with_the_chain_and_not_with_its_power() -> None:
    sizes = [len(nvm.compile(module(_program(n))).to_bytes()) for n in (LINKS // 2, LINKS)]
    assert sizes[1] < 4 * sizes[0]

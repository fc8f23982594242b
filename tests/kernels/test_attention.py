"""Attention in one kernel: the same values as the operators one by one, for sizes around blocks and panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm.kernels import llvm
from nimblevm.kernels.lower import LoweredKernel, lower_primitive
from tests.kernels.fused import floats
from tests.kernels.native import Evaluated, Library, Program, agree, bind, oracle, parsed

Array = np.ndarray[Any, Any]
HEADS = """def @main(%q: Tensor[(?b, ?m, 12), {t}], %k: Tensor[(?b, ?n, 12), {t}],
  %v: Tensor[(?b, ?n, 15), {t}], %mask: Tensor[(?b, 1, 1, ?n), {t}]) {{
  let %q1 = reshape(transpose(reshape(%q, newshape=[0, 0, 3, 4]), axes=[0, 2, 1, 3]), newshape=[-3, 0, 0]);
  let %k1 = reshape(transpose(reshape(%k, newshape=[0, 0, 3, 4]), axes=[0, 2, 1, 3]), newshape=[-3, 0, 0]);
  let %v1 = reshape(transpose(reshape(%v, newshape=[0, 0, 3, 5]), axes=[0, 2, 1, 3]), newshape=[-3, 0, 0]);
  let %s = reshape(nn.batch_matmul(%q1, %k1, transpose_b=True) * 0.5{f}, newshape=[-4, -1, 3, -2]);
  let %p = reshape(nn.softmax(%s + %mask, axis=-1), newshape=[-3, -2]);
  reshape(transpose(reshape(nn.batch_matmul(%p, %v1), newshape=[-4, -1, 3, -2]), axes=[0, 2, 1, 3]),
          newshape=[0, 0, -3]) }}"""
SIZES = (
    (1, 1, 1),
    (2, 3, 17),
    (1, 4, 16),
    (1, 13, 33),
    (2, 25, 5),
    (1, 0, 3),
    (1, 5, 0),
    (0, 2, 2),
)


def arguments(b: int, m: int, n: int, dtype: str) -> list[Array]:
    shapes = ((b, m, 12), (b, n, 12), (b, n, 15), (b, 1, 1, n))
    return [floats(*s).astype(dtype) for s in shapes]


def blocked(lowered: LoweredKernel) -> bool:
    return any(len(t.shape) == 4 and t.shape[-1] == 16 for t in lowered.scratch_types)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_heads_with_a_mask(dtype: str) -> None:
    module, function = parsed(HEADS.format(t=dtype, f="f" if dtype == "float32" else "f64"))
    lowered = lower_primitive(function)
    assert blocked(lowered)
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    for sizes in SIZES:
        args = arguments(*sizes, dtype)
        expected = oracle(module, *args)
        program = Program(lowered, args, bind(lowered, args, expected))
        for runner in (Library(code), Evaluated(lowered)):
            found = program.run(runner)
            assert agree(found[0], expected[0], 1e-5, 1e-5), sizes

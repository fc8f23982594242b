"""Products of uint8 and int8, as quantized layers have them: the int32 result is exact on every path."""

from __future__ import annotations

import numpy as np
import pytest

from nimblevm import relay
from tests.properties.everywhere import run_everywhere

PAIRS = (("uint8", "int8"), ("int8", "uint8"))


def extremes(dtype: str, *sizes: int) -> np.ndarray:
    """The dtype's least and greatest values and what lies between."""
    info = np.iinfo(dtype)
    values = np.random.default_rng(3).integers(info.min, info.max + 1, sizes)
    values.reshape(-1)[:2] = info.min, info.max
    return values.astype(dtype)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_dense(first: str, second: str) -> None:
    x, w = extremes(first, 3, 37), extremes(second, 5, 37)
    text = f"""def @main(%x: Tensor[(?, 37), {first}], %w: Tensor[(5, 37), {second}]) {{
      (nn.dense(%x, %w, out_dtype="int32"), nn.matmul(%x, %w, out_dtype="int32", transpose_b=True))
    }}"""
    by_dense, by_matmul = run_everywhere(text, x, w)
    expected = x.astype("int64") @ w.T.astype("int64")
    np.testing.assert_array_equal(by_dense, expected)
    np.testing.assert_array_equal(by_matmul, expected)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_batch_matmul(first: str, second: str) -> None:
    x, w = extremes(first, 2, 3, 9), extremes(second, 2, 9, 4)
    a, b = relay.var("a", shape=x.shape, dtype=first), relay.var("b", shape=w.shape, dtype=second)
    body = relay.nn.batch_matmul(a, b, out_dtype="int32", transpose_b=False)
    found = run_everywhere(relay.IRModule.from_expr(relay.Function([a, b], body)), x, w)
    np.testing.assert_array_equal(found, x.astype("int64") @ w.astype("int64"))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_conv2d(first: str, second: str) -> None:
    """A kernel of one element: a product at every place."""
    x, w = extremes(first, 1, 3, 4, 5), extremes(second, 2, 3, 1, 1)
    text = f"""def @main(%x: Tensor[(?, 3, ?, ?), {first}], %w: Tensor[(2, 3, 1, 1), {second}]) {{
      nn.conv2d(%x, %w, out_dtype="int32")
    }}"""
    expected = np.einsum("nihw,oi->nohw", x.astype("int64"), w[:, :, 0, 0].astype("int64"))
    np.testing.assert_array_equal(run_everywhere(text, x, w), expected)

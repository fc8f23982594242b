"""Passes that users call keep what programs compute: their golden files, before and after, by the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.combine_parallel import (
    combine_batch_matmul_pass,
    combine_conv2d_pass,
    combine_dense_pass,
)
from nimblevm.compiler.passes.split_args import split_args_pass
from nimblevm.compiler.passes.to_basic_block import TO_BASIC_BLOCK, check_basic_block_normal_form
from nimblevm.errors import InvalidInput, WellFormedError
from nimblevm.relay.dims import DimVar
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.types import TensorType, TupleType, Type, free_dims
from nimblevm.tvm.relay import transform
from nimblevm.tvm.relay.analysis import list_op_freqs
from tests.compiler.test_golden import GOLDEN, run

CASES = [
    path
    for name in (
        "canonicalize_ops", "defuse_ops", "div_to_mul", "fast_math", "fold_explicit_padding", "split_args",
        "to_basic_block", "combine_dense", "combine_units", "combine_batch_matmul", "combine_conv2d",
        "backward_fold_scale_axis", "forward_fold_scale_axis", "flatten_atrous_conv",
        "canonicalize_cast",
    )
    for path in sorted((GOLDEN / name).glob("*.rly"))
]  # fmt: skip


def draw(type_: Type, rng: np.random.Generator, sizes: dict[DimVar, int]) -> Any:
    """A random value of a type whose dims have these sizes."""
    if isinstance(type_, TupleType):
        return tuple(draw(field, rng, sizes) for field in type_.fields)
    assert isinstance(type_, TensorType)
    shape = [d if isinstance(d, int) else sizes[d] for d in type_.shape]  # type: ignore[index]
    if type_.dtype == "bool":
        return rng.random(shape) < 0.5
    if type_.dtype.startswith("float"):
        return rng.normal(size=shape).astype(type_.dtype)
    return rng.integers(-9, 9, shape).astype(type_.dtype)


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
        return
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    tolerance = 2e-3 if one.dtype == np.float16 else 2e-6
    np.testing.assert_allclose(one, other, tolerance, tolerance)


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_values_stay(path: Path) -> None:
    before, after = run(path)
    rng = np.random.default_rng(0)
    params = [p.checked_type for p in before["main"].params]
    known = [t for t in params if t is not None]
    for size in (4, 7):
        sizes = dict.fromkeys((d for t in known for d in free_dims(t)), size)
        args = [draw(t, rng, sizes) for t in known]
        with np.errstate(all="ignore"):
            assert_same(evaluate(before, args), evaluate(after, args))


def test_split_args_takes_two_tensors_at_least() -> None:
    for count in (-1, 1, 2):
        with pytest.raises(InvalidInput, match="at least 3"):
            split_args_pass(count)
    mod = IRModule()
    assert split_args_pass(0)(mod) is mod


def test_groups_have_two_members_at_least() -> None:
    for make in (combine_dense_pass, combine_batch_matmul_pass, combine_conv2d_pass):
        with pytest.raises(InvalidInput, match="at least 2"):
            make(1)


def test_small_groups_stay() -> None:
    before, _ = run(GOLDEN / "combine_units" / "units.rly")
    assert combine_dense_pass(4, to_batch=False)(before) is before


def test_what_is_no_basic_block_normal_form() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: float32, %c: bool) { %0 = exp(%x); if (%c) { %0 } else { %0 * 2f } }'
    mod = infer_type(parse_module(text, "mod.rly"))
    with pytest.raises(WellFormedError, match=r"(?s)several blocks read .*exp"):
        check_basic_block_normal_form(mod["main"])
    with pytest.raises(WellFormedError):
        check_basic_block_normal_form(mod["main"].body)
    check_basic_block_normal_form(TO_BASIC_BLOCK(mod, PassContext())["main"])


def test_scales_go_into_weights_of_any_form() -> None:
    """Of a program in A-normal form, and what stands in branches; FoldConstant leaves one operator."""
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(2, 3), float32], %c: bool) {
      let %w = full(2f, shape=[4, 3], dtype="float32");
      let %s = arange(1f, 5f, 1f, dtype="float32");
      let %y = nn.dense(%x, %w);
      if (%c) { let %a = %y * %s; nn.relu(%a) } else { let %z = %x * 3f; nn.dense(%z, %w) }
    }"""
    mod = infer_type(parse_module(text, "mod.rly"))
    with transform.PassContext(opt_level=3):
        folded = transform.Sequential(
            [transform.FoldConstant(), transform.FoldScaleAxis(), transform.FoldConstant()]
        )(mod)
    assert list_op_freqs(folded) == {"nn.dense": 2, "nn.relu": 1}
    x = np.arange(-3, 3, dtype="float32").reshape(2, 3)
    for branch in (True, False):
        assert_same(evaluate(mod, [x, branch]), evaluate(folded, [x, branch]))

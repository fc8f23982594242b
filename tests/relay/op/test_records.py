"""Generic tests over all operator records, and what is special in some references."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nimblevm import dtypes
from nimblevm.errors import DivisionByZero, IndexOutOfRange, ShapeMismatch
from nimblevm.relay.dims import DimVar
from nimblevm.relay.op import all_ops, get
from nimblevm.relay.op.arange import ArangeAttrs
from nimblevm.relay.op.cast import CastAttrs
from nimblevm.relay.op.dense import DenseAttrs
from nimblevm.relay.op.reduce import ArgReduceAttrs, ReduceAttrs
from nimblevm.relay.op.registry import Effect, Op, OpPattern
from nimblevm.relay.op.reshape import ReshapeAttrs
from nimblevm.relay.op.strided_slice import StridedSliceAttrs, slice_of, slice_size
from nimblevm.relay.op.take import TakeAttrs
from nimblevm.relay.types import TensorType, TupleType, Type
from tests.relay.op.cases import WITHOUT_CASES, case_strategy, cases, generate
from tests.relay.op.draw import Case

OPS = all_ops()
WITH_CASES = [op for op in OPS if op.name not in WITHOUT_CASES]


def agree(expected: Type, value: Any) -> bool:
    if isinstance(expected, TupleType):
        return isinstance(value, tuple) and all(map(agree, expected.fields, value))
    assert isinstance(expected, TensorType)
    shape_ok = all(
        isinstance(d, DimVar) or d == n
        for d, n in zip(expected.shape, np.shape(value), strict=True)
    )
    return isinstance(value, np.ndarray) and value.dtype.name == expected.dtype and shape_ok


def compute(name: str, *inputs: object, attrs: object = None) -> np.ndarray:
    op = get(name)
    return op.reference(inputs, attrs, Case(inputs, attrs).infer(op))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_record_is_complete(op: Op) -> None:
    text = " ".join(op.doc.split())
    assert "Differs from numpy:" in text
    assert "out" in text or "split" in op.name or "shape" in text, "the doc states a formula"
    assert all(re.fullmatch(r"[a-z_]+", arg) for arg in op.args)
    assert len(op.dtypes) in (1, len(op.args))
    assert all(dtypes.dtype(name) for group in op.dtypes for name in group)
    assert isinstance(op.pattern, OpPattern)
    if op.attrs is not None:
        assert dataclasses.is_dataclass(op.attrs)
        assert vars(op.attrs)["__dataclass_params__"].frozen
        assert all(
            f.name in (op.attrs.__doc__ or "") or f.name in text
            for f in dataclasses.fields(op.attrs)
        )
        hash(
            next(iter(cases(op.name, op.dtypes[0][-1], 1))).attrs
            if op.name not in WITHOUT_CASES
            else 0
        )


@pytest.mark.parametrize("op", WITH_CASES, ids=lambda op: op.name)
def test_relation_says_what_the_reference_gives(op: Op) -> None:
    for dtype in op.dtypes[0]:
        for case in cases(op.name, dtype, 12):
            expected = case.infer(op)
            value = op.reference(case.inputs, case.attrs, expected)
            assert agree(expected, value), (case, expected)
            assert isinstance(op.effect_of(case.types, case.attrs), Effect)


def check_drawn_shapes(data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(WITH_CASES))
    case = data.draw(case_strategy(op.name, data.draw(st.sampled_from(op.dtypes[0]))))
    expected = case.infer(op)
    assert agree(expected, op.reference(case.inputs, case.attrs, expected))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_relation_says_what_the_reference_gives_on_drawn_shapes(data: st.DataObject) -> None:
    check_drawn_shapes(data)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_relation_says_what_the_reference_gives_on_more_shapes(data: st.DataObject) -> None:
    check_drawn_shapes(data)


def test_cases_reach_the_corners() -> None:
    seen = [case for op in WITH_CASES for case in cases(op.name, op.dtypes[0][-1], 20)]
    shapes = [np.shape(v) for case in seen for v in case.inputs if isinstance(v, np.ndarray)]
    assert () in shapes
    assert any(0 in shape for shape in shapes)
    assert any(1 in shape for shape in shapes)
    assert all(generate(op.name, op.dtypes[0][0], _Lowest()) for op in WITH_CASES)


class _Lowest:
    """Always the first choice, as hypothesis shrinks to."""

    def integer(self, low: int, high: int) -> int:
        return low


# --- meanings that need their own numbers ----------------------------------------------------------


def test_integers_wrap_and_division_follows_relay() -> None:
    low, minus_one = np.asarray([-128], "int8"), np.asarray([-1], "int8")
    assert compute("divide", low, minus_one).tolist() == [-128]
    assert compute("floor_mod", low, minus_one).tolist() == [0]
    assert compute("add", low, minus_one).tolist() == [127]
    a, b = np.asarray([7, -7, 7, -7], "int32"), np.asarray([2, 2, -2, -2], "int32")
    assert compute("divide", a, b).tolist() == [3, -3, -3, 3]
    assert compute("mod", a, b).tolist() == [1, -1, 1, -1]
    assert compute("floor_divide", a, b).tolist() == [3, -4, -4, 3]
    assert compute("floor_mod", a, b).tolist() == [1, 1, -1, -1]
    assert compute("abs", low).tolist() == [-128]
    unsigned = np.asarray([250], "uint8")
    assert compute("trunc_mod", unsigned, np.asarray([7], "uint8")).tolist() == [5]


@pytest.mark.parametrize(
    "name", ["divide", "mod", "floor_divide", "floor_mod", "trunc_divide", "trunc_mod"]
)
def test_integer_division_by_zero_is_an_error(name: str) -> None:
    with pytest.raises(DivisionByZero, match=name):
        compute(name, np.asarray([1], "int32"), np.asarray([0], "int32"))
    empty = np.zeros((0,), "int32")
    assert compute(name, empty, np.zeros((1,), "int32")).shape == (0,)
    compute(name, np.asarray([1.0], "float32"), np.asarray([0.0], "float32"))
    types = (TensorType((1,), "int32"), TensorType((1,), "int32"))
    assert get(name).effect_of(types, None) is Effect.MAY_FAIL


def test_round_goes_half_away_from_zero() -> None:
    values = np.asarray(
        [0.5, -0.5, 1.5, 2.5, -2.5, np.nextafter(np.float32(0.5), np.float32(0))], "float32"
    )
    assert compute("round", values).tolist() == [1, -1, 2, 3, -3, 0]


def test_cast_saturates_and_nan_gives_zero() -> None:
    values = np.asarray([1e30, -1e30, np.nan, np.inf, -np.inf, 1.9, -1.9], "float32")
    assert compute("cast", values, attrs=CastAttrs("int32")).tolist() == [
        2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), 1, -1,
    ]  # fmt: skip
    assert compute("cast", values, attrs=CastAttrs("uint8")).tolist() == [255, 0, 0, 255, 0, 1, 0]
    assert compute("cast", values, attrs=CastAttrs("int64")).tolist()[:2] == [2**63 - 1, -(2**63)]
    assert compute("cast", values, attrs=CastAttrs("bool")).all()
    assert compute("cast", np.asarray([300, -1], "int32"), attrs=CastAttrs("uint8")).tolist() == [
        44,
        255,
    ]


def test_take_modes() -> None:
    data, indices = np.arange(4, dtype="float32"), np.asarray([-1, 5, 2], "int32")
    assert compute("take", data, indices, attrs=TakeAttrs(axis=0)).tolist() == [0, 3, 2]
    assert compute("take", data, indices, attrs=TakeAttrs(axis=0, mode="wrap")).tolist() == [
        3,
        1,
        2,
    ]
    with pytest.raises(IndexOutOfRange, match="-1 is outside an axis of size 4"):
        compute("take", data, indices, attrs=TakeAttrs(axis=0, mode="fast"))
    with pytest.raises(ShapeMismatch, match="non-empty"):
        compute("take", data[:0], indices, attrs=TakeAttrs(axis=0))
    assert compute("take", data[:0], indices[:0], attrs=TakeAttrs(axis=0)).shape == (0,)


@pytest.mark.parametrize(
    ("dims", "newshape", "expected"),
    [
        ((2, 3, 4), (4, -1, 2), (4, 3, 2)),
        ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
        ((2, 3, 4), (2, 0, 0), (2, 3, 4)),
        ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)),
        ((2, 3, 4), (-3, 4), (6, 4)),
        ((2, 3, 4, 5), (-3, -3), (6, 20)),
        ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)),
        ((2, 3, 4), (-4, -1, 1, 0, -1), (2, 1, 3, 4)),
        ((0, 3), (-1, 3), (0, 3)),
    ],
)
def test_reshape_forms(
    dims: tuple[int, ...], newshape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert (
        compute("reshape", np.zeros(dims, "int8"), attrs=ReshapeAttrs(newshape)).shape == expected
    )


@pytest.mark.parametrize(
    "newshape", [(5,), (-1, -1), (-5,), (7, -1), (2, 3, 4, 0), (-4, 2), (-4, -1, -1)]
)
def test_reshape_refuses(newshape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatch):
        compute("reshape", np.zeros((2, 3, 4), "int8"), attrs=ReshapeAttrs(newshape))


def test_argmax_of_ties_and_several_axes() -> None:
    data = np.asarray([[1, 3, 3], [3, 0, 3]], "float32")
    assert compute("argmax", data, attrs=ArgReduceAttrs(axis=(1,))).tolist() == [1, 0]
    assert compute(
        "argmax", data, attrs=ArgReduceAttrs(axis=(1,), select_last_index=True)
    ).tolist() == [2, 2]
    assert compute("argmax", data, attrs=ArgReduceAttrs()).tolist() == 1
    assert compute("argmax", data, attrs=ArgReduceAttrs(axis=(0,), exclude=True)).dtype == "int32"


def test_reductions_keep_integer_dtypes() -> None:
    data = np.full((3,), 100, "int8")
    assert compute("sum", data, attrs=ReduceAttrs()) == np.int8(44)
    assert compute("mean", np.asarray([-3, -4], "int32"), attrs=ReduceAttrs()) == -3
    assert compute("mean", np.full((256,), -1, "int8"), attrs=ReduceAttrs()) == 0
    assert compute("mean", np.full((2**16,), 100, "uint8"), attrs=ReduceAttrs()) == 0
    with pytest.raises(ShapeMismatch):
        compute("max", data[:0], attrs=ReduceAttrs())
    assert compute("sum", data[:0], attrs=ReduceAttrs()) == 0


def test_float16_is_computed_in_float32() -> None:
    ones = np.ones((4096,), "float16")
    assert compute("sum", ones, attrs=ReduceAttrs()) == 4096
    data, weight = np.ones((1, 3000), "float16"), np.ones((1, 3000), "float16")
    assert compute("nn.dense", data, weight, attrs=DenseAttrs()).item() == 3000


def test_arange_sizes() -> None:
    def run(*values: float, dtype: str = "float32") -> list[float]:
        return compute(
            "arange", *(np.asarray(v, dtype) for v in values), attrs=ArangeAttrs(dtype)
        ).tolist()

    assert run(0, 1, 0.25) == [0, 0.25, 0.5, 0.75]
    assert run(5, 0, -2, dtype="int32") == [5, 3, 1]
    assert run(0, 5, -1, dtype="int32") == []
    with pytest.raises(DivisionByZero):
        run(0, 1, 0)


def test_demands_are_decided_by_name() -> None:
    with pytest.raises(ShapeMismatch, match=r"nn\.dense: axis 1 of data must be 4, but it is 3"):
        compute(
            "nn.dense", np.zeros((2, 3), "float32"), np.zeros((5, 4), "float32"), attrs=DenseAttrs()
        )
    with pytest.raises(ShapeMismatch, match="broadcast"):
        compute("add", np.zeros((2,), "float32"), np.zeros((3,), "float32"))


def test_slice_sizes_are_python_s() -> None:
    ends = [None, *range(-6, 7)]
    for size in range(5):
        for begin, end, stride in itertools.product(range(-6, 7), ends, (1, 2, 3, -1, -2)):
            expected = len(range(size)[slice(begin, end, stride)])
            assert slice_size(size, begin, end, stride) == expected


def test_slice_sizes_of_unknown_axes_stay_simple() -> None:
    n = DimVar("n")
    assert slice_size(n, 0, None, 1) is n
    assert slice_size(n, 1, None, 1) is slice_size(n, 0, -1, 1)
    assert slice_size(n, -1, None, -1) is n
    assert slice_of(StridedSliceAttrs((1,), (2**31 - 1,)), 0) == (1, None, 1)
    assert slice_of(StridedSliceAttrs((-1,), (-(2**31),), (-1,)), 0) == (-1, None, -1)

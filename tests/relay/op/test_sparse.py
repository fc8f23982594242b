"""Sparse matrices against dense ones, sparse tensors by TensorFlow's examples; indices that lead outside."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import (
    DimOverflow,
    DivisionByZero,
    IndexOutOfRange,
    RelayTypeError,
    ShapeMismatch,
)
from tests.kernels.native import flat
from tests.relay.op.checks import f32, fails, i32, i64, program, run

RNG = np.random.default_rng(7)
Matrix = namedtuple("Matrix", "data indices indptr")


def sparse(whole: np.ndarray, dtype: str = "int32") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A dense matrix by its rows of elements."""
    rows, columns = np.nonzero(whole)
    ends = np.searchsorted(rows, np.arange(len(whole) + 1))
    return whole[rows, columns], columns.astype(dtype), ends.astype(dtype)


def few(rows: int, columns: int) -> np.ndarray:
    whole = RNG.normal(size=(rows, columns)).astype("float32")
    return np.where(RNG.random(whole.shape) < 0.3, whole, np.float32(0))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_products_with_a_sparse_matrix(left: bool, dtype: str) -> None:
    matrix, dense = few(7, 20), RNG.normal(size=(3, 20)).astype("float32")
    found = run(
        lambda d, *parts: relay.nn.sparse_dense(d, Matrix(*parts), left),
        dense,
        *sparse(matrix, dtype),
    )
    wanted = matrix @ dense.T if left else dense @ matrix.T
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left", [False, True])
def test_machine_code_of_rows_of_their_own_length(left: bool) -> None:
    """Tiles of a product need one depth for all outputs: such sums must not be taken for one."""
    matrix, dense = few(9, 20), RNG.normal(size=(9, 20)).astype("float32")
    values = (dense, *sparse(matrix))
    mod = program(lambda d, *p: relay.nn.sparse_dense(d, p, left), values)
    with nvm.compile(mod) as exe, nvm.VirtualMachine(exe) as vm:
        wanted = matrix @ dense.T if left else dense @ matrix.T
        np.testing.assert_allclose(np.array(vm.run(*values)), wanted, rtol=1e-5, atol=1e-5)


def test_products_with_blocks_and_what_is_fused_behind() -> None:
    """Blocks of 2 x 3 of a 6 x 9 matrix, a bias and a relu behind; the weights are constants."""
    blocks = RNG.normal(size=(4, 2, 3)).astype("float32")
    places = ((0, 1), (0, 2), (2, 0), (2, 2))
    matrix = np.zeros((6, 9), "float32")
    for (row, column), block in zip(places, blocks, strict=True):
        matrix[2 * row : 2 * row + 2, 3 * column : 3 * column + 3] = block
    parts = (blocks, i32([1, 2, 0, 2]), i32([0, 2, 2, 4]))
    bias = RNG.normal(size=6).astype("float32")

    def made(d: Any) -> Any:
        weights = [relay.const(part) for part in parts]
        return relay.nn.relu(relay.nn.sparse_dense(d, weights) + relay.const(bias))

    for count in (0, 1, 5):
        dense = RNG.normal(size=(count, 9)).astype("float32")
        wanted = np.maximum(dense @ matrix.T + bias, 0)
        np.testing.assert_allclose(run(made, dense), wanted, rtol=1e-5, atol=1e-5)


def test_sums_with_a_sparse_matrix() -> None:
    """TVM's example, and a column that occurs twice."""
    dense = f32([[3, 4, 4], [4, 2, 5]])
    parts = (f32([4, 8]), i32([0, 2]), i32([0, 1, 2]))
    found = run(lambda d, *p: relay.nn.sparse_add(d, p), dense, *parts)
    np.testing.assert_array_equal(found, [[7, 4, 4], [4, 2, 13]])
    twice = (f32([1, 2]), i32([1, 1]), i32([0, 2, 2]))
    found = run(lambda d, *p: relay.nn.sparse_add(d, p), dense, *twice)
    np.testing.assert_array_equal(found, [[3, 7, 4], [4, 2, 5]])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_transposed_matrix_is_that_of_its_columns(dtype: str) -> None:
    for size in (0, 1, 2, 9):
        matrix = few(size, size)
        found = run(lambda *p: relay.nn.sparse_transpose(p), *sparse(matrix, dtype))
        for part, wanted in zip(found, sparse(np.ascontiguousarray(matrix.T), dtype), strict=True):
            np.testing.assert_array_equal(part, wanted)


WRONG = (
    (i32([0, 5]), i32([0, 1, 2])),
    (i32([0, -1]), i32([0, 1, 2])),
    (i32([0, 1]), i32([0, 1, 3])),
    (i32([0, 1]), i32([-1, 1, 2])),
)


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_indices_and_ends_that_lead_outside(number: int) -> None:
    indices, indptr = WRONG[number]
    data, dense = f32([1, 2]), np.ones((2, 2), "float32")
    fails(IndexOutOfRange, lambda d, *p: relay.nn.sparse_dense(d, p), dense, data, indices, indptr)
    fails(IndexOutOfRange, lambda d, *p: relay.nn.sparse_add(d, p), dense, data, indices, indptr)
    fails(IndexOutOfRange, lambda *p: relay.nn.sparse_transpose(p), data, indices, indptr)


def test_rows_that_do_not_ascend() -> None:
    """Empty for products; a transposed matrix would have places that nothing is written to."""
    data, indices, indptr = f32([1, 2]), i32([0, 1]), i32([2, 0, 2])
    dense = np.ones((1, 2), "float32")
    found = run(lambda d, *p: relay.nn.sparse_dense(d, p), dense, data, indices, indptr)
    np.testing.assert_array_equal(found, [[0, 3]])
    for ends in (indptr, i32([0, 2, 1]), i32([0, 1, 1]), i32([1, 1, 2])):
        fails(IndexOutOfRange, lambda *p: relay.nn.sparse_transpose(p), data, indices, ends)
    fails(ShapeMismatch, lambda *p: relay.nn.sparse_transpose(p), data, indices, indptr[:0])
    fails(ShapeMismatch, lambda *p: relay.nn.sparse_transpose(p), data, indices[:1], indptr)


def test_sparse_reshape_of_tvm_s_documentation() -> None:
    indices = i32([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 2, 3]])

    def made(places: Any, shape: Any = (9, -1)) -> Any:
        return relay.sparse_reshape(places, i32([2, 3, 6]), np.int32(shape))

    found = run(made, indices)
    np.testing.assert_array_equal(found[0], [[0, 0], [0, 1], [1, 2], [4, 2], [8, 1]])
    np.testing.assert_array_equal(found[1], [9, 4])
    fails(DivisionByZero, lambda i: made(i, (0, -1)), indices)
    fails(DivisionByZero, lambda i: made(i, (9, 0)), indices)
    for shape in ((5, 2), (3,)):
        with pytest.raises(RelayTypeError):
            static(made, shape)


def static(made: Any, shape: tuple[int, ...]) -> None:
    x = relay.var("x", shape=shape, dtype="int32")
    function = relay.Function([x], made(x).tuple_value)
    relay.infer_type(relay.IRModule.from_expr(function))


def test_sparse_fill_empty_rows_of_tvm_s_documentation() -> None:
    indices = i64([[0, 1], [0, 3], [2, 0], [3, 1]])
    places, values, empty = run(
        relay.sparse_fill_empty_rows,
        indices,
        i64([1, 2, 3, 4]),
        i64([5, 6]),
        i64([10]),
    )
    np.testing.assert_array_equal(places, [[0, 1], [0, 3], [1, 0], [2, 0], [3, 1], [4, 0]])
    np.testing.assert_array_equal(values, [1, 2, 10, 3, 4, 10])
    np.testing.assert_array_equal(empty, [False, True, False, False, True])


def test_several_rows_in_a_row_are_empty_and_sizes_change_from_call_to_call() -> None:
    one = (i32([[0, 0]]), i32([1]), i32([1, 9]), i32([7]))
    exe = nvm.compile(program(relay.sparse_fill_empty_rows, one), native=False)
    with exe, nvm.VirtualMachine(exe) as vm:
        for rows, places in ((0, []), (4, []), (1, [0]), (9, [3, 3, 7]), (3, [0, 1, 2])):
            indices = np.asarray([[p, 5] for p in places], "int32").reshape(-1, 2)
            given = np.arange(len(places), dtype="int32")
            parts = [
                np.array(part) for part in flat(vm.run(indices, given, i32([rows, 9]), i32([7])))
            ]
            whole = sorted(
                [(p, 5, v) for p, v in zip(places, given, strict=True)]
                + [(r, 0, 7) for r in range(rows) if r not in places],
                key=lambda entry: entry[0],
            )
            np.testing.assert_array_equal(
                np.column_stack((parts[0], parts[1])).reshape(-1, 3), whole or np.zeros((0, 3))
            )
            assert parts[2].tolist() == [r not in places for r in range(rows)]


def test_rows_that_no_tensor_has() -> None:
    def made(places: Any, values: Any, shape: Any, default: Any) -> Any:
        return relay.sparse_fill_empty_rows(places, values, shape, default)

    values, shape, default = i64([1, 2]), i64([3, 3]), i64([0])
    for rows in ([0, 3], [-1, 0], [2, 1], [5, 5]):
        fails(IndexOutOfRange, made, i64([[r, 0] for r in rows]), values, shape, default)
    fails(ShapeMismatch, made, i64([[0, 0]]), values, shape, default)
    fails(DimOverflow, made, np.zeros((0, 2), "int64"), values[:0], -shape, default)

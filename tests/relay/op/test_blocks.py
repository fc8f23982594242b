"""Blocks of space, layouts, dilation, windows and sparse places, element by element as their definitions say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import ShapeMismatch
from nimblevm.relay.interpreter import evaluate
from tests.relay.op.checks import Refused, refused


def unknown(rank: int, dtype: str = "float32") -> relay.Var:
    return relay.var("x", shape=tuple(relay.Any() for _ in range(rank)), dtype=dtype)


def run(made: Any, *values: np.ndarray) -> np.ndarray:
    """The compiled program's value on unknown sizes, equal to the oracle's. made: parameters -> expression."""
    params = [unknown(v.ndim, v.dtype.name) for v in values]
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function(params, made(*params))))
    expected = evaluate(mod, values)
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        np.testing.assert_array_equal(vm.run(*values).numpy(), expected)
    return expected


def numbered(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_by_its_elements(mode: str) -> None:
    data = numbered(2, 8, 2, 3)
    out = run(lambda x: relay.nn.depth_to_space(x, 2, "NCHW", mode), data)
    assert out.shape == (2, 2, 4, 6)
    for n, k, y, x in np.ndindex(*out.shape):
        i, j = y % 2, x % 2
        channel = (i * 2 + j) * 2 + k if mode == "DCR" else k * 4 + i * 2 + j
        assert out[n, k, y, x] == data[n, channel, y // 2, x // 2]
    behind = run(
        lambda x: relay.nn.depth_to_space(x, 2, "NHWC", mode), np.moveaxis(data, 1, -1).copy()
    )
    np.testing.assert_array_equal(np.moveaxis(behind, -1, 1), out)


def test_space_to_depth_undoes_it() -> None:
    data = numbered(2, 3, 4, 6)
    out = run(lambda x: relay.nn.space_to_depth(x, 2), data)
    for n, c, y, x in np.ndindex(*out.shape):
        block, k = divmod(c, 3)
        assert out[n, c, y, x] == data[n, k, y * 2 + block // 2, x * 2 + block % 2]
    back = run(lambda x: relay.nn.depth_to_space(relay.nn.space_to_depth(x, 2), 2), data)
    np.testing.assert_array_equal(back, data)


def test_space_to_batch_and_back() -> None:
    data = numbered(2, 3, 4, 2)
    out = run(lambda x: relay.nn.space_to_batch_nd(x, [2, 3], [[1, 0], [0, 2]], -1.0), data)
    assert out.shape == (12, 2, 2, 2)
    padded = np.pad(data, ((0, 0), (1, 0), (0, 2), (0, 0)), constant_values=-1)
    for m, y, x, c in np.ndindex(*out.shape):
        (i, j), n = divmod(m // 2, 3), m % 2
        assert out[m, y, x, c] == padded[n, y * 2 + i, x * 3 + j, c]
    back = run(lambda x: relay.nn.batch_to_space_nd(x, [2, 3], [[1, 0], [0, 2]]), out)
    np.testing.assert_array_equal(back, data)
    gone = run(lambda x: relay.nn.batch_to_space_nd(x, [2, 3], [[2, 2], [0, 0]]), out)
    assert gone.shape == (2, 0, 6, 2)


def test_layouts_keep_every_element() -> None:
    data = numbered(2, 12, 3, 1)
    blocked = run(lambda x: relay.layout_transform(x, "NCHW", "NHCW4c"), data)
    assert blocked.shape == (2, 3, 3, 1, 4)
    for n, c, h, w in np.ndindex(*data.shape):
        assert blocked[n, h, c // 4, w, c % 4] == data[n, c, h, w]
    other = run(lambda x: relay.layout_transform(x, "NHCW4c", "NC6cHW"), blocked)
    assert other.shape == (2, 2, 6, 3, 1)
    back = run(lambda x: relay.layout_transform(x, "NC6cHW", "NCHW"), other)
    np.testing.assert_array_equal(back, data)


def test_dilate_lrn_and_windows() -> None:
    out = run(lambda x: relay.nn.dilate(x, [2, 3], 7.0), numbered(2, 2))
    assert out.tolist() == [[0, 7, 7, 1], [7, 7, 7, 7], [2, 7, 7, 3]]
    assert run(lambda x: relay.nn.dilate(x, [2], 7.0), numbered(0)).shape == (0,)
    seen = run(lambda x: relay.sliding_window(x, 1, [2, 1], [2, 3]), numbered(2, 5, 4))
    assert seen.shape == (2, 2, 2, 2, 1)
    for b, i, j, k, m in np.ndindex(*seen.shape):
        assert seen[b, i, j, k, m] == numbered(2, 5, 4)[b, 2 * i + k, 3 * j + m]
    data = np.asarray([[1, 2, 3, 4]], "float32")
    found = evaluate(
        relay.IRModule.from_expr(relay.nn.lrn(relay.const(data), 3, 1, 1.0, 3.0, 0.5)), ()
    )
    sums = np.asarray([1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16], "float32")
    np.testing.assert_allclose(found[0], data[0] / np.sqrt(1 + sums), rtol=1e-6)


def test_sparse_places() -> None:
    places, values = (
        np.asarray([[0, 1], [2, 0], [0, 1], [5, 0], [-1, 0]], "int32"),
        np.asarray([1, 2, 3, 4, 5], "float32"),
    )
    out = run(lambda i, v: relay.sparse_to_dense(i, (3, 2), v), places, values)
    assert out.tolist() == [[0, 3], [0, 0], [2, 0]]
    one = run(lambda i: relay.sparse_to_dense(i, (3,), relay.const(2.0), -1), np.asarray([2, 0]))
    assert one.tolist() == [2, -1, 2]
    assert run(
        lambda i: relay.sparse_to_dense(i, (2,), relay.const(2)), np.asarray(1, "int32")
    ).tolist() == [
        0,
        2,
    ]


def test_upsampled_volumes() -> None:
    data = numbered(1, 1, 1, 2, 2)
    near = run(
        lambda x: relay.nn.upsampling3d(x, 2, 2, 1, "NCDHW", "nearest_neighbor", "asymmetric"), data
    )
    np.testing.assert_array_equal(near, data.repeat(2, 2).repeat(2, 3))
    linear = run(
        lambda x: relay.nn.upsampling3d(x, 1, 1, 2, "NCDHW", "trilinear", "align_corners"), data
    )
    np.testing.assert_allclose(linear[0, 0, 0, 0], [0, 1 / 3, 2 / 3, 1], rtol=1e-6)


X = relay.var("x", shape=(2, 6, 4, 3))
REFUSED: dict[str, Refused] = {
    "depth": (lambda: relay.nn.depth_to_space(X, 2), "axis 1 of size 6 is no multiple of 4"),
    "depth block": (lambda: relay.nn.depth_to_space(X, 0), "block_size must be in 1"),
    "depth mode": (lambda: relay.nn.depth_to_space(X, 1, mode="RCD"), "mode must be one of DCR, CRD"),
    "space": (lambda: relay.nn.space_to_depth(X, 2), "axis 3 of size 3 is no multiple of 2"),
    "batch": (
        lambda: relay.nn.space_to_batch_nd(X, [4], [[1, 0]]), "axis 1 of size 6 and 1 more is no multiple of 4",
    ),
    "batch pairs": (lambda: relay.nn.space_to_batch_nd(X, [2], [[1, 0], [0, 0]]), "paddings must have a pair"),
    "from batch": (lambda: relay.nn.batch_to_space_nd(X, [3], [[0, 0]]), "axis 0 of size 2 is no multiple of 3"),
    "crops": (lambda: relay.nn.batch_to_space_nd(X, [2], [[7, 7]]), "axis 1 has size 6, but needs 7"),
    "layout": (lambda: relay.layout_transform(X, "NCHW", "NCHW4c"), "axis 1 of size 6 is no multiple of 4"),
    "letters": (lambda: relay.layout_transform(X, "NCHW", "NCWD"), "same capital letters"),
    "no layout": (lambda: relay.layout_transform(X, "NCHW", "NCHWc"), "dst_layout must have capital letters"),
    "block alone": (lambda: relay.layout_transform(X, "NCHW", "NCH4cW4c"), "dst_layout must have capital"),
    "dilate": (lambda: relay.nn.dilate(X, [1, 2, 0, 1]), "strides must be"),
    "lrn": (lambda: relay.nn.lrn(X, 4), "size must be an odd integer"),
    "window": (lambda: relay.sliding_window(X, 2, [5, 1], [1, 1]), "axis 2 has size 4, but needs 5"),
    "strides": (lambda: relay.sliding_window(X, 2, [2, 1], [1]), "strides must hold an integer"),
    "sparse": (lambda: relay.sparse_to_dense(relay.const([[1]]), (2, 2), relay.const([1.0])), "axis 1"),
    "sparse rank": (lambda: relay.sparse_to_dense(relay.const([1]), (2, 2), relay.const([1.0])), "of a vector"),
    "volume": (lambda: relay.nn.upsampling3d(X), "must have rank 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_where(name: str) -> None:
    make, message = REFUSED[name]
    refused(make(), message)


def test_unknown_sizes_that_do_not_divide_fail_at_run_time() -> None:
    bodies: dict[str, Callable[[relay.Var], relay.Expr]] = {
        "depth": lambda x: relay.nn.depth_to_space(x, 2),
        "space": lambda x: relay.nn.space_to_depth(x, 2),
        "to batch": lambda x: relay.nn.space_to_batch_nd(x, [4], [[1, 0]]),
        "from batch": lambda x: relay.nn.batch_to_space_nd(x, [3], [[0, 0]]),
        "layout": lambda x: relay.layout_transform(x, "NCHW", "NCHW4c"),
        "window": lambda x: relay.sliding_window(x, 3, [4], [1]),
    }
    names = [relay.GlobalVar(f"f{i}") for i in range(len(bodies))]
    mod = relay.IRModule()
    for name, body in zip(names, bodies.values(), strict=True):
        x = unknown(4)
        mod[name] = relay.Function([x], body(x))
    value = numbered(2, 6, 4, 3)
    with nvm.compile(relay.infer_type(mod), native=False) as exe, nvm.VirtualMachine(exe) as vm:
        for name in names:
            with pytest.raises(ShapeMismatch):
                vm.invoke(name.name_hint, value)


def test_sizes_stay_known_through_blocks() -> None:
    """What is moved out and back has its sizes again."""
    n, h = relay.DimVar("n"), relay.DimVar("h")
    x = relay.var("x", shape=(n, 3, h, 8))
    both = relay.nn.depth_to_space(relay.nn.space_to_depth(x, 4), 4)
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x], both)))
    type_ = mod.function("main").ret_type
    assert isinstance(type_, relay.TensorType)
    shape = type_.shape
    assert shape[0] is n
    assert (shape[1], shape[3]) == (3, 8)


def test_layouts_are_read_in_full() -> None:
    parsed = relay.op.layout_transform.parsed
    assert all(
        parsed(text) is None for text in ("NCc", "N1", "NN", "c", "N4c", "NC0c", "NC4c4c", "N C")
    )
    for text in map("".join, itertools.permutations("NCH")):
        layout = parsed(text)
        assert layout is not None
        assert layout.axes == text

"""What is special in operators that move elements: TVM's examples, indices out of range, refusals with their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import DivisionByZero, IndexOutOfRange, ShapeMismatch
from nimblevm.relay.interpreter import evaluate
from tests.relay.op.checks import Refused, f32, refused

X = relay.var("x", shape=(2, 3))
VALUE = np.arange(6, dtype="float32").reshape(2, 3)


def run(expr: Any, *bindings: tuple[relay.Var, Any]) -> Any:
    """The oracle's value, equal to the compiled program's."""
    params, values = [v for v, _ in bindings], [a for _, a in bindings]
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function(params, expr)))
    expected = evaluate(mod, values)
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        np.testing.assert_array_equal(vm.run(*values).numpy(), expected)
    return expected


def test_scatters_take_equal_indices_in_order() -> None:
    data, updates = relay.const([10.0, 20.0]), relay.const([1.0, 2.0, 3.0, 5.0])
    indices = relay.const([0, -2, 0, 1])
    expected = {
        "update": [3, 5], "add": [16, 25], "mul": [60, 100], "min": [1, 5], "max": [10, 20],
        "mean": [((10 + 1) / 2 + 2) / 4 + 1.5, 12.5],
    }  # fmt: skip
    for reduction, wanted in expected.items():
        found = relay.scatter_elements(data, indices, updates, 0, reduction)
        assert run(found).tolist() == wanted
    integers = relay.scatter_elements(
        relay.const([-4]), relay.const([0]), relay.const([1]), 0, "mean"
    )
    assert run(integers).tolist() == [-1]


@pytest.mark.parametrize(
    ("begin", "end", "strides", "mode", "index"),
    [
        ([1, 1], [4, 4, 2], None, "end", np.s_[1:4, 1:4, :2]),
        ([1, 1, 1], [4, 4], None, "end", np.s_[1:4, 1:4, 1:]),
        ([1], [4, -9, -9], [1, -1, -2], "end", np.s_[1:4, :-9:-1, :-9:-2]),
        ([3, 3], [0], [-1, -2], "end", np.s_[3:0:-1, 3::-2]),
        ([1, 1], [2], None, "size", np.s_[1:3, 1:]),
        ([1], [2, 3], [-1, -1], "size", np.s_[1:3, :3]),
        ([], [2, 2], None, "end", np.s_[:2, :2]),
    ],
)
def test_slices_may_leave_bounds_out(
    begin: list[int], end: list[int], strides: list[int] | None, mode: str, index: Any
) -> None:
    """As in TVM: the shorter of begin and end goes on with the bounds of the axes."""
    data = np.arange(60, dtype="float32").reshape(5, 4, 3)
    made = relay.strided_slice(relay.const(data), begin, end, strides, slice_mode=mode)
    np.testing.assert_array_equal(run(made), data[index])
    again = relay.parse(relay.IRModule.from_expr(made).astext()).function("main").body
    assert isinstance(again, relay.Call)
    assert again.attrs == made.attrs


def test_scatter_elements_may_have_fewer_indices_than_data() -> None:
    """Of the other axes the first places are written, as in TVM and PyTorch; the run compares unknown sizes."""
    indices, updates = relay.const([[1], [0]]), relay.const([[5.0], [6.0]])
    wanted = [[6, 0, 0], [5, 0, 0], [0, 0, 0]]
    data = relay.const(np.zeros((3, 3), "float32"))
    assert run(relay.scatter_elements(data, indices, updates, 0)).tolist() == wanted
    names = [
        relay.var(name, shape=(relay.Any(), relay.Any()), dtype=dtype)
        for name, dtype in (("d", "float32"), ("i", "int64"), ("u", "float32"))
    ]
    d, i, u = names
    body = relay.scatter_elements(d, i, u, 0)
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function(names, body)))
    few = (np.array([[1], [0]]), np.array([[5], [6]], "float32"))
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        square, empty = (np.zeros((3, n), "float32") for n in (3, 0))
        assert evaluate(mod, (square, *few)).tolist() == wanted
        assert vm.run(square, *few).numpy().tolist() == wanted
        with pytest.raises(ShapeMismatch):
            evaluate(mod, (empty, *few))
        with pytest.raises(ShapeMismatch):
            vm.run(empty, *few)


def test_gather_nd_and_scatter_nd_are_tvm_s() -> None:
    data = relay.const(np.arange(8).reshape(2, 2, 2))
    assert run(relay.gather_nd(data, relay.const([[0, 1], [1, 0]]))).tolist() == [[2, 3], [4, 5]]
    batched = relay.gather_nd(data, relay.const([[1, 0]]), batch_dims=1)
    assert run(batched).tolist() == [[2, 3], [4, 5]]
    zeros, where = relay.const(np.zeros((2, 3), "int32")), relay.const([[1, 0, 1], [0, 1, 0]])
    added = relay.scatter_nd(zeros, where, relay.const([1, 2, 3]), "add")
    assert run(added).tolist() == [[0, 2, 0], [4, 0, 0]]


def test_masks_and_shapes() -> None:
    lengths = relay.const([1, 5, 2])
    masked = relay.sequence_mask(relay.const(np.ones((2, 3), "float32")), lengths, -1.0)
    assert run(masked).tolist() == [[1, 1, 1], [-1, 1, 1]]
    turned = relay.reverse_sequence(X, relay.const([3, 9]), 1, 0)
    assert run(turned, (X, VALUE)).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert run(relay.unravel_index(relay.const([22, 41, 37]), relay.const([7, 6]))).tolist() == [
        [3, 6, 6],
        [4, 5, 1],
    ]
    assert run(relay.nn.mirror_pad(X, ((0, 0), (1, 2)), "REFLECT"), (X, VALUE))[0].tolist() == [
        1,
        0,
        1,
        2,
        1,
        0,
    ]
    assert run(relay.nn.mirror_pad(X, ((0, 0), (1, 2))), (X, VALUE))[0].tolist() == [
        0,
        0,
        1,
        2,
        2,
        1,
    ]
    assert run(
        relay.reshape_like(X, relay.const(np.zeros((3, 2, 5))), 0, 2, 0, 2), (X, VALUE)
    ).shape == (3, 2)


OUTSIDE = {
    "gather": lambda i: relay.gather(X, 1, relay.reshape(i, (2, 1))),
    "gather_nd": lambda i: relay.gather_nd(X, relay.reshape(i, (1, 2))),
    "scatter_elements": lambda i: relay.scatter_elements(
        X, relay.reshape(i, (2, 1)), relay.const(np.ones((2, 1), "float32")), 1
    ),
    "scatter_nd": lambda i: relay.scatter_nd(
        X, relay.reshape(i, (1, 2)), relay.const(np.ones((2, 3), "float32"))
    ),
    "invert_permutation": lambda i: relay.invert_permutation(i),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
def test_indices_outside_are_errors(name: str, dtype: str) -> None:
    if name == "invert_permutation" and dtype == "uint64":
        pytest.skip("takes signed integers")
    i = relay.var("i", shape=(2,), dtype=dtype)
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([X, i], OUTSIDE[name](i))))
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        wrong = [7, -7] if dtype != "uint64" else [3, 2**64 - 1]
        for index in wrong:
            given = np.asarray([0, index], dtype)
            with pytest.raises(IndexOutOfRange):
                evaluate(mod, (VALUE, given))
            with pytest.raises(IndexOutOfRange):
                vm.run(VALUE, given)
        fine = np.asarray([0, 1], dtype)
        np.testing.assert_array_equal(vm.run(VALUE, fine).numpy(), evaluate(mod, (VALUE, fine)))


def test_strided_set_checks_what_it_reads() -> None:
    v, s = relay.var("v", shape=(2, relay.Any())), relay.var("s", shape=(2,), dtype="int32")
    body = relay.strided_set(X, v, [0, 0], [2, 3], s)
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([X, v, s], body)))
    ones, twos = np.ones((2, 2), "float32"), np.asarray([1, 2], "int32")
    assert evaluate(mod, (VALUE, ones, twos)).tolist() == [[1, 1, 1], [1, 4, 1]]
    errors = (
        (IndexOutOfRange, np.asarray([1, 1], "int32")),
        (DivisionByZero, np.asarray([1, 0], "int32")),
    )
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        assert vm.run(VALUE, ones, twos).numpy().tolist() == [[1, 1, 1], [1, 4, 1]]
        for error, strides in errors:
            with pytest.raises(error):
                evaluate(mod, (VALUE, ones, strides))
            with pytest.raises(error):
                vm.run(VALUE, ones, strides)


I = relay.const([[0], [0]])  # noqa: E741
REFUSED: dict[str, Refused] = {
    "tile": (lambda: relay.tile(X, (-1,)), "integers >= 0"),
    "repeat": (lambda: relay.repeat(X, 0, 0), "repeats must be an integer >= 1"),
    "repeat axis": (lambda: relay.repeat(X, 2, 2), "axis 2 is out of range"),
    "reverse": (lambda: relay.reverse(X, -3), "axis -3 is out of range"),
    "reverse_sequence": (lambda: relay.reverse_sequence(X, relay.const([1, 2]), 0, 0), "both axis 0"),
    "reverse_sequence size": (lambda: relay.reverse_sequence(X, relay.const([1])), "seq_lengths|data"),
    "pad": (lambda: relay.nn.pad(X, ((1, 1),)), "a pair .before, after. an axis"),
    "pad mode": (lambda: relay.nn.pad(X, ((1, 1), (0, 0)), 0, "wrap"), "pad_mode must be one of"),
    "pad size": (lambda: relay.nn.pad(X, ((2, 0), (0, 0)), 0, "reflect"), "axis 0 has 2 elements; 'reflect'"),
    "mirror_pad": (lambda: relay.nn.mirror_pad(X, ((3, 0), (0, 0))), "axis 0 has 2 elements; 'SYMMETRIC'"),
    "meshgrid": (lambda: relay.meshgrid([X]).tuple_value, "rank 0 or 1"),
    "trilu": (lambda: relay.trilu(X, relay.const([1])), "k must be a scalar"),
    "sequence_mask": (lambda: relay.sequence_mask(X, relay.const([1, 1]), 0, 2), "axis 2 is out of range"),
    "one_hot": (lambda: relay.one_hot(I, 1, 0, 3, 0, "half"), "dtype"),
    "gather": (lambda: relay.gather(X, 0, I), "axis 1|size"),
    "gather rank": (lambda: relay.gather(X, 0, relay.const([0])), "data's rank 2"),
    "gather_nd": (lambda: relay.gather_nd(X, relay.const([[0], [0], [0]])), "name 3 axes"),
    "strided_slice of axes": (lambda: relay.strided_slice(X, [0, 0], [1], axes=[0, 1]), "equally many"),
    "scatter_elements": (lambda: relay.scatter_elements(X, I, I, 1), "dtypes differ"),
    "scatter_elements of too many": (
        lambda: relay.scatter_elements(
            relay.var("d", shape=(2, 2)), relay.const(np.zeros((1, 3), "int64")), relay.var("u", shape=(1, 3)), 0
        ),
        "axis 1 has size 2, but needs 3",
    ),
    "scatter mode": (lambda: relay.scatter_nd(X, I, relay.const([0.0]), "sub"), "mode must be one of"),
    "scatter_nd": (lambda: relay.scatter_nd(X, I, relay.const(np.ones((1, 1, 1, 1), "float32"))), "updates must"),
    "invert_permutation": (lambda: relay.invert_permutation(I), "rank 1"),
    "strided_set": (lambda: relay.strided_set(X, X, [0], [1, 2]), "equally many"),
    "broadcast_to_like": (lambda: relay.broadcast_to_like(X, I), "axis 1|size"),
    "slice_like": (lambda: relay.slice_like(I, X), "axis 1 of argument data"),
    "reshape_like": (lambda: relay.reshape_like(X, I), "elements"),
    "full_like": (lambda: relay.full_like(X, X), "fill_value must be a scalar"),
    "collapse_sum_like": (lambda: relay.collapse_sum_like(I, X), "axis 1|size"),
    "collapse_sum_to": (lambda: relay.collapse_sum_to(X, (1, 2, 3)), "more than data's 2"),
    "unravel_index": (lambda: relay.unravel_index(relay.const([1]), relay.const(3)), "known length"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_where(name: str) -> None:
    make, message = REFUSED[name]
    refused(make(), message)


def test_unknown_sizes_are_checked_at_run_time() -> None:
    x, y = relay.var("x", shape=(relay.Any(),)), relay.var("y", shape=(relay.Any(),))
    bodies = {
        "reflect": relay.nn.pad(x, ((2, 0),), 0, "reflect"),
        "like": relay.slice_like(x, y),
        "sum": relay.collapse_sum_like(x, y),
        "reshape": relay.reshape_like(x, y),
    }
    for body in bodies.values():
        mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x, y], body)))
        args = (np.ones(2, "float32"), np.ones(3, "float32"))
        with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
            with pytest.raises(ShapeMismatch):
                evaluate(mod, args)
            with pytest.raises(ShapeMismatch):
                vm.run(*args)
            three = np.ones(3, "float32")
            np.testing.assert_array_equal(
                vm.run(three, three).numpy(), evaluate(mod, (three, three))
            )


def test_marks_of_fusion_are_taken_out() -> None:
    """TVM's stop_fusion parts a kernel in two; here the program is the one without the mark."""
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?, 3), float32]) {
      exp(annotation.stop_fusion(annotation.checkpoint(tanh(%x))))
    }"""
    plain = text.replace("annotation.stop_fusion(annotation.checkpoint(tanh(%x)))", "tanh(%x)")
    marked, bare = (nvm.compile(relay.parse(t), native=False) for t in (text, plain))
    assert [k.name for k in marked.kernels] == [k.name for k in bare.kernels]
    x = f32([[0.5, -1, 2]])
    with nvm.VirtualMachine(marked) as vm:
        np.testing.assert_allclose(np.asarray(vm.run(x)), np.exp(np.tanh(x)), rtol=1e-5)

"""Tensor arrays of the prelude: names, meanings on the oracle and on the VM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import dtypes, relay
from nimblevm.errors import MatchFailure
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.prelude import (
    StaticTensorArrayOps,
    TensorArrayOps,
    from_prelude,
    get_tensor_array_shape,
)
from nimblevm.relay.tensor_array_text import static_name
from nimblevm.relay.well_formed import check_well_formed

HEADER = '#[version = "0.0.5"]\n'
ANY = relay.Any()


def plain(value: Any) -> Any:
    """Lists of a list's elements; a dynamic or static tensor as nested lists, None if it holds nothing."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).tolist()
    if isinstance(value, nvm.Tensor):
        return value.tolist()
    constructor = value.constructor
    name = getattr(constructor, "name_hint", None) or constructor.name
    if name in ("Cons", "Nil"):
        items = []
        while value.fields:
            items.append(plain(value.fields[0]))
            value = value.fields[1]
        return items
    return plain(value.fields[0]) if value.fields else None


def run(prelude: relay.Prelude, body: str, *args: Any, params: str = "", vm: bool = False) -> Any:
    """The value of main, on the oracle and, with `vm`, compiled."""
    mod = relay.parse(f"{HEADER}def @main({params}) {{ {body} }}", init_module=prelude.mod)
    found = plain(evaluate(mod, args))
    if vm:
        with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as machine:
            assert plain(machine.run(*args)) == found
    return found


@pytest.fixture(scope="module")
def dynamic() -> relay.Prelude:
    prelude = relay.Prelude()
    TensorArrayOps(prelude, "float32").register()
    return prelude


def test_names_of_dynamic_tensors() -> None:
    prelude = relay.Prelude()
    before = len(prelude.mod)
    assert (
        prelude.get_global_var("tensor_array_read", "int64").name_hint == "tensor_array_read_int64"
    )
    assert len(prelude.mod) > before
    assert prelude.get_type("tensor_t", "int64") is relay.GlobalTypeVar("tensor_int64_t")
    assert prelude.get_tensor_ctor("tensor6", "int64").name_hint == "tensor6_int64"
    assert prelude.get_ctor("tensor_int64_t", "tensor_nil", "int64").tag == 0
    ops = TensorArrayOps(prelude, "int64")
    assert ops.get_ctor("tensor1") is prelude.get_tensor_ctor("tensor1", "int64")
    assert ops.get_type("tensor_t") is prelude.get_type("tensor_t", "int64")
    assert ops.get_global_var("tensor_array") is prelude.tensor_array_int64
    names = "take expand_dims concatenate array array_read array_write array_scatter array_split array_concat array_stack array_gather"
    wanted = {f"tensor_{n}_int64" for n in names.split()}
    wanted |= {f"tensor_array_unstack_tensor{k}_int64" for k in range(1, 7)}
    assert wanted <= {v.name_hint for v in prelude.mod}
    assert all(from_prelude(prelude.mod, v) for v in prelude.mod)
    assert prelude.map is prelude.get_global_var("map")
    with pytest.raises(AttributeError, match="no function 'mapp'"):
        _ = prelude.mapp
    with pytest.raises(ValueError, match="no dtype 'complex64'"):
        prelude.get_type("tensor_t", "complex64")


@pytest.mark.parametrize("dtype", ["bool", "float16", "int8", "uint16", "uint64", "float64"])
def test_every_dtype_is_well_typed(dtype: str) -> None:
    assert dtype in dtypes.BY_NAME
    prelude = relay.Prelude()
    TensorArrayOps(prelude, dtype).register()
    check_well_formed(prelude.mod)
    infer_type(prelude.mod)


def test_read_and_write(dynamic: relay.Prelude) -> None:
    body = "@tensor_array_write_float32(@tensor_array_float32(3), 1, tensor1_float32(%x))"
    x = np.array([1, 2], np.float32)
    assert run(dynamic, body, x, params="%x: Tensor[(?), float32]", vm=True) == [None, [1, 2], None]
    read = f"@tensor_array_read_float32({body}, 1)"
    assert run(dynamic, read, x, params="%x: Tensor[(?), float32]") == [1, 2]
    assert run(dynamic, "@tensor_array_float32(0)") == []
    with pytest.raises(MatchFailure):
        run(dynamic, "@tensor_array_read_float32(@tensor_array_float32(2), 2)")


def test_stack_of_unstack(dynamic: relay.Prelude) -> None:
    for rank in range(1, 5):
        shape = tuple(range(2, 2 + rank))
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        marks = ", ".join("?" * rank)
        unstack = f"@tensor_array_unstack_tensor{rank}_float32(%x)"
        params = f"%x: Tensor[({marks}), float32]"
        assert run(dynamic, unstack, x, params=params) == x.tolist()
        assert run(dynamic, f"@tensor_array_stack_float32({unstack})", x, params=params, vm=rank == 2) == x.tolist()  # fmt: skip
    assert run(dynamic, "@tensor_array_unstack_tensor1_float32(%x)", np.zeros(0, np.float32), params="%x: Tensor[(?), float32]") == []  # fmt: skip


def test_concat_gather_take(dynamic: relay.Prelude) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    params = "%x: Tensor[(?, 2), float32], %i: Tensor[(?), int32]"
    i = np.array([2, 0], np.int32)
    array = "Cons(tensor2_float32(%x), Cons(tensor2_float32(%x), Nil))"
    joined = run(dynamic, f"@tensor_array_concat_float32({array})", x, i, params=params, vm=True)
    assert joined == [*x.tolist(), *x.tolist()]
    assert run(dynamic, "@tensor_array_concat_float32(Nil)") is None
    rows = "@tensor_array_unstack_tensor2_float32(%x)"
    gathered = run(dynamic, f"@tensor_array_gather_float32({rows}, %i)", x, i, params=params)
    assert gathered == x[i].tolist()
    take = "@tensor_take_float32(tensor2_float32(%x), 1, 3)"
    assert run(dynamic, take, x, i, params=params) == x[1:3].tolist()


def test_scatter_and_split(dynamic: relay.Prelude) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    i = np.array([3, 0, 1], np.int32)
    params = "%x: Tensor[(?, ?), float32], %i: Tensor[(?), int32]"
    rows = "@tensor_array_unstack_tensor2_float32(%x)"
    body = f"@tensor_array_scatter_float32(@tensor_array_float32(4), %i, {rows})"
    assert run(dynamic, body, x, i, params=params, vm=True) == [x[1].tolist(), x[2].tolist(), None, x[0].tolist()]  # fmt: skip
    lengths = np.array([1, 0, 2], np.int32)
    body = "@tensor_array_split_float32(@tensor_array_float32(3), tensor2_float32(%x), %i)"
    assert run(dynamic, body, x, lengths, params=params, vm=True) == [x[:1].tolist(), [], x[1:].tolist()]  # fmt: skip


def test_long_arrays_take_no_frames(dynamic: relay.Prelude) -> None:
    body = "@tensor_array_concat_float32(@tensor_array_unstack_tensor2_float32(%x))"
    mod = relay.parse(f"{HEADER}def @main(%x: Tensor[(?, ?), float32]) {{ {body} }}", init_module=dynamic.mod)  # fmt: skip
    x = np.zeros((3000, 1), np.float32)
    with nvm.compile(mod, native=False) as exe:
        with nvm.VirtualMachine(exe, limits=nvm.Limits(frames=20)) as machine:
            assert machine.run(x).fields[0].shape == (3000,)


# --- static ---------------------------------------------------------------------------------------


def test_names_of_static_tensors() -> None:
    prelude = relay.Prelude()
    ops = StaticTensorArrayOps(prelude, "int32", (3, ANY))
    ops.register()
    assert ops.get_name("tensor_t") == "static_tensor_int32_3_any_t"
    assert ops.get_type("tensor_t") is relay.GlobalTypeVar("static_tensor_int32_3_any_t")
    assert ops.get_ctor("tensor_constructor").name_hint == "tensor_constructor_int32_3_any"
    assert ops.get_global_var("tensor_array_stack").name_hint == "tensor_array_stack_int32_3_any"
    assert prelude.get_name_static("tensor_t", "int32", ()) == "static_tensor_int32_scalar_t"
    assert prelude.get_type_static("tensor_t", "int32", (3, ANY)) is ops.get_type("tensor_t")
    assert prelude.get_tensor_ctor_static("tensor_nil", "int32", (3, ANY)).tag == 0
    assert prelude.get_global_var_static("tensor_take", "int32", (3, ANY)) in prelude.mod
    assert static_name("tensor_array_read", "int32", (2,), 1) == "tensor_array_read_int32_batch1_2"
    assert static_name("tensor_nil", "int32", (2,), 1) == "tensor_nil_int32_2"
    assert static_name("f", "int32", (2,), None, {"indices": (4,)}) == "f_int32_2_indices_4"
    assert all(from_prelude(prelude.mod, v) for v in prelude.mod)


@pytest.mark.parametrize("batch_dim", [None, 1])
@pytest.mark.parametrize("shape", [(), (2,), (ANY,), (ANY, 3), (2, 3, 4)])
def test_every_shape_is_well_typed(shape: tuple[Any, ...], batch_dim: int | None) -> None:
    prelude = relay.Prelude()
    ops = StaticTensorArrayOps(prelude, "int32", shape, batch_dim)
    ops.register()
    count = len(prelude.mod)
    ops.register()
    assert len(prelude.mod) == count
    check_well_formed(prelude.mod)
    infer_type(prelude.mod)


def static(shape: tuple[Any, ...], batch_dim: int | None = None) -> tuple[relay.Prelude, str, str]:
    """(prelude, suffix of names, constructor)."""
    prelude = relay.Prelude()
    ops = StaticTensorArrayOps(prelude, "float32", shape, batch_dim)
    ops.register()
    return prelude, ops.get_name("")[1:], ops.get_ctor("tensor_constructor").name_hint


def test_static_arrays() -> None:
    prelude, n, make = static((2,))
    x = np.array([[1, 2], [3, 4]], np.float32)
    params = "%x: Tensor[(2, 2), float32], %i: Tensor[(?), int32]"
    i = np.array([1, 0, 1], np.int32)
    array = f"Cons({make}(take(%x, 0, axis=0)), Cons({make}(take(%x, 1, axis=0)), Nil))"
    for body, expected in {
        f"@tensor_array_write_{n}(@tensor_array_{n}(2), 1, {make}(take(%x, 0, axis=0)))": [None, [1, 2]],
        f"@tensor_get_data_{n}(@tensor_array_read_{n}({array}, 1))": [3, 4],
        f"@tensor_array_stack_{n}({array})": x.tolist(),
        f"@tensor_array_gather_{n}({array}, %i)": x[i].tolist(),
        f"@tensor_array_unstack_{n}(take(%x, 1, axis=0))": [3, 4],
        f"@tensor_take_{n}({make}(take(%x, 1, axis=0)), 1, 2)": [4],
        f"@tensor_array_scatter_{n}(@tensor_array_{n}(3), take(%i, [0, 1]), {array})": [[3, 4], [1, 2], None],
    }.items():  # fmt: skip
        text = body.replace("[0, 1]", "%j")
        with_j = params + ", %j: Tensor[(2), int32]"
        found = run(
            prelude, text, x, i, np.array([0, 1], np.int32), params=with_j, vm="stack" in text
        )
        assert found == expected, body


def test_static_concat_and_split() -> None:
    prelude, n, _ = static((ANY, 2))
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    make = f"tensor_constructor_{n}"
    params = "%x: Tensor[(?, 2), float32], %i: Tensor[(?), int32]"
    i = np.array([3, 1], np.int32)
    split = f"@tensor_array_split_{n}(@tensor_array_{n}(2), {make}(%x), %i)"
    assert run(prelude, split, x, i, params=params, vm=True) == [x[:3].tolist(), x[3:].tolist()]
    assert run(prelude, f"@tensor_array_concat_{n}({split})", x, i, params=params) == x.tolist()


def test_arrays_of_one_element() -> None:
    prelude, n, make = static((2,), 1)
    x = np.array([1, 2], np.float32)
    body = f"@tensor_array_stack_{n}(Cons({make}(%x), Nil))"
    assert run(prelude, body, x, params="%x: Tensor[(2), float32]", vm=True) == [[1, 2]]


def test_shapes_of_indices_and_lengths() -> None:
    prelude = relay.Prelude()
    ops = StaticTensorArrayOps(prelude, "float32", (ANY,))
    ops.register()
    ops.define_tensor_array_scatter((2,))
    scatter = prelude.mod.function("tensor_array_scatter_float32_any_indices_2")
    assert str(scatter.params[1].type_annotation) == "Tensor[(2), int32]"
    before = prelude.mod.function("tensor_array_split_float32_any")
    ops.define_tensor_array_split((4,), (2,))
    assert prelude.mod.function("tensor_array_split_float32_any") is before
    ops.define_tensor_array_split((4,), (2,), force_update=True)
    split = prelude.mod.function("tensor_array_split_float32_any")
    assert str(split.params[1].type_annotation) == "static_tensor_float32_4_t"
    assert str(split.params[2].type_annotation) == "Tensor[(2), int32]"
    infer_type(prelude.mod)


def test_shape_of_an_array() -> None:
    prelude = relay.Prelude()
    ops = StaticTensorArrayOps(prelude, "float32", (2, ANY))
    ops.register()
    array = ops.get_global_var("tensor_array")(relay.const(3))
    found = get_tensor_array_shape(array, "float32", prelude)
    assert found is not None
    assert found[0] == 2
    assert len(found) == 2
    dynamic = prelude.get_global_var("tensor_array", "float32")(relay.const(3))
    assert get_tensor_array_shape(dynamic, "float32", prelude) is None
    scalar = StaticTensorArrayOps(prelude, "float32", ())
    scalar.register()
    array = scalar.get_global_var("tensor_array")(relay.const(3))
    assert get_tensor_array_shape(array, "float32", prelude) == ()
    with pytest.raises(TypeError, match="expected a tensor array"):
        get_tensor_array_shape(relay.const(3), "float32", prelude)

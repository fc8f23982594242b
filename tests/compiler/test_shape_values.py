"""Shapes that the program computes: integer instructions instead of kernels, and dyn operators on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.shape_values import FILLS, MOVES, REDUCTIONS, SCANS
from nimblevm.errors import CompileError, DivisionByZero, NimbleError, RelayTypeError, ShapeMismatch
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.op import get
from nimblevm.relay.op.dyn import DynReshapeAttrs
from tests.kernels.native import flat
from tests.relay.op.cases import cases
from tests.relay.op.cases_dyn import EDGES
from tests.relay.op.draw import Case

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def text(body: str, params: str = "%x: Tensor[(?n, ?m), float32]") -> relay.IRModule:
    return relay.parse(f'#[version = "0.0.5"]\ndef @main({params}) {{ {body} }}')


def run(mod: relay.IRModule, *args: Any, native: bool = False) -> Any:
    """The result, equal on both paths."""
    expected = evaluate(mod, args)
    with nvm.compile(mod, native=native, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
        found = vm.run(*args)
        got = found.numpy()
    np.testing.assert_array_equal(got, expected)
    return got


def kernels(mod: relay.IRModule) -> int:
    with nvm.compile(mod, native=False) as exe:
        return exe.disassemble().count("CallKernel")


SCALARS = {
    "take": "take(shape_of(%x), 0, axis=0)",
    "product": "take(shape_of(%x), 0) * take(shape_of(%x), 1)",
    "of elements": "prod(shape_of(%x))",
    "of a slice": "take(strided_slice(shape_of(%x), begin=[1], end=[2]) * 2, 0)",
    "joined": "sum(concatenate((shape_of(%x), reshape(take(shape_of(%x), 1) + 3, newshape=[1])), axis=0))",
    "stacked": "max(stack((take(shape_of(%x), 0), 7), axis=0))",
    "of some elements": "take(prod(strided_slice(shape_of(%x), begin=[0], end=[2]), keepdims=True), 0)",
    "split": "let %p = split(shape_of(%x), indices_or_sections=2, axis=0); take(concatenate((%p.1, %p.0), axis=0), 0)",
    "split to scalars": "let %p = split(shape_of(%x), indices_or_sections=[1]); reshape(%p.1, newshape=[])",
    "compared": "if (all(equal(shape_of(%x), shape_of(%x)))) { 1 } else { 2 }",
    "chosen by element": "take(where(greater(shape_of(%x), full(2, shape=[2])), shape_of(%x), zeros_like(shape_of(%x))), 1)",
    "of an axis": "take(sum(stack((shape_of(%x), shape_of(%x)), axis=0), axis=[0]), 1)",
    "mean": "mean(shape_of(%x))",
    "running": 'take(cumprod(shape_of(%x), axis=0, dtype="int64"), 1)',
    "padded": "take(nn.pad(shape_of(%x), 1, pad_width=[[2, 0]]), 2)",
    "scattered": "take(scatter_elements(shape_of(%x), full(1, shape=[1]), full(5, shape=[1]), axis=0), 1)",
    "chosen": "if (take(shape_of(%x), 0) < 3) { take(shape_of(%x), 1) } else { 0 }",
}


@pytest.mark.parametrize("name", SCALARS)
def test_arithmetic_on_shapes_runs_no_kernel(name: str) -> None:
    mod = text(SCALARS[name])
    assert kernels(mod) == 0
    run(mod, floats(2, 5))
    run(mod, floats(4, 0))


# Operators that shape_values.py knows beside those of scalars.
KNOWN = sorted({*MOVES, *REDUCTIONS, *SCANS, *FILLS})


def elements_of(name: str, case: Case) -> relay.IRModule | None:
    """main takes the elements of the moved operands as scalars and gives those of the result; None for what has none."""
    record = get(name)
    moved = MOVES.get(name, (0,))
    params: list[relay.Var] = []

    def scalars(value: Any) -> relay.Expr | None:
        if isinstance(value, tuple):
            parts = [scalars(part) for part in value]
            return None if None in parts else relay.Tuple(p for p in parts if p)
        if not 0 < value.size <= 12 or value.dtype.kind == "f":
            return None
        mine = [
            relay.var(f"s{len(params) + i}", shape=(), dtype=value.dtype.name)
            for i in range(value.size)
        ]
        params.extend(mine)
        return relay.reshape(relay.stack(mine, axis=0), value.shape)

    args = [
        scalars(v) if i in moved else relay.const(v, v.dtype.name)
        for i, v in enumerate(case.inputs)
    ]
    if None in args:
        return None
    call = relay.Call(record, (a for a in args if a), case.attrs)
    result = relay.op.get(name).reference(case.inputs, case.attrs, None)
    if isinstance(result, tuple):
        whole: list[relay.Expr] = [relay.TupleGetItem(call, i) for i in range(len(result))]
    else:
        whole, result = [call], (result,)
    found = [
        relay.take(relay.reshape(part, (-1,)), relay.const(i, "int32"))
        for part, value in zip(whole, result, strict=True) if value.dtype.kind != "f"
        for i in range(min(value.size, 12))
    ]  # fmt: skip
    return relay.IRModule.from_expr(relay.Function(params, relay.Tuple(found))) if found else None


@pytest.mark.parametrize("enough", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KNOWN)
def test_elements_are_those_of_the_reference(name: str, enough: int) -> None:
    """Calls with and without kernels, up to so many of the latter."""
    without = 0
    dtype = "bool" if name in ("all", "any") else "int32"
    for case in cases(name, dtype, 40):
        mod = elements_of(name, case)
        if mod is None:
            continue
        moved = [v for i, v in enumerate(case.inputs) if i in MOVES.get(name, (0,))]
        values = [
            e
            for v in moved
            for part in (v if isinstance(v, tuple) else (v,))
            for e in part.reshape(-1)
        ]
        expected = evaluate(mod, values)
        with nvm.compile(mod, native=False, verify=True) as exe, nvm.VirtualMachine(exe) as vm:
            without += "CallKernel" not in exe.disassemble()
            found = vm.run(*values)
        assert [np.asarray(f).tolist() for f in found] == [e.tolist() for e in expected], case
        if without == enough:
            break
    assert without


def test_elements_that_nobody_asks_for_fail_still() -> None:
    mod = text(
        "take(shape_of(%x) / %s, 0)", "%x: Tensor[(?n, ?m), float32], %s: Tensor[(2), int32]"
    )
    x = floats(6, 4)
    assert run(mod, x, np.asarray([2, 1], "int32")) == 3
    zero = np.asarray([2, 0], "int32")
    with pytest.raises(DivisionByZero):
        evaluate(mod, (x, zero))
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        with pytest.raises(DivisionByZero):
            vm.run(x, zero)
    assert kernels(text("take(shape_of(%x) / 2, 0)")) == 0


DYNAMIC = {
    "zeros": ('dyn.zeros(concatenate((shape_of(%x), shape_of(%x)), axis=0), dtype="float32")', 1),
    "full": ("dyn.full(2f, stack((take(shape_of(%x), 1), 3), axis=0))", 1),
    "reshape": ("dyn.reshape(%x, stack((take(shape_of(%x), 1), -1), axis=0))", 0),
    "broadcast": ("dyn.broadcast_to(%x, concatenate((shape_of(%x) * 0 + 2, shape_of(%x)), axis=0))", 1),
    "slice": ("dyn.strided_slice(%x, shape_of(%x) - 1, shape_of(%x) * 0 - 9, shape_of(%x) * 0 - 1)", 1),
    "tile": ("dyn.tile(%x, shape_of(%x))", 1),
    "of a dim": (
        "let %a = take(shape_of(%x), 0); let %y = dyn.reshape(%x, stack((%a * 1, -1), axis=0)); "
        "add(%y, dyn.ones(shape_of(%y), dtype=\"float32\"))",
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_from_shapes(name: str) -> None:
    body, count = DYNAMIC[name]
    mod = text(body)
    assert kernels(mod) == count
    run(mod, floats(3, 4))
    run(mod, floats(1, 1))


def test_sizes_from_data_are_read() -> None:
    mod = text(
        "dyn.reshape(%x, add(%s, 1i64))", "%x: Tensor[(?n, ?m), float32], %s: Tensor[(2), int64]"
    )
    x = floats(3, 4)
    assert run(mod, x, np.asarray([5, 1], "int64")).shape == (6, 2)
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        with pytest.raises(ShapeMismatch):
            vm.run(x, np.asarray([4, 1], "int64"))
        assert vm.run(x, np.asarray([3, 2], "int64")).shape == (4, 3)


def test_in_branches_and_functions() -> None:
    mod = relay.parse(
        """#[version = "0.0.5"]
        def @grow(%x: Tensor[(?n), float32], %k: int32) -> Tensor[(?), float32] {
          if (%k < 1) { %x } else {
            let %more = dyn.zeros(reshape(%k, newshape=[1]), dtype="float32");
            @grow(concatenate((%x, %more), axis=0), %k - 1) }
        }
        def @main(%x: Tensor[(?n), float32], %k: int32) { @grow(%x, %k) }"""
    )
    assert run(mod, floats(2), np.asarray(3, "int32")).shape == (8,)


@pytest.mark.parametrize(("dims", "newshape"), EDGES)
def test_reshape_gives_or_refuses_as_the_reference(
    dims: tuple[int, ...], newshape: tuple[int, ...]
) -> None:
    sizes = ", ".join(f"?d{axis}" for axis in range(len(dims)))
    mod = text(
        "dyn.reshape(%x, %s)", f"%x: Tensor[({sizes}), int8], %s: Tensor[({len(newshape)}), int64]"
    )
    inputs = (np.zeros(dims, "int8"), np.asarray(newshape, "int64").reshape(-1))
    try:
        expected = get("dyn.reshape").reference(inputs, DynReshapeAttrs(), None)
    except NimbleError:
        expected = None
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        if expected is None:
            with pytest.raises(ShapeMismatch):
                vm.run(*inputs)
        else:
            assert vm.run(*inputs).shape == expected.shape


BAD = {
    "squeeze of another size": ("dyn.squeeze(%x, %s)", ([0], [5])),
    "squeeze twice": ("dyn.squeeze(%y, %t)", ([0, 0], [0, -3])),
    "negative size": ('dyn.zeros(%s, dtype="int8")', ([-1],)),
    "stride of 0": ("dyn.strided_slice(%x, %s - %s, %s, %s - %s)", ([1],)),
    "negative pad": ("dyn.nn.pad(%x, reshape(%t, newshape=[1, 2]), 0f)", ([-1, 0], [0, -1])),
    "reflected too far": (
        'dyn.nn.pad(%x, reshape(%t, newshape=[1, 2]), 0f, pad_mode="reflect")', ([0, 3], [3, 0]),
    ),
    "stretched": ("dyn.broadcast_to(%x, %s)", ([2],)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_values_that_do_not_fit(name: str) -> None:
    body, values = BAD[name]
    mod = text(
        body,
        "%x: Tensor[(?n), float32], %y: Tensor[(1, 1, ?m), float32], %s: Tensor[(1), int64], %t: Tensor[(2), int64]",
    )
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        for value in values:
            given = np.asarray(value, "int64")
            args = [floats(3), floats(1, 1, 2), np.ones(1, "int64"), np.ones(2, "int64")]
            args[1 + len(given)] = given
            with pytest.raises(ShapeMismatch):
                evaluate(mod, args)
            with pytest.raises(ShapeMismatch):
                vm.run(*args)


def test_the_length_of_a_shape_must_be_known() -> None:
    with pytest.raises(RelayTypeError, match=r"whose length is known.*rank of the result"):
        text("dyn.reshape(%x, %s)", "%x: Tensor[(?n), float32], %s: Tensor[(?k), int64]")


def test_images_of_computed_sizes() -> None:
    x = relay.var("x", shape=(1, 2, relay.Any(), relay.Any()))
    size = relay.strided_slice(relay.shape_of(x), [2], [4]) * relay.const(2)
    mode = "tf_crop_and_resize"
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"roi": (0, 0, 0.5, 1), "coordinate_transformation_mode": mode},
    )
    for given in ways:
        resized = relay.image.resize2d(x, size, **given)
        mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x], resized)))
        assert kernels(mod) == 1
        assert run(mod, floats(1, 2, 3, 4)).shape == (1, 2, 6, 8)
    r = relay.var("r", shape=(4,))
    moving = relay.image.resize2d(x, size, roi=r, coordinate_transformation_mode=mode)
    with pytest.raises(CompileError, match="roi that is a constant"):
        nvm.compile(relay.IRModule.from_expr(relay.Function([x, r], moving)))


def test_scales_that_the_program_computes() -> None:
    mod = text("dyn.nn.upsampling(%x, %s, 2f)", "%x: Tensor[(1, 2, ?h, ?w), float32], %s: float32")
    x = floats(1, 2, 3, 4)
    assert run(mod, x, np.asarray(1.5, "float32")).shape == (1, 2, 5, 8)
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        for scale in (0.1, -1.0, np.nan, np.inf):
            with pytest.raises(ShapeMismatch):
                vm.run(x, np.asarray(scale, "float32"))


CONSTANT_SIZES = {
    "arange": 'arange(%a - %b + 1i64, 2i64, 1i64, dtype="int64")',
    "arange of floats": 'arange(clip(3f, a_min=0f, a_max=1f), 2f, 0.25f, dtype="float32")',
    "arange of none": 'arange(%a, %b - 4i64, %a, dtype="int64")',
    "dyn.zeros": 'dyn.zeros(stack((%a, %b - 1i64)), dtype="float32")',
    "dyn.tile": "dyn.tile(%x, stack((%a - %b, %b)))",
    "dyn.topk": "dyn.topk(%x, %a - %b + 1i64, axis=0)",
    "used twice": 'let %r = arange(0i64, %a - 1i64, 1i64, dtype="int64"); add(%r, %r)',
}


@pytest.mark.parametrize("name", CONSTANT_SIZES)
@pytest.mark.parametrize(
    "options", [{}, {"passes_off": ("fold_constant",)}, {"unbox": False}, {"verify": True}]
)
def test_sizes_that_turn_out_to_be_constants(name: str, options: dict[str, Any]) -> None:
    """A dim is bound to a number where the sizes are arithmetic on constants."""
    mod = relay.parse(f"""#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) {{
  let %a = 3i64; let %b = cast(3, dtype="int64"); {CONSTANT_SIZES[name]}
}}""")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = evaluate(mod, (x,), "main")
    with nvm.compile(mod, native=False, **options) as exe, nvm.VirtualMachine(exe) as vm:
        found = vm.run(x)
    for have, want in zip(flat(found), flat(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(have), np.asarray(want))

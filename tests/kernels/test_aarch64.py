"""Operators and math with machine code for aarch64, under qemu-user: one program calls many operators on constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.driver import compile_to_bytes
from nimblevm.kernels.loop_ir_eval import evaluate_math
from nimblevm.kernels.math_table import NAMES, definition
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Call, Expr, Function, Tuple, TupleGetItem, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import get
from nimblevm.relay.op.registry import find
from nimblevm.relay.types import TensorType, TupleType
from tests.kernels.native import agree
from tests.native.aarch64 import nvm_run, tools_are_missing
from tests.relay.op.cases import cases
from tests.relay.op.test_compiled import OPS, constant, dtypes_of, reference

PARTS = 8
UNFOLDED = ("fold_constant", "simplify", "cse", "dead_code", "inline")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(tools_are_missing()), reason=tools_are_missing() or "all are there"),
]


def fields(call: Call) -> list[Expr]:
    """The tensors of a call's result."""
    function = infer_type(IRModule.from_expr(Function((), call))).function("main")
    type_ = function.body.checked_type
    if not isinstance(type_, TupleType):
        return [call]
    return [TupleGetItem(call, i) for i in range(len(type_.fields))]


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_agree_with_their_references(part: int, tmp_path: Path) -> None:
    """A call of every operator, each for another dtype."""
    results: list[Expr] = []
    expected: list[tuple[str, str, np.ndarray]] = []
    for number, name in enumerate(OPS[part::PARTS]):
        dtype = dtypes_of(name)[number % len(dtypes_of(name))]
        for case in cases(name, dtype, 1):
            values = reference(get(name), case)
            if not isinstance(values, tuple):
                continue
            call = Call(get(name), tuple(constant(v) for v in case.inputs), case.attrs)
            found = fields(call)
            assert len(found) == len(values), name
            results += found
            expected += [(name, dtype, value) for value in values]
    mod = infer_type(IRModule.from_expr(Function((), Tuple(tuple(results)))))
    data = compile_to_bytes(mod, target="aarch64", passes_off=UNFOLDED)
    (tmp_path / "ops.nvm").write_bytes(data)
    for flags in ((), ("--no-native",)):
        (tmp_path / "out").mkdir(exist_ok=True)
        nvm_run(tmp_path, "ops.nvm", "-o", "out/", *flags)
        for number, (name, dtype, value) in enumerate(expected):
            got = np.load(tmp_path / "out" / f"result{number}.npy")
            assert agree(got, value, *get(name).tolerance_of(dtype)), (
                name,
                dtype,
                flags,
                got,
                value,
            )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_math_has_the_bits_of_its_definition(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x = np.concatenate(
        (rng.normal(0, 20, 4000), rng.normal(0, 1, 4000), 10.0 ** rng.uniform(-40, 38, 1000))
    )
    x = np.concatenate((x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])).astype(dtype)
    names = [n for n in NAMES if find(n) is not None and definition(n, dtype).params == 1]
    var = Var("x", TensorType((x.size,), dtype))
    body = Tuple(tuple(Call(get(name), (var,)) for name in names))
    data = compile_to_bytes(
        infer_type(IRModule.from_expr(Function((var,), body))), target="aarch64"
    )
    (tmp_path / "math.nvm").write_bytes(data)
    np.save(tmp_path / "x.npy", x)
    integer = "int32" if dtype == "float32" else "int64"
    for flags in ((), ("--no-native",)):
        nvm_run(tmp_path, "math.nvm", "x.npy", "-o", "./", *flags)
        for number, name in enumerate(names):
            found = np.load(tmp_path / f"result{number}.npy")
            with np.errstate(all="ignore"):
                wanted = evaluate_math(definition(name, dtype), x)
            same = (found.view(integer) == wanted.view(integer)) | (
                np.isnan(found) & np.isnan(wanted)
            )
            assert same.all(), (name, flags, x[~same][:3], found[~same][:3], wanted[~same][:3])


def test_a_file_without_a_section_for_this_cpu(tmp_path: Path) -> None:
    """The IR is interpreted; the log says why."""
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n), float32]) { exp(%x) }'
    data = compile_to_bytes(nvm.relay.parse(text), target="x86-64-v3,x86-64-v2")
    (tmp_path / "m.nvm").write_bytes(data)
    x = np.linspace(-3, 3, 50, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    said = nvm_run(tmp_path, "m.nvm", "x.npy", "-o", "y.npy")
    assert "machine code not used (CPU: aarch64): it is for x86_64; it is for x86_64" in said
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.exp(x), rtol=1e-6)

"""The backend "blas": products by a BLAS library, equal to ours within the sum's rounding."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.devices import blas
from nimblevm.driver import compile_to_bytes
from nimblevm.kernels import tune
from nimblevm.kernels.tune import to_json
from nimblevm.kernels.variants import PLAIN, Choices, Shape
from nimblevm.relay.op import registry

pytestmark = pytest.mark.skipif(
    blas.find_library() is None, reason="scipy-openblas32 is not installed"
)
Array = np.ndarray[Any, Any]
ACTIVATIONS = {
    "": "%h",
    "relu": "nn.relu(%h)",
    "tanh": "tanh(%h)",
    "sigmoid": "sigmoid(%h)",
    "gelu": "%h * 0.5f * (1f + erf(%h * 0.70710678f))",
    "gelu in halves": "%h * (0.5f + 0.5f * erf(0.70710678f * %h))",
}
RNG = np.random.default_rng(6)


def text(activation: str, product: str, x: str = "(?n, 24)", units: int = 20) -> str:
    return f"""#[version = "0.0.5"]
def @main(%x: Tensor[{x}, float32], %w: Tensor[({units}, 24), float32], %b: Tensor[({units}), float32]) {{
  let %h = {product};
  {activation}
}}"""


def weights(units: int = 20, depth: int = 24) -> dict[str, Array]:
    return {
        "w": RNG.normal(size=(units, depth)).astype(np.float32),
        "b": RNG.normal(size=units).astype(np.float32),
    }


def blobs(exe: nvm.Executable) -> list[bytes]:
    """The 8 bytes of each kernel for blas."""
    data = exe.to_bytes()
    return [data[i : i + 8] for i in range(len(data)) if data[i : i + 4] == b"NVBL"]


def same(
    program: str, params: dict[str, Array], inputs: list[Array], count: int = 1, **options: Any
) -> None:
    mod = relay.parse(program)
    exe = nvm.compile(mod, params, external="blas", verify=True)
    assert len(blobs(exe)) == count
    ours = nvm.VirtualMachine(nvm.compile(mod, params, native=False))
    theirs = nvm.VirtualMachine(exe, **options)
    for x in inputs:
        np.testing.assert_allclose(theirs.run(x).numpy(), ours.run(x).numpy(), rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("bias", ["", " + %b", "bias_add", "row"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_biases(name: str, bias: str) -> None:
    product = f"nn.dense(%x, %w){bias}"
    if bias == "bias_add":
        product = "nn.bias_add(nn.dense(%x, %w), %b, axis=-1)"
    elif bias == "row":
        product = "expand_dims(%b, axis=0) + nn.dense(%x, %w)"
    params = weights()
    mod = relay.parse(text(ACTIVATIONS[name], product))
    exe = nvm.load(compile_to_bytes(mod, params, external="blas", verify=True, native=False))
    number = ["", "relu", "tanh", "sigmoid", "gelu"].index(name.split(" ")[0])
    assert blobs(exe) == [bytes((*b"NVBL", 1, number, bool(bias), 0))]
    theirs = nvm.VirtualMachine(exe)
    for rows in (1, 3, 0, 17):
        x = RNG.normal(size=(rows, 24)).astype(np.float32)
        h = x @ params["w"].T + (params["b"] if bias else np.float32(0))
        erf = (
            registry.get("erf").reference((h * np.float32(0.70710678),), None, None)
            if number == 4
            else h
        )
        want = [h, np.maximum(h, 0), np.tanh(h), 1 / (1 + np.exp(-h)), h / 2 * (1 + erf)][number]
        np.testing.assert_allclose(theirs.run(x).numpy(), want, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_products_are_shared_by_columns(threads: int) -> None:
    program = text("tanh(%h)", "nn.dense(%x, %w) + %b", "(?n, 240)", 1500).replace("24)", "240)")
    xs = [RNG.normal(size=(rows, 240)).astype(np.float32) for rows in (1, 6, 40)]
    same(program.replace("2400)", "240)"), weights(1500, 240), xs, threads=threads)


def test_rows_of_more_axes_and_weights_that_are_no_constants() -> None:
    same(
        text("nn.relu(%h)", "nn.dense(%x, %w) + %b", "(?m, ?n, 24)"),
        weights(),
        [RNG.normal(size=(2, 3, 24)).astype(np.float32)],
    )
    program = text("%h", "nn.dense(%x, %w)")
    mod, params = relay.parse(program), weights()
    x = RNG.normal(size=(3, 24)).astype(np.float32)
    got = nvm.VirtualMachine(nvm.compile(mod, external="blas")).run(x, params["w"], params["b"])
    np.testing.assert_allclose(got.numpy(), x @ params["w"].T, rtol=3e-5, atol=3e-5)
    late = nvm.compile(mod, params, external="blas", late_bound="w")
    got = nvm.VirtualMachine(late.bind({"w": params["w"]})).run(x)
    np.testing.assert_allclose(got.numpy(), x @ params["w"].T, rtol=3e-5, atol=3e-5)


def test_what_it_does_not_take() -> None:
    """A sum that is no bias, other dtypes, activations with other constants, one value twice."""
    params = weights()
    for program, count, number in (
        (text("nn.relu(%h)", "nn.dense(%x, %w) + nn.dense(%x, %w)"), 1, 0),
        (text("%h * 0.5f * (1f + erf(%h * 0.7f))", "nn.dense(%x, %w)"), 1, 0),
        (text("%h", "nn.dense(%x, %w)").replace("float32", "float64"), 0, 0),
        (text("%h", "nn.dense(%x, %w) * 3f + %b"), 1, 0),
    ):
        f64 = "float64" in program
        values = {k: v.astype(np.float64) for k, v in params.items()} if f64 else params
        exe = nvm.compile(relay.parse(program), values, external="blas")
        assert [b[5] for b in blobs(exe)] == [number] * count
    square = """#[version = "0.0.5"]
def @main(%x: Tensor[(4, 4), float32]) { nn.dense(%x, %x) + %x }"""
    exe = nvm.compile(relay.parse(square), external="blas")
    x = RNG.normal(size=(4, 4)).astype(np.float32)
    np.testing.assert_allclose(
        nvm.VirtualMachine(exe).run(x).numpy(), x @ x.T + x, rtol=3e-5, atol=3e-5
    )


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "activation", ["{}", "nn.relu({})", "{} * 0.5f * (1f + erf({} * 0.70710678f))"]
)
def test_sums_of_two_products(activation: str, rows: int) -> None:
    """The second product is no bias of the first."""
    two = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(5, 4), float32], %u: Tensor[(5, 4), float32]) {
  let %h = nn.dense(%x, %w) + nn.dense(%x, %u); BODY }""".replace("BODY", activation)
    mod = relay.parse(two.replace("{}", "%h"))
    args = [RNG.normal(size=s).astype(np.float32) for s in ((rows, 4), (5, 4), (5, 4))]
    found = []
    for external in ("blas", ()):
        exe = nvm.load(compile_to_bytes(mod, external=external, native=False))
        assert [b[5:7] for b in blobs(exe)] == ([b"\0\0"] if external else [])
        found.append(nvm.VirtualMachine(exe).run(*args).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(
    "activation",
    [
        "%h * 0.70710678f * (1f + erf(%h * 0.5f))",
        "%h * 0.5f * (0.5f + erf(%h * 0.70710678f))",
        "%h * (0.70710678f * (1f + erf(%h * 0.5f)))",
        "%h * (1f + 0.5f * erf(%h * 0.70710678f))",
        "%h * (0.5f + 0.70710678f * erf(%h * 0.5f))",
    ],
)
def test_constants_of_gelu_at_other_places(activation: str) -> None:
    exe = nvm.compile(
        relay.parse(text(activation, "nn.dense(%x, %w)")), weights(), external="blas", native=False
    )
    assert [b[5] for b in blobs(exe)] == [0]


def _near(rng: random.Random) -> str:
    """A sum of products, biases and numbers under an activation: few kinds, so that patterns fit or nearly do."""
    products = ["nn.dense(%x, %w)", "nn.dense(%x, %u)", "nn.dense(%y, %w)"]
    terms = [
        rng.choice(products),
        *rng.choices([*products, "%b", "%c", "0.5f"], k=rng.randrange(3)),
    ]
    rng.shuffle(terms)
    a, b, c = rng.choices(["0.5f", "0.70710678f", "1f"], k=3)
    shapes = [
        "%h", "nn.relu(%h)", "tanh(%h)", f"%h * {a} * ({b} + erf(%h * {c}))",
        f"%h * ({a} * ({b} + erf(%h * {c})))", f"%h * ({a} + {b} * erf(%h * {c}))",
    ]  # fmt: skip
    return f"let %h = {' + '.join(terms)}; {rng.choice(shapes)}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_sums_and_activations(seed: int) -> None:
    rng = random.Random(seed)
    units = rng.choice([1, 5])
    program = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?n, 4), float32], %w: Tensor[({units}, 4), float32],
          %u: Tensor[({units}, 4), float32], %b: Tensor[({units}), float32], %c: float32) {{
  {_near(rng)}
}}"""
    mod = relay.parse(program)
    # Loaded with native=True, so that the library runs.
    made = [nvm.load(compile_to_bytes(mod, external=e, native=False)) for e in ("blas", ())]
    theirs, ours = map(nvm.VirtualMachine, made)
    for rows in (0, 1, 3):
        shapes = ((rows, 4), (rows, 4), (units, 4), (units, 4), (units,), ())
        args = [RNG.normal(size=s).astype(np.float32) for s in shapes]
        found, expected = theirs.run(*args).numpy(), ours.run(*args).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=program)


def test_special_values() -> None:
    w = np.eye(4, dtype=np.float32)
    mod = relay.parse("""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(4, 4), float32]) { nn.relu(nn.dense(%x, %w)) }""")
    vm = nvm.VirtualMachine(nvm.compile(mod, {"w": w}, external="blas"))
    x = np.array([[np.nan, 1, -1, 0]], np.float32)
    assert np.isnan(vm.run(x).numpy()[0]).all()  # NaN times 0, as in every product
    empty = relay.parse("""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 0), float32], %w: Tensor[(4, 0), float32]) { nn.dense(%x, %w) }""")
    vm = nvm.VirtualMachine(
        nvm.compile(empty, {"w": np.zeros((4, 0), np.float32)}, external="blas")
    )
    assert vm.run(np.zeros((3, 0), np.float32)).numpy().tolist() == [[0] * 4] * 3


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"NVBL",
        b"NVBL\1\5\0\0",
        b"NVBL\2\0\0\0",
        b"NVBL\1\0\1\0",
        b"NVBL\1\0\0\1",
        b"NVBL\1\0\2\0",
    ],
)
def test_hostile_blobs(blob: bytes) -> None:
    """The codegen's bytes replaced: refused when the VM is made. A bias is said where there is none."""
    external = nvm.external.External(
        "blas", nvm.external.find("blas").patterns, lambda region: nvm.external.Blob(blob)
    )
    exe = nvm.compile(relay.parse(text("%h", "nn.dense(%x, %w)")), weights(), external=external)
    with pytest.raises(nvm.InvalidExecutable, match="blas"):
        nvm.VirtualMachine(exe)


@pytest.mark.parametrize("shape", ["(?n, 5)", "(?n, 24)"])
def test_operands_that_are_no_product(shape: str) -> None:
    """A file may say that any kernel is a product: sizes are looked at in every call."""
    pattern = nvm.relay.dataflow_pattern.is_op("concatenate")(nvm.relay.dataflow_pattern.wildcard())
    external = nvm.external.External(
        "blas", [("lie", pattern)], lambda region: nvm.external.Blob(b"NVBL\1\0\0\0")
    )
    mod = relay.parse(f"""#[version = "0.0.5"]
def @main(%x: Tensor[{shape}, float32], %y: Tensor[{shape}, float32]) {{ concatenate((%x, %y), axis=0) }}""")
    vm = nvm.VirtualMachine(nvm.compile(mod, external=external))
    x = np.ones((3, int(shape[5:-1])), np.float32)
    with pytest.raises(nvm.errors.OperandMismatch, match="no product"):
        vm.run(x, x)


SCRIPT = """
import sys
import numpy as np
import nimblevm as nvm
vm = nvm.VirtualMachine(nvm.load(sys.argv[1]), fallback=len(sys.argv) > 2)
print(float(vm.run(np.ones((1, 24), np.float32)).numpy().sum()))
"""


def test_library_that_is_not_there(tmp_path: Path) -> None:
    params = weights()
    nvm.compile(relay.parse(text("%h", "nn.dense(%x, %w)")), params, external="blas").save(
        tmp_path / "m.nvm"
    )
    env = {
        **os.environ,
        "NIMBLEVM_BLAS": "/nowhere/libblas.so",
        "PYTHONPATH": str(Path(nvm.__file__).parent.parent),
    }
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "m.nvm")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert "DeviceError: no BLAS library is here: install nimblevm[blas]" in done.stderr
    assert "/nowhere/libblas.so" in done.stderr
    done = subprocess.run(
        [*command, "fallback"], capture_output=True, text=True, env=env, check=False
    )
    assert float(done.stdout) == pytest.approx(float(params["w"].sum()), rel=1e-4)


def test_section_is_named() -> None:
    exe = nvm.compile(relay.parse(text("%h", "nn.dense(%x, %w)")), weights(), external="blas")
    assert ("blas", "external") in [(s.target, s.kind) for s in exe.sections]
    assert [(k.name, k.kind, k.external) for k in exe.kernels] == [
        ("blas_dense", "loop IR", ("blas",))
    ]


def record(**external: str) -> str:
    """A tuning record of two products, (24, 20) and (24, 30)."""
    products = {
        Shape("float32", "float32", 24, 20): external.get("small", ""),
        Shape("float32", "float32", 24, 30): external.get("large", ""),
    }
    named = {shape: name for shape, name in products.items() if name}
    return to_json("any", Choices(dict.fromkeys(products, PLAIN), named))


def test_tuning_record_says_which_products() -> None:
    """What the record knows goes where it says, with or without external=; the rest only if asked for."""
    mod = relay.parse("""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 24), float32], %v: Tensor[(20, 24), float32], %w: Tensor[(30, 24), float32],
          %u: Tensor[(7, 24), float32]) {
  (nn.relu(nn.dense(%x, %v)), nn.dense(%x, %w), nn.dense(%x, %u))
}""")
    params = {
        name: RNG.normal(size=(n, 24)).astype(np.float32)
        for name, n in zip("vwu", (20, 30, 7), strict=True)
    }

    def relus_and_all(tuning: str, external: tuple[str, ...]) -> tuple[int, int]:
        data = compile_to_bytes(mod, params, native=False, tuning=tuning, external=external)
        found = blobs(nvm.load(data))
        return sum(b[5] for b in found), len(found)

    assert relus_and_all(record(), ()) == (0, 0)
    assert relus_and_all(record(), ("blas",)) == (0, 1)
    assert relus_and_all(record(small="blas"), ()) == (1, 1)
    assert relus_and_all(record(large="blas"), ()) == (0, 1)
    assert relus_and_all(record(small="blas"), ("blas",)) == (1, 2)
    text = record(small="blas", large="blas")
    files = [compile_to_bytes(mod, params, native=False, tuning=text) for _ in range(2)]
    assert files[0] == files[1]
    with pytest.raises(nvm.errors.CompileError, match="no external backend 'nonesuch'"):
        relus_and_all(record(small="nonesuch"), ())


def test_tune_measures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[Any, float]] = []

    def chosen(found: dict[Any, float]) -> tuple[Any, str]:
        seen.append(found)
        return PLAIN, "blas"

    monkeypatch.setattr(tune, "fastest", chosen)
    monkeypatch.setattr(tune, "candidates", lambda: iter((PLAIN,)))
    mod, params = relay.parse(text("%h", "nn.dense(%x, %w)")), weights()
    made = nvm.tune(mod, params, rows=(1, 3), external="blas")
    assert [set(found) for found in seen] == [{PLAIN, "blas"}]
    assert all(seconds > 0 for seconds in seen[0].values())
    assert len(blobs(nvm.load(compile_to_bytes(mod, params, native=False, tuning=made)))) == 1

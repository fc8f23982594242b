"""Projections inside of the kernel of a loop's steps (move_projections, kernels/ahead.py, schedule/beside.py): the same
values as a kernel before the loop, for any number of steps and threads, with machine code and without.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import gru, lstm
from nimblevm.compiler.passes.fuse_loops import MAX_STEPS
from nimblevm.kernels import lower_loops
from nimblevm.kernels.llvm_ops import Helpers
from nimblevm.kernels.llvm_threads import ThreadedText
from nimblevm.kernels.loop_ir import For, Kernel, PanelProduct, Part, Store
from nimblevm.kernels.repeat import repeat
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import regions, schedule
from nimblevm.kernels.schedule.beside import tile_beside

Array = np.ndarray[Any, Any]
COUNTS = (1, 3, 7, 8, 9, 11, 12, 15, 16, 20, MAX_STEPS - 1, MAX_STEPS, MAX_STEPS + 1, MAX_STEPS + 9)
"""Around blocks of 8 rows, of which up to 3 at the end are computed first, and turns of the loop."""

# A cell of its own, with a peephole and a gate that reads another row than the others.
PEEPHOLE = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 20), float32], %u: Tensor[(70, 20), float32], %v: Tensor[(70, 20), float32],
          %w: Tensor[(70, 70), float32], %p: Tensor[(70), float32]) -> (Tensor[(1, 70), float32], Tensor[(?, 70), float32]) {
  let %n = take(shape_of(%x), 0);
  let %loop = fn (%i: int32, %h: Tensor[(1, 70), float32], %rows: Tensor[(?, 70), float32])
      -> (Tensor[(1, 70), float32], Tensor[(?, 70), float32]) {
    if (less(%i, %n)) {
      let %xi = reshape(take(%x, %i, axis=0), newshape=[1, 20]);
      let %z = nn.dense(%h, %w);
      let %gate = sigmoid(nn.dense(%xi, %u) + %z + %p * %h);
      let %next = %gate * tanh(nn.dense(%xi, %v) - %z) + (1.0f - %gate) * %h;
      %loop(%i + 1, %next, concatenate((%rows, %next), axis=0))
    } else {
      (%h, %rows)
    }
  };
  %loop(0, zeros(shape=[1, 70], dtype="float32"), zeros(shape=[0, 70], dtype="float32"))
}
"""


def peephole(x: Array, given: dict[str, Array]) -> tuple[Array, Array]:
    h: Array = np.zeros((1, 70), np.float32)
    rows: list[Array] = [np.zeros((0, 70), np.float32)]
    for i in range(len(x)):
        xi, z = x[i : i + 1], h @ given["w"].T
        gate = 1 / (1 + np.exp(-(xi @ given["u"].T + z + given["p"] * h)))
        h = gate * np.tanh(xi @ given["v"].T - z) + (1 - gate) * h
        rows.append(h)
    return h, np.concatenate(rows)


def kernels_of(exe: nvm.Executable) -> list[str]:
    return [kernel.name for kernel in exe.program_record().kernels]


def arrays(found: Any) -> list[Array]:
    return [f.numpy() for f in (found if isinstance(found, tuple) else (found,))]


def check(
    exe: nvm.Executable, inputs: int, reference: Any, counts: tuple[int, ...] = COUNTS
) -> None:
    rng = np.random.default_rng(3)
    threaded = [nvm.VirtualMachine(exe, threads=n) for n in (1, 2, 3)]
    plain = nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=False))
    for count in counts:
        x = rng.standard_normal((count, inputs)).astype(np.float32)
        expected = reference(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        first = arrays(threaded[0].run(x))
        for vm in (*threaded, plain):
            for a, b, c in zip(arrays(vm.run(x)), expected, first, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
                if vm is not plain:
                    np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_lstm(layers: int) -> None:
    sizes = {"inputs": 20, "hidden": 130, "layers": layers}
    given = lstm.params(**sizes)
    exe = nvm.compile(nvm.relay.parse(lstm.text(**sizes)), given, verify=True)
    packed = [name for name in kernels_of(exe) if "dense_pack" in name]
    assert len(packed) == layers, kernels_of(exe)
    assert all(name.startswith("steps_of") for name in packed)
    check(exe, 20, lambda x: lstm.reference(x, **given))


@pytest.mark.parametrize("inputs", [130, 280])
def test_inputs_as_deep_as_the_state_and_deeper(inputs: int) -> None:
    """Two turns of the step's products stand beside one of the rows, and one (COUNTS without a second turn)."""
    sizes = {"inputs": inputs, "hidden": 130, "layers": 1}
    given = lstm.params(**sizes)
    exe = nvm.compile(nvm.relay.parse(lstm.text(**sizes)), given)
    check(exe, inputs, lambda x: lstm.reference(x, **given), (1, 3, 4, 5, 9, 12, 20))


def test_gru_moves_three_projections() -> None:
    given = gru.params(inputs=9, hidden=70)
    exe = nvm.compile(nvm.relay.parse(gru.text(inputs=9, hidden=70)), given)
    assert [name.startswith("steps_of") for name in kernels_of(exe) if "dense_pack" in name] == [
        True
    ], kernels_of(exe)
    check(exe, 9, lambda x: gru.reference(x, **given))


def test_a_cell_of_the_users_own() -> None:
    rng = np.random.default_rng(4)
    shapes = {"u": (70, 20), "v": (70, 20), "w": (70, 70), "p": (70,)}
    given = {n: (rng.standard_normal(s) * 0.2).astype(np.float32) for n, s in shapes.items()}
    exe = nvm.compile(nvm.relay.parse(PEEPHOLE), given, verify=True)
    assert any("steps_of" in name for name in kernels_of(exe)), kernels_of(exe)
    check(exe, 20, lambda x: peephole(x, given), (0, *COUNTS))


def _steps_kernel(exe_of: Any, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The kernel of steps that a compilation lowers."""
    found: list[Kernel] = []

    def noted(*args: Any) -> Kernel:
        found.append(repeat(*args))
        return found[-1]

    monkeypatch.setattr(lower_loops, "repeat", noted)
    exe_of()
    return found[-1]


def _products(body: tuple[Any, ...]) -> list[PanelProduct]:
    return [s for s in all_statements(body) if isinstance(s, PanelProduct)]


def test_rows_are_computed_beside_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"inputs": 20, "hidden": 130, "layers": 1}
    program = nvm.relay.parse(lstm.text(**sizes))
    kernel = _steps_kernel(lambda: nvm.compile(program, lstm.params(**sizes)), monkeypatch)
    rows = next(b for b in kernel.buffers if b.name == "scratch0")
    assert [type(a.size).__name__ for a in rows.axes] == ["DimRef", "Const", "Const"]
    made = schedule(kernel, ("avx512f", "avx512vl"))
    products = _products(made.body)
    beside = [p.beside for p in products if p.beside is not None]
    assert len(products) - len(beside) == 1  # the first rows
    # A piece's sums begin in the first product of each half, without a loop that clears the tile.
    assert [b.begins for b in beside] == [True, False, True, False]
    stored = [s.buffer for s in all_statements(made.body) if isinstance(s, Store)]
    assert beside[0].tile not in stored
    # The steps run on threads all the same, though a group writes rows of which others read earlier ones.
    steps = next(s for s in made.body if isinstance(s, For) and not s.parallel)
    assert steps.body[0] in regions.regions_of(made)


@pytest.mark.parametrize(
    ("model", "inputs", "turns"),
    [(lstm, 20, 3), (lstm, 90, 3), (lstm, 130, 2), (lstm, 280, 1), (gru, 130, 2), (gru, 280, 1)],
)
def test_rows_end_with_the_products_that_they_stand_beside(
    model: Any, inputs: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product of depth 130 has as many turns beside one of its rows' as it can and not run out before them."""
    program = nvm.relay.parse(model.text(inputs=inputs, hidden=130))
    given = model.params(inputs=inputs, hidden=130)
    kernel = _steps_kernel(lambda: nvm.compile(program, given, native=False), monkeypatch)
    made = schedule(kernel, ("avx512f", "avx512vl"))
    beside = [p.beside for p in _products(made.body) if p.beside is not None]
    # One micro-kernel for all, also for a product that has no rows beside it.
    assert {b.turns for b in beside} == {turns}


@pytest.mark.parametrize(("inputs", "is_beside"), [(384, True), (385, False)])
def test_weights_of_more_than_3_mib_stay_before_the_steps(
    inputs: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = nvm.relay.parse(lstm.text(inputs, 512))
    shapes = {"w": (2048, inputs + 512), "b": (2048,)}
    given = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    kernel = _steps_kernel(lambda: nvm.compile(program, given, native=False), monkeypatch)
    made = schedule(kernel, ("avx512f", "avx512vl"))
    assert any(p.beside is not None for p in _products(made.body)) == is_beside


@pytest.mark.parametrize(
    ("model", "features", "parts"),
    [
        (lstm, ("avx512f", "avx512vl"), [2, 2]),
        (
            gru,
            ("avx512f", "avx512vl"),
            [6, 1],
        ),  # two beside pieces of one of three products, and one with nothing beside it
        (lstm, ("avx2",), [1, 1, 1, 1]),
    ],
)
def test_every_other_step_begins_with_the_last_products(
    model: Any, features: tuple[str, ...], parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = nvm.relay.parse(model.text(inputs=20, hidden=130))
    given = model.params(inputs=20, hidden=130)
    kernel = _steps_kernel(lambda: nvm.compile(program, given), monkeypatch)
    made = schedule(kernel, features)
    steps = next(s for s in made.body if isinstance(s, For) and not s.parallel)
    (group,) = steps.body
    assert isinstance(group, For)
    assert [len(_products(s.body)) for s in group.body if isinstance(s, Part)] == parts
    lines = ThreadedText(made, "k", Helpers(features=features), []).text().splitlines()
    (switch,) = [line for line in lines if "switch" in line]
    assert switch.count("label") == 1 + len(parts)
    # Which part comes is chosen by the step's lowest bit, whatever group it is.
    at = lines.index(switch)
    assert any("select i1" in line for line in lines[at - 1 : at])
    assert any(re.search(r"and i64 %c\d+, 1", line) for line in lines[:at])


def test_other_targets_and_short_states_compute_rows_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden, features in ((130, ("avx2",)), (30, ("avx512f",))):
        sizes = {"inputs": 20, "hidden": hidden, "layers": 1}
        program = nvm.relay.parse(lstm.text(**sizes))
        kernel = _steps_kernel(
            lambda p=program, s=sizes: nvm.compile(p, lstm.params(**s)), monkeypatch
        )
        assert tile_beside(kernel.buffers, kernel.body, features)[1] == kernel.body
        monkeypatch.undo()

"""The studies of `nimblevm bench --study`: what they compute, and a tiny run of each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("typer")

from nimblevm.bench import studies, study_decode, study_forms
from nimblevm.bench.study_compile import STAGES, Stopwatch
from nimblevm.bench.study_dispatch import STATIC, DispatchLine, geometric_mean
from nimblevm.bench.study_memory import MemoryLine, Use, alloc_seconds
from nimblevm.bench.study_models import MODELS, Model, dim_values, with_sizes
from nimblevm.cli.app import run_app
from nimblevm.relay.types import TensorType
from nimblevm.vm.profiler import Time

TEXT = """#[version = "0.0.5"]
def @main(%tokens: Tensor[(?b, ?n), int32], %limit: int32, %mask: Tensor[(?b, ?n, 3), float32],
          %w: Tensor[(4, 4), float32]) -> Tensor[(?n + 1), float32] { 0f }
"""


def test_sizes_of_inputs() -> None:
    inputs = (np.zeros((2, 7), np.int32), np.int32(5), np.zeros((2, 7, 3), np.float32))
    assert dim_values(TEXT, inputs) == {"b": 2, "n": 7}
    static = with_sizes(TEXT, {"b": 2, "n": 7})
    assert "?" not in static
    assert "%mask: Tensor[(2, 7, 3), float32]" in static
    assert with_sizes("(?n, ?number)", {"n": 1}) == "(1, ?number)"


LARGE = ("seq2seq", "minilm", "resnet18", "lstm2", "gru", "lstm")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
        for name in MODELS
        if name not in ("bert", "gpt2")
    ],
)
def test_static_programs_have_no_unknown_parameters(name: str) -> None:
    case = Model.of(name, "chain10" if name == "chain" else "main").row.cases()[0]
    model = Model.of(name, case.program)
    static = model.static_text(case)
    if name == "treelstm":
        assert static is None
    else:
        assert static is not None
        for parameter in model.module(static).function("main").params:
            type_ = parameter.type_annotation
            shape = type_.shape if isinstance(type_, TensorType) else ()
            assert all(isinstance(dim, int) for dim in shape)


def test_slowdowns() -> None:
    line = DispatchLine(64, 64, (5, 6), {STATIC: (1.0, 2.0), "1": (2.0, 2.0)})
    assert line.slowdowns("1") == [2.0, 1.0]
    assert line.mean("1") == pytest.approx(2**0.5)
    assert line.worst("1") == (2.0, 5)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2)


def test_allocation_without_the_clock() -> None:
    rows = [Time("MoveInt", 100, 1e-6), Time("AllocTensor", 10, 5e-7), Time("CallKernel", 1, 1e-3)]
    assert alloc_seconds(rows) == pytest.approx(5e-7 - 10 * 1e-8)
    assert alloc_seconds([]) == 0


def test_peak_against_static() -> None:
    use = Use(1, 64, 100, 200)
    assert MemoryLine("m", 1, use, use, Use(1, 64, 80, 100), 0.0).over_static == 1.25
    assert MemoryLine("m", 1, use, use, None, 0.0).over_static is None


def test_stages_add_up() -> None:
    watch = Stopwatch()
    for name in ("infer_type", "inline", "emit", "machine code", "file"):
        watch.progress(name, 0, 0)
    watch.begin("load")
    watch.begin("load")
    assert set(watch.seconds) == set(STAGES)
    assert all(clock > 0 for clock, _ in watch.seconds.values())


def test_growth_of_a_step() -> None:
    """Attention may grow, what is beside it may not; the first length is what others are compared to."""
    taken = {16: [(1.1, 1.0)] * 9, 64: [(3.0, 1.05)] * 9}
    short, long = study_decode.lines_of(2, taken)
    assert short.growth is None
    assert short.attention == pytest.approx(0.1)
    assert long.growth is not None
    assert long.growth.value == pytest.approx(1.05)
    assert study_decode.to_json([long])[0]["attention"] == pytest.approx(1.95)


def test_forms_of_a_model() -> None:
    """The usual one is what the others are compared to, round by round."""
    usual, half = study_forms.lines_of(
        "m", 1, 10, {"native": [2.0, 4.0, 3.0], "half": [1.0, 2.0, 1.5]}
    )
    assert usual.ratio is None
    assert usual.seconds == pytest.approx(0.3)
    assert half.ratio is not None
    assert (half.ratio.value, half.ratio.low, half.ratio.high) == (0.5, 0.5, 0.5)
    assert next(iter(study_forms.forms())) == "native"


def test_names_are_checked() -> None:
    with pytest.raises(
        ValueError, match="no study speed; there are dispatch, memory, load, compile, decode, forms"
    ):
        studies.check(["memory", "speed"])


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.STUDIES)
def test_a_tiny_study(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "study.json"
    monkeypatch.setattr(
        sys, "argv", ["nimblevm", "bench", "--study", name, "--quick", "--json", str(data)]
    )
    assert run_app() == 0, capsys.readouterr().err
    found = json.loads(data.read_text())
    assert list(found) == [name]
    assert found[name]

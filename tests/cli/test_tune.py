"""nimblevm tune: a record, and compiling with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli


@pytest.mark.slow
def test_tune_and_compile_with_the_record(folder: Path, cli: Cli) -> None:
    Path("wide.rly").write_text(
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(?n, 20), float32], %w: Tensor[(40, 20), float32]) { nn.dense(%x, %w) }\n"
    )
    np.savez("wide.npz", w=np.ones((40, 20), "float32"))
    assert cli("tune", "wide.rly", "--params", "wide.npz", "--rows", "1").code == 0
    record = json.loads(Path("wide.tuning.json").read_text())
    assert [(p["depth"], p["units"]) for p in record["products"]] == [(20, 40)]
    files = []
    for name in ("a.nvm", "b.nvm"):
        args = ("wide.rly", "--params", "wide.npz", "--tuning", "wide.tuning.json", "-o", name)
        assert cli("compile", *args).code == 0
        files.append(Path(name).read_bytes())
    assert files[0] == files[1]


def test_mistakes(folder: Path, cli: Cli) -> None:
    for rows in ("0", "1_0", "1,,2", "1.5", ""):
        done = cli("tune", "model.rly", "--rows", rows)
        assert (done.code, "positive numbers" in done.err) == (2, True)
    Path("bad.json").write_text("[]")
    done = cli("compile", "model.rly", "--tuning", "bad.json")
    assert (done.code, "tuning record" in done.err) == (2, True)

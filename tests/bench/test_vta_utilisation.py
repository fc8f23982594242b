"""The table of utilisation by size of VTA's scratchpads: its figures, its check against the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimblevm.bench.vta_utilisation import CASES, CONFIGS, Case, Row, markdown, utilisation

DOCS = Path(__file__).parents[2] / "docs" / "vta.md"


def test_one_figure_of_the_table() -> None:
    """As docs/vta.md has it: the model is exact, so a change shows."""
    value = utilisation(CASES[0], CONFIGS["full"])
    assert value is not None
    assert f"| {CASES[0].name} | {100 * value:.0f} |" in DOCS.read_text()


def test_text() -> None:
    text = markdown([Row("a", (0.5, None, *[1.0] * (len(CONFIGS) - 2)))])
    assert text.splitlines()[2].startswith("| a | 50 | - | 100 |")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table_is_current(case: Case) -> None:
    values = tuple(utilisation(case, config) for config in CONFIGS.values())
    assert markdown([Row(case.name, values)]).splitlines()[2] in DOCS.read_text()

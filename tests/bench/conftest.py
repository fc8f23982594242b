"""The table of budgets at the end of a run: ns a unit, minimum over rounds, beside plain C."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.bench.measure import ROWS


@dataclass
class _Report:
    """Prints what measure.py collected; a plugin, because only those hear of the end."""

    config: pytest.Config

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not ROWS:
            return
        terminalreporter.write_sep("-", "budgets: ns a unit")
        terminalreporter.write_line(f"{'':44}{'VM':>10}{'plain C':>10}{'numpy':>10}{'budget':>10}")
        for name, row in ROWS.items():
            cells = (row.get(key) for key in ("vm", "c", "numpy", "budget"))
            shown = "".join(f"{'-' if c is None else format(c, '.1f'):>10}" for c in cells)
            terminalreporter.write_line(f"{name:44}{shown}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Report(config))

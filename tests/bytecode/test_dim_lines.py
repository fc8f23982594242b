"""What a file says of its dims."""

from __future__ import annotations

from typing import Any

import nimblevm as nvm
from nimblevm.bytecode.dim_lines import DimCheck, DimReport, executable_report

TEXT = """#[version = "0.0.5"]
type Box { Box(Tensor[(?, 3), float32]) }
def @main(%x: Tensor[(?n, 4), float32], %y: (Tensor[(?n), float32], Tensor[(?), float32]), %b: Box)
    -> (Tensor[(?n, 4), float32], Tensor[(?, 3), float32], Tensor[(2), float32]) {
  match (%b) {
    Box(%v) => (exp(%x), exp(%v + %y.1), ones(shape=[2], dtype="float32"))
  }
}
"""


def report(**options: Any) -> DimReport:
    mod = nvm.relay.parse(TEXT, source_name="m.rly")
    with nvm.compile(mod, native=False, **options) as exe:
        return executable_report(exe)


def test_signature_and_checks() -> None:
    (main,) = report().functions
    lines = {(line.value + line.part, line.axis): line for line in main.lines}
    states = {key: (line.dim, line.state) for key, line in lines.items()}
    assert states["parameter %x", 0] == ("?n", "free")
    assert states["parameter %x", 1] == ("4", "static")
    assert states["parameter %y.0", 0] == ("?n", "checked")
    assert states["parameter %y.1", 0][1] == "free"
    assert states["result.0", 0] == ("?n", "equal to")
    assert lines["result.0", 0].equal_to == "axis 0 of %x"
    assert states["result.1", 0] == ("?", "free")
    assert states["result.2", 0] == ("2", "static")
    claim = lines["field 0 of Box", 1]
    (check,) = claim.checks
    assert (check.source, check.line, check.column) == ("m.rly", 6, 9)
    assert str(check) == "field 0 of Box, axis 1 (m.rly:6:9)"


def test_entries_are_not_told_twice() -> None:
    (main,) = report().functions
    places = [(line.value + line.part, line.axis) for line in main.lines]
    assert places.count(("parameter %y.0", 0)) == 1
    assert not [p for p, _ in places if p.startswith("parameter %y.0 of")]


def test_counts_and_text() -> None:
    found = report()
    assert found.count("static") == 4
    assert sum(found.count(s) for s in ("static", "equal to", "checked", "free")) == len(
        found.functions[0].lines
    )
    assert str(DimCheck("@f", "", 0, 0, "why", "must be 4")) == "why: must be 4"
    assert DimCheck("@f", "", 0, 0, "why", "").place == ""

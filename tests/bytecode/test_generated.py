"""What gen_tables.py writes is what is committed, and the tables agree with the C side's limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nimblevm.bytecode import isa

ROOT = Path(__file__).parent.parent.parent


def test_generated_files_are_current() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "native" / "gen_tables.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout


def test_rows_are_checked() -> None:
    operand = isa.Operand("a", isa.Kind.IMM)
    with pytest.raises(ValueError, match="an operand name occurs twice"):
        isa.Row(200, "Twice", (operand, operand), frozenset(), "")
    with pytest.raises(ValueError, match="unknown flags"):
        isa.Row(200, "Flag", (), frozenset({"what"}), "")

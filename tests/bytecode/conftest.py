"""What several files of tests share."""

from __future__ import annotations

import pytest

import nimblevm as nvm
from tests.bytecode.late_weights import SHAPES, module


@pytest.fixture(scope="session")
def late() -> nvm.Executable:
    return nvm.compile(module(), late_bound=list(SHAPES), native=False)

"""Options of the test suite, and what collections of garbage leave alone."""

from __future__ import annotations

import gc

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the // AFTER parts of tests/golden/<pass>/<case>.rly; review the diff",
    )


def pytest_collection() -> None:
    """13,000 tests are made and none is garbage: to look for some while they come takes a second."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor do later collections look at them."""
    gc.freeze()
    gc.enable()

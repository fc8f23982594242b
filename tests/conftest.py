"""Options of the test suite, its cache, which tests start first, and what collections of garbage leave alone."""

from __future__ import annotations

import gc

import pytest

from tests import object_cache


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the // AFTER parts of tests/golden/<pass>/<case>.rly; review the diff",
    )


def pytest_configure(config: pytest.Config) -> None:
    times_nothing = config.getoption("benchmark_disable", default=False)
    if "not bench" not in config.option.markexpr and not times_nothing:
        return
    object_cache.install()
    if not hasattr(config, "workerinput"):
        object_cache.clear_old()


def pytest_collection() -> None:
    """13,000 tests are made and none is garbage: to look for some while they come takes a second."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random programs by the hundred first: started last, each is minutes on one core while the others wait."""
    items.sort(
        key=lambda item: not ("properties" in item.path.parts and item.get_closest_marker("slow"))
    )


def pytest_collection_finish() -> None:
    """Nor do later collections look at them."""
    gc.freeze()
    gc.enable()

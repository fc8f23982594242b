"""The native library's kernels for this folder's tests, built once a session."""

from __future__ import annotations

import ctypes

import pytest

from tests.kernels import ir_harness


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return ir_harness.build(tmp_path_factory.mktemp("harness"))

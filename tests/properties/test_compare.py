"""The comparison itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.properties.compare import assert_same


def test_assert_same_sees_differences() -> None:
    assert_same((np.float32(1),), (np.float32(1),))
    with pytest.raises(AssertionError):
        assert_same(np.float32(1), np.float64(1))
    with pytest.raises(AssertionError):
        assert_same(np.zeros(3), np.zeros((3, 1)))

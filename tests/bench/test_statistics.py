"""Intervals, the choice of test, Holm's correction."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy")

from nimblevm.bench.statistics import faster, holm, median_interval, ratio_interval

RNG = np.random.default_rng(5)
NORMAL = RNG.normal(100, 3, 60)


def test_interval_of_a_median_holds_it_and_shrinks_with_samples() -> None:
    few, many = median_interval(list(NORMAL[:10])), median_interval(list(NORMAL))
    assert few.low <= few.value <= few.high
    assert many.high - many.low < few.high - few.low
    assert median_interval([7.0] * 9) == median_interval([7.0] * 9)


def test_a_ratio_pairs_neighbours() -> None:
    """Both sides slow down in the same rounds: the ratio does not notice."""
    machine = RNG.uniform(1, 3, 80)
    found = ratio_interval(list(2 * machine), list(4 * machine))
    assert found.low == pytest.approx(0.5)
    assert found.high == pytest.approx(0.5)
    with pytest.raises(ValueError, match="pairs"):
        ratio_interval([1.0], [1.0, 2.0])


def test_interval_covers_the_true_ratio() -> None:
    """About 95 of 100; at least 85, as few samples make percentile intervals narrow."""
    covered = 0
    for _ in range(100):
        a, b = RNG.lognormal(0, 0.2, 30), RNG.lognormal(0.3, 0.2, 30)
        found = ratio_interval(list(a), list(b))
        covered += found.low <= np.exp(-0.3) <= found.high
    assert covered >= 85


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        (NORMAL[:30], NORMAL[30:] + 20, "Student's t"),
        (NORMAL[:30], 120 + 10 * (NORMAL[30:] - 100), "Welch's t"),
        (NORMAL[:30], RNG.exponential(20, 30) + 110, "Mann-Whitney"),
        (NORMAL[:4], NORMAL[4:8] + 50, "Mann-Whitney"),
        (np.full(20, 90.0), NORMAL[:20], "Mann-Whitney"),
    ],
)
def test_the_data_choose_the_test(ours: np.ndarray, theirs: np.ndarray, name: str) -> None:
    found = faster(list(ours), list(theirs))
    assert found.name == name, found.reason
    assert found.p < 0.05
    assert faster(list(theirs), list(ours)).p > 0.5


def test_equal_sides_are_seldom_faster() -> None:
    wrong = sum(
        faster(list(RNG.normal(5, 1, 20)), list(RNG.normal(5, 1, 20))).p < 0.05 for _ in range(200)
    )
    assert wrong <= 22


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []

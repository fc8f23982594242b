"""What the samples say: bootstrap intervals, and a test for "faster" that the data choose.

Times are rarely normal: so a t test is used only where Shapiro-Wilk does not refute normality of either sample (Welch's
where Levene refutes equal variances), and else the rank test of Mann and Whitney. All are one-sided. Several
comparisons in one run are corrected with Holm's method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # scipy.stats is loaded at its first use: a second that a list of rows need not wait

Array = np.ndarray[Any, Any]
CONFIDENCE = 0.95
RESAMPLES = 5000
ALPHA = 0.05
_FEW = 8  # below, a check of normality says nothing: the rank test


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Test:
    """name of the test, why it was chosen, and the one-sided p-value of "a is less than b"."""

    __test__ = False  # for pytest

    name: str
    reason: str
    p: float


def median_interval(samples: Sequence[float], seed: int = 0) -> Interval:
    """The median with a percentile bootstrap interval."""
    values = np.asarray(samples, float)
    drawn = np.median(values[_indices(len(values), seed)], axis=1)
    return _interval(float(np.median(values)), drawn)


def ratio_interval(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Interval:
    """median(ours) / median(theirs) with a percentile bootstrap interval. Samples of one round are neighbours in time
    and are drawn together.
    """
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    if len(a) != len(b):
        raise ValueError(f"samples are pairs: got {len(a)} and {len(b)}")
    at = _indices(len(a), seed)
    drawn = np.median(a[at], axis=1) / np.median(b[at], axis=1)
    return _interval(float(np.median(a) / np.median(b)), drawn)


def _indices(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))


def _interval(value: float, drawn: Array) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def faster(ours: Sequence[float], theirs: Sequence[float]) -> Test:
    """The test for "ours takes less time", chosen from the data."""
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    if min(len(a), len(b)) < _FEW:
        return _ranks(a, b, f"fewer than {_FEW} samples")
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return _ranks(a, b, "a constant sample")
    shapiro: Callable[[Array], Any] = scipy.stats.shapiro
    normality = min(float(shapiro(a).pvalue), float(shapiro(b).pvalue))
    if normality < ALPHA:
        return _ranks(a, b, f"not normal (Shapiro-Wilk p = {normality:.2g})")
    spread = float(scipy.stats.levene(a, b).pvalue)
    equal = spread >= ALPHA
    found = scipy.stats.ttest_ind(a, b, equal_var=equal, alternative="less")
    name = "Student's t" if equal else "Welch's t"
    reason = f"normal; {'equal' if equal else 'unequal'} variances (Levene p = {spread:.2g})"
    return Test(name, reason, float(found.pvalue))


def _ranks(a: Array, b: Array, reason: str) -> Test:
    found = scipy.stats.mannwhitneyu(a, b, alternative="less")
    return Test("Mann-Whitney", reason, float(found.pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in the given order (Holm 1979)."""
    count = len(p_values)
    corrected = [0.0] * count
    largest = 0.0
    for rank, at in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (count - rank) * p_values[at]))
        corrected[at] = largest
    return corrected


__all__ = [
    "ALPHA",
    "CONFIDENCE",
    "Interval",
    "Test",
    "faster",
    "holm",
    "median_interval",
    "ratio_interval",
]

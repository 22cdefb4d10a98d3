"""The statistics of the benchmarks: quartiles, and ratios paired by round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import paired_ratio, summarise

times = st.floats(min_value=1e-3, max_value=1e6)


def test_quartiles_of_a_known_sample() -> None:
    summary = summarise([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (summary.q1, summary.median, summary.q3) == (2.0, 3.0, 4.0)
    assert (summary.minimum, summary.count) == (1.0, 5)


@given(st.lists(times, min_size=1))
def test_quartiles_are_ordered_and_within_the_sample(samples: list[float]) -> None:
    s = summarise(samples)
    assert min(samples) == s.minimum <= s.q1 <= s.median <= s.q3 <= max(samples)


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="data point"):
        summarise([])


@given(st.lists(times, min_size=1), st.floats(min_value=0.1, max_value=10))
def test_paired_ratio_does_not_see_what_slows_a_whole_round(
    ours: list[float], factor: float
) -> None:
    baseline = [factor * time for time in ours]
    assert paired_ratio(baseline, ours) == pytest.approx(factor)


def test_paired_ratio_refuses_rounds_of_different_runs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1.0, 2.0, 3.0], [1.0, 2.0])

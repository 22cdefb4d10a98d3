"""Medians, spreads and paired ratios; no torch here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """What is kept of a set of samples: the median, the quartiles, the fastest, how many."""

    median: float
    q1: float
    q3: float
    minimum: float
    count: int

    @property
    def iqr(self) -> float:
        """The interquartile range: the spread that the tables print."""
        return self.q3 - self.q1


def summarise(samples: Sequence[float]) -> Summary:
    """Summarise one or more samples.

    Raises:
        ValueError: there is no sample.
    """
    if not samples:
        raise ValueError("summarise() got no sample; it needs at least one: measure longer")
    if len(samples) == 1:
        only = samples[0]
        return Summary(only, only, only, only, 1)
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    return Summary(median, q1, q3, min(samples), len(samples))


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Summary:
    """The ratio of two contenders, round by round.

    Both were measured in each round one shortly after the other, so what slows the machine for a
    while slows both: the ratio of a round is steadier than the ratio of two medians.

    Raises:
        ValueError: the two were not measured in the same rounds.
    """
    if len(numerator) != len(denominator):
        raise ValueError(
            f"paired_ratio() got {len(numerator)} and {len(denominator)} rounds; it needs the same "
            "rounds of one run: compare only contenders of one file and one size"
        )
    return summarise([a / b for a, b in zip(numerator, denominator, strict=True)])

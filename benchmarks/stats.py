"""Medians, spreads and paired ratios; no torch here."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    median: float
    q1: float
    q3: float
    minimum: float
    count: int


def summarise(samples: Sequence[float]) -> Summary:
    if not samples:
        raise ValueError("summarise() got no sample; it needs at least one: measure longer")
    if len(samples) == 1:
        only = samples[0]
        return Summary(only, only, only, only, 1)
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    return Summary(median=median, q1=q1, q3=q3, minimum=min(samples), count=len(samples))


def summarise_rounds(rounds: Sequence[Sequence[float]]) -> tuple[Summary, list[float]]:
    samples = [sample for one in rounds for sample in one]
    return summarise(samples), [round(statistics.median(one), 4) for one in rounds]


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """The median of the rounds' ratios of two contenders: a slow round slows both."""
    if len(numerator) != len(denominator):
        raise ValueError(
            f"paired_ratio() got {len(numerator)} and {len(denominator)} rounds; it needs the same "
            "rounds of one run: compare only contenders of one file and one size"
        )
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))

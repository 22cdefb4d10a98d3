"""The comparison of ours with the baselines of one report; needs neither torch nor the package."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from .schema import Report, Result, Size, paired_ratio

OURS = "ours"
OURS_AGAIN = "ours-again"
MARGIN = 0.05
"""The share by which ours may be slower than a baseline in the grid's verdict."""
SLOWER = 0.97
"""Ours counts as slower in a random draw if the peer's time over ours is below this."""
PASSES = ("forward", "backward")

Groups = dict[tuple[Size, str, str], dict[str, Result]]
"""Results by size, dtype and metric, then by contender."""


def groups(report: Report) -> Groups:
    grouped: Groups = {}
    for result in report.results:
        key = (result.size, result.dtype, result.metric)
        grouped.setdefault(key, {})[result.contender] = result
    return grouped


def speedup(baseline: Result, ours: Result) -> float:
    """The baseline's time or bytes over ours: if the rounds pair up, the median of their ratios."""
    if ours.median == 0:  # ours keeps no bytes
        return 1.0 if baseline.median == 0 else math.inf
    if baseline.rounds and len(baseline.rounds) == len(ours.rounds):
        return paired_ratio(baseline.rounds, ours.rounds)
    return baseline.median / ours.median


def baselines(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.contender not in (OURS, OURS_AGAIN)]


def slower_than(ours: Result, results: Iterable[Result]) -> list[str]:
    """The baselines that are faster than ours by more than the margin."""
    return [
        baseline.contender
        for baseline in baselines(results)
        if speedup(baseline, ours) < 1 / (1 + MARGIN)
    ]


def verdicts(report: Report) -> list[bool]:
    """For each size, dtype and metric with a result of ours: whether `slower_than` is empty."""
    return [
        not slower_than(results[OURS], results.values())
        for results in groups(report).values()
        if OURS in results
    ]


class Ratio(NamedTuple):
    """A peer's time over ours, for one pass of one draw."""

    size: Size
    dtype: str
    metric: str
    peer: str
    value: float


def ratios(report: Report) -> list[Ratio]:
    return [
        Ratio(size, dtype, metric, peer.contender, speedup(peer, results[OURS]))
        for (size, dtype, metric), results in groups(report).items()
        if metric in PASSES and OURS in results
        for peer in baselines(results.values())
    ]

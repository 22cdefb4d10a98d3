"""The tables of a report, and the comparison of ours with the baselines."""

import math
import statistics
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from rich import filesize
from rich.console import Console
from rich.table import Table

from .contender import OURS, OURS_AGAIN
from .schema import Report, Result, Size, paired_ratio

MARGIN = 0.05
"""The share by which ours may be slower than a baseline in the grid's verdict."""
SLOWER = 0.97
"""Ours counts as slower in a random draw if the peer's time over ours is below this."""
PASSES = ("forward", "backward")

Groups = dict[tuple[Size, str, str], dict[str, Result]]
"""Results by size, dtype and metric, then by contender."""


def groups(report: Report) -> Groups:
    found: Groups = {}
    for result in report.results:
        key = result.size, result.dtype, result.metric
        found.setdefault(key, {})[result.contender] = result
    return found


def speedup(baseline: Result, ours: Result) -> float:
    """The baseline's time or bytes over ours: if the rounds pair up, the median of their ratios."""
    if ours.median == 0:  # ours keeps no bytes
        return 1.0 if baseline.median == 0 else math.inf
    if baseline.rounds and len(baseline.rounds) == len(ours.rounds):
        return paired_ratio(baseline.rounds, ours.rounds)
    return baseline.median / ours.median


def baselines(results: Iterable[Result]) -> list[Result]:
    return [r for r in results if r.contender not in (OURS, OURS_AGAIN)]


def slower_than(ours: Result, results: Iterable[Result]) -> list[str]:
    """The baselines that are faster than ours by more than the margin."""
    return [r.contender for r in baselines(results) if speedup(r, ours) < 1 / (1 + MARGIN)]


def verdicts(report: Report) -> list[bool]:
    """For each size, dtype and metric with a result of ours: whether `slower_than` is empty."""
    every = groups(report).values()
    return [not slower_than(found[OURS], found.values()) for found in every if OURS in found]


def quantity(value: float, unit: str) -> str:
    """The value as text: `12.34` or `123` for times, `1.23 MB` for bytes."""
    if unit == "bytes":
        return filesize.decimal(int(value), precision=2)
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def header(report: Report) -> list[str]:
    """Lines that describe the run, the machine and the software of a report."""
    m, s = report.machine, report.software
    lines = [
        f"{report.command} ({report.protocol}) on {report.device}, {report.threads} thread(s), "
        f"{report.created}, commit {s.commit}",
        f"CPU {m.cpu} ({m.cores} cores, {m.cpu_capability}, load {m.load_average} at the start)",
        f"torch {s.torch}, Python {s.python}",
    ]
    if report.command != "import":
        lines[-1] += f", door {s.door or 'none: ours did not load'}"
    if m.gpu:
        lines.append(f"GPU {m.gpu} (sm {m.gpu_compute_capability}), driver {m.driver}")
    return lines


def new_table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(*left, title=title, title_justify="left")
    for name in right:
        table.add_column(name, justify="right")
    return table


def size_table(size: Size, dtype: str, metric: str, found: dict[str, Result]) -> Table:
    results, ours = list(found.values()), found.get(OURS)
    unit = results[0].unit
    title = f"{metric} ({unit}{' per step' if size.steps > 1 and unit == 'us' else ''})"
    if dtype != "-":  # an import has neither size nor dtype
        title = f"{size} {dtype} {title}"
    numbers = ("median", "IQR", "fastest", "x ours", "error")
    table = new_table(title, ("contender",), (*numbers, *results[0].detail))
    for r in results:
        ratio = speedup(r, ours) if ours else None
        row = [
            r.contender,
            quantity(r.median, unit),
            quantity(r.q3 - r.q1, unit),
            quantity(r.minimum, unit),
            f"{ratio:.2f}" if ratio is not None else "-",
            f"{r.error:.1e}" if r.error is not None else "-",
        ]
        row += [_detail(key, value) for key, value in r.detail.items()]
        table.add_row(*row, style="bold" if r is ours else None)
    return table


def _detail(key: str, value: float) -> str:
    if key == "fraction_of_copy":
        return f"{value:.0%}"
    if key.endswith("bytes_per_second"):
        return f"{value / 1e9:.4g} GB/s"
    return f"{value:.4g}"


def grid_table(report: Report) -> Table:
    names = tuple(dict.fromkeys(r.contender for r in baselines(report.results)))
    title = f"grid: each baseline's time over ours ({report.protocol})"
    table = new_table(title, ("size", "dtype", "metric", "ours us"), (*names, "noise"))
    table.add_column(f"verdict (within {MARGIN:.0%})")
    for (size, dtype, metric), results in groups(report).items():
        what = (str(size), dtype, metric)
        ours = results.get(OURS)
        if ours is None:
            table.add_row(*what, *("-" * (2 + len(names))), "ours not measured")
            continue
        ratios = {name: speedup(result, ours) for name, result in results.items()}
        shown = [f"{ratios[name]:.2f}" if name in ratios else "-" for name in names]
        noise = f"{abs(ratios[OURS_AGAIN] - 1):.0%}" if OURS_AGAIN in ratios else "-"
        slower = slower_than(ours, results.values())
        verdict = "slower than " + ", ".join(slower) if slower else "never slower"
        row = (*what, quantity(ours.median, "us"), *shown, noise, verdict)
        table.add_row(*row, style="red" if slower else None)
    return table


class Ratio(NamedTuple):
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


def summary(found: Report) -> str:
    """A Markdown table by peer, dtype and pass, then a line for each ratio below SLOWER."""
    every = ratios(found)
    lines = [
        f"| against | dtype | pass | draws | median | worst | below {SLOWER} |",
        "|---|---|---|---|---|---|---|",
    ]
    dtypes = ("all", *dict.fromkeys(r.dtype for r in every))
    peers = tuple(dict.fromkeys(r.peer for r in every))
    for peer, dtype, metric in product(peers, dtypes, PASSES):
        values = [
            r.value
            for r in every
            if r.peer == peer and r.metric == metric and dtype in ("all", r.dtype)
        ]
        if values:
            middle, worst = statistics.median(values), min(values)
            slower = sum(value < SLOWER for value in values)
            row = (peer, dtype, metric, len(values), f"{middle:.2f}", f"{worst:.2f}", slower)
            lines.append(f"| {' | '.join(map(str, row))} |")
    lines += [
        f"slower: {r.size} {r.dtype} {r.metric} {r.value:.2f} of {r.peer}"
        for r in sorted(every, key=lambda r: r.value)
        if r.value < SLOWER
    ]
    return "\n".join(lines)


def show(report: Report, console: Console) -> None:
    for line in header(report):
        console.print(line, highlight=False)
    if report.command == "grid":
        console.print(grid_table(report))
        judged = verdicts(report)
        console.print(
            f"at most {MARGIN:.0%} slower than every baseline: {sum(judged)} of {len(judged)} "
            "measured combinations of size, dtype and metric"
        )
    elif report.command == "random":
        console.print(summary(report), highlight=False)
    else:
        for (size, dtype, metric), results in groups(report).items():
            console.print(size_table(size, dtype, metric, results))
    skips: dict[str, dict[str, None]] = {}  # names by reason
    for skip in report.skipped:
        name = skip.contender if skip.contender != "*" else f"{skip.size} {skip.dtype}"
        skips.setdefault(skip.reason, {})[name] = None
    for reason, names in skips.items():
        console.print(f"skipped {', '.join(names)}: {reason}", highlight=False)

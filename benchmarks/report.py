"""The tables of a report."""

import statistics
from collections.abc import Mapping
from itertools import product

from rich import filesize
from rich.console import Console
from rich.table import Table

from .compare import (
    MARGIN,
    OURS,
    OURS_AGAIN,
    PASSES,
    SLOWER,
    Ratio,
    baselines,
    groups,
    ratios,
    slower_than,
    speedup,
    verdicts,
)
from .schema import Report, Result, Size


def quantity(value: float, unit: str) -> str:
    """The value as text: `12.34` or `123` for times, `1.23 MB` for bytes."""
    if unit == "bytes":
        return filesize.decimal(int(value), precision=2)
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def header(report: Report) -> list[str]:
    """Lines that describe the run, the machine and the software of a report."""
    machine = report.machine
    software = report.software
    lines = [
        f"{report.command} ({report.protocol}) on {report.device}, {report.threads} thread(s), "
        f"{report.created}, commit {software.commit}",
        f"CPU {machine.cpu} ({machine.cores} cores, {machine.cpu_capability}, "
        f"load {machine.load_average} at the start)",
        f"torch {software.torch}, Python {software.python}",
    ]
    if report.command != "import":
        lines[-1] += f", door {software.door or 'none: ours did not load'}"
    if machine.gpu:
        lines.append(
            f"GPU {machine.gpu} (sm {machine.gpu_compute_capability}), driver {machine.driver}"
        )
    return lines


def new_table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(*left, title=title, title_justify="left")
    for name in right:
        table.add_column(name, justify="right")
    return table


def size_table(size: Size, dtype: str, metric: str, results: Mapping[str, Result]) -> Table:
    """One line a contender."""
    first = next(iter(results.values()))
    ours = results.get(OURS)
    title = f"{metric} ({first.unit}{' per step' if size.steps > 1 and first.unit == 'us' else ''})"
    if dtype != "-":  # an import has neither size nor dtype
        title = f"{size} {dtype} {title}"
    numbers = ("median", "IQR", "fastest", "x ours", "error")
    table = new_table(title, ("contender",), (*numbers, *first.detail))
    for result in results.values():
        row = [
            result.contender,
            quantity(result.median, result.unit),
            quantity(result.q3 - result.q1, result.unit),
            quantity(result.minimum, result.unit),
            f"{speedup(result, ours):.2f}" if ours else "-",
            f"{result.error:.1e}" if result.error is not None else "-",
            *(_detail(key, value) for key, value in result.detail.items()),
        ]
        table.add_row(*row, style="bold" if result is ours else None)
    return table


def _detail(key: str, value: float) -> str:
    if key == "fraction_of_copy":
        return f"{value:.0%}"
    if key.endswith("bytes_per_second"):
        return f"{value / 1e9:.4g} GB/s"
    return f"{value:.4g}"


def grid_table(report: Report) -> Table:
    names = tuple(dict.fromkeys(result.contender for result in baselines(report.results)))
    title = f"grid: each baseline's time over ours ({report.protocol})"
    table = new_table(title, ("size", "dtype", "metric", "ours us"), (*names, "noise"))
    table.add_column(f"result (within {MARGIN:.0%})")
    for (size, dtype, metric), results in groups(report).items():
        subject = (str(size), dtype, metric)
        ours = results.get(OURS)
        if ours is None:
            table.add_row(*subject, *("-" * (2 + len(names))), "ours not measured")
            continue
        speedups = {name: speedup(result, ours) for name, result in results.items()}
        columns = [f"{speedups[name]:.2f}" if name in speedups else "-" for name in names]
        noise = f"{abs(speedups[OURS_AGAIN] - 1):.0%}" if OURS_AGAIN in speedups else "-"
        slower = slower_than(ours, results.values())
        verdict = f"slower than {', '.join(slower)}" if slower else "never slower"
        row = (*subject, quantity(ours.median, "us"), *columns, noise, verdict)
        table.add_row(*row, style="red" if slower else None)
    return table


def summary(report: Report) -> str:
    """A Markdown table by peer, dtype and pass, then a line for each ratio below SLOWER."""
    drawn = ratios(report)
    lines = [
        f"| against | dtype | pass | draws | median | worst | below {SLOWER} |",
        "|---|---|---|---|---|---|---|",
    ]
    dtypes = ("all", *dict.fromkeys(ratio.dtype for ratio in drawn))
    peers = tuple(dict.fromkeys(ratio.peer for ratio in drawn))
    for peer, dtype, metric in product(peers, dtypes, PASSES):
        values = [
            ratio.value
            for ratio in drawn
            if ratio.peer == peer and ratio.metric == metric and dtype in ("all", ratio.dtype)
        ]
        if values:
            row = (
                peer,
                dtype,
                metric,
                str(len(values)),
                f"{statistics.median(values):.2f}",
                f"{min(values):.2f}",
                str(sum(value < SLOWER for value in values)),
            )
            lines.append(f"| {' | '.join(row)} |")
    lines += [
        f"slower: {ratio.size} {ratio.dtype} {ratio.metric} {ratio.value:.2f} of {ratio.peer}"
        for ratio in sorted(drawn, key=_value)
        if ratio.value < SLOWER
    ]
    return "\n".join(lines)


def _value(ratio: Ratio) -> float:
    return ratio.value


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
    _show_skips(report, console)


def _show_skips(report: Report, console: Console) -> None:
    names_by_reason: dict[str, dict[str, None]] = {}
    for skip in report.skipped:
        name = skip.contender if skip.contender != "*" else f"{skip.size} {skip.dtype}"
        names_by_reason.setdefault(skip.reason, {})[name] = None
    for reason, names in names_by_reason.items():
        console.print(f"skipped {', '.join(names)}: {reason}", highlight=False)

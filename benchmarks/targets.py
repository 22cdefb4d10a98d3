"""The project's targets, and whether stored results meet them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.table import Table

from .baselines import OURS, OURS_AGAIN
from .report import groups, of, slower_than, speedup
from .schema import Report, Result, Size

TRAINING = "forward and backward"
"""A metric that is no report's: the sum of two of them, round by round."""
ONE_THREAD = "one thread"


@dataclass(frozen=True)
class Target:
    """Ours is to be at least `ratio` times as quick (or as small) as the contender `against`.

    With `against` "copy", `ratio` is the fraction of the measured copy bandwidth instead; with
    "float32", ours is compared with ours in float32; with "one thread", ours in two threads with
    ours in one.
    """

    command: str
    device: str
    protocol: str
    size: Size
    dtype: str
    metric: str
    against: str
    ratio: float


def _cell() -> Iterator[Target]:
    small, gemm_bound = Size(16, 32, 128), Size(256, 512, 1024)
    for metric, over_cpp, over_python in (("forward", 2.5, 2.0), ("backward", 2.5, 1.5)):
        common = ("cell", "cpu", "tutorial", small, "float32", metric)
        yield Target(*common, "cpp", over_cpp)
        yield Target(*common, "python", over_python)
        yield Target("cell", "cpu", "tutorial", gemm_bound, "float32", metric, "python", 1.1)
        yield Target("cell", "cuda", "tutorial", small, "float32", metric, "cuda", 3.0)
    yield Target("cell", "cuda", "graph", small, "float32", "forward", "python", 3.0)
    for dtype in ("float32", "bfloat16"):
        for metric in ("forward", "backward"):
            yield Target(
                "cell", "cuda", "kernels", Size(4096, 1024, 4096), dtype, metric, "copy", 0.8
            )
    for device in ("cpu", "cuda"):
        yield Target(
            "cell", device, "memory", small, "float32", "peak of training loop", "cpp", 2.0
        )


def _sixteen_bits() -> Iterator[Target]:
    for size in (Size(256, 1024, 2048), Size(4096, 1024, 4096)):
        for dtype in ("bfloat16", "float16"):
            for metric in ("forward", "backward"):
                yield Target("cell", "cuda", "split", size, dtype, metric, "float32", 1.0)


def _layer() -> Iterator[Target]:
    for batch, state, dtype, forward, backward in (
        (16, 128, "float32", 5.0, 2.0),
        (16, 512, "bfloat16", 8.0, 5.0),
        (16, 512, "float32", 6.0, 4.0),
        (64, 1024, "bfloat16", 4.0, 3.0),
        (64, 1024, "float32", 2.5, 2.0),
        (128, 2048, "bfloat16", 1.6, 1.3),
    ):
        size = Size(batch, state, state, 256)
        # In a training loop, and each call by itself, the host's way to it included.
        for protocol in ("stream", "split"):
            common = ("layer", "cuda", protocol, size, dtype)
            yield Target(*common, "forward", "lstm", forward)
            yield Target(*common, "backward", "lstm", backward)
        yield Target("layer", "cuda", "graph", size, dtype, "forward", "lstm", forward)
    for metric in ("forward", TRAINING):
        common = ("layer", "cpu", "split", Size(16, 32, 128, 100), "float32", metric)
        yield Target(*common, "lstm", 1.4)
        yield Target(*common, "ours-loop", 1.0)
        yield Target(*common, ONE_THREAD, 1.0)


TARGETS = (*_cell(), *_sixteen_bits(), *_layer())
IMPORT_LIMIT_MS = 10.0


def reached(target: Target, reports: list[Report]) -> float | None:
    """What the newest fitting report says, or None where nothing measured it."""
    if target.against == ONE_THREAD:  # two files, so not paired
        one, two = (_ours(target, reports, threads) for threads in (1, 2))
        return None if one is None or two is None else one / two
    for report, results in _fitting(target, reports, 1):
        key = (target.size, "float32", target.metric)
        wide = [r for r in report.results if (r.size, r.dtype, r.metric) == key]
        found = _reached(target, results, wide)
        if found is not None:
            return found
    return None


def _fitting(
    target: Target, reports: list[Report], threads: int
) -> Iterator[tuple[Report, list[Result]]]:
    """Reports of the target's kind, newest first, with what they hold of its size and metric."""
    key = (target.command, target.device, target.protocol, threads)
    for report in sorted(reports, key=lambda r: r.created, reverse=True):
        if (report.command, report.device, report.protocol, report.threads) == key:
            for size, dtype, metric, results in [*groups(report), *_training(report)]:
                if (size, dtype, metric) == (target.size, target.dtype, target.metric):
                    yield report, results


def _ours(target: Target, reports: list[Report], threads: int) -> float | None:
    found = [of(results, OURS) for _, results in _fitting(target, reports, threads)]
    return next((result.median for result in found if result is not None), None)


def _training(report: Report) -> Iterator[tuple[Size, str, str, list[Result]]]:
    """Groups of sums of forward and backward."""
    found = {(size, dtype, metric): results for size, dtype, metric, results in groups(report)}
    for (size, dtype, metric), forward in found.items():
        backward = found.get((size, dtype, "backward"), [])
        if metric == "forward":
            pairs = [(f, b) for f in forward for b in backward if f.contender == b.contender]
            yield size, dtype, TRAINING, [_sum(f, b) for f, b in pairs]


def _sum(forward: Result, backward: Result) -> Result:
    rounds = [f + b for f, b in zip(forward.rounds, backward.rounds, strict=True)]
    median = forward.median + backward.median
    return replace(forward, metric=TRAINING, median=median, rounds=rounds)


def _reached(target: Target, results: list[Result], float32: list[Result]) -> float | None:
    ours = of(results, OURS)
    if ours is None:
        return None
    if target.against == "copy":
        return ours.detail.get("fraction_of_copy")
    if target.against == "float32":  # measured at another time of the run: not paired
        wide = of(float32, OURS)
        return None if wide is None else wide.median / ours.median
    baseline = of(results, target.against)
    return None if baseline is None else speedup(baseline, ours)


def table(reports: list[Report]) -> Table:
    """Every target: met, missed, or not measured."""
    drawn = Table(title="targets (x ours, in one run)", title_justify="left")
    for name in ("what", "device", "size", "dtype", "metric", "against"):
        drawn.add_column(name)
    for name in ("needed", "reached", "verdict"):
        drawn.add_column(name, justify="right")
    for t in TARGETS:
        value = reached(t, reports)
        verdict = "not measured" if value is None else ("met" if value >= t.ratio else "missed")
        drawn.add_row(
            f"{t.command} {t.protocol}",
            t.device,
            str(t.size),
            t.dtype,
            t.metric,
            t.against,
            f"{t.ratio:.2f}",
            "-" if value is None else f"{value:.2f}",
            verdict,
            style={"missed": "red", "not measured": "dim"}.get(verdict),
        )
    for report in reports:
        if report.command == "grid":
            _grid_row(drawn, report)
        if report.command == "import":
            added = next((r for r in report.results if r.contender.startswith("added")), None)
            if added:
                drawn.add_row(
                    "import",
                    "cpu",
                    "-",
                    "-",
                    "time",
                    "import torch",
                    f"<= {IMPORT_LIMIT_MS} ms",
                    f"{added.median:.1f} ms",
                    "met" if added.median <= IMPORT_LIMIT_MS else "missed",
                )
    return drawn


def _grid_row(drawn: Table, report: Report) -> None:
    judged = [slower_than(results) for *_, results in groups(report) if of(results, OURS)]
    if judged:
        good = sum(not slower for slower in judged)
        kind = "layer" if report.results[0].size.steps > 1 else "cell"
        drawn.add_row(
            f"grid {kind} {report.protocol}",
            report.device,
            "grid",
            "-",
            "all",
            ", ".join(sorted({r.contender for r in report.results} - {OURS, OURS_AGAIN})),
            str(len(judged)),
            str(good),
            "met" if good == len(judged) else "missed",
        )

"""Compares stored results with the project's targets."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.table import Table

from .compare import OURS, PASSES, baselines, groups, speedup, verdicts
from .report import new_table
from .schema import Report, Result, Size

TRAINING = "forward and backward"
"""A metric that no report holds: the times of forward and backward, added up in every round."""
ONE_THREAD = "one thread"


@dataclass(frozen=True)
class Target:
    """Ours must be at least `ratio` times as fast (or as small) as the contender `against`.

    Three values of `against` are not contenders. With "copy", `ratio` is a fraction of the
    measured copy bandwidth; "float32" is ours in float32; "one thread" compares ours in two
    threads with ours in one.
    """

    command: str
    device: str
    protocol: str
    size: Size
    dtype: str
    metric: str
    against: str
    ratio: float


class Reached(NamedTuple):
    """The ratio that a report gives for a target."""

    ratio: float
    report: Report


def _goals(run: str, size: Size, dtype: str, against: str, **goals: float) -> Iterator[Target]:
    """A target for each pass of a run; `run` is its command, its device and its protocol."""
    command, device, protocol = run.split()
    for metric, ratio in goals.items():
        yield Target(
            command=command,
            device=device,
            protocol=protocol,
            size=size,
            dtype=dtype,
            metric=metric,
            against=against,
            ratio=ratio,
        )


def _of_steps() -> Iterator[Target]:
    small = Size(16, 32, 128)
    middle = Size(256, 512, 1024)
    large = Size(4096, 1024, 4096)
    on_cpu = "cell cpu tutorial"
    yield from _goals(on_cpu, small, "float32", "cpp", forward=2.3, backward=2.5)
    yield from _goals(on_cpu, small, "float32", "python", forward=2.0, backward=1.5)
    yield from _goals(on_cpu, middle, "float32", "python", forward=1.1, backward=1.1)
    yield from _goals("cell cuda tutorial", small, "float32", "cuda", forward=3.0, backward=3.0)
    yield from _goals("cell cuda graph", small, "float32", "python", forward=3.0)
    for dtype in ("float32", "bfloat16"):
        yield from _goals("cell cuda kernels", large, dtype, "copy", forward=0.8, backward=0.8)
    for device, ratio in (("cpu", 1.6), ("cuda", 2.0)):
        peak = {"peak of training loop": ratio}
        yield from _goals(f"cell {device} memory", small, "float32", "cpp", **peak)
    for size in (Size(256, 1024, 2048), large):
        for dtype in ("bfloat16", "float16"):
            yield from _goals("cell cuda split", size, dtype, "float32", forward=1.0, backward=1.0)


class LayerGoal(NamedTuple):
    """How many times as fast as `nn.LSTM` a layer of 256 steps should be; I is S."""

    batch: int
    state: int
    dtype: str
    forward: float
    backward: float


LAYER_GOALS = (
    LayerGoal(batch=16, state=128, dtype="float32", forward=5.0, backward=2.5),
    LayerGoal(batch=16, state=512, dtype="bfloat16", forward=8.0, backward=5.0),
    LayerGoal(batch=16, state=512, dtype="float32", forward=6.0, backward=4.0),
    LayerGoal(batch=64, state=1024, dtype="bfloat16", forward=5.0, backward=4.0),
    LayerGoal(batch=64, state=1024, dtype="float32", forward=2.5, backward=2.0),
    LayerGoal(batch=128, state=2048, dtype="bfloat16", forward=2.5, backward=1.8),
)


def _of_layers() -> Iterator[Target]:
    for goal in LAYER_GOALS:
        size = Size(goal.batch, goal.state, goal.state, 256)
        passes = {"forward": goal.forward, "backward": goal.backward}
        # `stream` times a training loop; `split` times each call alone, host time included.
        for protocol in ("stream", "split"):
            yield from _goals(f"layer cuda {protocol}", size, goal.dtype, "lstm", **passes)
        yield from _goals("layer cuda graph", size, goal.dtype, "lstm", forward=goal.forward)
    size = Size(16, 32, 128, 100)
    for against, ratio in (("lstm", 1.4), ("ours-loop", 1.0), (ONE_THREAD, 1.0)):
        passes = {"forward": ratio, TRAINING: ratio}
        yield from _goals("layer cpu split", size, "float32", against, **passes)


TARGETS = (*_of_steps(), *_of_layers())
IMPORT_LIMIT_MS = 15.0


def reached(target: Target, reports: list[Report]) -> Reached | None:
    """The ratio from the newest report that gives it (for "one thread", from two), or None."""
    if target.against == ONE_THREAD:  # from two reports, whose rounds do not pair up
        single = next(_measured(target, reports, threads=1), None)
        double = next(_measured(target, reports, threads=2), None)
        if single is None or double is None:
            return None
        ratio = single.results[OURS].median / double.results[OURS].median
        return Reached(ratio, double.report)
    for report, results in _measured(target, reports, threads=1):
        if target.against == "copy":
            fraction = results[OURS].detail.get("fraction_of_copy")
            return None if fraction is None else Reached(fraction, report)
        if target.against in results:
            return Reached(speedup(results[target.against], results[OURS]), report)
    return None


class Candidate(NamedTuple):
    """A report of a target's kind that has ours, and its results by contender."""

    report: Report
    results: dict[str, Result]


def _measured(target: Target, reports: list[Report], *, threads: int) -> Iterator[Candidate]:
    """The newest report first."""
    kind = (target.command, target.device, target.protocol, threads)
    for report in sorted(reports, key=_created, reverse=True):
        if (report.command, report.device, report.protocol, report.threads) == kind:
            results = _results(target, report)
            if OURS in results:
                yield Candidate(report, results)


def _created(report: Report) -> str:
    return report.created


def _results(target: Target, report: Report) -> dict[str, Result]:
    """The results by contender for the target's size, dtype and metric, and ours in float32."""
    grouped = groups(report)
    results = grouped.get((target.size, target.dtype, target.metric), {})
    if target.metric == TRAINING:
        forward, backward = (
            grouped.get((target.size, target.dtype, metric), {}) for metric in PASSES
        )
        results = {name: _sum(forward[name], backward[name]) for name in forward.keys() & backward}
    float32 = grouped.get((target.size, "float32", target.metric), {}).get(OURS)
    if float32:  # measured at another time, so the rounds do not pair up
        results = results | {"float32": replace(float32, rounds=[])}
    return results


def _sum(forward: Result, backward: Result) -> Result:
    rounds = [f + b for f, b in zip(forward.rounds, backward.rounds, strict=True)]
    median = forward.median + backward.median
    return replace(forward, metric=TRAINING, median=median, rounds=rounds)


class Row(NamedTuple):
    """A line of the table: what was compared, the aim, what came out."""

    what: tuple[str, ...]
    aim: str
    reached: str
    is_met: bool | None
    """None if it was not measured."""


def table(reports: list[Report]) -> Table:
    drawn = new_table(
        "targets",
        ("what", "device", "size", "dtype", "metric", "against"),
        ("needed", "reached", "result"),
    )
    verdict_words = {True: "met", False: "missed", None: "not measured"}
    styles = {True: None, False: "red", None: "dim"}
    rows = [_target_row(target, reports) for target in TARGETS]
    for report in reports:
        rows += [*_grid_rows(report), *_import_rows(report)]
    for row in rows:
        cells = (*row.what, row.aim, row.reached, verdict_words[row.is_met])
        drawn.add_row(*cells, style=styles[row.is_met])
    return drawn


def _target_row(target: Target, reports: list[Report]) -> Row:
    result = reached(target, reports)
    kind = f"{target.command} {target.protocol}"
    size = str(target.size)
    return Row(
        what=(kind, target.device, size, target.dtype, target.metric, target.against),
        aim=f"{target.ratio:.2f}",
        reached="-" if result is None else f"{result.ratio:.2f}",
        is_met=None if result is None else result.ratio >= target.ratio,
    )


def _grid_rows(report: Report) -> Iterator[Row]:
    judged = verdicts(report) if report.command == "grid" else []
    if judged:
        kind = "layer" if report.results[0].size.steps > 1 else "cell"
        against = ", ".join(sorted({result.contender for result in baselines(report.results)}))
        yield Row(
            what=(f"grid {kind} {report.protocol}", report.device, "grid", "-", "all", against),
            aim=str(len(judged)),
            reached=str(sum(judged)),
            is_met=all(judged),
        )


def _import_rows(report: Report) -> Iterator[Row]:
    for result in report.results if report.command == "import" else ():
        if result.contender.startswith("added"):
            yield Row(
                what=("import", "cpu", "-", "-", "time", "import torch"),
                aim=f"<= {IMPORT_LIMIT_MS} ms",
                reached=f"{result.median:.1f} ms",
                is_met=result.median <= IMPORT_LIMIT_MS,
            )

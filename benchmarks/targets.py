"""The project's targets, and whether stored results meet them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.table import Table

from .contender import OURS
from .report import PASSES, baselines, groups, new_table, speedup, verdicts
from .schema import Report, Result, Size

TRAINING = "forward and backward"
"""A metric that no report holds: the sum of the two, round by round."""
ONE_THREAD = "one thread"


@dataclass(frozen=True)
class Target:
    """Ours must be at least `ratio` times as fast (or as small) as the contender `against`.

    Three values of `against` are not contenders. With "copy", `ratio` is a fraction of the measured
    copy bandwidth; "float32" is ours in float32; "one thread" compares ours in two threads with
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
    for metric, over_cpp, over_python in (("forward", 2.3, 2.0), ("backward", 2.5, 1.5)):
        common = ("cell", "cpu", "tutorial", small, "float32", metric)
        yield Target(*common, "cpp", over_cpp)
        yield Target(*common, "python", over_python)
        yield Target("cell", "cpu", "tutorial", gemm_bound, "float32", metric, "python", 1.1)
        yield Target("cell", "cuda", "tutorial", small, "float32", metric, "cuda", 3.0)
    yield Target("cell", "cuda", "graph", small, "float32", "forward", "python", 3.0)
    for dtype in ("float32", "bfloat16"):
        common = ("cell", "cuda", "kernels", Size(4096, 1024, 4096), dtype)
        yield Target(*common, "forward", "copy", 0.8)
        yield Target(*common, "backward", "copy", 0.8)
    for device, ratio in (("cpu", 1.6), ("cuda", 2.0)):
        common = ("cell", device, "memory", small, "float32", "peak of training loop")
        yield Target(*common, "cpp", ratio)


def _sixteen_bits() -> Iterator[Target]:
    for size in (Size(256, 1024, 2048), Size(4096, 1024, 4096)):
        for dtype in ("bfloat16", "float16"):
            for metric in ("forward", "backward"):
                yield Target("cell", "cuda", "split", size, dtype, metric, "float32", 1.0)


def _layer() -> Iterator[Target]:
    for batch, state, dtype, forward, backward in (
        (16, 128, "float32", 5.0, 2.5),
        (16, 512, "bfloat16", 8.0, 5.0),
        (16, 512, "float32", 6.0, 4.0),
        (64, 1024, "bfloat16", 5.0, 4.0),
        (64, 1024, "float32", 2.5, 2.0),
        (128, 2048, "bfloat16", 2.5, 1.8),
    ):
        size = Size(batch, state, state, 256)
        # `stream` is as in a training loop; `split` times each call alone, host time included.
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
IMPORT_LIMIT_MS = 15.0


def reached(target: Target, reports: list[Report]) -> float | None:
    """The value in the newest report with this target, or None if no report has it."""
    if target.against == ONE_THREAD:  # from two files, so not paired by round
        one, two = (next(_measured(target, reports, threads), None) for threads in (1, 2))
        return one[OURS].median / two[OURS].median if one and two else None
    for results in _measured(target, reports, 1):
        if target.against == "copy":
            return results[OURS].detail.get("fraction_of_copy")
        if target.against in results:
            return speedup(results[target.against], results[OURS])
    return None


def _measured(target: Target, reports: list[Report], threads: int) -> Iterator[dict[str, Result]]:
    """By contender, what each report of the target's kind says, the newest first, if it has ours.

    "float32" is ours in float32.
    """
    kind = (target.command, target.device, target.protocol, threads)
    for report in sorted(reports, key=lambda report: report.created, reverse=True):
        if (report.command, report.device, report.protocol, report.threads) == kind:
            found = groups(report)
            results = found.get((target.size, target.dtype, target.metric), {})
            if target.metric == TRAINING:
                forward, backward = (found.get((target.size, target.dtype, m), {}) for m in PASSES)
                results = {n: _sum(forward[n], backward[n]) for n in forward.keys() & backward}
            float32 = found.get((target.size, "float32", target.metric), {}).get(OURS)
            if float32:  # measured later in the same run: not paired
                results = results | {"float32": replace(float32, rounds=[])}
            if OURS in results:
                yield results


def _sum(forward: Result, backward: Result) -> Result:
    rounds = [f + b for f, b in zip(forward.rounds, backward.rounds, strict=True)]
    median = forward.median + backward.median
    return replace(forward, metric=TRAINING, median=median, rounds=rounds)


def table(reports: list[Report]) -> Table:
    drawn = new_table(
        "targets (x ours, in one run)",
        ("what", "device", "size", "dtype", "metric", "against"),
        ("needed", "reached", "verdict"),
    )
    for t in TARGETS:
        value = reached(t, reports)
        verdict = "not measured" if value is None else _verdict(value >= t.ratio)
        what = (f"{t.command} {t.protocol}", t.device, str(t.size), t.dtype, t.metric, t.against)
        numbers = (f"{t.ratio:.2f}", "-" if value is None else f"{value:.2f}")
        style = {"missed": "red", "not measured": "dim"}.get(verdict)
        drawn.add_row(*what, *numbers, verdict, style=style)
    for report in reports:
        if report.command == "grid":
            _add_grid(drawn, report)
        if report.command == "import":
            _add_import(drawn, report)
    return drawn


def _add_grid(drawn: Table, report: Report) -> None:
    judged = verdicts(report)
    if judged:
        good = sum(judged)
        kind = "layer" if report.results[0].size.steps > 1 else "cell"
        against = ", ".join(sorted({r.contender for r in baselines(report.results)}))
        what = (f"grid {kind} {report.protocol}", report.device, "grid", "-", "all", against)
        drawn.add_row(*what, str(len(judged)), str(good), _verdict(good == len(judged)))


def _add_import(drawn: Table, report: Report) -> None:
    for result in report.results:
        if result.contender.startswith("added"):
            what = ("import", "cpu", "-", "-", "time", "import torch")
            limit, found = f"<= {IMPORT_LIMIT_MS} ms", f"{result.median:.1f} ms"
            drawn.add_row(*what, limit, found, _verdict(result.median <= IMPORT_LIMIT_MS))


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"

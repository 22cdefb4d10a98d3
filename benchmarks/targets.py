"""Compares stored results with the project's targets, and writes the table of speed in the docs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from . import schema
from .contender import OURS
from .machine import ROOT
from .report import PASSES, baselines, groups, new_table, speedup, verdicts
from .schema import Report, Result, Size

PAGE = ROOT / "docs" / "numbers" / "index.md"
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- speed-table:begin -->\n", "<!-- speed-table:end -->\n"

NAMES = {
    "python": "plain PyTorch",
    "cpp": "the tutorial's C++ op",
    "cuda": "the tutorial's CUDA op",
    "lstm": "`nn.LSTM`",
}
WHAT = {
    ("cell", "tutorial"): "one step",
    ("cell", "graph"): "one step in a CUDA graph",
    ("cell", "memory"): "peak memory of 256 steps",
    ("layer", "stream"): "a sequence in a training loop",
    ("layer", "split"): "a sequence by itself",
}

TRAINING = "forward and backward"
"""A metric that no report holds: the times of forward and backward, added up in every round."""
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


def _goals(kind: str, size: Size, dtype: str, against: str, *ratios: float) -> Iterator[Target]:
    """A target for forward, and one for backward if there is a second ratio."""
    for metric, ratio in zip(PASSES, ratios, strict=False):
        yield Target(*kind.split(), size, dtype, metric, against, ratio)


def _targets() -> Iterator[Target]:
    small, middle, large = Size(16, 32, 128), Size(256, 512, 1024), Size(4096, 1024, 4096)
    yield from _goals("cell cpu tutorial", small, "float32", "cpp", 2.3, 2.5)
    yield from _goals("cell cpu tutorial", small, "float32", "python", 2.0, 1.5)
    yield from _goals("cell cpu tutorial", middle, "float32", "python", 1.1, 1.1)
    yield from _goals("cell cuda tutorial", small, "float32", "cuda", 3.0, 3.0)
    yield from _goals("cell cuda graph", small, "float32", "python", 3.0)
    for dtype in ("float32", "bfloat16"):
        yield from _goals("cell cuda kernels", large, dtype, "copy", 0.8, 0.8)
    for device, ratio in (("cpu", 1.6), ("cuda", 2.0)):
        common = ("cell", device, "memory", small, "float32", "peak of training loop")
        yield Target(*common, "cpp", ratio)
    for size in (Size(256, 1024, 2048), large):
        for dtype in ("bfloat16", "float16"):
            yield from _goals("cell cuda split", size, dtype, "float32", 1.0, 1.0)
    for batch, state, dtype, forward, backward in (
        (16, 128, "float32", 5.0, 2.5),
        (16, 512, "bfloat16", 8.0, 5.0),
        (16, 512, "float32", 6.0, 4.0),
        (64, 1024, "bfloat16", 5.0, 4.0),
        (64, 1024, "float32", 2.5, 2.0),
        (128, 2048, "bfloat16", 2.5, 1.8),
    ):
        size = Size(batch, state, state, 256)
        # `stream` times a training loop; `split` times each call alone, host time included.
        for protocol in ("stream", "split"):
            yield from _goals(f"layer cuda {protocol}", size, dtype, "lstm", forward, backward)
        yield from _goals("layer cuda graph", size, dtype, "lstm", forward)
    for metric in ("forward", TRAINING):
        common = ("layer", "cpu", "split", Size(16, 32, 128, 100), "float32", metric)
        for against, ratio in (("lstm", 1.4), ("ours-loop", 1.0), (ONE_THREAD, 1.0)):
            yield Target(*common, against, ratio)


TARGETS = tuple(_targets())
IMPORT_LIMIT_MS = 15.0


def reached(target: Target, reports: list[Report]) -> float | None:
    """The ratio from the newest report that gives it (for "one thread", from two), or None."""
    if target.against == ONE_THREAD:  # from two reports, whose rounds do not pair up
        one, two = (next(_measured(target, reports, threads), None) for threads in (1, 2))
        return one[OURS].median / two[OURS].median if one and two else None
    for results in _measured(target, reports, 1):
        if target.against == "copy":
            return results[OURS].detail.get("fraction_of_copy")
        if target.against in results:
            return speedup(results[target.against], results[OURS])
    return None


def _measured(target: Target, reports: list[Report], threads: int) -> Iterator[dict[str, Result]]:
    """The results by contender of each report of the target's kind that has ours, newest first."""
    kind = (target.command, target.device, target.protocol, threads)
    for report in sorted(reports, key=lambda report: report.created, reverse=True):
        if (report.command, report.device, report.protocol, report.threads) == kind:
            found = groups(report)
            results = found.get((target.size, target.dtype, target.metric), {})
            if target.metric == TRAINING:
                forward, backward = (found.get((target.size, target.dtype, m), {}) for m in PASSES)
                results = {n: _sum(forward[n], backward[n]) for n in forward.keys() & backward}
            float32 = found.get((target.size, "float32", target.metric), {}).get(OURS)
            if float32:  # measured at another time, so the rounds do not pair up
                results = results | {"float32": replace(float32, rounds=[])}
            if OURS in results:
                yield results


def _sum(forward: Result, backward: Result) -> Result:
    rounds = [f + b for f, b in zip(forward.rounds, backward.rounds, strict=True)]
    median = forward.median + backward.median
    return replace(forward, metric=TRAINING, median=median, rounds=rounds)


def table(reports: list[Report]) -> Table:
    drawn = new_table(
        "targets",
        ("what", "device", "size", "dtype", "metric", "against"),
        ("needed", "reached", "verdict"),
    )

    def add(what: Sequence[object], needed: str, found: str, is_met: bool | None) -> None:
        verdict = {True: "met", False: "missed", None: "not measured"}[is_met]
        style = {False: "red", None: "dim"}.get(is_met)
        drawn.add_row(*map(str, what), needed, found, verdict, style=style)

    for t in TARGETS:
        value = reached(t, reports)
        what = (f"{t.command} {t.protocol}", t.device, t.size, t.dtype, t.metric, t.against)
        is_met = None if value is None else value >= t.ratio
        add(what, f"{t.ratio:.2f}", "-" if value is None else f"{value:.2f}", is_met)
    for report in reports:
        judged = verdicts(report) if report.command == "grid" else []
        if judged:
            kind = "layer" if report.results[0].size.steps > 1 else "cell"
            against = ", ".join(sorted({r.contender for r in baselines(report.results)}))
            what = (f"grid {kind} {report.protocol}", report.device, "grid", "-", "all", against)
            add(what, str(len(judged)), str(sum(judged)), all(judged))
        for result in report.results if report.command == "import" else ():
            if result.contender.startswith("added"):
                what = ("import", "cpu", "-", "-", "time", "import torch")
                limit, found = f"<= {IMPORT_LIMIT_MS} ms", f"{result.median:.1f} ms"
                add(what, limit, found, result.median <= IMPORT_LIMIT_MS)
    return drawn


def stored() -> list[Report]:
    folders = (RESULTS / "cpu", RESULTS / "h200")
    return [schema.read(path) for folder in folders for path in sorted(folder.glob("*.json"))]


def _ratio(target: Target, reports: list[Report]) -> str:
    value = reached(target, reports)
    if value is None:
        return ""
    missed = "" if value >= target.ratio else f" (aim: {target.ratio:g}x)"
    both = " with forward" if target.metric == TRAINING else ""
    return f"{value:.2f}x{both}{missed}"


def speed_table(reports: list[Report]) -> str:
    """The table in Markdown. A ratio that misses its target is followed by the target."""
    rows: dict[tuple[str, ...], list[Target]] = {}
    for target in TARGETS:
        what = WHAT.get((target.command, target.protocol))
        if what is not None and target.against in NAMES:
            where = {"cpu": "CPU, one thread", "cuda": "H200"}[target.device]
            key = (what, where, str(target.size), target.dtype, NAMES[target.against])
            rows.setdefault(key, []).append(target)
    lines = [
        "| what | where | size | dtype | against | forward | backward |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, targets in rows.items():
        # Without a target for backward, the column `backward` stays empty.
        forward, backward = (*(_ratio(target, reports) for target in targets), "")[:2]
        if forward or backward:
            lines.append(f"| {' | '.join((*key, forward, backward))} |")
    return "\n".join(lines) + "\n"


def filled(page: str, text: str) -> str:
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + text + page[end:]


def write_page() -> Path:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, speed_table(stored())), encoding="utf-8")
    return PAGE

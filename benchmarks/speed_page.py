"""Writes the table of speed in docs/numbers/index.md from the stored results."""

from measurements.storage import RESULTS

from . import schema
from .machine import ROOT
from .schema import Report
from .targets import TARGETS, TRAINING, Target, reached

PAGE = ROOT / "docs" / "numbers" / "index.md"
PICKED = RESULTS / "picked"
"""The results of `benchmarks/run_all.sh`, all of one machine and one commit."""
BEGIN = "<!-- speed-table:begin -->\n"
END = "<!-- speed-table:end -->\n"

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


def stored() -> list[Report]:
    return [schema.read(path) for path in sorted(PICKED.glob("*.json.xz"))]


def speed_table(reports: list[Report]) -> str:
    """The table in Markdown. A ratio that misses its target is followed by the target."""
    rows: dict[tuple[str, ...], list[str]] = {}
    missed: list[str] = []
    for target in TARGETS:
        result = reached(target, reports)
        what = WHAT.get((target.command, target.protocol))
        if result is None or what is None or target.against not in NAMES:
            continue
        size = str(target.size)
        against = NAMES[target.against]
        place = (what, _where(result.report), size, target.dtype, against)
        is_missed = result.ratio < target.ratio
        aim = f" (aim: {target.ratio:g}x)" if is_missed else ""
        both = " with forward" if target.metric == TRAINING else ""
        rows.setdefault(place, []).append(f"{result.ratio:.2f}x{both}{aim}")
        if is_missed:
            missed.append(_sentence(target, place, result.ratio))
    lines = [
        "| what | where | size | dtype | against | forward | backward |",
        "|---|---|---|---|---|---|---|",
        # Without a target for backward, the column `backward` stays empty.
        *(f"| {' | '.join((*place, *ratios, '')[:7])} |" for place, ratios in rows.items()),
    ]
    if missed:
        lines += ["", f"Missed aims, {len(missed)} of {_count(reports)}:", "", *missed]
    return "\n".join(lines) + "\n"


def _count(reports: list[Report]) -> int:
    """How many of the aims that the table shows were measured."""
    return sum(
        (target.command, target.protocol) in WHAT
        and target.against in NAMES
        and reached(target, reports) is not None
        for target in TARGETS
    )


def _sentence(target: Target, place: tuple[str, ...], ratio: float) -> str:
    what, where, size, dtype, against = place
    compared = "less than" if target.protocol == "memory" else "as fast as"
    return (
        f"- {what}, {where}, {size} {dtype}, {target.metric}: {ratio:.2f} times {compared} "
        f"{against}, aim {target.ratio:g}"
    )


def _where(report: Report) -> str:
    if report.device == "cpu":
        return "CPU, one thread"
    name = report.machine.gpu or "a GPU"
    return name.removeprefix("NVIDIA ").split()[0]


def filled(page: str, table: str) -> str:
    """The page with the table between its markers; raises ValueError if it has none."""
    begin = page.index(BEGIN) + len(BEGIN)
    end = page.index(END)
    return page[:begin] + table + page[end:]


def write_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, speed_table(stored())), encoding="utf-8")

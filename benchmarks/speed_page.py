"""The table of speed in docs/numbers/index.md: the aims, and what the stored results reach."""

from pathlib import Path

from . import schema
from .machine import ROOT
from .schema import Report
from .targets import TARGETS, TRAINING, Target, reached

PAGE = ROOT / "docs" / "numbers" / "index.md"
RESULTS = ROOT / "benchmarks" / "results"
FOLDERS = ("cpu", "h200")
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


def stored() -> list[Report]:
    files = [path for folder in FOLDERS for path in sorted((RESULTS / folder).glob("*.json"))]
    return [schema.read(path) for path in files]


def _ratio(target: Target, reports: list[Report]) -> str:
    value = reached(target, reports)
    if value is None:
        return ""
    missed = "" if value >= target.ratio else f" (aim: {target.ratio:g}x)"
    both = " with forward" if target.metric == TRAINING else ""
    return f"{value:.2f}x{both}{missed}"


def table(reports: list[Report]) -> str:
    """The table in Markdown; a ratio below its target is followed by the target."""
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
        # Without a target for backward the second column stays empty.
        forward, backward = (*(_ratio(target, reports) for target in targets), "")[:2]
        if forward or backward:
            lines.append(f"| {' | '.join((*key, forward, backward))} |")
    return "\n".join(lines) + "\n"


def filled(page: str, text: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} must hold {BEGIN.strip()} and {END.strip()}: put them back")
    return before + begin + text + end + after


def write() -> Path:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, table(stored())), encoding="utf-8")
    return PAGE

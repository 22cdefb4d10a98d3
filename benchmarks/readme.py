"""README's table of speed: what stored results say of the project's targets."""

from __future__ import annotations

from pathlib import Path

from . import schema
from .schema import Report
from .targets import TARGETS, TRAINING, Target, reached

REPO = Path(__file__).resolve().parents[1]
README = REPO / "README.md"
RESULTS = REPO / "benchmarks" / "results"
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
    """Every stored report that holds times of the cell or of the layer."""
    files = [path for folder in FOLDERS for path in sorted((RESULTS / folder).glob("*.json"))]
    return [schema.read(path) for path in files]


def _cell(target: Target | None, reports: list[Report]) -> str:
    value = None if target is None else reached(target, reports)
    if target is None or value is None:
        return ""
    missed = "" if value >= target.ratio else f" (aim: {target.ratio:g}x)"
    both = " with forward" if target.metric == TRAINING else ""
    return f"{value:.2f}x{both}{missed}"


def table(reports: list[Report]) -> str:
    """The table in Markdown; a ratio below its target says so."""
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
        backward = next((t for t in targets if t.metric in ("backward", TRAINING)), None)
        forward = next(t for t in targets if t is not backward)
        cells = (_cell(forward, reports), _cell(backward, reports))
        if any(cells):
            lines.append(f"| {' | '.join((*key, *cells))} |")
    return "\n".join(lines) + "\n"


def filled(page: str, text: str) -> str:
    """The page with `text` between the markers.

    Raises:
        ValueError: the markers are not there in order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md must hold {BEGIN.strip()} and {END.strip()}: put them back")
    return before + begin + text + end + after


def write() -> Path:
    """Write the table of the stored results into README.md."""
    page = README.read_text(encoding="utf-8")
    README.write_text(filled(page, table(stored())), encoding="utf-8")
    return README

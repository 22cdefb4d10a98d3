"""Makes Markdown tables of the matrix and of the results of `--verify full` and the op's tests."""

from pathlib import Path

from . import REPO
from .evidence import Evidence, results
from .schema import FIRST, Matrix

WORDS = {"ran": "ran", "unsupported": "no"}
LEGEND = {
    "ran": "installed from the fat wheel, judged, compared with the definition, gradients checked",
    "no": "not supported, as there is no such torch",
    "untried": "not tried yet",
}


def brief(matrix: Matrix) -> str:
    """The table of platforms, torches and Pythons for the README."""
    lines = [row("platform", "torch", "Python", "runs on", "by"), "|---" * 5 + "|"]
    for name, found in ((name, matrix.on(name)) for name in matrix.platforms):
        platform, minors = name.replace("linux-", "Linux ").replace("_", "-"), found.minors()
        first = minors.index(found.stable.target)
        pythons = f"{found.package.pythons[0]} and newer"
        aten = {device for minor in minors[:first] for device in found.torch[minor].aten}
        newer = f"{minors[first]} to {minors[-1]}, and later"
        for versions, devices, by in (
            (f"{minors[0]} to {minors[first - 1]}", sorted(aten), "glue of its own for each"),
            (newer, found.stable.devices, "one stable glue"),
        ):
            on = ", ".join(d.upper().replace("CU", "CUDA ") for d in devices)
            lines.append(row(platform, versions, pythons, on, by))
    return "\n".join(lines) + "\n"


def full(matrix: Matrix, evidence: Evidence | None, suites: dict[str, str]) -> str:
    """The table of torch minors and Pythons with all results, a legend and the results' origin."""
    pythons = matrix.every_python()
    if evidence and matrix.platform != FIRST:  # some Pythons were not tried
        tried = {row.python for row in evidence.environments if row.state != "unsupported"}
        pythons = [python for python in pythons if python in tried]
    head = ["torch", "CUDA of PyPI's build", "C++ ABI (PyPI / conda)", "served by"]
    head += [*(f"Python {python}" for python in pythons), "tests of the operator"]
    lines = [row(*head), "|---" * len(head) + "|"]
    seen: dict[str, None] = {}
    for minor, torch in matrix.torch.items():
        words = [_word(matrix, evidence, minor, python) for python in pythons]
        seen.update(dict.fromkeys(words))
        cuda = torch.cuda.version if torch.cuda else "none"
        facts = [minor, cuda, f"{torch.abi.pypi} / {torch.abi.conda}", _glue(matrix, minor)]
        lines.append(row(*facts, *words, suites.get(minor, "")))
    legend = [f"*{word}*: {text}" for word, text in LEGEND.items() if word in seen]
    if any(len(torch.abis) > 1 for torch in matrix.torch.values()):
        legend.append("*optional*: for conda's builds; in the fat wheel if it was built")
    legend += [f"**{word}**: tried, and it does not work" for word in seen if "fails" in word]
    text = "; ".join(legend) + "."
    if matrix.platform != FIRST:  # the stored results are from qemu
        fat = "installed from the fat wheel,"
        text = text.replace(fat, "installed from a wheel and run under qemu:")
    lines += ["", text]
    if evidence:
        lines.append(_origin(evidence, results(matrix.platform).relative_to(REPO)))
    return "\n".join(lines) + "\n"


def row(*words: object) -> str:
    return f"| {' | '.join(map(str, words))} |"


def _glue(matrix: Matrix, minor: str) -> str:
    torch = matrix.torch[minor]
    if not torch.aten:
        return "`stable" + matrix.stable.target.replace(".", "") + "`"
    pypi, *optional = (f"`aten{minor.replace('.', '')}-abi{flavour}`" for flavour in torch.abis)
    return f"{pypi} (optional: {optional[0]})" if optional else pypi


def _word(matrix: Matrix, evidence: Evidence | None, minor: str, python: str) -> str:
    if python not in matrix.torch[minor].every_python:
        return WORDS["unsupported"]
    found = evidence.of(minor, python) if evidence else None
    return WORDS.get(found.state, f"**fails** ({found.state})") if found else "untried"


def _origin(evidence: Evidence, stored: Path) -> str:
    built = " and ".join(commit[:12] for commit in evidence.commit.split())
    devices = sorted({device for found in evidence.environments for device in found.devices})
    on = f"{evidence.machine}; devices: {', '.join(devices) or 'none'}"
    worst: dict[str, float] = {}
    for found in evidence.environments:
        worst.update({k: max(error, worst.get(k, 0.0)) for k, error in found.worst.items()})
    errors = ", ".join(f"{kind} {error:.0e}" for kind, error in worst.items())
    text = (
        f"Seen on {evidence.date[:10]} with `{evidence.wheel}`, built from commit {built} ({on}), "
        f"by `{evidence.command}`. The worst relative errors of all: {errors or 'none seen'}. "
        f"Every figure, and every reason for a run that is missing, is in `{stored}`."
    )
    later: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in evidence.environments:
        if row.wheel:
            later.setdefault((row.date[:10], row.wheel, row.commit), {})[row.python] = None
    for (date, wheel, commit), pythons in later.items():
        text += (
            f" Python {', '.join(pythons)}: on {date} with `{wheel}` of {commit[:12]}, "
            "by the same command with `--python`."
        )
    return text

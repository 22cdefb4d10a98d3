"""Makes Markdown tables of the matrix and of the results of `verify` and the op's tests."""

from collections.abc import Sequence
from pathlib import Path

from ...judge.reading.layouts import HARMLESS, LAYOUTS
from .evidence import Environment, Evidence, results_of
from .platforms import FIRST
from .schema import Matrix, pair

WORDS = {"ran": "ran", "unsupported": "no"}
LEGEND = {
    "ran": "installed from the fat wheel, checked, compared with the definition, gradients checked",
    "no": "not supported, as there is no such torch",
    "untried": "not tried yet",
}


def brief(matrix: Matrix) -> str:
    """The table of platforms, torches and Pythons for the README."""
    lines = [row("platform", "torch", "Python", "runs on", "by"), "|---" * 5 + "|"]
    for name in matrix.platforms:
        own = matrix.on(name)
        platform = name.replace("linux-", "Linux ").replace("_", "-")
        pythons = f"{own.package.pythons[0]} and newer"
        minors = own.minors()
        is_stable = bool(own.stable.devices)
        first_stable = minors.index(own.stable.target) if is_stable else len(minors)
        older = minors[:first_stable]
        aten = {device for minor in older for device in own.torch[minor].aten}
        if aten:
            lines.append(
                row(
                    platform,
                    f"{older[0]} to {older[-1]}",
                    pythons,
                    device_names(sorted(aten)),
                    "glue of its own for each",
                )
            )
        if is_stable:
            lines.append(
                row(
                    platform,
                    f"{minors[first_stable]} to {minors[-1]}, and later",
                    pythons,
                    device_names(own.stable.devices),
                    "one stable glue",
                )
            )
    return "\n".join(lines) + "\n"


def device_names(devices: Sequence[str]) -> str:
    """`CPU, CUDA 12` for `cpu` and `cu12`."""
    return ", ".join(device.upper().replace("CU", "CUDA ") for device in devices)


def full(matrix: Matrix, evidence: Evidence | None, suites: dict[str, str]) -> str:
    """The table of torch minors and Pythons with all results, a legend and the results' origin."""
    pythons = _pythons(matrix, evidence)
    head = [
        "torch",
        "CUDA of PyPI's build",
        "C++ ABI (PyPI / conda)",
        "served by",
        *(f"Python {python}" for python in pythons),
        "tests of the operator",
    ]
    lines = [row(*head), "|---" * len(head) + "|"]
    results_used: dict[str, None] = {}
    for minor, torch in matrix.torch.items():
        results = [_result(matrix, evidence, minor, python) for python in pythons]
        results_used.update(dict.fromkeys(results))
        facts = [
            minor,
            torch.cuda.version if torch.cuda else "none",
            f"{torch.abi.pypi} / {torch.abi.conda}",
            _glue(matrix, minor),
        ]
        lines.append(row(*facts, *results, suites.get(minor, "")))
    lines += ["", _legend(matrix, list(results_used))]
    if evidence:
        lines.append(_origin(evidence, results_of(matrix.platform)))
    return "\n".join(lines) + "\n"


def _pythons(matrix: Matrix, evidence: Evidence | None) -> list[str]:
    """The Pythons of the table; on a platform other than the first, some were not tried."""
    pythons = matrix.every_python()
    if evidence is None or matrix.platform == FIRST:
        return pythons
    tried = {entry.python for entry in evidence.environments if entry.state != "unsupported"}
    return [python for python in pythons if python in tried]


def _legend(matrix: Matrix, results: Sequence[str]) -> str:
    """The meanings of the words in the table."""
    entries = [f"*{word}*: {meaning}" for word, meaning in LEGEND.items() if word in results]
    if any(len(torch.abis) > 1 for torch in matrix.torch.values()):
        entries.append("*optional*: for conda's builds; in the fat wheel if it was built")
    entries += [f"**{word}**: tried, and it does not work" for word in results if "fails" in word]
    legend = "; ".join(entries) + "."
    if matrix.platform != FIRST:  # the stored results are from qemu
        legend = legend.replace(
            "installed from the fat wheel,", "installed from a wheel and run under qemu:"
        )
    return legend


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _glue(matrix: Matrix, minor: str) -> str:
    torch = matrix.torch[minor]
    if not torch.aten:
        return "`stable" + matrix.stable.target.replace(".", "") + "`"
    pypi, *optional = (f"`aten{minor.replace('.', '')}-abi{flavour}`" for flavour in torch.abis)
    return f"{pypi} (optional: {optional[0]})" if optional else pypi


def _result(matrix: Matrix, evidence: Evidence | None, minor: str, python: str) -> str:
    """The word in the table for a torch minor and a Python."""
    if python not in matrix.torch[minor].every_python:
        return WORDS["unsupported"]
    result = evidence.of(minor, python) if evidence else None
    if result is None:
        return "untried"
    return WORDS.get(result.state, f"**fails** ({result.state})")


def _origin(evidence: Evidence, stored: Path) -> str:
    """Sentences about the wheels and the machine of the results, and about the errors seen."""
    built = " and ".join(commit[:12] for commit in evidence.commit.split())
    devices = sorted({device for entry in evidence.environments for device in entry.devices})
    sentences = [
        f"Seen on {evidence.date[:10]} with `{evidence.wheel}`, built from commit {built} "
        f"({evidence.machine}; devices: {', '.join(devices) or 'none'}), by `{evidence.command}`.",
        f"The worst relative errors of all: {_worst_errors(evidence.environments)}.",
        f"Every number, and every reason for a run that is missing, is in `{stored}`.",
    ]
    later: dict[tuple[str, str, str], dict[str, None]] = {}
    for entry in evidence.environments:
        if entry.wheel:
            key = (entry.date[:10], entry.wheel, entry.commit)
            later.setdefault(key, {})[entry.python] = None
    for (date, wheel, commit), pythons in later.items():
        sentences.append(
            f"Python {', '.join(pythons)}: on {date} with `{wheel}` of {commit[:12]}, "
            "by the same command with `--python`."
        )
    return " ".join(sentences)


def _worst_errors(environments: Sequence[Environment]) -> str:
    worst: dict[str, float] = {}
    for entry in environments:
        for dtype, error in entry.worst.items():
            worst[dtype] = max(error, worst.get(dtype, 0.0))
    return ", ".join(f"{dtype} {error:.0e}" for dtype, error in worst.items()) or "none seen"


def costs(matrix: Matrix) -> str:
    """How many binaries the usual way would need for the matrix, and how many it has."""
    torches = matrix.torch.values()
    pairs = sum(len(torch.pythons) for torch in torches)
    glues = 1 + sum(len(torch.abis) for torch in torches if torch.aten)
    counts = {
        "torch minors": len(matrix.torch),
        "Pythons": len(matrix.package.pythons),
        "pairs of them for which PyPI has a torch": pairs,
        "extensions that the usual way compiles, CPU and CUDA": 2 * pairs,
        "glue objects here, one a torch ABI": glues,
        "kernel objects here, one a CUDA major and one for the CPU": len(matrix.kernels),
    }
    rows = [row(what, str(count)) for what, count in counts.items()]
    return "\n".join([row("what", "how many"), "|---" * 2 + "|", *rows])


def abis(matrix: Matrix) -> str:
    """What changes from one torch to the next, and which glue serves each."""
    head = ("torch", "C++ ABI, PyPI", "conda-forge", "CUDA of PyPI's build", "class layout", "glue")
    lines = [row(*head), "|---" * len(head) + "|"]
    layouts: list[dict[str, int]] = []
    for minor, torch in matrix.torch.items():
        layout = LAYOUTS.get(pair(minor))
        number = "not measured"
        if layout is not None:
            counting = {field: value for field, value in layout.items() if field not in HARMLESS}
            layouts += [counting] * (counting not in layouts)
            number = str(1 + layouts.index(counting))
        cuda = torch.cuda.version if torch.cuda else "none"
        lines.append(
            row(minor, torch.abi.pypi, torch.abi.conda, cuda, number, _glue(matrix, minor))
        )
    return "\n".join(lines)

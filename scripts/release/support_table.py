"""The support tables as Markdown: the matrix, and the results of `--verify full`."""

from __future__ import annotations

from release.evidence import Environment, Evidence
from release.schema import Matrix

WORDS = {"ran": "ran", "judged": "judged", "unsupported": "no"}
LEGEND = {
    "ran": "installed from the fat wheel, judged, compared with the definition, gradients checked",
    "judged": "judged compatible from that torch's files, not run",
    "no": "not supported, as there is no such torch",
    "untried": "not tried yet",
}


def short(matrix: Matrix, evidence: Evidence | None) -> str:
    """One line per torch minor, oldest first, one column per Python."""
    pythons = matrix.package.pythons
    head = ["torch", "CUDA of PyPI's build", "C++ ABI (PyPI / conda)", "served by"]
    lines = [_row([*head, *(f"Python {python}" for python in pythons)])]
    lines.append("|---" * (len(head) + len(pythons)) + "|\n")
    seen: dict[str, None] = {}
    for minor, torch in matrix.torch.items():
        words = [_word(matrix, evidence, minor, python) for python in pythons]
        seen.update(dict.fromkeys(words))
        abi = f"{torch.abi.pypi} / {torch.abi.conda}"
        lines.append(_row([minor, torch.cuda.version, abi, _glue(matrix, minor), *words]))
    legend = [f"*{word}*: {text}" for word, text in LEGEND.items() if word in seen]
    if any(len(torch.abis) > 1 for torch in matrix.torch.values()):
        legend.append("*optional*: for conda's builds; in the fat wheel where it was built")
    legend += [f"**{word}**: tried, and it does not work" for word in seen if "fails" in word]
    lines.append("\n" + "; ".join(legend) + ".\n")
    if evidence:
        lines.append(_origin(evidence))
    return "".join(lines)


def full(matrix: Matrix, evidence: Evidence | None) -> str:
    """One line per environment: what was installed, what was chosen, what it computed."""
    if evidence is None:
        return "Nothing is stored yet; `scripts/build_all.sh --verify full` makes it.\n"
    head = ("torch", "Python", "result", "variant", "worst relative error", "or why not")
    lines = [_origin(evidence), "\n", _row(head), "|---" * len(head) + "|\n"]
    for minor in matrix.minors():
        for python in matrix.package.pythons:
            found = evidence.of(minor, python)
            if found is None or found.state == "unsupported":
                continue
            errors = ", ".join(f"{kind} {error:.0e}" for kind, error in found.worst.items())
            version, exact = found.torch_version or minor, found.python_version or python
            variant = f"`{found.variant}`" if found.variant else "none"
            lines.append(_row((version, exact, _said(found), variant, errors, found.reason)))
    return "".join(lines)


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _glue(matrix: Matrix, minor: str) -> str:
    torch = matrix.torch[minor]
    if not torch.aten:
        return "`stable" + matrix.stable.target.replace(".", "") + "`"
    pypi, *optional = (f"`aten{minor.replace('.', '')}-abi{flavour}`" for flavour in torch.abis)
    return f"{pypi} (optional: {optional[0]})" if optional else pypi


def _said(found: Environment) -> str:
    return WORDS.get(found.state, f"**fails** ({found.state})")


def _word(matrix: Matrix, evidence: Evidence | None, minor: str, python: str) -> str:
    if python not in matrix.torch[minor].pythons:
        return WORDS["unsupported"]
    found = evidence.of(minor, python) if evidence else None
    return _said(found) if found else "untried"


def _origin(evidence: Evidence) -> str:
    built = " and ".join(commit[:12] for commit in evidence.commit.split())
    devices = sorted({device for found in evidence.environments for device in found.devices})
    on = f"{evidence.machine}; devices: {', '.join(devices) or 'none'}"
    return (
        f"Seen on {evidence.date[:10]} with `{evidence.wheel}`, built from commit {built} ({on}), "
        f"by `{evidence.command}`; every figure is in `benchmarks/results/environments.json`.\n"
    )

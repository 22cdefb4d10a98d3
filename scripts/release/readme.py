"""The support table of README.md, between its markers."""

from __future__ import annotations

from release import REPO, ReleaseError
from release.schema import Matrix

README_FILE = REPO / "README.md"
BEGIN = "<!-- support-table:begin -->\n"
END = "<!-- support-table:end -->\n"
HEAD = """\
| torch | Python | CUDA of PyPI's build | C++ ABI (PyPI / conda) | served by |
|---|---|---|---|---|
"""


def table(matrix: Matrix) -> str:
    """One line per torch minor, oldest first."""
    lines = []
    for minor, torch in matrix.torch.items():
        glue = "`stable" + matrix.stable.target.replace(".", "") + "`"
        if torch.aten:
            flavours = sorted({torch.abi.pypi, torch.abi.conda})
            glue = " or ".join(
                f"`aten{minor.replace('.', '')}-abi{flavour}`" for flavour in flavours
            )
        pythons = f"{torch.pythons[0]} to {torch.pythons[-1]}"
        abi = f"{torch.abi.pypi} / {torch.abi.conda}"
        lines.append(f"| {minor} | {pythons} | {torch.cuda.version} | {abi} | {glue} |\n")
    return HEAD + "".join(lines)


def render(matrix: Matrix) -> str:
    """README.md with the table that follows from the matrix.

    Raises:
        ReleaseError: the markers are not there, once each and in order.
    """
    text = README_FILE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ReleaseError(
            f"README.md must hold {BEGIN.strip()} and {END.strip()} once each, in this order; "
            "put them round the support table"
        )
    return before + begin + table(matrix) + end + after

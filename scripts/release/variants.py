"""recipe/variants.yaml, generated from the matrix: `python -m release variants --write`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from release import REPO, readme, support
from release.cells import Cell, all_cells
from release.schema import Matrix

VARIANTS_FILE = REPO / "recipe" / "variants.yaml"
HEADER = """\
# Generated from build_matrix.yaml by `scripts/build_all.sh --write-generated`; do not edit.
# All values are text in quotes: conda-build hashes 12 and "12" differently.
"""
KEYS = ("lltm_glue", "lltm_device", "lltm_cuda", "lltm_pytorch_host", "lltm_pytorch_run")


def for_conda(cell: Cell) -> bool:
    """Whether a pytorch of the cell's C++ ABI exists as a conda package."""
    return cell.cxx11_abi == cell.torch.abi.conda


def row(cell: Cell, matrix: Matrix) -> tuple[str, ...]:
    """The values of KEYS for one cell."""
    flavour, cuda = "cpu", ""
    if cell.cuda_major is not None:
        flavour = "cuda"
        cuda = matrix.kernels[str(cell.variant.kernels)].toolkit or ""  # type: ignore[index]
    run = f">={matrix.stable.target}.0" if cell.stable else cell.torch.conda
    return cell.glue, flavour, cuda, f"{cell.torch_minor}.*", run


def render(cells: Sequence[Cell], matrix: Matrix) -> str:
    """The text of a variants file that builds exactly these cells."""
    rows = [row(cell, matrix) for cell in cells]
    lines = [HEADER.rstrip("\n")]
    for index, key in enumerate(KEYS):
        lines.append(f"{key}:")
        lines += [f'  - "{values[index]}"' for values in rows]
    lines += ["zip_keys:", "  -", *(f"    - {key}" for key in KEYS)]
    return "\n".join(lines) + "\n"


def expected(matrix: Matrix) -> dict[Path, str]:
    """Every generated file and the text it should hold."""
    return {
        VARIANTS_FILE: render([c for c in all_cells(matrix) if for_conda(c)], matrix),
        support.SUPPORT_FILE: support.render(matrix),
        readme.README_FILE: readme.render(matrix),
    }

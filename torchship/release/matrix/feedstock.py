"""The folder of a pull request to conda-forge's staged-recipes, which becomes a feedstock's recipe.

conda-forge serves the newest pytorch, so the feedstock has the stable glue alone: one package for
the CPU and one for each CUDA major of conda-forge, for every pytorch from the target on.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from .. import ReleaseError
from .cells import Cell, all_cells, arch_list
from .schema import Matrix
from .settings import ORIGIN

FOLDER = Path("feedstock")
PAGE = "docs/ship/conda-forge.md"
#: Stands where the hash of the release's source goes, until there is a release.
NO_HASH = "0" * 64
_FIELD = re.compile(r"@([A-Z_0-9]+)@")


def feedstock_files(matrix: Matrix, version: str, build_script: str) -> dict[Path, str]:
    """The files of the folder, by path in the checkout."""
    fields = _fields(matrix, version)
    return {
        FOLDER / "recipe.yaml": _filled("feedstock_recipe.yaml.in", fields),
        FOLDER / "conda-forge.yml": _filled("feedstock_conda_forge.yml.in", fields),
        FOLDER / "build.sh": build_script,
    }


def _fields(matrix: Matrix, version: str) -> dict[str, str]:
    project = matrix.project
    build = matrix.build
    cells = [cell for cell in all_cells(matrix) if cell.stable]
    if not cells:
        raise ReleaseError(
            f"{FOLDER}: conda-forge has the newest pytorch alone, so a feedstock needs the stable "
            "glue, and `stable:` of build_matrix.yaml names no devices; delete the folder"
        )
    return {
        "ORIGIN": ORIGIN,
        "PAGE": PAGE,
        "NAME": project.distribution,
        "FIRST": project.distribution[0],
        "SDIST": project.distribution.replace("-", "_"),
        "VERSION": version,
        "SHA256": NO_HASH,
        "PACKAGE": project.package,
        "GLUE": cells[0].glue,
        "BUILT_WITH": matrix.stable.built_with,
        "TARGET": matrix.stable.target,
        "ARCHS": _archs(cells, matrix),
        "REQUIREMENTS": _lines(4, build.conda_requirements),
        "CUDA_HOST": _lines(8, [f"{package}-dev" for package in build.cuda_packages]),
        "CUDA_RUN": _lines(8, build.cuda_packages),
        "SUMMARY": project.summary,
        "LICENSE": project.license,
        "URL": project.url,
        "MAINTAINERS": "\n".join(f"    - {name}" for name in project.maintainers),
    }


def _lines(indentation: int, values: Sequence[str]) -> str:
    """More entries of a list whose last line is before them."""
    return "".join(f"\n{' ' * indentation}- {value}" for value in values)


def _archs(cells: list[Cell], matrix: Matrix) -> str:
    """An expression of the recipe: the architectures to compile for, by the CUDA major."""
    expression = '""'
    for cell in cells:
        if cell.cuda_major is not None:
            archs = arch_list(matrix.kernels[str(cell.variant.kernels)].archs)
            expression = f'"{archs}" if cuda_major == "{cell.cuda_major}" else {expression}'
    return expression


def _filled(template: str, fields: dict[str, str]) -> str:
    content = Path(__file__).with_name(template).read_text(encoding="utf-8")
    unknown = set(_FIELD.findall(content)) - fields.keys()
    if unknown:
        raise ReleaseError(
            f"{template} has the fields {', '.join(sorted(unknown))}, which feedstock.py does not "
            "fill in; add them there"
        )
    return _FIELD.sub(lambda field: fields[field[1]], content)

"""recipe/variants.yaml, generated from the matrix: `scripts/build_all.sh --write-generated`."""

from collections.abc import Sequence

from release import REPO
from release.cells import Cell
from release.schema import Matrix

VARIANTS_FILE = REPO / "recipe" / "variants.yaml"
HEADER = """\
# Generated from build_matrix.yaml by `scripts/build_all.sh --write-generated`; do not edit.
# All values are text in quotes: conda-build hashes 12 and "12" differently.
"""
_NAMES = ("glue", "device", "cuda", "cuda_archs", "gcc", "pytorch_host", "pytorch_run")
KEYS = tuple(f"variant_{name}" for name in _NAMES)
# A package that the recipe compiles runs on the same old systems as its pytorch.
STDLIB = {"c_stdlib": "sysroot", "c_stdlib_version": "2.28"}


def for_conda(cell: Cell) -> bool:
    """Whether a pytorch of the cell's C++ ABI exists as a conda package."""
    return cell.cxx11_abi == cell.torch.abi.conda


def row(cell: Cell, matrix: Matrix) -> tuple[str, ...]:
    flavour, cuda, archs, (low, high) = "cpu", "", "", cell.torch.gcc
    if cell.cuda_major is not None:
        kernels = matrix.kernels[str(cell.variant.kernels)]  # type: ignore[index]
        flavour, cuda, archs = "cuda", kernels.toolkit or "", arch_list(kernels.archs)
        accepted = matrix.toolkits[cuda].gcc
        low, high = max(low, accepted[0]), min(high, accepted[1])
    run = f">={matrix.stable.target}.0" if cell.stable else cell.torch.conda
    gcc = f">={low},<{high + 1}"
    return cell.glue, flavour, cuda, archs, gcc, f"{cell.torch_minor}.*", run


def arch_list(archs: Sequence[str]) -> str:
    """`sm_90 compute_120` in the notation of TORCH_CUDA_ARCH_LIST: `9.0;12.0+PTX`."""
    code = [arch[3:] for arch in archs if arch.startswith("sm_")]
    ptx = [arch[8:] for arch in archs if arch.startswith("compute_")]
    names = [f"{a[:-1]}.{a[-1]}" + ("+PTX" if a in ptx else "") for a in code]
    return ";".join(names + [f"{a[:-1]}.{a[-1]}+PTX" for a in ptx if a not in code])


def render(cells: Sequence[Cell], matrix: Matrix) -> str:
    rows = [row(cell, matrix) for cell in cells]
    lines = [HEADER.rstrip("\n")]
    for index, key in enumerate(KEYS):
        lines.append(f"{key}:")
        lines += [f'  - "{values[index]}"' for values in rows]
    for key, value in STDLIB.items():
        lines += [f"{key}:", f'  - "{value}"']
    lines += ["zip_keys:", "  -", *(f"    - {key}" for key in KEYS)]
    return "\n".join(lines) + "\n"

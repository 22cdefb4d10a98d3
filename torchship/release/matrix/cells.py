"""The cells of the build matrix, and their rows in recipe/variants.yaml."""

import difflib
import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...builder import cxx_standard
from ...judge.records import GlueName, VariantName
from .. import ReleaseError
from ..options import COMMANDS
from .platforms import FIRST
from .schema import Kernels, Matrix, Torch, machine_of, pair
from .settings import ORIGIN

HEADER = f"""\
# {ORIGIN}
# All values are text in quotes: conda-build hashes 12 and "12" differently."""
_NAMES = ("glue", "cuda", "cuda_archs", "gcc", "pytorch_host", "pytorch_run")
KEYS = tuple(f"variant_{name}" for name in _NAMES)
# With this sysroot, a package needs no newer glibc than conda-forge's pytorch needs.
STDLIB = {"c_stdlib": "sysroot", "c_stdlib_version": "2.28"}


@dataclass(frozen=True)
class Cell:
    """One variant for one platform, and the torch of its environments.

    Its glue is compiled against that torch, unless `headers` is another.
    """

    variant: VariantName
    torch_minor: str
    torch: Torch
    platform: str = FIRST
    has_cpu_kernels: bool = True
    headers: Torch | None = None
    #: Where the cell's CUDA code is; None for a cell without.
    cuda: Kernels | None = None

    @property
    def machine(self) -> str:
        """The processor of the cell's platform."""
        return machine_of(self.platform)

    @property
    def names(self) -> tuple[str, str]:
        """The names in selectors, such as `stable210-cpu` and `stable210-cpu-aarch64`."""
        return str(self.variant), f"{self.variant}-{self.machine}"

    @property
    def name(self) -> str:
        """The cell's name, which ends in the platform unless the platform is FIRST."""
        short, full = self.names
        return short if self.platform == FIRST else full

    def __str__(self) -> str:
        return self.name

    @property
    def glue(self) -> str:
        return str(self.variant.glue)

    @property
    def glue_object(self) -> str:
        """The name of the glue's object, which has the CUDA major if the glue has CUDA code."""
        if self.cuda is None or not self.cuda.is_in_glue:
            return self.glue
        return str(self.variant.glue._replace(cuda_major=self.cuda_major))

    @property
    def needs_cuda_torch(self) -> bool:
        """Whether only a CUDA build of torch can compile the glue: ATen's CUDA headers call it."""
        return not self.stable and self.glue_object != self.glue

    @property
    def cxx(self) -> int:
        """The C++ standard of the glue."""
        torch = self.headers or self.torch
        return cxx_standard(self.variant.glue.lane, pair(torch.release))

    @property
    def stable(self) -> bool:
        return self.variant.glue.lane == "stable"

    @property
    def cuda_major(self) -> int | None:
        return self.variant.kernels.cuda_major

    @property
    def device(self) -> str:
        return "cpu" if self.cuda_major is None else f"cu{self.cuda_major}"

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernel objects.

        A CUDA variant has the project's CPU kernels, too.
        """
        names = ["cpu"] if self.has_cpu_kernels else []
        if self.cuda is not None and self.cuda.has_object:
            names.append(str(self.variant.kernels))
        return tuple(names)

    @property
    def files(self) -> list[str]:
        return [f"glue-{self.glue_object}.so", *(f"kernels-{name}.so" for name in self.kernels)]

    @property
    def cxx11_abi(self) -> int:
        abi = self.variant.glue.cxx11_abi
        return self.torch.abi.pypi if abi is None else abi

    @property
    def optional(self) -> bool:
        """Whether no torch on PyPI can load the cell's glue.

        A fat wheel may lack such cells.
        """
        return self.cxx11_abi != self.torch.abi.pypi

    @property
    def local_version(self) -> str:
        """The local version of the thin wheel: `stable.cpu`, `pt29cu12`, `pt24.abi1.cpu`."""
        if self.stable:
            return f"stable.{self.device}"
        major, minor = self.variant.glue.torch
        abi = ".abi1." if self.optional else ""
        return f"pt{major}{minor}{abi}{self.device}"


def all_cells(matrix: Matrix) -> list[Cell]:
    """Every cell of the matrix's platform: the stable cells, then the ATen cells by torch minor."""
    stable = GlueName("stable", pair(matrix.stable.target))
    cells = [
        _cell(matrix, matrix.stable.built_with, stable, device) for device in matrix.stable.devices
    ]
    for minor in matrix.minors():
        torch = matrix.torch[minor]
        for abi in torch.abis:
            glue = GlueName("aten", pair(minor), abi)
            cells += [_cell(matrix, minor, glue, device) for device in torch.aten]
    return cells


def _cell(matrix: Matrix, minor: str, glue: GlueName, device: str) -> Cell:
    variant = VariantName.parse(f"{glue}-{device}")
    cuda = None if device == "cpu" else matrix.kernels[str(variant.kernels)]
    headers = matrix.stable.headers if glue.lane == "stable" else None
    # CUDA code of a glue needs the headers of CUDA's libraries too, which are beside `torch`.
    if cuda is not None and cuda.is_in_glue:
        headers = None
    return Cell(
        variant=variant,
        cuda=cuda,
        headers=matrix.torch[headers] if headers else None,
        torch_minor=minor,
        torch=matrix.torch[minor],
        platform=matrix.platform,
        has_cpu_kernels="cpu" in matrix.kernels,
    )


def required(matrix: Matrix) -> list[str]:
    return [cell.name for cell in all_cells(matrix) if not cell.optional]


def by_platform(selectors: Sequence[str], matrix: Matrix, default: str) -> dict[str, list[str]]:
    """Groups selectors by the platform at their end, or `default`.

    `all` is in every group.
    """
    groups: dict[str, list[str]] = {}
    for selector in selectors:
        for platform in _platforms_of(selector, matrix) or [default]:
            groups.setdefault(platform, []).append(selector)
    return groups


def _platforms_of(selector: str, matrix: Matrix) -> list[str]:
    if selector == "all":
        return list(matrix.platforms)
    return [name for name in matrix.platforms if selector.endswith(f"-{machine_of(name)}")]


def select(cells: Sequence[Cell], selectors: Sequence[str], host: str = "") -> list[Cell]:
    """The cells that the selectors name, in the order of `cells`; without selectors, all cells.

    A selector is a name, a pattern such as `aten*-cu12`, `newest` or `oldest` (the ATen
    cells of the newest or oldest torch minor that has any; the stable cells if none has),
    `host` (the cell that the argument `host` names), or `all`. Raises ReleaseError for a
    selector that names no cell.
    """
    if not selectors:
        return list(cells)
    chosen: set[str] = set()
    for selector in selectors:
        names = _names_of(selector, cells, host)
        if not names:
            raise ReleaseError(_unknown_cell(selector, cells))
        chosen.update(names)
    return [cell for cell in cells if cell.name in chosen]


def _names_of(selector: str, cells: Sequence[Cell], host: str) -> list[str]:
    """The names of the cells that one selector names."""
    if selector in ("newest", "oldest"):
        aten = [cell for cell in cells if not cell.stable] or list(cells)
        minors = [cell.variant.glue.torch for cell in aten]
        minor = max(minors) if selector == "newest" else min(minors)
        return [cell.name for cell in aten if cell.variant.glue.torch == minor]
    pattern = {"host": host, "all": "*"}.get(selector, selector)
    return [c.name for c in cells if any(fnmatch.fnmatch(name, pattern) for name in c.names)]


def _unknown_cell(selector: str, cells: Sequence[Cell]) -> str:
    selectors = [*(cell.name for cell in cells), "host", "newest", "oldest", "all", *COMMANDS]
    near = difflib.get_close_matches(selector, selectors, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "a cell, host, newest, oldest or all?"
    return f"no cell or command is named {selector!r}; {hint} `build_all.sh --list` shows the cells"


def part_of(cells: Sequence[Cell], part: str) -> list[Cell]:
    """Part k of n nearly equal parts, for the text `k/n`; raises ReleaseError for other texts.

    The cells of a part are neighbours in `cells`, since neighbours often share torch or glue.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", part)
    number = int(match[1]) if match else 0
    count = int(match[2]) if match else 0
    if not 1 <= number <= count:
        raise ReleaseError(f"--shard: got {part!r}, needs k/n with 1 <= k <= n, such as 2/8")
    return list(cells[(number - 1) * len(cells) // count : number * len(cells) // count])


def for_conda(cell: Cell) -> bool:
    """Whether conda-forge's pytorch of the cell's torch minor has the cell's C++ ABI."""
    return cell.cxx11_abi == cell.torch.abi.conda


def row(cell: Cell, matrix: Matrix) -> tuple[str, ...]:
    """The values of KEYS for a cell."""
    cuda = ""
    archs = ""
    low, high = cell.torch.gcc
    if cell.cuda_major is not None:
        kernels = matrix.kernels[str(cell.variant.kernels)]
        cuda = kernels.toolkit or ""
        archs = arch_list(kernels.archs)
        lowest, highest = matrix.toolkits[cuda].gcc
        low = max(low, lowest)
        high = min(high, highest)
    run = f">={matrix.stable.target}.0" if cell.stable else cell.torch.conda
    return cell.glue, cuda, archs, f">={low},<{high + 1}", f"{cell.torch_minor}.*", run


def arch_list(archs: Sequence[str]) -> str:
    """The value of TORCH_CUDA_ARCH_LIST, such as `9.0a;12.0+PTX` for sm_90a and compute_120."""
    entries = []
    for number in dict.fromkeys(arch.split("_")[1] for arch in archs):
        capability = re.sub(r"(\d)([af]?)$", r".\1\2", number)
        has_ptx = f"compute_{number}" in archs
        entries.append(f"{capability}+PTX" if has_ptx else capability)
    return ";".join(entries)


def render(cells: Sequence[Cell], matrix: Matrix) -> str:
    rows = [row(cell, matrix) for cell in cells]
    lines = [HEADER]
    for index, key in enumerate(KEYS):
        lines.append(f"{key}:")
        lines += [f'  - "{values[index]}"' for values in rows]
    for key, value in STDLIB.items():
        lines += [f"{key}:", f'  - "{value}"']
    lines += ["zip_keys:", "  -", *(f"    - {key}" for key in KEYS)]
    return "\n".join(lines) + "\n"

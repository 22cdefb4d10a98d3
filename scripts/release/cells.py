"""The cells of the build matrix: one for each variant, with the torch that it is built with."""

import difflib
import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.compat.records import GlueName, KernelsName, VariantName
from release import NATIVE, PROJECT, ReleaseError
from release.schema import FIRST, Matrix, Torch, pair


@dataclass(frozen=True)
class Cell:
    """One variant: its glue, its kernels, and the torch that the glue is compiled against."""

    variant: VariantName
    torch_minor: str
    torch: Torch
    platform: str = FIRST

    @property
    def name(self) -> str:
        """`stable210-cpu`, `stable210-cpu-aarch64`."""
        return str(self.variant) if self.platform == FIRST else self.full_name

    @property
    def full_name(self) -> str:
        """The name with the platform, also for the first platform."""
        return f"{self.variant}-{self.platform.removeprefix('linux-')}"

    @property
    def names(self) -> set[str]:
        """The names that a selector may use in a run for this platform."""
        return {str(self.variant), self.full_name}

    def __str__(self) -> str:
        return self.name

    @property
    def glue(self) -> str:
        return str(self.variant.glue)

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
        """Its kernel objects; a CUDA variant computes on the CPU as well."""
        cpu = ("cpu",) if "cpu" in PROJECT.kernels else ()
        return cpu if self.cuda_major is None else (*cpu, str(self.variant.kernels))

    @property
    def files(self) -> list[str]:
        return [f"glue-{self.glue}.so", *(f"kernels-{name}.so" for name in self.kernels)]

    @property
    def cxx11_abi(self) -> int:
        abi = self.variant.glue.cxx11_abi
        return self.torch.abi.pypi if abi is None else abi

    @property
    def optional(self) -> bool:
        """Whether no torch on PyPI can load it; the fat wheel is whole without optional cells."""
        return self.cxx11_abi != self.torch.abi.pypi

    @property
    def local_version(self) -> str:
        """The local version of its thin wheel: `stable.cpu`, `pt29cu12`, `pt24.abi1.cpu`."""
        if self.stable:
            return f"stable.{self.device}"
        major, minor = self.variant.glue.torch
        abi = ".abi1." if self.optional else ""
        return f"pt{major}{minor}{abi}{self.device}"


def all_cells(matrix: Matrix) -> list[Cell]:
    """Every cell of the matrix's platform, stable ones first, in the matrix's order."""
    stable, built = GlueName("stable", pair(matrix.stable.target)), matrix.stable.built_with
    found = [(built, stable, device) for device in matrix.stable.devices]
    for minor in matrix.minors():
        torch = matrix.torch[minor]
        glues = [GlueName("aten", pair(minor), abi) for abi in torch.abis]
        found += [(minor, glue, device) for glue in glues for device in torch.aten]
    cells = []
    for minor, glue, device in found:
        kernels = KernelsName(None if device == "cpu" else int(device.removeprefix("cu")))
        variant = VariantName(glue, kernels)
        cells.append(Cell(variant, minor, matrix.torch[minor], matrix.platform))
    return cells


def required(matrix: Matrix) -> list[str]:
    return [cell.name for cell in all_cells(matrix) if not cell.optional]


ALIASES = ("host", "newest", "oldest", "all")


def by_platform(selectors: Sequence[str], matrix: Matrix) -> dict[str, list[str]]:
    """The selectors by the platform at their end; without one, by this machine's platform."""
    groups: dict[str, list[str]] = {}
    for selector in selectors:
        ends = [p for p in matrix.platforms if selector.endswith(p.removeprefix("linux"))]
        for platform in matrix.platforms if selector == "all" else ends or [NATIVE]:
            groups.setdefault(platform, []).append(selector)
    return groups


def select(cells: Sequence[Cell], selectors: Sequence[str], host: str = "") -> list[Cell]:
    """The cells that the selectors name, in the order of `cells`; without selectors, all cells.

    A selector is a name, a pattern such as `aten*-cu12`, `newest` or `oldest` (the ATen cells of
    one torch minor), `host` (the cell that the argument `host` names), or `all`.
    """
    if not selectors:
        return list(cells)
    names = [cell.name for cell in cells]
    minors = sorted({cell.variant.glue.torch for cell in cells if not cell.stable})
    chosen: set[str] = set()
    for selector in selectors:
        wanted = {"host": host, "all": "*"}.get(selector, selector)
        found = [c.name for c in cells if any(fnmatch.fnmatch(n, wanted) for n in c.names)]
        if selector in ("newest", "oldest") and minors:
            minor = minors[-1 if selector == "newest" else 0]
            found = [c.name for c in cells if not c.stable and c.variant.glue.torch == minor]
        if not found:
            known = [*names, *ALIASES]
            near = difflib.get_close_matches(selector, known, n=3, cutoff=0.5)
            hint = f"near matches: {', '.join(near)}" if near else f"there are: {', '.join(known)}"
            raise ReleaseError(f"no cell is named {selector!r}; {hint}; see build_all.sh --list")
        chosen.update(found)
    return [cell for cell in cells if cell.name in chosen]


def part_of(cells: Sequence[Cell], part: str) -> list[Cell]:
    """The cells of one part of a run, such as `2/8`; the parts are of about equal length.

    A part holds neighbours in the order of `cells`: they share torches, glue and kernels. Every
    machine computes the same parts from the same cells.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", part)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise ReleaseError(f"--shard: got {part!r}, needs k/n with 1 <= k <= n, such as 2/8")
    return list(cells[(number - 1) * len(cells) // count : number * len(cells) // count])

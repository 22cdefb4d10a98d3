"""Choose the binaries to load: the best accepted glue, CPU kernels and CUDA kernels.

The order of preference does not depend on what the files hold, so an import reads the files
of each kind only up to the first accepted one. With `exhaustive`, every file is judged, so
that a report can say why a file was not chosen.
"""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from .. import fixes
from ..project import NOBODY, Project, Record
from ..records import (
    Finding,
    GlueName,
    KernelsName,
    Runtime,
    TorchInstall,
    VariantName,
    Verdict,
    parse_file_name,
    variant_of,
)

Judge = Callable[[Path, Runtime], Verdict]
Name = GlueName | KernelsName


class Selection(Record, kw_only=True):
    """The verdicts on the chosen binaries, and on all that were judged."""

    glue: Verdict | None  #: None if no binary of this kind was chosen, here and in the next two
    cpu: Verdict | None
    cuda: Verdict | None
    considered: tuple[Verdict, ...]  #: in order of preference within each kind
    forced: str | None = None  #: the variant that was asked for by name
    project: Project = NOBODY

    @property
    def complete(self) -> bool:
        """Whether there is a glue, and CPU kernels if the project has any: the op can be loaded."""
        return self.glue is not None and (self.cpu is not None or "cpu" not in self.project.kernels)

    @property
    def variant(self) -> str | None:
        """The name of the chosen variant, such as `stable210-cu13`; None if incomplete."""
        if self.glue is None or not self.complete:
            return None
        cuda = self.cuda.binary.name if self.cuda else None
        return variant_of(self.glue.binary.name, cuda, self.project)

    @property
    def cause(self) -> Finding | None:
        """The cause of the first refused binary of the missing kind, glue or kernels; None
        if the selection is complete, or if no binary of the missing kind was refused."""
        if self.complete:
            return None
        for verdict in self.considered:
            is_glue = isinstance(parse_file_name(verdict.binary.path.name), GlueName)
            if is_glue == (self.glue is None) and verdict.cause is not None:
                if self.forced is None:
                    return verdict.cause
                variable = self.project.variable("VARIANT")
                return verdict.cause._replace(
                    why=(
                        f"{variable} asks for {self.forced}, which does not fit: "
                        f"{verdict.cause.why}"
                    ),
                    fix=fixes.command_alone(fixes.Kind.UNSET_VARIABLE, f"unset {variable}"),
                )
        return None


def glue_preference(name: GlueName, torch: TorchInstall | None) -> tuple[int, ...]:
    """The sort key of a glue.

    Stable glues for this or an older torch come first, then ATen glues, then stable glues
    for a newer torch. In each group, the minor nearest to torch's comes first; of two ATen
    glues at the same distance, the one with torch's C++ ABI flavour comes first. Of glues for
    one torch, that with code for torch's CUDA comes first.
    """
    installed = torch.version_tuple if torch else (0, 0)
    flavour = torch.cxx11_abi if torch else None
    wrong = int(flavour is not None and name.cxx11_abi not in (None, flavour))
    distance = abs((name.torch[0] - installed[0]) * 1000 + name.torch[1] - installed[1])
    device = _device_preference(name, torch)
    if name.lane == "stable":
        return (0 if name.torch <= installed else 2, 0, distance, 0, *device)
    return (1, distance, wrong, name.torch[1], *device)


def _device_preference(name: GlueName, torch: TorchInstall | None) -> tuple[int, int]:
    """The sort key among glues for one torch: its CUDA major, older majors, no CUDA, newer ones."""
    torch_major = (torch.cuda_major if torch else None) or 0
    if name.cuda_major is None:
        return (2, 0) if torch_major else (0, 0)
    if name.cuda_major == torch_major:
        return 0, 0
    if name.cuda_major < torch_major:
        return 1, torch_major - name.cuda_major
    return 3, name.cuda_major - torch_major


def _glues_of(variant: VariantName) -> tuple[GlueName, ...]:
    """The glues that a variant may have: for every device, or with the code of its own device."""
    major = variant.kernels.cuda_major
    return variant.glue, variant.glue._replace(cuda_major=major)


def kernels_preference(name: KernelsName, torch: TorchInstall | None) -> tuple[int, int]:
    """The sort key of kernels: torch's CUDA major, then older majors, then newer, nearest first."""
    major = name.cuda_major or 0
    torch_major = (torch.cuda_major if torch else None) or 0
    if major == torch_major:
        return 0, 0
    return (1, torch_major - major) if major < torch_major else (2, major - torch_major)


def select(
    paths: Iterable[Path],
    runtime: Runtime,
    judge_one: Judge,
    *,
    forced: str | None = None,
    exhaustive: bool = False,
) -> Selection:
    """Choose among the files of `paths`; files not named as glue or kernels are skipped.

    Args:
        paths: shared objects, in order of preference among files of the same name; a loader's
            are those of `cache.find_binaries`.
        runtime: the process and machine that would load the files.
        judge_one: gives the verdict on one file, such as `judgement.judge_file`.
        forced: the name of the only variant that may be chosen; None allows all.
        exhaustive: judge every file, even if it can no longer be chosen.

    Raises:
        NameFormatError: `forced` is not the name of a variant.
    """
    variant = VariantName.parse(forced) if forced else None
    torch = runtime.torch
    named = [(path, parse_file_name(path.name)) for path in paths]
    glues = [(path, name) for path, name in named if isinstance(name, GlueName)]
    glues.sort(key=lambda pair: glue_preference(pair[1], torch))
    kernels = [(path, name) for path, name in named if isinstance(name, KernelsName)]
    kernels.sort(key=lambda pair: kernels_preference(pair[1], torch))
    cpus = [(path, name) for path, name in kernels if name.cuda_major is None]
    cudas = [(path, name) for path, name in kernels if name.cuda_major is not None]
    considered: list[Verdict] = []

    def best(candidates: Iterable[tuple[Path, Name]], only: Collection[Name]) -> Verdict | None:
        chosen = None
        for path, name in candidates:
            allowed = chosen is None and (not only or name in only)
            if exhaustive or allowed:
                considered.append(judge_one(path, runtime))
                if allowed and considered[-1].accepted:
                    chosen = considered[-1]
        return chosen

    glue = best(glues, _glues_of(variant) if variant else ())
    if glue is not None and glue.binary.record is not None:
        runtime = runtime._replace(kernel_abi=glue.binary.record.kernel_abi)
    cpu = cuda = None
    if exhaustive or glue is not None:
        cpu = best(cpus, ())
    if exhaustive or (glue is not None and torch is not None and torch.cuda is not None):
        cuda = best(cudas, (variant.kernels,) if variant else ())
    return Selection(
        glue=glue,
        cpu=cpu,
        cuda=cuda,
        considered=tuple(considered),
        forced=forced,
        project=runtime.project,
    )

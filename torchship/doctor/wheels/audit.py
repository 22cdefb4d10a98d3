"""`torch-doctor audit WHEEL`: tells which environments a wheel serves."""

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ...judge import probe_runtime
from ...judge.budget import Budget, BudgetSpentError
from ...judge.machine.torch_probe import release
from ...judge.project import Project, Record
from ...judge.reading.binary import needs_torch_or_cuda, original_name, read_binary
from ...judge.reading.layouts import LAYOUTS
from ...judge.records import (
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    GlueName,
    Runtime,
    dotted,
    parse_file_name,
)
from ...judge.rules import torch_abi
from ...judge.rules.cuda import binary_cuda
from ...judge.rules.libraries import LIBRARIES_OF_DRIVER
from ...judge.text import printable, some
from ...judge.words import codes, render
from ..checks.judging import judge_package_file_in_run
from ..environment.built_for import torch_requirements
from ..environment.owner import find_owner, shared_objects
from ..environment.standards import Python, admits_of_minor
from .unpacking import WheelError, core_of_wheel, unpack_file

#: What keeps an object from a torch of which only the release is known.
_OF_TORCH = frozenset(
    {
        codes.BUDGET_SPENT,
        *torch_abi.TORCH_VERSION.codes,
        *torch_abi.CXX_ABI.codes,
        *torch_abi.TORCH_SYMBOLS.codes,
        *torch_abi.VOUCHED.codes,
        codes.NOT_LINKED,
    }
)
_GLIBC_OF_OLD_TAG = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_LIBRARY_OF_TORCH = r"lib(torch|c10)(_(cpu|cuda|cuda_linalg|python|global_deps|hip|xpu))?\.so"
_SECONDS = 25
#: Of what is read in the wheel, which nobody has to trust yet.
_MEGABYTES = 256


class Service(Record, kw_only=True):
    """What an object serves and needs, and its problems."""

    object: str  #: its path in the wheel
    torch: tuple[str, ...]  #: minors; a question mark follows one that cannot be told
    python: str
    cuda: str
    gpus: tuple[str, ...]
    floors: dict[str, tuple[int, ...]]  #: as in `BinaryRecord`
    refused: tuple[str, ...] = ()  #: minors of torch
    platform: str | None = None
    is_for_musl: bool = False
    problems: tuple[str, ...] = ()

    def columns(self) -> dict[str, list[str]]:
        """The cells of the table by heading; `object` has a heading of its own."""
        floors = [f"{family} {dotted(version)}" for family, version in sorted(self.floors.items())]
        return {
            "torch": list(self.torch),
            "python": [self.python],
            "cuda": [self.cuda],
            "gpus": list(self.gpus),
            "glibc": floors or ["any"],
        }


def main(project: Project, wheel: Path, *, as_json: bool) -> int:
    """Audits a wheel; returns the exit code: 1 if it finds problems, 2 for a bad file, else 0."""
    runtime = probe_runtime(gpu=False, project=project)._replace(package_version="")
    runtime.target.budget = Budget(_SECONDS, _MEGABYTES)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        try:
            unpack_file(wheel, root, runtime.target.budget)
            services = list(_services(root, runtime))
        except WheelError as error:
            print(f"{printable(wheel)} is not a wheel: {error}. Name a .whl file.", file=sys.stderr)
            return 2
        except BudgetSpentError as error:
            print(f"{printable(wheel)} cannot be audited: it takes {error}.", file=sys.stderr)
            return 2
        pins = torch_requirements(core_of_wheel(runtime.target, root), Python.of(runtime))
        problems = list(_bundled(root, wheel.name))
    problems += [problem for service in services for problem in _broken(service, wheel.name)]
    problems += _broken_requirement(services, pins)
    if as_json:
        render.print_json(serves=[_plain(service) for service in services], problems=problems)
        return 1 if problems else 0
    headings = ("object", "torch", "python", "cuda", "gpus", "glibc")
    rows = []
    for service in services:
        cells = [", ".join(cell) for cell in service.columns().values()]
        rows.append([service.object, *cells])
    print(render.table(headings, rows) if rows else "the wheel holds no torch extension")
    for problem in problems:
        print(f"\nproblem: {render.shorten(problem)}")
    if services and not problems:
        print("\nevery object keeps what the wheel's name and requirement promise")
    return 1 if problems else 0


def _plain(service: Service) -> dict[str, object]:
    """The fields of the JSON report (docs/fails/compat.md)."""
    return {
        "object": service.object,
        **service.columns(),
        "refused": list(service.refused),
        "platform": service.platform,
        "problems": list(service.problems),
    }


def _services(root: Path, runtime: Runtime) -> Iterator[Service]:
    """What each object of an unpacked wheel serves. Raises BudgetSpentError."""
    for path in shared_objects(root):
        binary = read_binary(path, budget=runtime.target.budget)
        if needs_torch_or_cuda(binary) or not binary.is_read_whole:
            owned = binary._replace(owner=find_owner(runtime.target, path, [root]))
            yield _service(path.relative_to(root).as_posix(), owned, runtime)


def _service(name: str, binary: BinaryRecord, runtime: Runtime) -> Service:
    states = {minor: _state(binary, runtime, minor) for minor in sorted(LAYOUTS)}
    surely = [dotted(minor) for minor, state in states.items() if state == "works"]
    perhaps = [f"{dotted(minor)}?" for minor, state in states.items() if state == "unknown"]
    tag = re.search(r"\.(cpython-3\d+t?|abi3t?)", binary.file)
    python = "any"
    if binary.modules or binary.python_symbols:
        python = "a Python that its name leaves open"
        if tag:
            python = f"the Python of its name ({tag[1]})"
    cuda = binary_cuda(binary)
    return Service(
        object=printable(name),
        torch=tuple([*surely, *perhaps] or ["none"]),
        python=python,
        cuda=dotted(cuda) if cuda else "none",
        gpus=binary.cuda_archs or ("none",),
        floors=dict(binary.floors),
        refused=tuple(dotted(minor) for minor, state in states.items() if state == "fails"),
        platform=binary.platform,
        is_for_musl=any(library.startswith("libc.musl") for library in binary.needed),
        problems=binary.problems or _too_large(binary),
    )


def _too_large(binary: BinaryRecord) -> tuple[str, ...]:
    """Of a file that was not read, the audit can tell nothing, and says so."""
    if not binary.too_large:
        return ()
    return (f"the audit did not read it: {binary.too_large}",)


def _state(binary: BinaryRecord, runtime: Runtime, minor: tuple[int, int]) -> str:
    """How an object fits a torch minor with its best C++ ABI: "works", "unknown" or "fails"."""
    if binary.too_large:
        return "unknown"
    states = []
    for abi in {0, 1} if minor < (2, 7) else {1}:
        torch = release(f"{dotted(minor)}.0", minor, abi)
        verdict = judge_package_file_in_run(binary, runtime._replace(torch=torch))
        statuses = {f.status for f in verdict.findings if f.code in _OF_TORCH}
        # No files of this release are here, so its symbols may be unknown. Trust an object
        # that was built for this minor.
        vouched = minor in [m for m, _ in binary.owner.built_for] if binary.owner else False
        recorded = binary.record is not None and binary.record.torch_target == minor
        is_sure = vouched or recorded or binary.lane == "stable"
        if REJECTED in statuses:
            states.append("fails")
        else:
            states.append("unknown" if UNKNOWN in statuses and not is_sure else "works")
    return next(state for state in ("works", "unknown", "fails") if state in states)


def _broken(service: Service, wheel: str) -> Iterator[str]:
    """The problems of this object, and the promises that it breaks, as sentences."""
    yield from (f"{service.object}: {problem}" for problem in service.problems)
    tags = wheel.removesuffix(".whl").split("-")[-3:]
    platform_tags = tags[-1].split(".")
    yield from _broken_libc(service, platform_tags)
    machine = tags[-1].rpartition("linux_")[2][-6:]
    if service.platform and not service.platform.endswith(machine):
        yield (
            f"{service.object} is built for {service.platform}, "
            f"but the wheel is tagged {printable(tags[-1])}"
        )
    number = re.search(r"cpython-(3\d+t?)", service.python)
    if number and (len(tags) < 2 or f"cp{number[1]}" not in tags[-2].split(".")):
        yield (
            f"{service.object} is for cp{number[1]} alone, "
            f"but the wheel is tagged {printable('-'.join(tags[:2]))}"
        )


def _bundled(root: Path, wheel: str) -> Iterator[str]:
    """The libraries in a wheel that must be those of the user's machine, or of torch."""
    if wheel.startswith("torch-"):
        return
    for path in shared_objects(root):
        name = original_name(path.name)
        exclude = f"exclude it (auditwheel repair --exclude {printable(name)})"
        place = printable(path.relative_to(root).as_posix())
        if name.startswith(LIBRARIES_OF_DRIVER):
            yield (
                f"{place} is a part of the NVIDIA driver, which must be that of the user's "
                f"machine; {exclude}"
            )
        if re.match(_LIBRARY_OF_TORCH, name):
            yield (
                f"{place} is a copy of torch's {printable(name)}, and a process with two of them "
                f"dies or computes nonsense; {exclude}"
            )


def _broken_requirement(services: list[Service], pins: list[str]) -> Iterator[str]:
    """The torches that the wheel's requirement admits and an object refuses. Of the glues in
    one folder, each for its own torch, one that works is enough."""
    admitted = [dotted(m) for m in sorted(LAYOUTS) if all(admits_of_minor(pin, m) for pin in pins)]
    alternatives: dict[str, list[Service]] = {}
    for service in services:
        path = PurePosixPath(service.object)
        is_glue = isinstance(parse_file_name(path.name), GlueName)
        alternatives.setdefault(str(path.parent / "glue-*" if is_glue else path), []).append(
            service
        )
    for group in alternatives.values():
        wrong = [minor for minor in admitted if all(minor in one.refused for one in group)]
        if wrong:
            requirement = printable(" ".join(pins)) or "none"
            label = some([one.object for one in group])
            yield (
                f"{label} {'does' if len(group) == 1 else 'do'} not work with torch "
                f"{', '.join(wrong)}, which the wheel's "
                f"requirement (torch {requirement[:200]}) admits; "
                "require only the torches of the table"
            )


def _broken_libc(service: Service, platform_tags: list[str]) -> Iterator[str]:
    """What a tag promises of the C library: `manylinux` a glibc, `musllinux` musl."""
    floor = service.floors.get("GLIBC", ())
    for tag in platform_tags:
        if tag.startswith("musllinux") and floor and not service.is_for_musl:
            yield (
                f"{service.object} needs glibc {dotted(floor)}, but the tag {printable(tag)} "
                "promises musl; build it on Alpine, or tag it manylinux"
            )
        if tag.startswith(("manylinux", "linux_")) and service.is_for_musl:
            yield (
                f"{service.object} needs musl, but the tag {printable(tag)} promises glibc; "
                "build it on a system with glibc, or tag it musllinux"
            )
        manylinux = re.match(
            r"(manylinux\w{0,20}?)(?:_(\d{1,9})_(\d{1,9}))?_(x86_64|aarch64)$", tag
        )
        if manylinux and floor:
            promised = _GLIBC_OF_OLD_TAG.get(manylinux[1])
            promised = promised or (int(manylinux[2] or 0), int(manylinux[3] or 0))
            if floor > promised:
                yield (
                    f"{service.object} needs glibc {dotted(floor)}, but the tag {tag} promises "
                    f"that {dotted(promised)} is enough; build on an older system, or let "
                    "auditwheel tag it"
                )

"""The data types for binaries, runtimes, and the findings of `judge` on a binary in a runtime.

All records are frozen. This module opens no file and judges nothing; `Environment`, when it is
asked, looks whether pip is there, and what a shell takes for `python`. The classes `*Name` read a
name with `parse` (or raise NameFormatError) and write it with `str`:
`parse(str(name)) == name`.

Every import of the package imports this module, so its data types are `Record`s: Python
makes a `Record` class faster than a NamedTuple or a dataclass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .project import NOBODY, Project, Record
from .reading.elf import Header
from .text import parse_version as parse_version
from .text import printable

if TYPE_CHECKING:
    from .linking.process import Opening
    from .target import Target

RECORD_SCHEMA = 1
RECORD_SECTION = ".torch_extension.record"
LAYOUT_SECTION = ".torch_extension.layout"
#: The section holds pointers to virtual member functions of TensorImpl, 16 bytes each.
VTABLE_SECTION = ".torch_extension.vtable"

NOTHING: Mapping[Any, Any] = MappingProxyType({})
#: Stands for the folder of a torch that is not installed: only its release is known.
NOWHERE = Path("/dev/null/torch")

OK, NOTE, REJECTED, UNKNOWN = "ok", "note", "rejected", "unknown"
#: The status where the facts of a rule were not looked up; it does not speak against an object.
NOT_LOOKED_AT = "not looked at"


class NameFormatError(ValueError):
    """The name of a binary or of a variant does not follow the naming scheme."""


class RecordError(ValueError):
    """A build record or a layout fingerprint is malformed or of an unknown schema."""


class GlueName(Record):
    """`stable210`, `aten24-abi0`, `aten29-abi1-cu12`: what a glue object was compiled for.

    A glue whose own code is for CUDA, too, is one for each CUDA major, and has it in its name.
    """

    lane: str  #: "stable" for a glue that serves `torch` and all newer minors, else "aten"
    torch: tuple[int, int]  #: the minor that it was built for
    cxx11_abi: int | None = None  #: the C++11 ABI flavour; None for "stable"
    cuda_major: int | None = None  #: of the CUDA code in the glue itself; None without such code

    @classmethod
    def parse(cls, spelling: str) -> GlueName:
        lane = "stable" if spelling.startswith("stable") else "aten"
        torch, _, cuda = spelling.partition("-cu")
        digits, _, abi = torch.removeprefix(lane).partition("-abi")
        if digits[:4].isdecimal():
            name = cls(
                lane=lane,
                torch=(int(digits[0]), int(digits[1:4] or 0)),
                cxx11_abi={"0": 0, "1": 1}.get(abi),
                cuda_major=int(cuda[:2]) if cuda[:2].isdecimal() else None,
            )
            flavoured = name.cxx11_abi is not None
            if str(name) == spelling and name.torch[0] and flavoured == (lane == "aten"):
                return name
        raise NameFormatError(
            f"{spelling[:80]!r} is not a glue name: expected stable<major><minor> or "
            "aten<major><minor>-abi<0|1>, and -cu<major> for one with CUDA code, "
            "e.g. stable210 or aten24-abi0"
        )

    @property
    def of_torch(self) -> GlueName:
        """The name without CUDA: what the glue needs of torch."""
        return self._replace(cuda_major=None)

    def serves(self, torch: TorchInstall) -> bool:
        if self.lane == "stable":
            return torch.version_tuple >= self.torch
        return (torch.version_tuple, torch.cxx11_abi) == (self.torch, self.cxx11_abi)

    def __str__(self) -> str:
        abi = "" if self.cxx11_abi is None else f"-abi{self.cxx11_abi}"
        cuda = "" if self.cuda_major is None else f"-cu{self.cuda_major}"
        return f"{self.lane}{self.torch[0]}{self.torch[1]}{abi}{cuda}"


class KernelsName(Record):
    """`cpu`, `cuda12`, `cuda13`: the device of a kernel object; for the CPU, the major is None."""

    cuda_major: int | None = None

    @classmethod
    def parse(cls, spelling: str) -> KernelsName:
        major = spelling.removeprefix("cuda")[:2]
        name = cls(int(major) if major.isdecimal() else None)
        if str(name) != spelling or name.cuda_major == 0:
            raise NameFormatError(f"{spelling[:80]!r} is not a kernels name such as cpu or cuda12")
        return name

    @property
    def device_type(self) -> str:
        return "cpu" if self.cuda_major is None else "cuda"

    def __str__(self) -> str:
        return "cpu" if self.cuda_major is None else f"cuda{self.cuda_major}"


class VariantName(Record):
    """`stable210-cu13`: a glue with its kernels (a CUDA variant has the CPU kernels, too)."""

    glue: GlueName
    kernels: KernelsName

    @classmethod
    def parse(cls, spelling: str) -> VariantName:
        glue, _, kernels = spelling.rpartition("-")
        with suppress(NameFormatError):
            name = cls(GlueName.parse(glue), KernelsName.parse(kernels.replace("cu", "cuda", 1)))
            if str(name) == spelling and name.glue.cuda_major is None:
                return name
        raise NameFormatError(
            f"{spelling[:80]!r} is not a variant name: expected <glue>-<cpu|cu12|cu13>, "
            "e.g. stable210-cpu or aten29-abi1-cu12"
        )

    def __str__(self) -> str:
        return f"{self.glue}-{str(self.kernels).replace('cuda', 'cu')}"


def variant_of(glue: str, cuda_kernels: str | None, project: Project) -> str:
    """The name of the variant of a glue, which may have the CUDA code itself, and its kernels.

    Without kernels for the only type of device that has any, it is the glue's name alone.
    """
    with suppress(NameFormatError):
        if GlueName.parse(glue).cuda_major is not None:
            return glue
    if cuda_kernels is not None:
        return f"{glue}-{cuda_kernels.replace('cuda', 'cu')}"
    return glue if project.is_for_cuda_alone else f"{glue}-cpu"


def parse_file_name(name: str) -> GlueName | KernelsName | None:
    """`glue-stable210.so` -> GlueName, `kernels-cuda13.so` -> KernelsName, else None."""
    kind, _, rest = name.removesuffix(".so").partition("-")
    with suppress(NameFormatError):
        if name.endswith(".so") and kind in ("glue", "kernels"):
            return GlueName.parse(rest) if kind == "glue" else KernelsName.parse(rest)
    return None


def file_name(name: GlueName | KernelsName) -> str:
    """The inverse of `parse_file_name`."""
    return f"{'glue' if isinstance(name, GlueName) else 'kernels'}-{name}.so"


#: The fields of every build record but `schema`, and those of each kind, with their types.
_COMMON: dict[str, Any] = dict.fromkeys(("kind", "package", "version", "platform"), str)
_OF_TORCH = {"lane": str, "torch_target": str, "torch_built": str, "cxx11_abi": int | None}
_OF_OURS = {"name": str, "kernel_abi": int}
_OF_KIND: dict[str, dict[str, Any]] = {
    "extension": _OF_TORCH,
    # A glue names CUDA only if its own code is for CUDA, too.
    "glue": _OF_OURS | _OF_TORCH | {"cuda": str | None, "cuda_archs": list | None},
    "kernels": _OF_OURS | {"device": str, "cuda": str | None, "cuda_archs": list},
}


class BuildRecord(Record, kw_only=True):
    """The checked content of a binary's record section, which the build wrote as JSON (`text`)."""

    kind: str
    package: str
    version: str
    platform: str
    name: str = ""
    kernel_abi: int = 0
    lane: str | None = None
    torch_target: tuple[int, int] | None = None
    torch_built: str | None = None
    cxx11_abi: int | None = None
    device: str | None = None
    cuda: str | None = None
    cuda_archs: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def parse(cls, raw: bytes | str) -> BuildRecord:
        """Read a build record. Raises RecordError, whose text names the first problem."""
        try:
            content = raw.rstrip(b"\0").decode("utf-8") if isinstance(raw, bytes) else raw
            data = json.loads(content)
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise RecordError(f"the build record is not JSON in UTF-8 ({error})") from None
        problem = _problem(data, content)
        if problem is not None:
            raise RecordError(f"the build record{problem}")
        of_kind = (*_COMMON, *_OF_KIND[data["kind"]])
        fields: dict[str, Any] = {key: data[key] for key in of_kind if key in data}
        return cls(
            kind=printable(fields["kind"]),
            package=printable(fields["package"]),
            version=printable(fields["version"]),
            platform=printable(fields["platform"]),
            name=printable(fields.get("name", "")),
            kernel_abi=fields.get("kernel_abi", 0),
            lane=_printable_or_none(fields.get("lane")),
            torch_target=parse_minor(fields.get("torch_target")),
            torch_built=_printable_or_none(fields.get("torch_built")),
            cxx11_abi=fields.get("cxx11_abi"),
            device=_printable_or_none(fields.get("device")),
            cuda=_printable_or_none(fields.get("cuda")),
            cuda_archs=tuple(map(printable, fields.get("cuda_archs") or ())),
            text=content,
        )


def _printable_or_none(value: str | None) -> str | None:
    return None if value is None else printable(value)


def _problem(data: object, content: str) -> str | None:
    """The first problem of a build record, to be read after "the build record"; else None."""
    if not isinstance(data, dict):
        return f" is a {type(data).__name__}, not an object"
    if not content.isprintable():
        return " is not one line of printable text"
    kind = data.get("kind")
    if kind not in tuple(_OF_KIND):
        return f"'s kind is {_shown(kind)}, not {', '.join(_OF_KIND)}"
    schema = data.get("schema")
    if type(schema) is not int or schema != RECORD_SCHEMA:
        return f" has schema {_shown(schema)}, this package reads {RECORD_SCHEMA}"
    for key, types in (_COMMON | _OF_KIND[kind]).items():
        if not isinstance(data.get(key), types):
            return f"'s field {key!r} is {_shown(data.get(key))}"
    return _problem_of_kind(kind, data)


def _problem_of_kind(kind: str, data: dict[str, Any]) -> str | None:
    """The first problem in the fields of a kind, whose types are right; else None."""
    if not all(isinstance(arch, str) for arch in data.get("cuda_archs") or ()):
        return "'s field 'cuda_archs' is not a list of names"
    try:
        if kind != "extension":
            (GlueName if kind == "glue" else KernelsName).parse(data["name"])
    except NameFormatError as error:
        return f"'s field 'name': {error}"
    if kind == "kernels":
        return None
    lane = data["lane"]
    target = data["torch_target"]
    if parse_minor(target) is None or lane not in ("stable", "aten"):
        return f"'s lane and torch_target are {_shown(lane)} and {_shown(target)}"
    return None


def _shown(value: object) -> str:
    """The start of a value's `repr`; only the type of a list or dict, which may nest too deeply."""
    return f"a {type(value).__name__}" if isinstance(value, (list, dict)) else repr(value)[:80]


def parse_minor(version: str | None) -> tuple[int, int] | None:
    """`"2.13.0+cpu"` -> `(2, 13)`; None if the text does not start with two numbers."""
    numbers = parse_version(version) or ()
    return (numbers[0], numbers[1]) if len(numbers) > 1 else None


def dotted(version: tuple[int, ...] | None) -> str:
    """`(2, 13)` -> `"2.13"`; `None` -> `"unknown"`."""
    return "unknown" if version is None else ".".join(map(str, version))


class Owner(Record, kw_only=True):
    """A distribution that owns shared objects."""

    name: str
    version: str
    libraries: Mapping[str, Path]  #: the shared objects by file name
    #: The torch minors that the distribution was built for, each with the source of this
    #: knowledge: a file, a requirement or the list of releases.
    built_for: tuple[tuple[tuple[int, int], str], ...] = ()
    #: The releases of a well-known package that go with each torch minor, the best one first.
    release_for: Mapping[tuple[int, int], str] = NOTHING
    channel: str = "pip"  #: or "conda"
    has_sdist: bool = False  #: whether the releases on PyPI are known to hold the sources
    #: The folder, or the revision of a repository (`git+https://...@...`), from which the
    #: distribution was installed, as pip takes it; "" if unknown or gone.
    source: str = ""
    wheel_tags: tuple[str, ...] = ()  #: of its wheel, such as `cp311-cp311-linux_x86_64`
    is_for_another_python: bool = False  #: whether none of the tags is for the judged Python


class Neighbour(Record, kw_only=True):
    """A library that the dynamic linker does not find, in the wheel of another distribution."""

    library: str
    path: Path
    distribution: str  #: whose wheel it is
    is_opened: bool  #: whether the Python of the package opens a library of this name itself


class Unmet(Record, kw_only=True):
    """What a package requires and is not installed."""

    text: str  #: the requirement
    fix: Fix  #: installs it, within what other installed packages require of the same


class BinaryRecord(Record, kw_only=True):
    """One shared object, read without loading it."""

    path: Path
    #: "glue" or "kernels" of a client of the engine; "extension" for other objects that
    #: need torch; "library" for other shared objects; or "unreadable".
    kind: str
    name: str  #: `stable210` or `cuda13` for a glue or kernels; for other kinds, the file's name
    record: BuildRecord | None = None
    layout: Mapping[str, int] | None = None
    platform: str | None = None
    header: Header = Header()  #: what the file says to the dynamic linker
    needed: tuple[str, ...] = ()  #: as in `header`
    runpath: str = ""  #: as in `header`
    #: The newest version of `GLIBC`, `GLIBCXX` and `CXXABI` that the file needs.
    floors: Mapping[str, tuple[int, ...]] = NOTHING
    #: The undefined strong symbols that torch must provide (`is_torch_symbol`).
    torch_symbols: tuple[str, ...] = ()
    python_symbols: tuple[str, ...] = ()  #: undefined strong symbols of the Python C API
    modules: tuple[str, ...] = ()  #: the Python modules that the file defines (from `PyInit_*`)
    cxx11_abi: int | None = None  #: the C++11 ABI flavour that the torch symbols show, if any
    #: The architectures in the record (`.nv_fatbin` must hold each of them); without a
    #: record, those in `.nv_fatbin`, which a `light` reading skips.
    cuda_archs: tuple[str, ...] = ()
    size: int = 0
    #: The smallest alignment of a segment, in bytes; a system with larger pages cannot load
    #: the file. 0 if unknown.
    alignment: int = 0
    problems: tuple[str, ...] = ()  #: the faults of the file itself; empty for a whole file
    #: What the file has more of than the doctor reads, such as "4097 program headers"; then
    #: nothing else is known. "" for a file that was read.
    too_large: str = ""
    owner: Owner | None = None  #: that lists the file; None if not looked for or not found
    #: The torch minors that the objects beside it were built for, each with its source; empty
    #: if they were not looked at, or tell nothing.
    of_siblings: tuple[tuple[tuple[int, int], str], ...] = ()
    #: What its package requires and is not installed; looked at if a library is missing.
    unmet: tuple[Unmet, ...] = ()
    noexec: Path | None = None  #: the mount point, if its file system forbids execution
    neighbours: tuple[Neighbour, ...] = ()  #: the missing libraries that another wheel has

    @property
    def file(self) -> str:
        return printable(self.path.name)

    @property
    def is_read_whole(self) -> bool:
        """Whether the file is whole, as far as that shows, and was read."""
        return not (self.problems or self.too_large)

    @property
    def lane(self) -> str | None:
        """ "stable" or "aten" for an extension, or for a glue with a record; else None."""
        if self.record is not None and self.record.lane is not None:
            return self.record.lane
        if self.kind != "extension":
            return None
        return "aten" if any(name.startswith("_Z") for name in self.torch_symbols) else "stable"


class TorchInstall(Record, kw_only=True):
    """The facts of a torch installation; docs/fails/compat.md describes the fields."""

    version: str
    version_tuple: tuple[int, int]
    cuda: str | None
    hip: str | None
    cxx11_abi: int | None
    root: Path
    lib_dir: Path
    include_dir: Path
    installer: str | None = None
    xpu: str | None = None
    python_tags: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def cuda_major(self) -> int | None:
        """`13` for a CUDA 13.0 build, None for a build without CUDA."""
        parts = parse_version(self.cuda)
        return parts[0] if parts else None

    @property
    def device(self) -> str:
        """The device of this build: `CUDA 13.0`, `ROCm 6.2`, `XPU 2025.0` or `the CPU`."""
        if self.hip or self.xpu:
            return f"ROCm {self.hip}" if self.hip else f"XPU {self.xpu}"
        return f"CUDA {self.cuda}" if self.cuda else "the CPU"

    @property
    def is_release(self) -> bool:
        """False for pre-releases, nightlies and source builds without a tag: their classes
        were never measured."""
        return re.fullmatch(r"[0-9]+(\.[0-9]+)+(\.post[0-9]+)?(\+.*)?", self.version) is not None


class Device(Record):
    """One GPU: its index, name and compute capability."""

    index: int
    name: str
    capability: tuple[int, int]


class Driver(Record):
    """The NVIDIA driver: its `version` ("580.65.06") and the newest CUDA that it serves."""

    version: str | None
    cuda: tuple[int, int] | None


class Environment(Record):
    """The environment that the fixes are for, and how the package came there."""

    kind: str = "pip"  #: or "conda"
    python: str = ""  #: the file of its Python; "" for that of the active environment
    installer: str | None = None  #: the tool; None if unknown, as in a source folder
    source: str | None = None  #: the file or folder it was installed from; None if unknown or gone
    prefix: str = ""  #: its folder; "" for the active environment
    path: tuple[str, ...] = ()  #: the folders that it imports from; () if unknown

    @property
    def is_active(self) -> bool:
        """Whether a shell takes its Python for `python`. Only a command asks, no import."""
        if not self.python:
            return True
        from shutil import which

        taken = which("python")
        # The Pythons of two venvs can be links to one file, so their folders count as well.
        return taken is not None and _place(taken) == _place(self.python)

    @property
    def has_pip(self) -> bool:
        """Whether pip is there; environments of uv have none. Only a command asks, no import."""
        for folder in self.path:
            with suppress(OSError):  # a closed folder
                if folder and (Path(folder) / "pip" / "__main__.py").is_file():
                    return True
        return not self.path


def _place(program: str) -> tuple[Path, Path]:
    path = Path(program)
    return path.parent.resolve(), path.resolve()


class Runtime(Record, kw_only=True):
    """The process, the machine and the torch that a binary would be loaded into.

    `judge` knows no other facts about them. None means that a fact is unknown or that a
    thing is not here; `judge` accepts no binary if an unknown fact could mean a crash.
    docs/fails/compat.md describes the fields without a comment.
    """

    system: str
    machine: str
    python: tuple[int, int, int]
    target: Target  #: the Python that these are facts of, and what was read in its environment
    implementation: str = "cpython"
    free_threaded: bool = False
    libc: tuple[str, tuple[int, ...]] | None = None
    libstdcxx: Mapping[str, tuple[int, ...]] | None = None
    torch: TorchInstall | None = None
    torch_problem: str | None = None
    torch_shadow: str = ""  #: a file or folder that hides torch
    gpu_probed: bool = False
    driver: Driver | None = None
    devices: tuple[Device, ...] = ()
    registered_by: str | None = None
    package_version: str = ""  #: "" if that of a binary is not to be compared
    kernel_abi: int | None = None  #: of the chosen glue's kernel table; None before it is chosen
    environment: Environment = Environment()
    #: The symbols that were looked up and not found, by the binary's path.
    missing_symbols: Mapping[str, tuple[str, ...]] = NOTHING
    #: The needed libraries that were looked for and not found, by the binary's path.
    missing_libraries: Mapping[str, tuple[str, ...]] = NOTHING
    #: The finding on `import torch` here, which the doctor makes: of an import (examine.py), or of
    #: torch's files (checks/torch_loading.py). None if it was not looked at, as by a loader.
    torch_import: Finding | None = None
    #: What the dynamic linker would do with a binary, by its path.
    openings: Mapping[str, Opening] = NOTHING
    project: Project = NOBODY  #: its binaries are "ours"; all others belong to other packages
    page_size: int = 0
    l4t: str = ""

    @property
    def platform(self) -> str:
        return f"{self.system}-{self.machine}"

    def is_ours(self, binary: BinaryRecord) -> bool:
        """Whether a binary is a glue or kernels of the project. The record names the binary's
        package, else the owner does; a binary with neither counts as the project's.

        Many rules and fixes depend on it: what the project promises of its own binaries is asked of
        these alone. Beside `NOBODY`, as in torch-doctor by itself, no binary is.
        """
        distribution = self.project.distribution
        is_named_so = (
            binary.kind in ("glue", "kernels") or parse_file_name(binary.path.name) is not None
        )
        if not distribution or not is_named_so:
            return False
        if binary.record is not None:
            return binary.record.package == distribution
        return binary.owner is None or binary.owner.name == distribution

    @property
    def python_tag(self) -> str:
        """The start of the tags of this Python's modules: `cpython-311-`."""
        return f"cpython-{self.python[0]}{self.python[1]}{'t' if self.free_threaded else ''}-"


class Fix(Record):
    """What mends a fault: a command, words, or words with a command in them."""

    text: str = ""  #: as people read it; empty if nothing is known
    command: str = ""  #: for a shell; empty if there are only words
    kind: str = ""  #: of the command, one of `fixes.Kind`
    releases_of: tuple[str, ...] = ()  #: distributions of which another release may mend it
    is_advice: bool = False  #: whether nothing says that it mends: what to try, or to report

    @property
    def label(self) -> str:
        """What is printed before it."""
        return "advice:" if self.is_advice else "to fix:"

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text


NO_FIX = Fix()


class Finding(Record, kw_only=True):
    """What one rule found.

    A rule gives code, observed, needed, why and fix; its dimension and the class of the code are
    filled in from its record.
    """

    dimension: str = ""  #: what was compared, e.g. "torch version": for people alone
    #: `OK`, `NOTE` (accepted, with a remark), `REJECTED` or `UNKNOWN` (not accepted), or
    #: `NOT_LOOKED_AT`
    status: str
    observed: str  #: the value found here
    needed: str  #: the value that the binary needs
    why: str = ""  #: the reason for the status or a remark, in one sentence
    fix: Fix = NO_FIX  #: what mends the fault
    fault: int | None = None  #: the number of the fault's class, one of `faults`
    #: The stable code of this kind of finding, one of `codes`; None for one that is `OK`.
    code: str | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that errors and reports print below the cause."""
        fix = (f"{self.fix.label:<10}{self.fix}",) if self.fix else ()
        return (f"observed: {self.observed}", f"needed:   {self.needed}", *fix)


class Verdict(Record):
    """What reading finds: a binary and its findings, in the order of the rules.

    In the doctor, what was seen of an import counts more (decide.py).
    """

    binary: BinaryRecord
    findings: tuple[Finding, ...]

    @property
    def accepted(self) -> bool:
        """Whether no finding is rejected or unknown."""
        return self.cause is None

    @property
    def rejection(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.status == REJECTED), None)

    @property
    def cause(self) -> Finding | None:
        """The first rejection, else the first unknown, else None."""
        unknown = (finding for finding in self.findings if finding.status == UNKNOWN)
        return self.rejection or next(unknown, None)

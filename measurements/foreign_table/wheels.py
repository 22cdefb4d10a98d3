"""The objects to judge: those of other people's wheels, and damaged files."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

from measurements.foreign_table.installs import install
from measurements.foreign_table.tasks import Task
from torchship.doctor.environment.owner import shared_objects
from torchship.release.paths import fresh

LIST = Path(__file__).with_name("distributions.json")
PLATFORM = "x86_64-manylinux_2_36"
TORCH_NAMES = (b"libtorch", b"libc10", b"libcudart")


@dataclass(frozen=True)
class Wheel:
    """A distribution of the list, and how its objects are chosen and loaded."""

    name: str
    versions: list[str] = field(default_factory=list)
    python: str = ""
    platform: str = ""
    most: int = 40
    """The most objects to take."""
    left_out: str = ""
    """A pattern of objects to leave out, such as those that need a vendor's kit to start."""
    load: str = "file"
    beside: str = ""
    truth: str | None = None
    """The cause of a failure if it is known beforehand."""


@dataclass(frozen=True)
class Choice:
    """The content of distributions.json."""

    wheels: list[Wheel]
    preloads: Mapping[str, list[str]]
    """Patterns of the objects to load first, by the pattern of the objects that need them."""
    calls: Mapping[str, str]
    """An expression that must be true, by the pattern of the objects."""


@dataclass(frozen=True)
class Sample:
    """An object to judge and to load."""

    distribution: str
    task: Task
    truth: str | None
    """The cause of a failure if it is known beforehand."""


@cache
def read_list() -> Choice:
    document = json.loads(LIST.read_text(encoding="utf-8"))
    wheels = [
        Wheel(**{{"except": "left_out"}.get(key, key): value for key, value in entry.items()})
        for entry in document["wheels"]
    ]
    return Choice(wheels=wheels, preloads=document["preloads"], calls=document["calls"])


def fetch(work: Path) -> Iterator[Sample]:
    """Puts every wheel into a folder of its own, and yields each chosen object."""
    for wheel in read_list().wheels:
        for version in wheel.versions:
            root = fetch_wheel(work, wheel, version)
            for path in choose_objects(root, wheel):
                yield make_sample(root, path, wheel)


def fetch_wheel(work: Path, wheel: Wheel, version: str, *, keeps_cache: bool = False) -> Path:
    """The folder with a wheel. Raises CommandFailed if there is none for its Python."""
    suffix = "".join(f"-{part}" for part in (wheel.python, wheel.platform) if part)
    root = work / "wheels" / f"{wheel.name}-{version}{suffix}"
    if not root.exists():
        part = fresh(root.with_name("part"))
        python = ("--python-version", wheel.python or "3.11")
        system = ("--python-platform", wheel.platform or PLATFORM)
        flags = ("--no-deps", "--only-binary", ":all:", "--target", str(part))
        requirement = f"{wheel.name}=={version}"
        install(work, *flags, *python, *system, requirement, keeps_cache=keeps_cache)
        part.rename(root)
    return root


def choose_objects(root: Path, wheel: Wheel) -> list[Path]:
    """Some shared objects of a wheel, first those that name torch or CUDA."""
    naming_torch: list[Path] = []
    remaining: list[Path] = []
    for path in shared_objects(root):
        if not fnmatch.fnmatch(path.as_posix(), wheel.left_out):
            content = path.read_bytes()
            names_torch = any(name in content for name in TORCH_NAMES)
            (naming_torch if names_torch else remaining).append(path)
    step = max(1, len(remaining) // max(1, wheel.most - len(naming_torch)))
    return [*naming_torch, *remaining[::step]][: wheel.most]


def make_sample(root: Path, path: Path, wheel: Wheel) -> Sample:
    inner = path.relative_to(root).as_posix()
    digits = (re.findall("[0-9]+", path.name.partition(".")[0]) or [""])[-1]
    preloads = [
        other.relative_to(root).as_posix()
        for pattern, paths in read_list().preloads.items()
        if fnmatch.fnmatch(inner, pattern)
        for preload in paths
        for other in sorted(root.glob(preload.format(digits=digits)))
    ]
    calls = [call for pattern, call in read_list().calls.items() if fnmatch.fnmatch(inner, pattern)]
    task = Task(
        root=str(root),
        object=inner,
        load=wheel.load,
        preloads=preloads,
        beside=[str(root.with_name(wheel.beside))] if wheel.beside else [],
        call=calls[0] if calls else None,
    )
    return Sample(wheel.name, task, wheel.truth or _obvious_truth(wheel, path, inner))


def _obvious_truth(wheel: Wheel, path: Path, inner: str) -> str | None:
    """The cause that the name of the wheel or of the object tells."""
    if wheel.platform:
        return "platform"
    is_for_another_python = re.search(r"\.cpython-3(?!11-)", inner) is not None
    return "python" if is_for_another_python and b"PyInit_" in path.read_bytes() else None


def damage(work: Path) -> Iterator[Sample]:
    """Writes damaged shared objects and files of other kinds."""
    root = fresh(work / "damaged")
    whole = (work / "wheels" / "torchvision-0.28.0" / "torchvision" / "_C.so").read_bytes()
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    files = {
        **{f"cut_{size}.so": whole[:size] for size in (0, 40, 4096, 100_000, len(whole) - 1)},
        "pointer.so": pointer,
        "script.so": b"/* GNU ld script */\nINPUT(libtorch.so.2 -lm)\n",
        "page.so": b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n",
        "program": Path("/bin/ls").read_bytes(),
    }
    for name, content in files.items():
        (root / name).write_bytes(content)
        yield make_sample(root, root / name, Wheel(name="damaged files", truth="file"))


def is_vouched(root: Path, torch: str) -> bool:
    """Whether the wheel in `root` requires a range of torch versions with `torch` but not 99."""
    requirements = [
        Requirement(line)
        for distribution in distributions(path=[str(root)])
        for line in distribution.requires or ()
    ]
    return any(
        requirement.name == "torch"
        and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
        and torch in requirement.specifier
        and "99" not in requirement.specifier
        for requirement in requirements
    )

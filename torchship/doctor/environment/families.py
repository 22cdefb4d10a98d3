"""Files of one package that differ in the torch or the CUDA they are for: it opens one of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ...judge.project import Record
from ...judge.records import TorchInstall, parse_version
from ...judge.text import is_file

_LABEL = re.compile(r"torch_?(\d+\.\d+(?:\.\d+)?)(?=\.so|[_-])|torch_?(\d)(\d{1,2})(?=\.so|[_-])")


class Family(Record):
    """The files of a folder whose names differ in the version of torch alone."""

    name: str  #: with `*` in the place of the version
    members: tuple[tuple[Path, tuple[int, ...]], ...]  #: each with its version

    def fits(self, torch: TorchInstall) -> bool:
        """Whether one of the files is for this torch."""
        return any(_is_of(version, torch) for _, version in self.members)

    def others(self, torch: TorchInstall) -> list[Path]:
        """The files that are for other torches."""
        return [path for path, version in self.members if not _is_of(version, torch)]

    def versions(self) -> list[str]:
        return [".".join(map(str, version)) for _, version in sorted(self.members, key=_version_of)]


def _version_of(member: tuple[Path, tuple[int, ...]]) -> tuple[int, ...]:
    return member[1]


def _is_of(version: tuple[int, ...], torch: TorchInstall) -> bool:
    full = parse_version(torch.version) or torch.version_tuple
    return full[: len(version)] == version


def families(paths: Iterable[Path]) -> list[Family]:
    """The families of two members or more among files."""
    members: dict[tuple[Path, str], list[tuple[Path, tuple[int, ...]]]] = defaultdict(list)
    for path in paths:
        label = _LABEL.search(path.name)
        if label is None:
            continue
        dotted, major, minor = label.groups()
        version = parse_version(dotted) if dotted else (int(major), int(minor))
        name = f"{path.name[: label.start()]}torch*{path.name[label.end() :]}"
        members[path.parent, name].append((path, version or ()))
    return [Family(name, tuple(group)) for (_, name), group in members.items() if len(group) > 1]


_CUDA_LABEL = re.compile(r"(\w+)_cuda(\d{2,3})\.so")


def of_other_cudas(paths: Iterable[Path], torch: TorchInstall) -> set[Path]:
    """The files such as `libx_cuda118.so` of a package that opens another one beside this torch:
    that for torch's own CUDA, or `libx_cpu.so` for a torch without CUDA."""
    known = {*paths}
    groups: dict[tuple[Path, str], list[tuple[Path, str]]] = defaultdict(list)
    for path in known:
        label = _CUDA_LABEL.fullmatch(path.name)
        if label is not None:
            groups[path.parent, label[1]].append((path, label[2]))
    version = parse_version(torch.cuda)
    own = "".join(map(str, version[:2])) if version else ""
    others: set[Path] = set()
    for (folder, stem), members in groups.items():
        is_served = any(number == own for _, number in members)
        if not own:
            is_served = is_file(folder / f"{stem}_cpu.so")
        if len(members) > 1 and is_served:
            others.update(path for path, number in members if number != own)
    return others

"""Checks where the files of a release come from: the source distribution from a commit, wheels from
the source distribution.

It is asked once, of the result of a build or of a merge. Git names a file by a hash of its bytes,
so nothing is unpacked or checked out to compare it.
"""

import hashlib
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path, PurePosixPath

from ...judge.project import Project
from .. import ReleaseError
from ..matrix.settings import Settings
from ..run.manifest import Manifest
from ..run.shell import output_of
from ..run.store import TORCHSHIP
from ..steps.pack.wheels import Wheel, commits, read_wheel

# What setuptools adds to the files of a commit, apart from its folder NAME.egg-info.
GENERATED_METADATA = "PKG-INFO"
GENERATED_SETTINGS = "setup.cfg"
EMPTY_SETTINGS = b"[egg_info]\ntag_build = \ntag_date = 0\n\n"
# A source distribution has 2 MB; one that unpacks to more than this is none of this tool's.
MAX_UNPACKED = 500_000_000
# The folder of the engine in a checkout, and in a package.
ENGINE = "torchship"
ENGINE_IN_PACKAGE = "engine"
# The metadata of a wheel that setuptools writes, besides the folder of licences.
WHEEL_METADATA = {"METADATA", "WHEEL", "top_level.txt", "LICENSE"}


def result_problems(manifest: Manifest, settings: Settings, *, kinds: Set[str]) -> Iterator[str]:
    """Finds what the source distribution and the wheels in `dist` hold that they should not.

    `kinds` has the kinds of wheels to look at: `fat`, `thin`. With changes that are not committed,
    the source distribution is compared with no commit; such files are never uploaded.
    """
    sdists = [artefact.path for artefact in manifest.artefacts if artefact.kind == "sdist"]
    if len(sdists) != 1:
        yield f"there are {len(sdists)} source distributions, needs one to compare wheels with"
        return
    sources = read_sdist(settings.dist / sdists[0], settings.project)
    committed = files_of_commit(manifest.commit, settings.repo) if manifest.clean else None
    for problem in sdist_problems(sources, manifest.commit, settings.project, committed):
        yield f"{sdists[0]}: it {problem}"
    for artefact in manifest.artefacts:
        if artefact.kind in kinds & {"fat", "thin"}:
            wheel = read_wheel(settings.dist / artefact.path)
            names = {name for cell in artefact.cells for name in manifest.cells[cell].binaries}
            for problem in (
                *binary_problems(wheel, names, manifest, settings.project),
                *wheel_problems(wheel, sources, settings.project),
            ):
                yield f"{artefact.path}: it {problem}"


def binary_problems(
    wheel: Wheel, names: Set[str], manifest: Manifest, project: Project
) -> Iterator[str]:
    """Finds what a wheel holds instead of the binaries of these names, as the manifest has them."""
    expected = {f"{project.package}/lib/{name}" for name in names}
    problems = [f"lacks {path}" for path in sorted(expected - wheel.binaries.keys())]
    for path, data in sorted(wheel.binaries.items()):
        entry = manifest.binaries.get(PurePosixPath(path).name)
        if path not in expected or entry is None:
            problems.append(f"holds {path}, which no cell of the manifest made")
        elif hashlib.sha256(data).hexdigest() != entry.sha256:
            problems.append(f"holds a {path} that is not the manifest's")
    yield from problems
    if not problems and wheel.binaries and (found := commits(wheel)) != [manifest.commit]:
        yield f"holds binaries of commit {', '.join(found)}, the manifest says {manifest.commit}"


def read_sdist(path: Path, project: Project) -> dict[str, bytes]:
    """The files of a source distribution, by their paths in it.

    Raises ReleaseError if it cannot be read, or holds what is no file of this version.
    """
    top = f"{project.distribution.replace('-', '_')}-{project.version}"
    files: dict[str, bytes] = {}
    bytes_left = MAX_UNPACKED
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                parts = PurePosixPath(member.name).parts
                name = "/".join(parts[1:])
                is_inside = parts[:1] == (top,) and ".." not in parts
                if is_inside and member.isdir():
                    continue
                bytes_left -= member.size
                is_new_file = is_inside and member.isreg() and name not in files
                content = archive.extractfile(member) if is_new_file and bytes_left >= 0 else None
                if content is None:
                    raise ReleaseError(
                        f"{path.name}: holds {member.name!r}, which is not a plain file of {top}, "
                        "is there twice or is too large; build it again"
                    )
                files[name] = content.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ReleaseError(
            f"{path.name}: cannot be read as a source distribution ({error}); build it again"
        ) from error
    return files


def files_of_commit(commit: str, repo: Path) -> dict[str, str] | None:
    """Git's hash of each file of a commit, by its path below `repo`; None if git has no such
    commit there."""
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        return None
    listing = output_of("git", "ls-tree", "-r", "-z", commit, cwd=repo)
    if listing is None:
        return None
    hashes = {}
    for entry in listing.split("\0"):
        facts, _, name = entry.partition("\t")
        if name:
            hashes[name] = facts.split(" ")[2]
    return hashes


def sdist_problems(
    sources: Mapping[str, bytes],
    commit: str,
    project: Project,
    committed: Mapping[str, str] | None,
) -> Iterator[str]:
    """Finds what a source distribution holds besides the files of a commit and what a build adds.

    `committed` has git's hashes of the commit's files; if it is None, only what a build adds
    is looked at.
    """
    origin = f"{_package_in_sources(project)}/source.json"
    egg_info = f"{project.distribution.replace('-', '_')}.egg-info/"
    for name, data in sorted(sources.items()):
        if name == origin:
            if _commit_in(data) != commit:
                yield f"has a {name} that does not name the commit {commit}"
        elif name == GENERATED_METADATA:
            if not _is_of_version(data, project):
                yield f"has a {name} of another distribution or version"
        elif name == GENERATED_SETTINGS and data == EMPTY_SETTINGS:
            continue
        elif committed is not None and not name.startswith(egg_info):
            if name not in committed:
                yield f"holds {name}, which is not in commit {commit}"
            elif committed[name] != git_hash(data, digits=len(committed[name])):
                yield f"has a {name} that is not that of commit {commit}"


def _package_in_sources(project: Project) -> str:
    return project.folder.relative_to(project.checkout).as_posix()


def _commit_in(data: bytes) -> str | None:
    try:
        facts = json.loads(data)
    except ValueError:
        return None
    return facts.get("commit") if isinstance(facts, dict) else None


def _is_of_version(metadata: bytes, project: Project) -> bool:
    lines = metadata.decode("utf-8", "replace").partition("\n\n")[0].splitlines()
    return {f"Name: {project.distribution}", f"Version: {project.version}"} <= {*lines}


def git_hash(data: bytes, *, digits: int) -> str:
    """Git's name of a file with these bytes, of 40 digits (SHA-1) or 64 (SHA-256)."""
    algorithm = "sha1" if digits == 40 else "sha256"
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data).hexdigest()


def wheel_problems(wheel: Wheel, sources: Mapping[str, bytes], project: Project) -> Iterator[str]:
    """Finds what a wheel holds besides its binaries and the files of the source distribution."""
    for name in sorted(wheel.files.keys() - wheel.binaries.keys()):
        original = _original(name, sources, project)
        if original is None:
            yield f"holds {name}, which the source distribution lacks"
        elif original != wheel.files[name]:
            yield f"has a {name} that is not the source distribution's"
    for name in sorted(wheel.info.keys() - WHEEL_METADATA):
        if name.startswith("licenses/"):
            continue
        if sources.get(f"{wheel.name}.egg-info/{name}") != wheel.info[name]:
            yield f"has a {name} in its metadata, which the source distribution lacks"


def _original(name: str, sources: Mapping[str, bytes], project: Project) -> bytes | None:
    """The file from which a file of a wheel was copied; None if there is none."""
    package, _, inner = name.partition("/")
    folder, _, rest = inner.partition("/")
    if name == f"{project.wheel_name}.py":
        return sources.get(name)
    if package != project.package:
        return None
    if folder == "csrc" and rest:
        return sources.get(inner)
    if folder != ENGINE_IN_PACKAGE or not rest:
        return sources.get(f"{_package_in_sources(project)}/{inner}")
    if any(path.startswith(f"{ENGINE}/") for path in sources):
        return sources.get(f"{ENGINE}/{rest}")
    # The sources name the engine, and hold no copy of it.
    own = TORCHSHIP / rest
    return own.read_bytes() if own.is_file() else None

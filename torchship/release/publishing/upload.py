"""Publishes the files of dist/ to PyPI, to Anaconda, or into a folder for a web server."""

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ...project.placeholders import find_placeholders
from .. import ReleaseError
from ..matrix.cells import required
from ..matrix.platforms import FIRST
from ..matrix.settings import Settings
from ..paths import publish
from ..run.manifest import Artefact, Manifest, Target, parse, wrong_files
from ..run.shell import Log
from ..run.store import digest
from ..steps.conda.packages import index_package
from ..steps.pack.distributions import write_index
from .provenance import result_problems
from .taken_back import read_taken_back, version_of

TARGETS = "pypi, testpypi, anaconda:OWNER, or a folder (./public)"
# What an artefact calls the target of each name.
CALLED: dict[str, Target] = {
    "pypi": "pypi",
    "testpypi": "pypi",
    "anaconda": "anaconda",
    "folder": "folder",
}
# Where an index tells the hashes of the files that it has of a version.
RELEASES = {
    "pypi": "https://pypi.org/pypi/{}/{}/json",
    "testpypi": "https://test.pypi.org/pypi/{}/{}/json",
}
ANACONDA = "https://api.anaconda.org/release/{}/{}/{}"
TWINE = (sys.executable, "-m", "twine")
BOOTSTRAPPED = (
    "conda packages: they were built with a bootstrap channel, which is for tests only; build with "
    "--channel conda-forge"
)


def upload(
    target: str,
    settings: Settings,
    console: Console,
    *,
    dry_run: bool,
    allow_partial: bool = False,
) -> int:
    """Publishes what a target takes; `allow_partial` lets an index of one's own take less.

    Raises ReleaseError for what no target, or not this one, may get.
    """
    if allow_partial and not _other_index():
        raise ReleaseError(
            "--allow-partial is for an index of your own, which TWINE_REPOSITORY_URL names; what "
            "PyPI has of a version stays there, so name your index, or leave the option out"
        )
    name, owner = _parse_target(target, settings)
    manifest = parse(settings.manifest)
    artefacts = _choose(name, manifest, console)
    refusals = [*_refusals(name, manifest, artefacts, settings, allow_partial=allow_partial)]
    if refusals:
        raise ReleaseError(f"{target}: refused\n- " + "\n- ".join(refusals))
    published = _published_at(target, name, manifest, artefacts)
    _refuse_clashes(target, published, artefacts)
    if name == "folder":
        _refuse_old_index(Path(target), manifest.version)
    if name == "anaconda":
        # What is there with the same bytes is left out here: `anaconda upload` would have to be
        # told to skip what has the same name.
        artefacts = [a for a in artefacts if Path(a.path).name not in published]
    if not artefacts:
        console.print(f"nothing was uploaded: {target} has all files", markup=False)
        return 0
    with Log(settings.logs / "upload.log", settings) as log:
        if name in ("pypi", "testpypi"):
            files = [str(settings.dist / artefact.path) for artefact in artefacts]
            log.run([*TWINE, "check", "--strict", *files], remedy=f"read {log.path}")
        for artefact in artefacts:
            verb = "would upload" if dry_run else "uploading"
            console.print(f"{verb} {artefact.path}", markup=False, soft_wrap=True)
        if name != "folder":
            _send(_command(name, owner), artefacts, log, console, dry_run=dry_run)
        elif not dry_run:
            _copy(artefacts, Path(target), log)
    console.print("nothing was uploaded (--dry-run)" if dry_run else f"uploaded to {target}")
    return 0


def _parse_target(target: str, settings: Settings) -> tuple[str, str]:
    """The key of CALLED for a target, and the owner of a channel ("" for other targets).

    Raises ReleaseError for what an unset variable leaves of a target, as `anaconda:$OWNER` and
    `$PUBLIC/` do.
    """
    if "/" in target or target.startswith("."):
        folder = Path(target).resolve()
        own = [p.resolve() for p in (settings.repo, settings.dist)]
        if folder in own or folder == Path(folder.anchor):
            raise ReleaseError(f"upload: {target!r} is {folder}; name a folder for this alone")
        return "folder", ""
    name, colon, owner = target.partition(":")
    is_whole = bool(owner.strip()) if name == "anaconda" else not colon
    if name not in CALLED or name == "folder" or not is_whole:
        raise ReleaseError(f"upload: got {target!r}, needs one of {TARGETS}")
    return name, owner


def _choose(name: str, manifest: Manifest, console: Console) -> list[Artefact]:
    """The artefacts for a target: none of a cell that failed, and in a folder no conda packages of
    a bootstrap channel."""
    artefacts = [artefact for artefact in manifest.artefacts if CALLED[name] in artefact.goes_to]
    for artefact in manifest.left_behind:
        if artefact in artefacts:
            artefacts.remove(artefact)
            cells = ", ".join(artefact.cells)
            console.print(
                f"left out: {artefact.path}, since {cells or 'its cell'} failed",
                markup=False,
                soft_wrap=True,
            )
    if name == "folder" and manifest.base_channel is None:
        if any("anaconda" in artefact.goes_to for artefact in artefacts):
            console.print(f"left out: {BOOTSTRAPPED}", markup=False, soft_wrap=True)
        artefacts = [artefact for artefact in artefacts if "anaconda" not in artefact.goes_to]
    return artefacts


def _published_at(
    target: str, name: str, manifest: Manifest, artefacts: Sequence[Artefact]
) -> dict[str, str]:
    """The hashes of the files that a target has already, by name; "" for what is no file."""
    if name == "folder":
        paths = [Path(target) / artefact.path for artefact in artefacts]
        return {p.name: digest(p) if p.is_file() else "" for p in paths if os.path.lexists(p)}
    if name == "anaconda":
        owner = target.partition(":")[2]
        packages: dict[str, str] = {}
        for package, files in _by_distribution(artefacts).items():
            url = ANACONDA.format(owner, package, manifest.version)
            packages |= published_packages(url, files)
        return packages
    if _other_index():
        return {}
    hashes: dict[str, str] = {}
    for distribution in _by_distribution(artefacts):
        hashes |= published_hashes(RELEASES[name].format(distribution, manifest.version))
    return hashes


def _by_distribution(artefacts: Sequence[Artefact]) -> dict[str, set[str]]:
    """The names of the files of each distribution, which their names begin with."""
    files: dict[str, set[str]] = {}
    for path in (Path(artefact.path) for artefact in artefacts):
        if path.suffix == ".conda":
            distribution = path.name.rsplit("-", 2)[0]
        else:
            distribution = path.name.partition("-")[0].replace("_", "-")
        files.setdefault(distribution, set()).add(path.name)
    return files


def _refuse_clashes(
    target: str, published: Mapping[str, str], artefacts: Sequence[Artefact]
) -> None:
    """Raises ReleaseError if the target has files of these names with other bytes.

    An index keeps the old file and says nothing; a copy would replace it.
    """
    clashes = []
    for artefact in artefacts:
        sha256 = published.get(Path(artefact.path).name, artefact.sha256)
        if sha256 != artefact.sha256:
            state = f"it has the hash {sha256[:16]}..." if sha256 else "it is not a file"
            clashes.append(f"{artefact.path}: there {state}")
    if clashes:
        raise ReleaseError(
            f"{target}: refused, as files of these names are there with other bytes; "
            "give the new ones another version\n- " + "\n- ".join(clashes)
        )


def _refuse_old_index(folder: Path, version: str) -> None:
    """Raises ReleaseError if the index of a channel lacks packages that lie beside it.

    Those of this version may be there without: an upload that was killed has left them.
    """
    for index in sorted(folder.glob("channel/*/repodata.json")):
        document = json.loads(index.read_text(encoding="utf-8"))
        listed = {*document.get("packages.conda", {}), *document.get("removed", [])}
        names = [path.name for path in index.parent.glob("*.conda") if path.name not in listed]
        if lacks := sorted(name for name in names if version_of(name) != version):
            raise ReleaseError(
                f"{index}: is older than its packages, it lacks {', '.join(lacks)}; if nobody else "
                "writes there, delete it and upload again"
            )


def published_hashes(url: str) -> dict[str, str]:
    """The hashes of the files that an index has of a version, by name; {} if it has none."""
    files = _ask(url, "urls")
    return {file["filename"]: file["digests"]["sha256"] for file in files}


def published_packages(url: str, names: Collection[str]) -> dict[str, str]:
    """The hashes of the packages of these names that anaconda.org has of a version.

    Raises ReleaseError if it tells no hash of one of them.
    """
    hashes = {}
    for file in _ask(url, "distributions"):
        name = file["basename"].rpartition("/")[2]
        if name not in names:
            continue
        if not file.get("sha256"):
            raise ReleaseError(
                f"{url}: tells no sha256 of {name}, so it is not known whether it is the same "
                "file; remove it there (anaconda remove), or upload the others by hand"
            )
        hashes[name] = file["sha256"]
    return hashes


def _ask(url: str, field: str) -> list[Any]:
    """A list in the JSON that an index answers; [] if it does not know the release."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            files = json.load(answer)[field]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise ReleaseError(f"{url}: {error}; try again later") from error
    except (OSError, ValueError, KeyError) as error:
        raise ReleaseError(
            f"{url}: cannot be read ({error}), so it is not known which files are there; "
            "check the network and try again"
        ) from error
    return list(files)


def _send(
    command: Sequence[str],
    artefacts: Sequence[Artefact],
    log: Log,
    console: Console,
    *,
    dry_run: bool,
) -> None:
    """Shows and runs the upload command with the files of the artefacts."""
    files = [str(log.settings.dist / artefact.path) for artefact in artefacts]
    short = " ".join(Path(word).name if Path(word).is_absolute() else word for word in command)
    names = " ".join(Path(file).name for file in files)
    console.print(f"$ {short} {names}", markup=False, soft_wrap=True)
    if not dry_run:
        log.run([*command, *files], remedy=f"read {log.path}; then run the same again")


def _refusals(
    name: str,
    manifest: Manifest,
    artefacts: Sequence[Artefact],
    settings: Settings,
    *,
    allow_partial: bool,
) -> Iterator[str]:
    """The reasons why no target, or why this target, may get these artefacts."""
    yield from _refusals_of_sources(manifest)
    yield from find_placeholders(settings.repo, is_public=name != "folder" and not _other_index())
    if manifest.shard:
        yield f"this is shard {manifest.shard}; join all shards with `merge` first"
    if manifest.failed:
        yield f"{', '.join(manifest.failed)} failed; repair and build again"
    yield from _refusals_of_files(artefacts, settings)
    if not artefacts:
        yield "there is nothing to upload; build first"
    if name == "anaconda":
        yield from _refusals_of_anaconda(manifest)
    elif name != "folder":
        yield from _refusals_of_pypi(manifest, artefacts, settings, allow_partial=allow_partial)


def _refusals_of_tools(manifest: Manifest, settings: Settings) -> Iterator[str]:
    """Tools that were not made: they go out with the binaries of the first platform."""
    tools = settings.matrix.tools if settings.platform == FIRST else []
    names = [tool.name for tool in tools if tool.name not in manifest.tools]
    if names:
        yield f"{', '.join(names)} were not made; run scripts/build_all.sh {' '.join(names)}"


def _refusals_of_files(artefacts: Sequence[Artefact], settings: Settings) -> Iterator[str]:
    for problem in wrong_files(artefacts, settings.dist):
        yield f"{problem}; build again"


def _refusals_of_sources(manifest: Manifest) -> Iterator[str]:
    if manifest.changed:
        yield f"{manifest.changed}; build again, and leave the checkout alone meanwhile"
    elif manifest.commit == "unknown":
        yield "it is not known from which commit this was built; build in a git checkout"
    elif not manifest.clean:
        yield (
            f"built from {manifest.commit[:12]} with changes that are not committed; "
            "commit them and build again"
        )


def _refusals_of_anaconda(manifest: Manifest) -> Iterator[str]:
    if manifest.base_channel is None:
        yield BOOTSTRAPPED
    if shutil.which("anaconda") is None:
        yield "there is no `anaconda` on PATH; pip install anaconda-client"


def _refusals_of_pypi(
    manifest: Manifest,
    artefacts: Sequence[Artefact],
    settings: Settings,
    *,
    allow_partial: bool,
) -> Iterator[str]:
    yield from _refusals_of_tools(manifest, settings)
    if manifest.fat is None:
        yield "there is no fat wheel"
    elif allow_partial:
        pass
    elif manifest.partial or manifest.missing.keys() & {*required(settings.matrix)}:
        yield (
            f"the wheel is partial: {manifest.fat.path}{manifest.lacks}; "
            "build what it lacks and join with `merge`"
        )
    for artefact in artefacts:
        if "+" in artefact.path and not allow_partial:
            yield f"{artefact.path}: PyPI takes no local version (what follows the +)"
        if artefact.kind == "fat" and "manylinux" not in artefact.path:
            yield f"{artefact.path}: PyPI takes no wheel with a plain linux tag"
    if not wrong_files(artefacts, settings.dist):
        for problem in result_problems(manifest, settings, kinds={"fat"}):
            yield f"{problem}; build again"


def _command(name: str, owner: str) -> list[str]:
    """The upload command without the names of the files."""
    if name == "anaconda":
        # Without --skip-existing: a file that is there is an error, not passed over.
        return ["anaconda", "upload", "--user", owner]
    command = [*TWINE, "upload", "--non-interactive", "--disable-progress-bar"]
    # Named also for PyPI: TWINE_REPOSITORY could name an index that was not asked for its files.
    command += ["--repository", name]
    return command if _other_index() else [*command, "--skip-existing"]


def _other_index() -> bool:
    """Whether a variable names another index, for which twine refuses --skip-existing."""
    return bool(os.environ.get("TWINE_REPOSITORY_URL"))


def _copy(artefacts: Sequence[Artefact], folder: Path, log: Log) -> None:
    dist = log.settings.dist
    for artefact in artefacts:
        if artefact.path.endswith(".conda"):
            index_package(log, dist / artefact.path, folder / "channel")
        else:
            publish(dist / artefact.path, folder / artefact.path)
    write_index(folder / "simple", read_taken_back(folder).yanked)

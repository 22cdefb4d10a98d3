"""Publishes dist/: to PyPI, to Anaconda, or into a folder for a web server."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from release import DIST, ReleaseError
from release.conda_steps import index_package
from release.manifest import Artefact, Kind, Manifest, parse, wrong_files
from release.pack_steps import write_index
from release.paths import LOGS, publish
from release.shell import Log

TARGETS = "pypi, testpypi, anaconda, anaconda:OWNER, or a folder (./public)"


@dataclass(frozen=True)
class Upload:
    """A planned upload, by commands or by `copy`; `checks` are commands that must pass first.

    `left_out` names the artefacts that the target does not get, and why.
    """

    files: list[Path]
    refusals: list[str]
    checks: list[list[str]] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    copy: Callable[[Log], None] | None = None


def upload(target: str, console: Console, *, dry_run: bool) -> int:
    manifest = parse(DIST / "manifest.json")
    planned = plan(target, manifest, DIST)
    for text in planned.left_out:
        console.print(f"left out: {text}", markup=False, soft_wrap=True)
    if planned.refusals:
        raise ReleaseError(f"{target}: refused\n- " + "\n- ".join(planned.refusals))
    with Log(LOGS / "upload.log") as log:
        for command in planned.checks:
            log.run(command, remedy=f"read {log.path}")
        for path in planned.files:
            word = "would upload" if dry_run else "uploading"
            console.print(f"{word} {path.relative_to(DIST)}", markup=False, soft_wrap=True)
        for command in planned.commands:
            text = " ".join(Path(w).name if Path(w).is_absolute() else w for w in command)
            console.print(f"$ {text}", markup=False, soft_wrap=True)
            if not dry_run:
                log.run(command, remedy=f"read {log.path}; then start it again")
        if planned.copy and not dry_run:
            planned.copy(log)
    console.print("nothing was uploaded (--dry-run)" if dry_run else f"uploaded to {target}")
    return 0


def plan(target: str, manifest: Manifest, dist: Path) -> Upload:
    name, _, owner = target.partition(":")
    if name in ("pypi", "testpypi"):
        return _to_pypi(name, manifest, dist)
    if name == "anaconda":
        return _to_anaconda(owner, manifest, dist)
    if "/" in target or target.startswith("."):
        return _to_folder(Path(target), manifest, dist)
    raise ReleaseError(f"--upload: got {target!r}, needs one of {TARGETS}")


def _common(manifest: Manifest, dist: Path, artefacts: Sequence[Artefact]) -> list[str]:
    found = []
    if manifest.changed:
        found.append(f"{manifest.changed}; build again, and leave the checkout alone meanwhile")
    elif manifest.commit == "unknown":
        found.append("it is not known from which commit this was built; build in a git checkout")
    elif not manifest.clean:
        text = f"built from {manifest.commit[:12]} with changes that are not committed; commit them"
        found.append(f"{text} and build again")
    if manifest.shard:
        found.append(f"this is shard {manifest.shard}; join all of them with --merge first")
    if failed := [name for name, cell in manifest.cells.items() if cell.state == "failed"]:
        found.append(f"{', '.join(failed)} failed; repair and build again")
    found += [f"{text}; build again" for text in wrong_files(artefacts, dist)]
    return found if artefacts else [*found, "there is nothing to upload; build first"]


def _of(manifest: Manifest, *kinds: Kind) -> list[Artefact]:
    return [artefact for artefact in manifest.artefacts if artefact.kind in kinds]


def _to_pypi(repository: str, manifest: Manifest, dist: Path) -> Upload:
    artefacts = _of(manifest, "fat", "sdist")
    refusals = _common(manifest, dist, artefacts)
    if manifest.fat is None:
        refusals.append("there is no fat wheel")
    elif manifest.partial:
        text = f"the wheel is partial: {manifest.fat.path}{manifest.lacks}"
        refusals.append(f"{text}; build what it lacks and join with --merge")
    for artefact in artefacts:
        if "+" in artefact.path:
            refusals.append(f"{artefact.path}: PyPI takes no local version (what follows the +)")
        if artefact.kind == "fat" and "manylinux" not in artefact.path:
            refusals.append(f"{artefact.path}: PyPI takes no wheel without a manylinux tag")
    files = [dist / artefact.path for artefact in artefacts]
    twine = [sys.executable, "-m", "twine"]
    words = ["upload", "--non-interactive", "--disable-progress-bar"]
    # For indexes other than PyPI's, twine cannot find out which files exist.
    words += [] if "TWINE_REPOSITORY_URL" in os.environ else ["--skip-existing"]
    words += ["--repository", repository] if repository != "pypi" else []
    names = [str(path) for path in files]
    check, command = [*twine, "check", "--strict", *names], [*twine, *words, *names]
    return Upload(files, refusals, checks=[check], commands=[command])


BOOTSTRAPPED = (
    "conda packages: they were built with a bootstrap channel, which is for tests only; build with "
    "--channel conda-forge"
)


def _to_anaconda(owner: str, manifest: Manifest, dist: Path) -> Upload:
    artefacts = _of(manifest, "conda")
    refusals = _common(manifest, dist, artefacts)
    if manifest.base_channel is None:
        refusals.append(BOOTSTRAPPED)
    program = shutil.which("anaconda")
    if program is None:
        refusals.append("there is no `anaconda` on PATH; pip install anaconda-client")
    files = [dist / artefact.path for artefact in artefacts]
    words = ["--user", owner] if owner else []
    command = [program or "anaconda", "upload", "--skip-existing", *words, *map(str, files)]
    return Upload(files, refusals, commands=[command])


def _to_folder(folder: Path, manifest: Manifest, dist: Path) -> Upload:
    artefacts, left_out = _of(manifest, "thin"), []
    if manifest.base_channel is not None:
        artefacts += _of(manifest, "conda")
    elif _of(manifest, "conda"):
        left_out.append(BOOTSTRAPPED)

    def copy(log: Log) -> None:
        for artefact in artefacts:
            if artefact.kind == "thin":
                publish(dist / artefact.path, folder / artefact.path)
            else:
                index_package(log, dist / artefact.path, folder / "channel")
        write_index(folder / "simple")

    files = [dist / artefact.path for artefact in artefacts]
    return Upload(files, _common(manifest, dist, artefacts), left_out=left_out, copy=copy)

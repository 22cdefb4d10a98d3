"""Publishes the files of dist/ to PyPI, to Anaconda, or into a folder for a web server."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from . import DIST, ReleaseError
from .conda_steps import index_package
from .manifest import Artefact, Kind, Manifest, parse, wrong_files
from .pack_steps import write_index
from .paths import LOGS, publish
from .shell import Log

TARGETS = "pypi, testpypi, anaconda, anaconda:OWNER, or a folder (./public)"
# The kinds of artefacts for each target.
KINDS: dict[str, tuple[Kind, ...]] = dict.fromkeys(("pypi", "testpypi"), ("fat", "sdist"))
KINDS |= {"anaconda": ("conda",), "folder": ("thin", "conda")}
TWINE = (sys.executable, "-m", "twine")
BOOTSTRAPPED = (
    "conda packages: they were built with a bootstrap channel, which is for tests only; build with "
    "--channel conda-forge"
)


def upload(target: str, console: Console, *, dry_run: bool) -> int:
    name, _, owner = target.partition(":")
    if "/" in target or target.startswith("."):
        name = "folder"
    if name not in KINDS:
        raise ReleaseError(f"--upload: got {target!r}, needs one of {TARGETS}")
    manifest = parse(DIST / "manifest.json")
    artefacts = [artefact for artefact in manifest.artefacts if artefact.kind in KINDS[name]]
    if name == "folder" and manifest.base_channel is None:
        if any(artefact.kind == "conda" for artefact in artefacts):
            console.print(f"left out: {BOOTSTRAPPED}", markup=False, soft_wrap=True)
        artefacts = [artefact for artefact in artefacts if artefact.kind != "conda"]
    if refusals := [*_refusals(name, manifest, artefacts)]:
        raise ReleaseError(f"{target}: refused\n- " + "\n- ".join(refusals))
    files = [str(DIST / artefact.path) for artefact in artefacts]
    with Log(LOGS / "upload.log") as log:
        if name in ("pypi", "testpypi"):
            log.run([*TWINE, "check", "--strict", *files], remedy=f"read {log.path}")
        for artefact in artefacts:
            word = "would upload" if dry_run else "uploading"
            console.print(f"{word} {artefact.path}", markup=False, soft_wrap=True)
        if name != "folder":
            command = [*_command(name, owner), *files]
            text = " ".join(Path(w).name if Path(w).is_absolute() else w for w in command)
            console.print(f"$ {text}", markup=False, soft_wrap=True)
            if not dry_run:
                log.run(command, remedy=f"read {log.path}; then run the same again")
        elif not dry_run:
            _copy(artefacts, Path(target), log)
    console.print("nothing was uploaded (--dry-run)" if dry_run else f"uploaded to {target}")
    return 0


def _refusals(name: str, manifest: Manifest, artefacts: list[Artefact]) -> Iterator[str]:
    """The reasons why no target, or why this target, may get these artefacts."""
    if manifest.changed:
        yield f"{manifest.changed}; build again, and leave the checkout alone meanwhile"
    elif manifest.commit == "unknown":
        yield "it is not known from which commit this was built; build in a git checkout"
    elif not manifest.clean:
        text = f"built from {manifest.commit[:12]} with changes that are not committed; commit them"
        yield f"{text} and build again"
    if manifest.shard:
        yield f"this is shard {manifest.shard}; join all shards with --merge first"
    if failed := [name for name, cell in manifest.cells.items() if cell.state == "failed"]:
        yield f"{', '.join(failed)} failed; repair and build again"
    yield from (f"{text}; build again" for text in wrong_files(artefacts, DIST))
    if not artefacts:
        yield "there is nothing to upload; build first"
    if name == "anaconda":
        if manifest.base_channel is None:
            yield BOOTSTRAPPED
        if shutil.which("anaconda") is None:
            yield "there is no `anaconda` on PATH; pip install anaconda-client"
    elif name != "folder":
        if manifest.fat is None:
            yield "there is no fat wheel"
        elif manifest.partial:
            text = f"the wheel is partial: {manifest.fat.path}{manifest.lacks}"
            yield f"{text}; build what it lacks and join with --merge"
        for artefact in artefacts:
            if "+" in artefact.path:
                yield f"{artefact.path}: PyPI takes no local version (what follows the +)"
            if artefact.kind == "fat" and "manylinux" not in artefact.path:
                yield f"{artefact.path}: PyPI takes no wheel with a plain linux tag"


def _command(name: str, owner: str) -> list[str]:
    """The upload command without the names of the files."""
    if name == "anaconda":
        return ["anaconda", "upload", "--skip-existing", *(["--user", owner] if owner else [])]
    words = ["upload", "--non-interactive", "--disable-progress-bar"]
    # The variable may name another index, for which twine refuses --skip-existing.
    words += [] if "TWINE_REPOSITORY_URL" in os.environ else ["--skip-existing"]
    return [*TWINE, *words, *(["--repository", name] if name != "pypi" else [])]


def _copy(artefacts: list[Artefact], folder: Path, log: Log) -> None:
    for artefact in artefacts:
        if artefact.kind == "thin":
            publish(DIST / artefact.path, folder / artefact.path)
        else:
            index_package(log, DIST / artefact.path, folder / "channel")
    write_index(folder / "simple")

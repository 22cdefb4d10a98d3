"""The stand-ins of other people's programs, each with the command lines that it takes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from .forge import DIGEST, REPOSITORY, RUN, SIGNER, TOKEN, Release
from .machine import Answer, Call, Refused, run_real
from .stand_ins import Places, World, stand_in

REQUIREMENTS = "torchship/release/requirements"
OF_THE_BOT = "github-actions@users.noreply.github.com"


# Programs that are real, but called in known ways alone.


@stand_in(
    "git init --quiet --initial-branch=gh-pages <folder>",
    "git reset --quiet --hard FETCH_HEAD",
    "git fetch --quiet --depth=1 origin gh-pages",
    "git add --all",
    f"git -c user.name=github-actions -c user.email={OF_THE_BOT} "
    "commit --quiet --allow-empty --message <message>",
)
def use_git(call: Call, places: Places, world: World) -> Answer:
    """The real git, with a repository in a folder here as GitHub's."""
    return run_real(call, "git", call.arguments)


@stand_in("git config --global --add safe.directory <folder>")
def trust_the_checkout(call: Call, places: Places, world: World) -> Answer:
    """The real git; the folder must be the checkout."""
    if Path(places["folder"]) != call.machine.workspace:
        raise Refused(f"{call}: the checkout is in {call.machine.workspace}")
    return run_real(call, "git", call.arguments)


@stand_in("git remote add origin <url>")
def add_origin(call: Call, places: Places, world: World) -> Answer:
    """The real git; the address must be this repository's."""
    if places["url"] != f"{world.forge.server.as_uri()}/{REPOSITORY}":
        raise Refused(f"{call}: there is no such repository")
    return run_real(call, "git", call.arguments)


@stand_in("git push origin gh-pages")
def push_pages(call: Call, places: Places, world: World) -> Answer:
    """The real git; the job needs the right to push, and a login."""
    call.needs_permission("contents", "write")
    if not call.machine.has_git_login:
        raise Refused(f"{call}: git has no login; run gh auth setup-git before")
    return run_real(call, "git", call.arguments)


@stand_in(
    "sha256sum --check --strict --ignore-missing SHA256SUMS",
    "sha256sum -- <files...>",
    "sha256sum <files...>",
)
def hash_files(call: Call, places: Places, world: World) -> Answer:
    """The real sha256sum."""
    return run_real(call, "sha256sum", call.arguments)


# The registry of images.


@stand_in("docker buildx imagetools inspect <image> --format {{.Manifest.Digest}}")
def resolve_image(call: Call, places: Places, world: World) -> Answer:
    """The digest of the image that cibuildwheel takes, too."""
    if places["image"] != world.forge.image:
        raise Refused(f"{call}: the image of a release is {world.forge.image}")
    return Answer(output=f"{DIGEST}\n")


# GitHub.


def _log_in(call: Call) -> None:
    call.needs_variable("GH_TOKEN", TOKEN)


def _log_in_for_repository(call: Call) -> None:
    _log_in(call)
    call.needs_variable("GH_REPO", REPOSITORY)


@stand_in("gh auth setup-git")
def log_git_in(call: Call, places: Places, world: World) -> None:
    """Remembers that git has a login."""
    _log_in(call)
    call.machine.has_git_login = True


@stand_in("gh run download <run> --name release --name signature --dir <folder>")
def download_artefacts(call: Call, places: Places, world: World) -> None:
    """The artefacts of this run, each in a folder of its name."""
    _log_in_for_repository(call)
    call.needs_permission("actions", "read")
    if places["run"] != RUN:
        raise Refused(f"{call}: this run is {RUN}")
    for name in ("release", "signature"):
        if name not in world.forge.artefacts:
            raise Refused(f"{call}: the run has no artefact {name}")
        shutil.copytree(world.forge.artefacts[name], call.folder / places["folder"] / name)


@stand_in(
    "gh release create <tag> --draft --verify-tag --title <title> --notes-file <notes> <files...>"
)
def create_release(call: Call, places: Places, world: World) -> None:
    """A draft with these files; there must be such a tag, and no such release."""
    _log_in_for_repository(call)
    call.needs_permission("contents", "write")
    tag = places["tag"]
    if tag != world.occasion.tag:
        raise Refused(f"{call}: there is no tag {tag!r}")
    if tag in world.forge.releases:
        raise Refused(f"{call}: the release {tag} is there already")
    kept = world.forge.folder / "assets" / tag
    kept.mkdir(parents=True)
    assets: dict[str, Path] = {}
    for name in places.several:
        path = call.folder / name
        if not path.is_file() or path.name in assets:
            raise Refused(f"{call}: {name} is no file, or there are two of this name")
        assets[path.name] = Path(shutil.copy(path, kept))
    world.forge.releases[tag] = Release(
        tag=tag,
        title=places["title"],
        notes=(call.folder / places["notes"]).read_text(encoding="utf-8"),
        is_draft=True,
        assets=assets,
    )


@stand_in("gh release download <tag> --dir <folder>")
def download_release(call: Call, places: Places, world: World) -> None:
    """All files of a release."""
    _log_in_for_repository(call)
    release = world.forge.releases.get(places["tag"])
    if release is None or release.tag != world.occasion.tag:
        raise Refused(f"{call}: the release that was published is {world.occasion.tag}")
    folder = call.folder / places["folder"]
    folder.mkdir(exist_ok=True)
    for name, path in release.assets.items():
        shutil.copy(path, folder / name)


@stand_in(
    "gh attestation verify <file> --repo <repository> --source-ref <ref> "
    "--signer-workflow <workflow>"
)
def verify_attestation(call: Call, places: Places, world: World) -> Answer:
    """Whether the release workflow of this repository signed the file's bytes for the tag."""
    _log_in(call)
    requested = (places["repository"], places["ref"], places["workflow"])
    if requested != (REPOSITORY, world.occasion.ref, SIGNER):
        raise Refused(f"{call}: what counts is {REPOSITORY}, {world.occasion.ref}, {SIGNER}")
    statements = world.forge.statements_on(call.folder / places["file"])
    is_signed = any((s.signer, s.ref) == (SIGNER, places["ref"]) for s in statements)
    if is_signed:
        return Answer()
    return Answer(code=1, output=f"no attestation of {places['file']} was found\n")


# Python, its environments, and what is installed into them.


def _make_environment(call: Call, folder: str, programs: tuple[str, ...]) -> None:
    for name in programs:
        call.machine.provide(f"{folder}/bin/{name}")
    call.machine.environments[folder] = set()


@stand_in("python -m venv <folder>")
def make_environment(call: Call, places: Places, world: World) -> None:
    """An environment with a stand-in of its python."""
    _make_environment(call, places["folder"], ("python",))
    call.machine.environments[places["folder"]].add("pip")


@stand_in("python -m venv --without-pip <folder>")
def make_bare_environment(call: Call, places: Places, world: World) -> None:
    """An environment without pip."""
    _make_environment(call, places["folder"], ("python",))


def _check_locked(call: Call, name: str) -> Path:
    """The path of requirements, each of which is pinned by hashes."""
    path = call.folder / name
    if not path.is_file():
        raise Refused(f"{call}: there is no {name}")
    pins = re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==", path.read_text(), re.MULTILINE)
    if not pins or path.read_text().count("--hash=sha256:") < len(pins):
        raise Refused(f"{call}: {name} does not pin everything by hashes")
    return path


@stand_in("python -m pip install --quiet --require-hashes -r <requirements>")
def install_for_machine(call: Call, places: Places, world: World) -> None:
    """Remembers that the machine's python has these requirements."""
    path = _check_locked(call, places["requirements"])
    call.machine.environments.setdefault("python", set()).add(path.stem)


@stand_in(
    "python -m pip install --quiet --dry-run --no-deps --report <report> torch",
)
def look_up_torch(call: Call, places: Places, world: World) -> None:
    """The newest torch, as pip reports it."""
    install = [{"metadata": {"name": "torch", "version": world.forge.newest_torch}}]
    (call.folder / places["report"]).write_text(json.dumps({"install": install}))


@stand_in(
    "python -m pip install --quiet --dry-run --no-deps --pre --index-url <index> "
    "--report <report> torch",
)
def look_up_nightly(call: Call, places: Places, world: World) -> None:
    """The newest nightly of torch, which is in an index of its own."""
    if places["index"] != world.forge.nightly_index:
        raise Refused(f"{call}: nightlies are in {world.forge.nightly_index}")
    install = [{"metadata": {"name": "torch", "version": world.forge.nightly_torch}}]
    (call.folder / places["report"]).write_text(json.dumps({"install": install}))


@stand_in("build/sbom/bin/python -m pip install --quiet --require-hashes -r <requirements>")
def install_cyclonedx(call: Call, places: Places, world: World) -> None:
    """The program cyclonedx-py, if its requirements are named."""
    path = _check_locked(call, places["requirements"])
    if path.relative_to(call.folder).as_posix() != f"{REQUIREMENTS}/sbom.txt":
        raise Refused(f"{call}: cyclonedx-py is in {REQUIREMENTS}/sbom.txt")
    call.machine.provide("build/sbom/bin/cyclonedx-py")


@stand_in("build/tools/bin/uv pip install --quiet --no-deps --python <python> <wheels...>")
def install_wheels(call: Call, places: Places, world: World) -> None:
    """Remembers the wheels that an environment has."""
    environment = Path(places["python"]).parents[1].as_posix()
    if environment not in call.machine.environments:
        raise Refused(f"{call}: there is no environment {environment}")
    for name in places.several:
        path = call.folder / name
        if path.suffix != ".whl" or not path.is_file():
            raise Refused(f"{call}: {name} is no wheel")
        call.machine.environments[environment].add(path.name.partition("-")[0])
        call.machine.wheels.setdefault(environment, []).append(path)


@stand_in(
    "build/sbom/bin/cyclonedx-py environment --output-reproducible --output-file <file> <python>"
)
def list_components(call: Call, places: Places, world: World) -> None:
    """The names of what was installed; in a whole release, the real cyclonedx-py lists them."""
    environment = Path(places["python"]).parents[1].as_posix()
    if environment not in call.machine.environments:
        raise Refused(f"{call}: there is no environment {environment}")
    if world.cyclonedx is not None:
        _list_really(call, world.cyclonedx, environment, call.folder / places["file"])
        return
    components = [{"name": name} for name in sorted(call.machine.environments[environment])]
    document = {"bomFormat": "CycloneDX", "components": components}
    (call.folder / places["file"]).write_text(json.dumps(document))


def _list_really(call: Call, cyclonedx: Path, environment: str, file: Path) -> None:
    """Lists an environment with the wheels of the stand-in, or this one for the tool's own."""
    options = ["environment", "--output-reproducible", "--output-file", str(file)]
    with TemporaryDirectory() as folder:
        python = sys.executable
        if wheels := call.machine.wheels.get(environment):
            venv.create(folder, symlinks=True)
            python = f"{folder}/bin/python"
            uv = str(Path(sys.executable).with_name("uv"))
            install = [uv, "pip", "install", "--quiet", "--no-deps", "--python", python]
            _run_checked([*install, *map(str, wheels)], call)
        _run_checked([str(cyclonedx), *options, python], call)


def _run_checked(command: list[str], call: Call) -> None:
    """Runs a real program for a call. Raises Refused with what it says if it fails."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise Refused(f"{call}: {result.stdout}{result.stderr}")

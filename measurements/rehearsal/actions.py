"""The stand-ins of actions: checkout, setup-python, upload, download, attest, publish.

Each takes the inputs that are declared here and no others, since GitHub passes over an input that
an action does not have.
"""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .forge import SIGNER, Statement, digest_of
from .machine import Machine, Refused
from .stand_ins import World, registered

Inputs = Mapping[str, str]
Outputs = dict[str, str]


@dataclass(frozen=True)
class ActionStandIn:
    """What stands for an action: the inputs that it takes, and what it does."""

    name: str
    inputs: frozenset[str]
    perform: Callable[[Machine, Inputs, World], Outputs | None]

    @property
    def purpose(self) -> str:
        return (self.perform.__doc__ or "").partition("\n")[0]


def _check_out(machine: Machine, inputs: Inputs, world: World) -> None:
    """The files of this checkout, by links, with stand-ins of its scripts; no token stays."""
    if inputs.get("persist-credentials") != "false":
        raise Refused("checkout: needs persist-credentials: false, or later steps have the token")
    _needs(machine, "checkout", "contents", "read")
    if world.real_cell:
        clone = ["git", "clone", "--quiet", str(world.repo), str(machine.workspace)]
        subprocess.run(clone, check=True)
        return
    for path in world.repo.iterdir():
        if path.name not in (".ci", ".git", "build", "dist", "scripts"):
            (machine.workspace / path.name).symlink_to(path)
    for program in {entry.program for entry in registered()}:
        if program.startswith(("scripts/", ".ci/")):
            machine.provide(program)


def _set_up_python(machine: Machine, inputs: Inputs, world: World) -> None:
    """A `python` on PATH, which is a stand-in."""
    if inputs.get("python-version") != world.forge.python:
        raise Refused(f"setup-python: the version that builds is {world.forge.python}")
    machine.python = inputs["python-version"]
    machine.provide("python")


def _upload(machine: Machine, inputs: Inputs, world: World) -> None:
    """Keeps files for later jobs; of several paths, without the folder that they share."""
    name = inputs["name"]
    if name in world.forge.artefacts:
        raise Refused(f"upload-artifact: there is an artefact {name} already")
    paths = [machine.workspace / line for line in inputs["path"].split("\n") if line.strip()]
    files = {
        file
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file() and not any(part.startswith(".") for part in file.parts[-1:])
    }
    on_none = inputs.get("if-no-files-found", "warn")
    if on_none not in ("warn", "error", "ignore"):
        raise Refused(f"upload-artifact: if-no-files-found is {on_none!r}")
    if not files and on_none == "error":
        raise Refused(f"upload-artifact: {name}: there are no files at {inputs['path']!r}")
    top = paths[0] if len(paths) == 1 else machine.workspace
    target = world.forge.folder / "artefacts" / name
    for file in sorted(files):
        place = target / (file.relative_to(top) if top != file else file.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)
    if files:
        world.forge.artefacts[name] = target
        world.forge.kept_days[name] = int(inputs.get("retention-days", "90"))


def _download(machine: Machine, inputs: Inputs, world: World) -> None:
    """Brings an artefact into a folder; by a pattern, each into a folder of its name."""
    target = machine.workspace / inputs["path"]
    artefacts = world.forge.artefacts
    if ("name" in inputs) == ("pattern" in inputs):
        raise Refused("download-artifact: needs one of name and pattern")
    if "name" in inputs:
        if inputs["name"] not in artefacts:
            raise Refused(f"download-artifact: there is no artefact {inputs['name']}")
        shutil.copytree(artefacts[inputs["name"]], target, dirs_exist_ok=True)
        return
    names = fnmatch.filter(artefacts, inputs["pattern"])
    if not names:
        raise Refused(f"download-artifact: no artefact is called {inputs['pattern']}")
    for name in names:
        shutil.copytree(artefacts[name], target / name)


def _attest(machine: Machine, inputs: Inputs, world: World) -> Outputs:
    """Signs for a file, or for the files of a list of hashes; `bundle-path` is the signature."""
    _needs(machine, "attest", "id-token", "write")
    _needs(machine, "attest", "attestations", "write")
    if len(inputs) != 1:
        raise Refused("attest-build-provenance: needs one of subject-path and subject-checksums")
    ((kind, value),) = inputs.items()
    path = machine.workspace / value
    if not path.is_file():
        raise Refused(f"attest-build-provenance: there is no {value}")
    if kind == "subject-path":
        subjects = {(path.name, digest_of(path))}
    else:
        lines = [line.split(maxsplit=1) for line in path.read_text().splitlines()]
        subjects = {(name, sha256) for sha256, name in lines}
        if any(len(sha256) != 64 for _, sha256 in subjects):
            raise Refused(f"attest-build-provenance: {value} is no list of hashes")
    statement = Statement(signer=SIGNER, ref=world.occasion.ref, subjects=frozenset(subjects))
    world.forge.attestations.append(statement)
    bundle = machine.temporary / f"attestation-{len(world.forge.attestations)}.json"
    bundle.write_text(statement.to_json())
    return {"bundle-path": str(bundle)}


def _publish(machine: Machine, inputs: Inputs, world: World) -> None:
    """Takes files as PyPI does: from the trusted environment, of each name once."""
    _needs(machine, "publish", "id-token", "write")
    if machine.job.environment != "pypi" or world.occasion.event != "release":
        raise Refused("gh-action-pypi-publish: PyPI trusts the environment pypi of publish.yml")
    for path in sorted((machine.workspace / "dist").iterdir()):
        if "+" in path.name or not path.name.endswith((".whl", ".tar.gz")):
            raise Refused(f"gh-action-pypi-publish: PyPI does not take {path.name}")
        if path.name in world.forge.index:
            raise Refused(f"gh-action-pypi-publish: {path.name} is there already")
        kept = world.forge.folder / "index" / path.name
        kept.parent.mkdir(exist_ok=True)
        world.forge.index[path.name] = Path(shutil.copy(path, kept))
    if world.forge.index_url:
        upload(world.forge.index.values(), world.forge.index_url)


def upload(files: Iterable[Path], index_url: str) -> None:
    """Uploads files by twine, as the action does. Raises Refused if the index takes one not."""
    twine = [sys.executable, "-m", "twine", "upload", "--non-interactive"]
    account = ["--repository-url", index_url, "--username", "me", "--password", "secret"]
    result = subprocess.run(
        [*twine, *account, *map(str, files)], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise Refused(f"gh-action-pypi-publish: {result.stdout}{result.stderr}")


def _needs(machine: Machine, action: str, scope: str, level: str) -> None:
    if machine.job.permissions.get(scope) not in (level, "write"):
        raise Refused(f"{action}: {machine.job.name} has no permission `{scope}: {level}`")


ACTIONS = {
    action.name: action
    for action in (
        ActionStandIn("actions/checkout", frozenset({"persist-credentials"}), _check_out),
        ActionStandIn("actions/setup-python", frozenset({"python-version"}), _set_up_python),
        ActionStandIn(
            "actions/upload-artifact",
            frozenset({"name", "path", "if-no-files-found", "retention-days"}),
            _upload,
        ),
        ActionStandIn(
            "actions/download-artifact", frozenset({"name", "pattern", "path"}), _download
        ),
        ActionStandIn(
            "actions/attest-build-provenance",
            frozenset({"subject-path", "subject-checksums"}),
            _attest,
        ),
        ActionStandIn("pypa/gh-action-pypi-publish", frozenset(), _publish),
    )
}


def perform(name: str, inputs: Inputs, machine: Machine, world: World) -> Outputs:
    """Does what stands for an action; returns its outputs. Raises Refused."""
    if name not in ACTIONS:
        raise Refused(f"{name}: nothing stands for this action; add it to rehearsal/actions.py")
    action = ACTIONS[name]
    if unknown := inputs.keys() - action.inputs:
        raise Refused(f"{name}: takes no {', '.join(sorted(unknown))}")
    return action.perform(machine, inputs, world) or {}

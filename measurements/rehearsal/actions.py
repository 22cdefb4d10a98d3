"""The stand-ins of actions: checkout, setup-python, upload, download, attest, publish.

Each takes the inputs that are declared here and no others, since GitHub passes over an input that
an action does not have.
"""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .forge import Refused, digest_of, need
from .machine import Machine

Inputs = Mapping[str, str]
Outputs = dict[str, str]


@dataclass(frozen=True)
class ActionStandIn:
    """What stands for an action: the inputs that it takes, and what it does."""

    inputs: frozenset[str]
    perform: Callable[[Machine, Inputs], Outputs | None]


def check_out(machine: Machine, inputs: Inputs) -> None:
    """A clone of the repository's last commit, in which scripts that take long are stand-ins."""
    _need(machine, "contents", "read", "checkout")
    if inputs.get("persist-credentials") != "false":
        raise Refused("checkout: needs persist-credentials: false, or later steps have the token")
    with_modules = ["--recurse-submodules"] if inputs.get("submodules") == "recursive" else []
    clone = ["git", "clone", "--quiet", *with_modules, str(machine.source), str(machine.workspace)]
    subprocess.run(clone, check=True)
    machine.replace_scripts()


def set_up_python(machine: Machine, inputs: Inputs) -> None:
    """A `python` on PATH: this machine's, in an environment of its own."""
    if "python-version" not in inputs:
        raise Refused("setup-python: needs python-version")
    machine.set_up_python()


def upload(machine: Machine, inputs: Inputs) -> None:
    """Keeps files for later jobs; of several paths, without the folder that they share."""
    target = machine.forge.artefacts / inputs["name"]
    if target.exists():
        raise Refused(f"upload-artifact: there is an artefact {target.name} already")
    paths = [machine.workspace / line for line in inputs["path"].split("\n") if line.strip()]
    top = paths[0] if len(paths) == 1 else machine.workspace
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                place = target / (file.relative_to(top) if file != top else file.name)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, place)
    if not target.exists() and inputs.get("if-no-files-found") == "error":
        raise Refused(f"upload-artifact: {target.name}: no files at {inputs['path']!r}")
    if machine.is_arm and target.exists():
        _name_for_arm(target)


def _name_for_arm(folder: Path) -> None:
    """Gives files that this machine made in the place of an Arm one the names of Arm's."""
    names = (("linux-64", "linux-aarch64"), ("x86_64", "aarch64"))
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.name
        for old, new in names:
            name = name.replace(old, new)
        if path.suffix == ".json" and path.is_file():
            text = path.read_text(encoding="utf-8")
            for old, new in names:
                text = text.replace(old, new)
            path.write_text(text, encoding="utf-8")
        path.rename(path.with_name(name))


def download(machine: Machine, inputs: Inputs) -> None:
    """Brings an artefact into a folder; by a pattern, each into a folder of its name."""
    artefacts = machine.forge.artefacts
    target = machine.workspace / inputs["path"]
    if "name" in inputs:
        if not (artefacts / inputs["name"]).is_dir():
            raise Refused(f"download-artifact: there is no artefact {inputs['name']}")
        shutil.copytree(artefacts / inputs["name"], target, dirs_exist_ok=True)
        return
    names = fnmatch.filter([path.name for path in artefacts.iterdir()], inputs["pattern"])
    if not names:
        raise Refused(f"download-artifact: no artefact is called {inputs['pattern']}")
    for name in names:
        shutil.copytree(artefacts / name, target / name)


def attest(machine: Machine, inputs: Inputs) -> Outputs:
    """Signs for a file, or for the files of a list of hashes; `bundle-path` is the signature."""
    _need(machine, "id-token", "write", "attest-build-provenance")
    _need(machine, "attestations", "write", "attest-build-provenance")
    ((kind, value),) = inputs.items()
    path = machine.workspace / value
    if not path.is_file():
        raise Refused(f"attest-build-provenance: there is no {value}")
    hashes = [digest_of(path)]
    if kind == "subject-checksums":
        hashes = [line.split(maxsplit=1)[0] for line in path.read_text().splitlines()]
    for sha256 in hashes:
        machine.forge.sign(sha256)
    bundle = machine.folder / "tmp" / "bundle.json"
    bundle.write_text("{}")
    return {"bundle-path": str(bundle)}


def publish(machine: Machine, inputs: Inputs) -> None:
    """Takes files as PyPI does: from a trusted environment, of each name once."""
    _need(machine, "id-token", "write", "gh-action-pypi-publish")
    if not machine.job.environment:
        raise Refused("gh-action-pypi-publish: PyPI trusts an environment; the job names none")
    for path in sorted((machine.workspace / "dist").iterdir()):
        if "+" in path.name or not path.name.endswith((".whl", ".tar.gz")):
            raise Refused(f"gh-action-pypi-publish: PyPI does not take {path.name}")
        if (machine.forge.index / path.name).exists():
            raise Refused(f"gh-action-pypi-publish: {path.name} is there already")
        shutil.copy(path, machine.forge.index)


def _need(machine: Machine, scope: str, level: str, what: str) -> None:
    need(dict(machine.job.permissions), scope, level, what)


ACTIONS: Mapping[str, ActionStandIn] = {
    "actions/checkout": ActionStandIn(frozenset({"persist-credentials", "submodules"}), check_out),
    "actions/setup-python": ActionStandIn(frozenset({"python-version"}), set_up_python),
    "actions/upload-artifact": ActionStandIn(
        frozenset({"name", "path", "if-no-files-found", "retention-days"}), upload
    ),
    "actions/download-artifact": ActionStandIn(frozenset({"name", "pattern", "path"}), download),
    "actions/attest-build-provenance": ActionStandIn(
        frozenset({"subject-path", "subject-checksums"}), attest
    ),
    "pypa/gh-action-pypi-publish": ActionStandIn(frozenset(), publish),
}


def perform(name: str, inputs: Inputs, machine: Machine) -> Outputs:
    """Does what stands for an action; returns its outputs. Raises Refused."""
    if name not in ACTIONS:
        raise Refused(f"{name}: nothing stands for this action; add it to rehearsal/actions.py")
    action = ACTIONS[name]
    if unknown := inputs.keys() - action.inputs:
        raise Refused(f"{name}: takes no {', '.join(sorted(unknown))}")
    return action.perform(machine, inputs) or {}

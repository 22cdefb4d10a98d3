"""Runs the scripts of the workflows with stubs in the place of programs, and keeps the commands.

bash itself splits, quotes and repeats, and jq filters; what a script would start is recorded. A
command is `Command(program, arguments)`; a program of ours is named by its path in the checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from release_places import REPO
from ruamel.yaml import YAML

#: Programs of others that a workflow or a script of ours starts.
FOREIGN = ("apt-get", "cyclonedx-py", "docker", "flock", "gh", "git", "pip", "python3", "uv")
#: Shell scripts of ours that run other programs of ours.
NESTED = (
    ".ci/run",
    "scripts/cibuildwheel.sh",
    "scripts/docs.sh",
    "scripts/new_torch.sh",
    "scripts/test.sh",
    "scripts/test_env.sh",
)
#: What the stub of a program prints or makes; `$*` are its arguments.
ANSWERS = {
    "scripts/build_all.sh": 'case "$*" in *--json*) cat "$CELLS" ;; *) cat "$LISTING" ;; esac\n',
    "scripts/test_env.sh": 'mkdir -p env && echo "$PWD/env"\n',
    "docker": "echo sha256:0\n",
    "nproc": "echo 8\n",
    # An environment has a python and a uv; `-c` asks for the interpreter's path.
    "python": """\
case "$1 $2" in
  "-m venv") for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$STUBS/uv" "$last/bin" ;;
  -c*) echo python ;;
esac
""",
}
GITHUB = {
    "repository": "owner/op",
    "repository_owner": "owner",
    "ref": "refs/tags/v0.1.0",
    "ref_name": "v0.1.0",
    "ref_type": "tag",
    "run_id": "1",
    "server_url": "https://github.com",
    "sha": "0" * 40,
    "token": "token",
    "workspace": ".",
}
EVENT = {"release": {"tag_name": "v0.1.0"}}


class Command(NamedTuple):
    program: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.program, *self.arguments))


class OutputsOfAction(dict[str, str]):
    """What an action of others put out: for each name some text."""

    def __missing__(self, name: str) -> str:
        return f"an {name}"


class Sandbox:
    """A folder like a checkout, in which every program is a stub that records its call."""

    def __init__(self, folder: Path, cells: Sequence[Mapping[str, object]]) -> None:
        self.folder = folder
        self.stubs = folder / "stubs"
        self.record = folder / "record"
        self.returncode = 0  # of the last run
        for path in (*REPO.glob("scripts/*.sh"), REPO / ".ci" / "run"):
            self.stub(str(path.relative_to(REPO)))
        for name in (*FOREIGN, "nproc", "pytest", "python"):
            self.stub(name)
        for name in ("build/tools/bin/python", "build/tools/bin/uv"):
            self.stub(name)
        for name in ("cyclonedx-py", "python"):
            self.stub(f"build/sbom/bin/{name}")
        for name in ("requirements", "project.env", "build_matrix.yaml", "pyproject.toml"):
            if (REPO / name).exists():
                (folder / name).symlink_to(REPO / name)
        report = {"install": [{"metadata": {"version": "2.15.0"}}]}
        (folder / "report.json").write_text(json.dumps(report))
        (folder / "cells.json").write_text(json.dumps({"cells": cells}))
        (folder / "listing.json").write_text(json.dumps({"include": cells}))
        (folder / "output").touch()

    def stub(self, name: str) -> None:
        path = self.folder / name if "/" in name else self.stubs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        answer = ANSWERS.get(name) or ANSWERS.get(path.name, "")
        path.write_text(
            "#!/bin/sh\n"
            'call=$(printf %s "$0"; [ $# = 0 ] || printf "\\037%s" "$@"; printf "\\036")\n'
            # In one write, as two programs of a script may run side by side.
            'printf %s "$call" >>"$RECORD"\n'
            f"{answer}"
        )
        path.chmod(0o755)

    def run(self, command: Sequence[str | Path], variables: Mapping[str, str]) -> list[Command]:
        """What the command starts; a program that is neither a stub nor on the machine fails."""
        self.record.write_text("")
        environment = {
            "PATH": f"{self.stubs}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "RECORD": str(self.record),
            "STUBS": str(self.stubs),
            "CELLS": str(self.folder / "cells.json"),
            "LISTING": str(self.folder / "listing.json"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            **{f"GITHUB_{name.upper()}": value for name, value in GITHUB.items()},
            **variables,
        }
        result = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True
        )
        assert "command not found" not in result.stderr, f"{command}:\n{result.stderr}"
        self.returncode = result.returncode
        return [self._command(call) for call in self.record.read_text().split("\036")[:-1]]

    def _command(self, call: str) -> Command:
        path, *arguments = call.split("\037")
        program = path.removeprefix(f"{self.folder}/").removeprefix("./")
        if program.startswith(("stubs/", "build/", "env/")):
            program = Path(program).name
        return Command(program, tuple(word.replace(f"{self.folder}/", "") for word in arguments))

    def nested(self, command: Command) -> list[Command]:
        """What a shell script of ours starts, called so; fails if it refuses its arguments."""
        script = self.folder / command.program
        shutil.copy2(REPO / command.program, script)
        try:
            commands = self.run([script, *command.arguments], {"PYTHON": "python"})
            assert self.returncode != 2, f"{command} is refused"
            return commands
        finally:
            self.stub(command.program)

    def outputs(self) -> dict[str, str]:
        """The outputs that steps have written since the last call."""
        path = self.folder / "output"
        pairs = [line.split("=", 1) for line in path.read_text().splitlines()]
        path.write_text("")
        return dict(pairs)


class Parsed(BaseException):
    """Ends a program when it has parsed its command line."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options


@contextlib.contextmanager
def the_same_signals() -> Iterator[None]:
    """Gives the handlers back that a program sets for its own process."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def parse(module: str, arguments: Sequence[str]) -> argparse.Namespace:
    """What a Python program of ours understands; fails the test if it refuses the arguments."""

    def stop_after(method: str) -> Callable[..., None]:
        parse_known = getattr(argparse.ArgumentParser, method)

        def stop(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> None:
            options, unknown = parse_known(parser, arguments)
            if unknown:
                parser.error(f"unrecognized arguments: {' '.join(unknown)}")
            raise Parsed(options)

        return stop

    intermixed = stop_after("parse_known_intermixed_args")
    with pytest.MonkeyPatch.context() as patch, the_same_signals():
        patch.setattr(argparse.ArgumentParser, "parse_intermixed_args", intermixed)
        patch.setattr(argparse.ArgumentParser, "parse_args", stop_after("parse_known_args"))
        patch.setattr(sys, "argv", [module, *arguments])
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except Parsed as parsed:
            return parsed.options
        except SystemExit as error:
            pytest.fail(f"python -m {module} {' '.join(arguments)}: exit code {error.code}")
    pytest.fail(f"python -m {module} ran, but has parsed no command line")


def read(path: Path) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def commands_of(path: Path, sandbox: Sandbox) -> Iterator[Command]:
    """What the scripts of a workflow start, for every entry of each job's matrix."""
    needs: dict[str, Any] = {}
    for name, job in read(path)["jobs"].items():
        for entry in entries(job.get("strategy", {}).get("matrix", {}), needs):
            context = {"github": {**GITHUB, "event": EVENT}, "matrix": entry, "needs": needs}
            context["steps"] = {}
            outer = variables(job, context)
            for step in job["steps"]:
                if "run" not in step:
                    context["steps"][step.get("id", "")] = {"outputs": OutputsOfAction()}
                    continue
                environment = {**outer, **variables(step, context)}
                yield from sandbox.run(["bash", "-c", step["run"]], environment)
                context["steps"][step.get("id", "")] = {"outputs": sandbox.outputs()}
            outputs = {key: filled(value, context) for key, value in job.get("outputs", {}).items()}
            needs[name] = {"outputs": outputs}


def variables(holder: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, str]:
    return {key: filled(value, context) for key, value in holder.get("env", {}).items()}


def filled(value: object, context: Mapping[str, Any]) -> str:
    """The text with GitHub's expressions replaced; each must be a name that the context has."""

    def value_of(match: re.Match[str]) -> str:
        node: Any = context
        for key in match[1].split("."):
            node = node[key]
        return str(node)

    return re.sub(r"\$\{\{ *(.*?) *\}\}", value_of, str(value))


def entries(matrix: str | Mapping[str, Any], needs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The combinations of a job's matrix; one without values if the job has no matrix."""
    if isinstance(matrix, str):
        name = re.sub(r"^\$\{\{ *fromJSON\((.*)\) *\}\}$", r"${{ \1 }}", matrix)
        matrix = json.loads(filled(name, {"needs": needs}))
    assert isinstance(matrix, Mapping)
    if "include" in matrix:
        return list(matrix["include"])
    combinations: list[dict[str, Any]] = [{}]
    for key, values in matrix.items():
        combinations = [{**entry, key: value} for entry in combinations for value in values]
    return combinations

"""From the wheel of torchship alone to an op that is built, shipped, installed and run.

    python -m measurements.new_project --out RESULT.json [--template aten] [--torch 2.10.0 2.15.0]

In an empty folder, and with no checkout in reach, this installs torchship's wheel into an
environment without other packages and runs what an author would: `torchship new`, the two commands
of the new project, its wheel beside other torches, and pip from its git repository, in isolation
with a pin and without isolation. The conda package is installed and run by the first command. The
result holds the seconds and the outcome of each step, and how many files and lines the project has.
With `--count`, only these are counted again, in a result that is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from torchship.project.archive import make_archive
from torchship.project.new import new_project
from torchship.project.render import names_of

from . import storage

NAME = "my-op"
PACKAGE = "my_op"
IDENTITY = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")


@dataclasses.dataclass
class Step:
    name: str
    seconds: float
    passed: bool
    error: str  #: the end of what a failed step printed


@dataclasses.dataclass
class Trial:
    """The steps in one folder, with a log of each; a step after a failed one runs all the same."""

    folder: Path
    variables: Mapping[str, str]
    name: str = NAME  #: of the project
    steps: list[Step] = dataclasses.field(default_factory=list)

    @property
    def repo(self) -> Path:
        return self.folder / self.name

    def run(self, name: str, *commands: Sequence[object], cwd: Path | None = None) -> None:
        """Runs commands until one fails."""
        began = time.monotonic()
        output = ""
        passed = True
        for command in commands:
            process = subprocess.run(
                [str(word) for word in command],
                cwd=cwd or self.folder,
                env=self.variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            output += process.stdout
            passed = process.returncode == 0
            if not passed:
                break
        seconds = time.monotonic() - began
        (self.folder / f"{name.replace(' ', '-').replace('/', '-')}.log").write_text(output)
        error = "" if passed else output[-2000:]
        self.steps.append(Step(name=name, seconds=seconds, passed=passed, error=error))
        print(f"{'ok    ' if passed else 'FAILED'} {seconds:6.1f} s  {name}", flush=True)


def clean_variables(home: Path) -> dict[str, str]:
    """An environment that leads to no checkout."""
    left_out = ("PYTHON", "RELEASE_", "LLTM_", "VIRTUAL_ENV")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    return {**variables, "FORCE_CUDA": "0", "PIP_CACHE_DIR": str(home / "pip-cache")}


def make_venv(folder: Path) -> list[object]:
    return [sys.executable, "-m", "venv", folder]


def make_project(trial: Trial, wheel: Path, template: str) -> None:
    author = trial.folder / "author"
    pip = [author / "bin" / "pip", "install", "--quiet", "--no-index"]
    trial.run("install torchship", make_venv(author), [*pip, wheel])
    torchship = author / "bin" / "torchship"
    trial.run("torchship new", [torchship, "new", trial.name, "--template", template])
    trial.run("commit", ["git", *IDENTITY, "commit", "-qm", "Start"], cwd=trial.repo)
    trial.run("torchship update", [torchship, "update"], cwd=trial.repo)


def run_both_commands(trial: Trial) -> None:
    """The two commands that the project's README shows."""
    for command in ("scripts/build_all.sh host", "scripts/test.sh"):
        script, *arguments = command.split()
        trial.run(command, [trial.repo / script, *arguments])


def install_elsewhere(trial: Trial, torch: str) -> None:
    """The fat wheel beside another torch, where the sources are not."""
    env = trial.folder / f"torch-{torch}"
    uv = trial.repo / "build" / "tools" / "bin" / "uv"
    python = env / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", python]
    wheels = sorted((trial.repo / "dist").glob(f"{PACKAGE}-*+partial*.whl"))
    trial.run(
        f"its wheel with torch {torch}",
        make_venv(env),
        [*install, f"torch=={torch}"],
        [*install, "--no-deps", *wheels],
        [python, "-m", PACKAGE],
    )


def install_from_git(trial: Trial, torch: str) -> None:
    """By pip, from the repository's last commit."""
    source = f"git+file://{trial.repo}"
    python = trial.repo / "build" / "test-env" / "bin" / "python"
    options = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir", source]
    without = [python, *options, "--no-build-isolation", "-w", trial.folder / "without-isolation"]
    pin = f"torch={torch}"
    isolated = [python, *options, "--config-settings", pin, "-w", trial.folder / "isolated"]
    trial.run("pip from git without isolation", without)
    trial.run("pip from git in isolation with a pin", isolated)


def count(repo: Path) -> dict[str, int]:
    """The files that git has, and the lines of those that are no archive."""
    command = ["git", "-C", str(repo), "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    paths = [repo / name for name in listing.split("\0") if name]
    texts = [path for path in paths if path.suffix != ".whl"]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in texts)
    return {"files": len(paths), "lines": lines}


def store_count(template: str, out: Path) -> None:
    """Counts a new project's files and lines, and replaces those of a stored result."""
    result = storage.load(out)
    assert isinstance(result, dict)
    with tempfile.TemporaryDirectory(prefix="new-project-") as temporary:
        repo = Path(temporary, NAME)
        new_project(repo, template, names_of(NAME))
        result.update(count(repo))
    storage.save(result, out)
    print(f"{result['files']} files and {result['lines']} lines")


def attempt(step: Callable[[], None]) -> None:
    """Runs a step that needs the results of others, which may be missing."""
    try:
        step()
    except OSError as error:
        print(f"FAILED {error}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, required=True, help="where to store the result")
    add("--template", choices=("rms_norm", "aten"), default="rms_norm")
    add("--torch", nargs="*", default=["2.10.0", "2.15.0"], help="where the wheel is installed")
    add("--pin", default="2.13.0", help="the torch of the build in isolation")
    add("--count", action="store_true", help="only count files and lines, in a stored result")
    add("--keep", type=Path, help="a new folder to work in, which stays")
    options = parser.parse_args()
    if options.count:
        store_count(options.template, options.out)
        return 0
    with tempfile.TemporaryDirectory(prefix="new-project-") as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        wheel = make_archive(folder)
        trial = Trial(folder, clean_variables(folder))
        make_project(trial, wheel, options.template)
        run_both_commands(trial)
        for torch in options.torch:
            attempt(partial(install_elsewhere, trial, torch))
        attempt(partial(install_from_git, trial, options.pin))
        result = {
            "template": options.template,
            "processors": os.cpu_count(),
            **count(trial.repo),
            "steps": [dataclasses.asdict(step) for step in trial.steps],
        }
    storage.save(result, options.out)
    return 0 if all(step.passed for step in trial.steps) else 1


if __name__ == "__main__":
    sys.exit(main())

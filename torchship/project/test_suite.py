"""`torchship test`: checks, installs, builds and tests a project."""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .errors import REFUSED, ProjectError
from .facts import default_torch, read_names
from .lint import lint
from .test_env import install_requirements, make_environment
from .test_env import run as run_command

_MOST_PROCESSES = 4
_NO_TESTS = 5  # pytest's exit code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make a test environment, check the sources, install the package, build what fits this "
        "machine, and run the tests. Run it in the folder of the project."
    )
    add = parser.add_argument
    add("--lint", action="store_true", help="check formats, style and types alone")
    add("--fix", action="store_true", help="with --lint: first correct what the linters can")
    add("--quick", action="store_true", help="install and test only")
    add("--torch", metavar="VERSION", help="like --quick with this torch, in its own environment")
    pytest = "after --, for pytest, such as -k guards; without any, up to four processes"
    add("pytest", nargs="*", metavar="PYTEST_ARGUMENT", help=pytest)


def run(options: argparse.Namespace) -> int:
    try:
        return _Run(Path.cwd()).do(
            Request(
                torch=options.torch,
                is_quick=options.quick or options.torch is not None,
                is_lint=options.lint,
                is_fixing=options.fix,
                pytest=tuple(options.pytest),
            )
        )
    except (ProjectError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


class Request(NamedTuple):
    """What is to be tested, and how."""

    torch: str | None  #: None for the matrix's default
    is_quick: bool  #: neither linters nor the build of the cell
    is_lint: bool  #: the linters alone
    is_fixing: bool  #: whether linters correct what they can
    pytest: tuple[str, ...]  #: arguments


class _Run:
    """One run in the project `root`; each step prints its name and when it began."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = read_names(root)
        self.began = time.monotonic()

    def do(self, request: Request) -> int:
        if request.is_fixing and not request.is_lint:
            raise ProjectError("--fix belongs to --lint; add it")
        self._clean_variables()
        self._step("environment")
        torch = request.torch or default_torch(self.root)
        env = make_environment(self.root, torch, is_default=request.torch is None)
        os.environ["PATH"] = f"{env / 'bin'}{os.pathsep}{os.environ['PATH']}"
        if request.is_lint or not request.is_quick:
            self._lint(env, fix=request.is_fixing)
        if request.is_lint:
            return 0
        self._install(env)
        if not request.is_quick:
            self._step("build_all.sh host")
            run_command([str(self.root / "scripts" / "build_all.sh"), "host"])
        return self._pytest(env, request.pytest)

    def _step(self, name: str) -> None:
        print(f"\n== {name} (after {time.monotonic() - self.began:.0f} s)", flush=True)

    def _clean_variables(self) -> None:
        """The tests are of what is installed here, and not of what variables name."""
        own = [f"{self.names.prefix}_{name}" for name in ("LOAD", "PREBUILT", "VARIANT")]
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", *own):
            os.environ.pop(name, None)

    def _lint(self, env: Path, *, fix: bool) -> None:
        self._step("linters")
        if failed := lint(self.root, env, fix=fix):
            raise ProjectError(
                f"{', '.join(failed)} failed; scripts/test.sh --lint --fix corrects formats and "
                "some problems of style"
            )
        print("clean")

    def _install(self, env: Path) -> None:
        self._step("pip install . --no-build-isolation")
        # build/lib* may hold modules that the sources no longer have; ninja reuses build/temp*.
        for path in self.root.glob("build/lib*"):
            shutil.rmtree(path)
        python = str(env / "bin" / "python")
        options = ["--quiet", "--no-build-isolation", "--no-deps", "--force-reinstall"]
        run_command([python, "-m", "pip", "install", *options, str(self.root)])
        install_requirements(self.root, env, self.names.distribution)
        run_command([python, "-m", self.names.package], cwd=env)

    def _pytest(self, env: Path, given: Sequence[str]) -> int:
        arguments = [*given]
        if not arguments:
            processes = min(os.cpu_count() or 1, _MOST_PROCESSES)
            arguments = ["-n", str(processes), "--dist", "loadfile"]
        self._step(f"pytest {' '.join(arguments)}")
        command = [str(env / "bin" / "pytest"), *arguments]
        code = subprocess.run(command, cwd=self.root, check=False).returncode
        self._step("done")
        if code == _NO_TESTS:
            print(f"pytest found no tests below {self.root}; write some, in files test_*.py")
            return 0
        return code

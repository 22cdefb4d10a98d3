"""`torchship build`: compiles the variant for the torch at hand into the project's package."""

import argparse
import os
import shutil
import sys
from pathlib import Path

from ..builder import BuildError, execute, fitting_request, plan
from ..builder.client import read_project
from ..engine import copy_engine
from ..judge import TorchNotFoundError, find_torch
from ..judge.words.render import print_json
from ..release.options import add_project
from ..release.root import find_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="compilers at a time (default: one per core)"
    )
    parser.add_argument("--json", action="store_true", help="print what was built as JSON")


def run(options: argparse.Namespace) -> int:
    """Puts binaries and the engine into the package, where an editable install looks for them.

    Returns 1 if there is no torch or the build fails. Raises ReleaseError without a project.
    """
    root = find_root(Path(options.project) if options.project else None)
    try:
        folder, names = _build(root, options.jobs)
    except (BuildError, TorchNotFoundError) as error:
        print(f"error: nothing was built: {error}", file=sys.stderr)
        return 1
    if options.json:
        print_json(folder=folder, files=names)
    else:
        print(f"{folder}: {', '.join(names)}")
    return 0


def _build(root: Path, jobs: int | None) -> tuple[Path, list[str]]:
    """Compiles what fits the installed torch; returns the folder and the names of the binaries."""
    project = read_project(root)
    work = root / "build" / "in-place"
    request = fitting_request(project, find_torch(), work / "lib", dict(os.environ), log=_log)
    steps = plan(request)
    execute(steps, work, jobs, _log)
    binaries = [step.output for step in steps if step.output.suffix == ".so"]
    folder = project.folder / "lib"
    # The folder must hold no binaries of an earlier build.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in binaries:
        shutil.copy2(path, folder / path.name)
    copy_engine(project.folder)
    return folder, [path.name for path in binaries]


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

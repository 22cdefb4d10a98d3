"""`torch-doctor`, `python -m PACKAGE doctor`: tells of each torch extension whether it works.

The doctor reads files and asks the GPU's driver; it imports no torch and loads no extension.
"""

import argparse
import io
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import find_torch, judge_file, probe_runtime, render
from .binary import needs_torch_or_cuda, read_binary, unread
from .budget import Budget, BudgetSpentError
from .fixes import ours
from .judgement import cannot_be_told
from .layouts import LAYOUTS
from .owner import distributions, find_owner, normal, shared_objects
from .project import NOBODY, Project
from .records import Owner, Runtime, TorchInstall, Verdict, dotted, parse_minor
from .text import printable
from .torch_probe import TorchNotFoundError, release

#: The names of torch's own packages and of the binary packages that PyPI's torch requires.
_TORCHS_OWN = re.compile(r"(torch|pytorch|libtorch|triton|nvidia[-_].*|cuda[-_].*)", re.IGNORECASE)
_STATES = {"works": "works", "fails": "does not work", "unknown": "cannot be told"}
#: Processor time of a report; SECURITY.md promises 20 s for an environment of 200 extensions.
_SECONDS = 16.0
_SECONDS_OF_EACH_MORE = 0.08
_EXTENSIONS = 200
_MAX_LOOKUPS = 100_000_000


class UsageError(ValueError):
    """The user named a file, package or torch that cannot be found, read or judged."""


def main(project: Project = NOBODY, arguments: list[str] | None = None) -> int:
    """Runs `doctor`; returns 1 if an extension, audit or pipe fails, 2 for bad usage, else 0.

    Without a project, this is the command `torch-doctor`. Without arguments, those of the
    process count.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may not be UTF-8
    options = make_parser(project).parse_args(arguments)
    return render.print_to_the_end(lambda: run(options, project))


def run(options: argparse.Namespace, project: Project) -> int:
    """Does what the options of `add_arguments` say; returns the exit code."""
    if options.audit is not None:
        from .audit import main as audit

        return audit(project, Path(options.audit), as_json=options.json)
    start = time.monotonic()
    try:
        runtime = probe_runtime(_torch(options.torch), project=project)
        files = list(dict.fromkeys(_files(options.what, runtime.torch)))
        verdicts = list(_judge(files, runtime, options.what))
    except (UsageError, TorchNotFoundError) as error:
        print(render.shorten(str(error)), file=sys.stderr)
        return 2
    if options.json:
        _print_json(verdicts, runtime)
    else:
        count = f"{len(files)} file{'s' * (len(files) != 1)} looked at"
        _print_table(verdicts, runtime, f"{count} in {time.monotonic() - start:.1f} s")
    return 1 if any(_state(verdict) == "fails" for verdict in verdicts) else 0


def make_parser(project: Project) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{project.command} doctor" if project.package else "torch-doctor",
        description="Say for every torch extension of this environment, of any package, whether "
        "it works with the installed torch, and if not, why and what to do.",
    )
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="*",
        metavar="PACKAGE|FILE|FOLDER",
        help="judge only these; NAME means a package if it is installed, ./NAME a file or folder",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON (docs/fails/compat.md)"
    )
    parser.add_argument(
        "--audit", metavar="WHEEL", help="for authors: say which users this wheel will serve"
    )
    parser.add_argument(
        "--torch",
        metavar="DIR|VERSION",
        help="judge as if this torch were installed, e.g. 2.15",
    )


def _exists(path: str) -> bool:
    # Before Python 3.14, Path.exists raises for a file in a folder that is closed to this user.
    return os.path.exists(path)  # noqa: PTH110


def _torch(place_or_version: str | None) -> TorchInstall | None:
    """The torch to judge against; None means the torch of this environment."""
    if place_or_version is None:
        return None
    if _exists(place_or_version) or not re.fullmatch(r"\d+\.\d+[\w.+]*", place_or_version):
        return find_torch(place_or_version)
    minor = parse_minor(place_or_version)
    if minor is None or minor not in LAYOUTS:
        raise UsageError(
            f"the class layouts of torch {place_or_version} were not measured; name a torch "
            f"from {dotted(min(LAYOUTS))} to {dotted(max(LAYOUTS))}, or a folder"
        )
    is_full = place_or_version.count(".") > 1
    return release(place_or_version if is_full else f"{place_or_version}.0", minor)


def _files(names: list[str], torch: TorchInstall | None) -> Iterator[Path]:
    """The shared objects that the user names; by default all but those of `_TORCHS_OWN`."""
    sites = [Path(entry) for entry in dict.fromkeys((*sys.path, sys.prefix)) if entry]
    owned = [files for site in sites for files in distributions(site).values()]
    if not names:
        yield from _installed_files(sites, owned, torch)
    for name in names:
        yield from _named_files(name, owned)


def _installed_files(
    sites: list[Path], owned: list[list[Path]], torch: TorchInstall | None
) -> Iterator[Path]:
    for files in owned:
        owner = find_owner(files[0])
        if owner is None or not _TORCHS_OWN.fullmatch(owner.name):
            yield from files
    # Files that no distribution lists: somebody copied them, or ran `setup.py install`.
    listed = {file for files in owned for file in files}
    for site in sites:
        if site.name not in ("site-packages", "dist-packages"):
            continue
        for file in shared_objects(site):
            if file not in listed and not (torch and torch.root in file.parents):
                yield file


def _named_files(name: str, owned: list[list[Path]]) -> list[Path]:
    """The shared objects of a package, else a file, or those of a folder."""
    files: list[Path] = []
    if os.sep not in name:
        files = [file for group in owned if _is_named(group, name) for file in group]
    if not files and os.path.isdir(name or "?"):  # noqa: PTH112  # see `_exists`
        if not os.access(name, os.R_OK | os.X_OK):
            raise UsageError(f"{printable(name)} is not readable by this user")
        files = shared_objects(Path(name))
    elif not files and os.path.lexists(name):
        files = [Path(name)]
    if not files:
        raise UsageError(
            f"{printable(name)[:500] or 'an empty name'} is no file, no folder with shared objects "
            "and no package with shared objects that is installed here. Check the name, or "
            "give the whole path."
        )
    return files


def _is_named(files: list[Path], name: str) -> bool:
    """Whether this is the name of the files' distribution, or of a part of one of their paths."""
    owner = find_owner(files[0])
    if owner is None:
        return False
    return normal(name) == normal(owner.name) or any(name in file.parts for file in files)


def _judge(files: list[Path], runtime: Runtime, names: Iterable[str]) -> Iterator[Verdict]:
    """The verdicts on the files that `needs_torch_or_cuda` picks; if the user names
    anything, also on a file named by its path, a single file, and files with problems or
    for another platform."""
    more = max(0, len(files) - _EXTENSIONS)
    budget = Budget(_MAX_LOOKUPS, seconds=_SECONDS + _SECONDS_OF_EACH_MORE * more)
    for number, path in enumerate(files, 1):
        _show_progress(number, len(files))
        try:
            budget.check_time()
        except BudgetSpentError as error:
            yield cannot_be_told(unread(path), error)
            continue
        binary = read_binary(path)
        is_alien = bool(binary.problems) or binary.platform not in (None, runtime.platform)
        is_named = str(path) in names or len(files) == 1 or is_alien
        if not (needs_torch_or_cuda(binary) or (names and is_named)):
            continue
        # The version of our package does not matter for binaries of other packages.
        facts = runtime if ours(binary, runtime) else runtime._replace(package_version="")
        yield judge_file(binary, facts, budget=budget)


def _show_progress(number: int, count: int) -> None:
    if sys.stderr.isatty() and (number % 20 == 0 or number == count):
        end = "\n" if number == count else "\r"
        print(f"looked at {number} of {count} files", end=end, file=sys.stderr, flush=True)


def _state(verdict: Verdict) -> str:
    return "works" if verdict.accepted else "fails" if verdict.rejection else "unknown"


def _print_json(verdicts: list[Verdict], runtime: Runtime) -> None:
    extensions = []
    for verdict in verdicts:
        owner = _owner(verdict, runtime)
        extensions.append(
            {
                "path": verdict.binary.path,
                "package": owner.name if owner else None,
                "version": owner.version if owner else None,
                "state": _state(verdict),
                "cause": verdict.cause,
            }
        )
    torch = runtime.torch.version if runtime.torch else None
    render.print_json(torch=torch, extensions=extensions)


def _owner(verdict: Verdict, runtime: Runtime) -> Owner | None:
    """The owner of a file; the binaries of the project, and unread files, come without one."""
    if verdict.binary.owner is not None:
        return verdict.binary.owner
    sites = [runtime.torch.root.parent] if runtime.torch else []
    return find_owner(verdict.binary.path, sites)


def _print_table(verdicts: list[Verdict], runtime: Runtime, effort: str) -> None:
    torch = runtime.torch
    print(f"torch {torch.version if torch else 'is not installed'}; {effort}\n")
    rows = []
    cures: dict[str, str] = {}
    for verdict in verdicts:
        owner = _owner(verdict, runtime)
        cause = verdict.cause
        name = f"{owner.name} {owner.version}" if owner else "(no package)"
        why = cause.why if cause else render.summary(verdict)
        if cause and cause.fix:
            cures.setdefault(cause.fix, name)
        rows.append((name, verdict.binary.file, _STATES[_state(verdict)], why))
    if not rows:
        print("no torch extension was found")
        return
    print(render.table(("package", "extension", "", "why"), rows))
    for cure, name in cures.items():
        print(f"\nto mend {name}: {render.shorten(cure)}")
    works, fails, unknown = map([_state(verdict) for verdict in verdicts].count, _STATES)
    noun = f"{len(rows)} torch extension{'s' * (len(rows) != 1)}"
    print(f"\n{noun}: working: {works}, not working: {fails}, cannot be told: {unknown}")

"""`python -m PACKAGE doctor`: tells of each installed (or named) torch extension whether it works.

The doctor reads files and asks the GPU's driver; it imports no torch and loads no extension.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import find_torch, judge_file, probe_runtime, render
from .binary import needs_torch_or_cuda, read_binary
from .fixes import ours
from .layouts import LAYOUTS
from .owner import distributions, find_owner, normal, shared_objects
from .project import Project
from .records import Runtime, TorchInstall, Verdict, dotted, parse_minor
from .text import printable
from .torch_probe import TorchNotFoundError, release

#: The names of torch's own packages and of the binary packages that PyPI's torch requires.
_TORCHS_OWN = re.compile(r"(torch|pytorch|libtorch|triton|nvidia[-_].*|cuda[-_].*)", re.IGNORECASE)
_WORDS = {"works": "works", "fails": "does not work", "unknown": "cannot be told"}


class UsageError(ValueError):
    """The user named a file, package or torch that cannot be found, read or judged."""


def main(project: Project, arguments: list[str]) -> int:
    """Runs `doctor`; returns 1 if an extension, audit or pipe fails, 2 for bad usage, else 0."""
    options = _parser(project).parse_args(arguments)
    try:
        if options.audit is not None:
            from .audit import main as audit

            code = audit(project, Path(options.audit), as_json=options.json)
        else:
            code = _doctor(options, project)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _doctor(options: argparse.Namespace, project: Project) -> int:
    start = time.monotonic()
    try:
        runtime = probe_runtime(_torch(options.torch), project=project)
        files = list(dict.fromkeys(_files(options.what, runtime.torch)))
        verdicts = list(_judged(files, runtime, options.what))
    except (UsageError, TorchNotFoundError) as error:
        print(render.shorten(str(error)), file=sys.stderr)
        return 2
    if options.json:
        extensions = []
        for verdict in verdicts:
            owner = find_owner(verdict.binary.path)
            package, version = (owner.name, owner.version) if owner else (None, None)
            said = {"path": verdict.binary.path, "package": package, "version": version}
            extensions.append({**said, "state": _state(verdict), "cause": verdict.cause})
        torch = runtime.torch.version if runtime.torch else None
        render.print_json(torch=torch, extensions=extensions)
    else:
        looked = f"{len(files)} file{'s' * (len(files) != 1)} looked at"
        _print_table(verdicts, runtime, f"{looked} in {time.monotonic() - start:.1f} s")
    return 1 if any(_state(verdict) == "fails" for verdict in verdicts) else 0


def _parser(project: Project) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{project.command} doctor",
        description="Say for every torch extension of this environment, of any package, whether "
        "it works with the installed torch, and if not, why and what to do.",
    )
    add, named = parser.add_argument, "PACKAGE|FILE|FOLDER"
    what = "judge only these; NAME means a package if it is installed, ./NAME a file or folder"
    add("what", nargs="*", metavar=named, help=what)
    add("--json", action="store_true", help="print the report as JSON (docs/fails/compat.md)")
    add("--audit", metavar="WHEEL", help="for authors: say which users this wheel will serve")
    add("--torch", metavar="DIR|VERSION", help="judge as if this torch were installed, e.g. 2.15")
    return parser


def _torch(asked: str | None) -> TorchInstall | None:
    """The torch to judge against; None means the torch of this environment."""
    if asked is None:
        return None
    if os.path.exists(asked) or not re.fullmatch(r"\d+\.\d+[\w.+]*", asked):  # noqa: PTH110
        return find_torch(asked)
    minor = parse_minor(asked)
    if minor is None or minor not in LAYOUTS:
        known = f"{dotted(min(LAYOUTS))} to {dotted(max(LAYOUTS))}"
        text = f"the class layouts of torch {asked} were not measured"
        raise UsageError(f"{text}; name a torch from {known}, or a folder")
    return release(asked if asked.count(".") > 1 else f"{asked}.0", minor)


def _files(asked: Iterable[str], torch: TorchInstall | None) -> Iterator[Path]:
    """The shared objects named by the user, by default all installed but those of `_TORCHS_OWN`."""
    sites = [Path(entry) for entry in dict.fromkeys((*sys.path, sys.prefix)) if entry]
    owned = [files for site in sites for files in distributions(site).values()]
    if not asked:
        for files in owned:
            owner = find_owner(files[0])
            if owner is None or not _TORCHS_OWN.fullmatch(owner.name):
                yield from files
        # Files that no distribution lists: somebody copied them, or ran `setup.py install`.
        known = {file for files in owned for file in files}
        named = [site for site in sites if site.name in ("site-packages", "dist-packages")]
        for file in (file for site in named for file in shared_objects(site)):
            if file not in known and not (torch and torch.root in file.parents):
                yield file
    for name in asked:
        # A package comes before a file or folder of the same name. os.path serves here because,
        # before Python 3.14, Path.exists and Path.is_dir raise in folders closed to this user.
        found = []
        if os.sep not in name:
            found = [file for files in owned if _is_named(files, name) for file in files]
        if not found and os.path.isdir(name or "?"):  # noqa: PTH112
            if not os.access(name, os.R_OK | os.X_OK):
                raise UsageError(f"{printable(name)} is not readable by this user")
            found = shared_objects(Path(name))
        elif not found and os.path.exists(name):  # noqa: PTH110
            found = [Path(name)]
        if not found:
            raise UsageError(
                f"{printable(name) or 'an empty name'} is no file, no folder with shared objects "
                "and no package with shared objects that is installed here. Check the name, or "
                "give the whole path."
            )
        yield from found


def _is_named(files: list[Path], name: str) -> bool:
    """Whether this is the name of the files' distribution, or of a part of one of their paths."""
    owner = find_owner(files[0])
    names = [normal(owner.name)] if owner else []
    return normal(name) in names or bool(names and any(name in file.parts for file in files))


def _judged(files: list[Path], runtime: Runtime, asked: list[str]) -> Iterator[Verdict]:
    """The verdicts on the files that `needs_torch_or_cuda` picks; if the user names anything, also
    on a file named by its path, a single file, and files with problems or for another platform."""
    for number, path in enumerate(files, 1):
        if sys.stderr.isatty() and (number % 20 == 0 or number == len(files)):
            end = "\n" if number == len(files) else "\r"
            print(f"looked at {number} of {len(files)} files", end=end, file=sys.stderr, flush=True)
        binary = read_binary(path)
        alien = bool(binary.problems) or binary.platform not in (None, runtime.platform)
        wanted = str(path) in asked or len(files) == 1 or alien
        if not (needs_torch_or_cuda(binary) or (asked and wanted)):
            continue
        # The version of our package does not matter for binaries of other packages.
        mine = ours(binary, runtime)
        yield judge_file(binary, runtime if mine else runtime._replace(package_version=""))


def _state(verdict: Verdict) -> str:
    return "works" if verdict.accepted else "fails" if verdict.rejection else "unknown"


def _print_table(verdicts: list[Verdict], runtime: Runtime, looked: str) -> None:
    torch = runtime.torch
    print(f"torch {torch.version if torch else 'is not installed'}; {looked}\n")
    rows, cures = [], dict[str, str]()
    for verdict in verdicts:
        owner, cause = find_owner(verdict.binary.path), verdict.cause
        name = f"{owner.name} {owner.version}" if owner else "(no package)"
        why = cause.why if cause else render.summary(verdict)
        if cause and cause.fix:
            cures.setdefault(cause.fix, name)
        rows.append((name, verdict.binary.file, _WORDS[_state(verdict)], why))
    if not rows:
        print("no torch extension was found")
        return
    print(render.table(("package", "extension", "", "why"), rows))
    for cure, name in cures.items():
        print(f"\nto mend {name}: {render.shorten(cure)}")
    works, fails, unknown = map([_state(verdict) for verdict in verdicts].count, _WORDS)
    noun = f"{len(rows)} torch extension{'s' * (len(rows) != 1)}"
    print(f"\n{noun}: working: {works}, not working: {fails}, cannot be told: {unknown}")

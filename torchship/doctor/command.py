"""`torch-doctor`, `python -m PACKAGE doctor`: tells of each torch extension whether it works.

The doctor reads files and asks the GPU's driver; it imports no torch and loads no extension.
"""

import argparse
import io
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..judge import find_torch, interpreter, probe_runtime, render
from ..judge.binary import needs_torch_or_cuda, read_binary, unread
from ..judge.budget import Budget, BudgetSpentError
from ..judge.fixes import ours
from ..judge.judgement import cannot_be_told
from ..judge.layouts import LAYOUTS
from ..judge.project import NOBODY, Project
from ..judge.records import NOTE, BinaryRecord, Runtime, TorchInstall, Verdict, dotted, parse_minor
from ..judge.rules import CODES
from ..judge.torch_probe import TorchNotFoundError, other_installs, release
from . import (
    allowances,
    backends,
    caches,
    judge_file,
    meaning,
    packages,
    pythons,
    report,
    torch_loading,
)
from .environment.installed import Distribution, installed
from .environment.owner import find_owner
from .environment.standards import normal
from .families import families, of_other_cudas
from .pythons import InterpreterError
from .spares import pass_over_spares
from .targets import UsageError, exists, find_files, find_wheels, is_installed, site_folders

#: Processor time of a report; SECURITY.md promises 20 s for an environment of 200 extensions.
_SECONDS = 16.0
_SECONDS_OF_EACH_MORE = 0.08
_EXTENSIONS = 200
_MAX_LOOKUPS = 100_000_000


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


def program(project: Project) -> str:
    """How the doctor was called, to be shown to users."""
    if project.package:
        return f"{project.command} doctor"
    called = Path(sys.argv[0] if sys.argv else "")
    if called.name == "__main__.py":
        return f"python -m {__package__}"
    if called.suffix == ".pyz":
        return f"python {called.name}"
    return "torchship doctor" if called.name == "torchship" else "torch-doctor"


def make_parser(project: Project) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program(project),
        description="Say for every torch extension of this environment, of any package, whether "
        "it works with the installed torch, and if not, why and what to do.",
        epilog="Exit code: 0 if nothing fails, 1 if something does, 2 if the question cannot be "
        "answered. docs/fails/compat.md describes the output.",
    )
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="*",
        metavar="PACKAGE|FILE|FOLDER|MESSAGE",
        help="check only these; NAME means a package if it is installed, ./NAME a file or folder. "
        "A message, or `-` for standard input: say what it means. A code such as TD110: what is "
        "written about it. `choose WHEEL|FOLDER|URL ...`: which of these wheels works here, best "
        "first",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--json",
        dest="form",
        action="store_const",
        const="json",
        help="print the report as JSON (docs/fails/compat.md)",
    )
    forms.add_argument(
        "--github",
        dest="form",
        action="store_const",
        const="github",
        help="print the annotations of a GitHub workflow",
    )
    forms.add_argument(
        "--markdown",
        dest="form",
        action="store_const",
        const="markdown",
        help="print a table to paste into an issue or a job's summary",
    )
    parser.set_defaults(form="text")
    parser.add_argument(
        "--allow",
        metavar="FILE",
        help="the failures that are allowed, a line `PACKAGE[/FILE] CODE REASON` each; an entry "
        "that no longer occurs fails",
    )
    parser.add_argument(
        "--python",
        metavar="PYTHON|DIR",
        help="check the environment of this Python, 3.7 or newer, or of this prefix",
    )
    parser.add_argument(
        "--torch",
        metavar="DIR|VERSION",
        help="check as if this torch were installed, e.g. 2.15",
    )
    parser.add_argument(
        "--build",
        action="store_true",
        help="before you compile an extension: are nvcc, the compiler, ninja, the memory and the "
        "GPU architectures those that this torch needs?",
    )
    parser.add_argument(
        "--audit", metavar="WHEEL", help="for authors: say which users this wheel will serve"
    )


def run(options: argparse.Namespace, project: Project) -> int:
    """Does what the options of `add_arguments` say; returns the exit code."""
    if options.audit is not None:
        from .audit import main as audit

        return audit(project, Path(options.audit), as_json=options.form == "json")
    try:
        interpreter.judge_for(_python(options.python, project))
        if options.build:
            from .build_check import main as check_build

            runtime = probe_runtime(_torch(options.torch), project=project)
            return check_build(runtime, as_json=options.form == "json")
        wheels = find_wheels(options.what)
        if wheels:
            from .choose import main as choose

            runtime = probe_runtime(_torch(options.torch), project=project)
            return choose(wheels, runtime, as_json=options.form == "json")
        content = _message(options.what)
        if content:
            return _explain(content, options, project)
        result = _examine(options, project)
        report.FORMS[options.form](result)
        return result.exit_code
    except (UsageError, TorchNotFoundError, InterpreterError) as error:
        print(render.shorten(str(error)), file=sys.stderr)
        return 2
    finally:
        interpreter.judge_for(None)


def _python(named: str | None, project: Project) -> interpreter.Interpreter | None:
    """The Python to judge; None for this one. Raises InterpreterError."""
    if named is not None:
        return pythons.ask(named)
    is_alone = not project.package and Path(sys.argv[0]).name.startswith("torch-doctor")
    if not is_alone or _has_torch():
        return None
    # `uvx torch-doctor` runs in an environment of its own, which is not the one that is meant.
    active = pythons.active_python(os.environ, sys.prefix)
    return None if active is None else pythons.ask(active)


def _message(what: list[str]) -> str:
    """The code or the message that the user asks about; "" if it is files or packages."""
    if what == ["-"]:
        content = meaning.read_message(is_asked_for=True)
        if not content.strip():
            raise UsageError("standard input is empty; pipe a message or a traceback into it")
        return content
    if not what:
        return meaning.read_message(is_asked_for=False)
    if any(exists(name) or is_installed(name) for name in what):
        return ""
    return " ".join(what) if what[0] in CODES or meaning.is_message(what) else ""


def _explain(content: str, options: argparse.Namespace, project: Project) -> int:
    """Say what a code or a message means, and the verdict on the file that the message names.

    Returns 0, 1 if that file does not work, or 2 if the message is not known. Raises
    TorchNotFoundError or UsageError.
    """
    if content in CODES:
        print("\n".join(meaning.lines_of_meaning(meaning.meaning_of(content))))
        return 0
    runtime = probe_runtime(_torch(options.torch), project=project)
    diagnosis = meaning.diagnose(content, runtime.torch)
    result = _blamed(diagnosis, options, project)
    if options.form == "json":
        report.print_json_of_message(diagnosis, result)
    else:
        lines = [*map(render.shorten, meaning.lines_of_diagnosis(diagnosis))]
        # Not shortened: it holds a command.
        lines += meaning.lines_on_other_python(diagnosis, program(project))
        print("\n".join(lines) + "\n")
        if result is not None:
            report.FORMS[options.form](result)
    if result is not None and result.exit_code:
        return 1
    return 0 if diagnosis.is_known else 2


def _blamed(
    diagnosis: meaning.Diagnosis, options: argparse.Namespace, project: Project
) -> report.Report | None:
    """The report on what a message blames, a file or else a package; None if it is not here.

    What lies in another environment would be judged with the wrong Python and the wrong torch.
    """
    if diagnosis.other_python:
        return None
    file = meaning.existing_file(diagnosis)
    named = [str(file)] if file else [name for name in diagnosis.packages if is_installed(name)][:1]
    if not named:
        return None
    return _examine(argparse.Namespace(**{**vars(options), "what": named}), project)


def _has_torch() -> bool:
    try:
        find_torch()
    except TorchNotFoundError:
        return False
    return True


def _examine(options: argparse.Namespace, project: Project) -> report.Report:
    """Judge what the user names. Raises UsageError or TorchNotFoundError."""
    start = time.monotonic()
    allow_list = Path(options.allow) if options.allow is not None else None
    entries = allowances.read(allow_list) if allow_list else []
    runtime = probe_runtime(_torch(options.torch), project=project)
    files = list(dict.fromkeys(find_files(options.what, runtime.torch)))
    budget = _budget(len(files))
    of_torch = torch_loading.judge_torch(runtime)
    distributions = list(installed(site_folders()).values())
    verdicts = _judge(files, runtime, _Choice(options.what, distributions), budget)
    rows = pass_over_spares(report.row_of_verdict(verdict, runtime) for verdict in verdicts)
    if not options.what:
        rows = _opened(rows, runtime)
    notices = list(packages.notices(distributions, options.what, rows, runtime))
    notices += packages.hidden_notices(site_folders(), options.what)
    if not options.what:
        with suppress(RuntimeError):  # there is no home folder
            folders = caches.find(os.environ, Path.home())
            notices += caches.notices(folders, runtime, budget)
    if of_torch is not None and of_torch.rejection:
        rows.insert(0, report.row_of_verdict(of_torch, runtime))
    elif of_torch is not None:
        notices += [
            report.notice(finding, of_torch.binary.path, package="torch")
            for finding in of_torch.findings
            if finding.status == NOTE
        ]
    rows = [*backends.failing(distributions, rows, runtime), *rows]
    judged = [*rows, *notices]
    if allow_list:
        notices += allowances.stale(entries, judged, allow_list)
    return report.Report(
        runtime=runtime,
        extensions=tuple(allowances.apply(entries, rows)),
        notices=tuple(allowances.apply(entries, notices)),
        other_torches=other_installs(runtime.torch, interpreter.search_path()),
        files=len(files),
        seconds=time.monotonic() - start,
        program=program(project),
    )


def _opened(rows: list[report.Row], runtime: Runtime) -> list[report.Row]:
    """The rows without those of files that a package does not open beside this torch, since they
    are for another torch or another CUDA."""
    torch = runtime.torch
    if torch is None:
        return rows
    groups = families([row.path for row in rows])
    others = {path for family in groups for path in family.others(torch)}
    others |= of_other_cudas([row.path for row in rows], torch)
    return [row for row in rows if row.path not in others]


def _torch(place_or_version: str | None) -> TorchInstall | None:
    """The torch to judge against; None means the torch of the judged Python."""
    if place_or_version is None:
        return None
    if exists(place_or_version) or not re.fullmatch(r"\d+\.\d+[\w.+]*", place_or_version):
        return find_torch(place_or_version)
    minor = parse_minor(place_or_version)
    if minor is None or minor not in LAYOUTS:
        raise UsageError(
            f"the class layouts of torch {place_or_version} were not measured; name a torch "
            f"from {dotted(min(LAYOUTS))} to {dotted(max(LAYOUTS))}, or a folder"
        )
    is_full = place_or_version.count(".") > 1
    return release(place_or_version if is_full else f"{place_or_version}.0", minor)


def _budget(files: int) -> Budget:
    more = max(0, files - _EXTENSIONS)
    return Budget(_MAX_LOOKUPS, seconds=_SECONDS + _SECONDS_OF_EACH_MORE * more)


class _Choice:
    """Which of the files that were read are judged."""

    def __init__(self, names: Sequence[str], distributions: Sequence[Distribution]) -> None:
        self._names = names
        self._of_torch = {normal(one.name) for one in distributions if packages.is_of_torch(one)}

    def takes(self, binary: BinaryRecord, runtime: Runtime, *, is_only_one: bool) -> bool:
        """Whether to judge a file: one that needs torch or CUDA, or of a package that requires
        torch, a damaged or too large one or one for another system. If the user names
        anything, also a file that is named by its path, a single file, and files with problems
        or for another platform."""
        is_damaged = not binary.is_read_whole
        is_unfit = is_damaged or _is_of_another_system(binary, runtime)
        if needs_torch_or_cuda(binary) or (is_unfit and self._is_of_torch(binary.path)):
            return True
        is_alien = is_damaged or binary.platform not in (None, runtime.platform)
        is_named = str(binary.path) in self._names or is_only_one or is_alien
        return bool(self._names) and is_named

    def _is_of_torch(self, path: Path) -> bool:
        owner = find_owner(path)
        return owner is not None and normal(owner.name) in self._of_torch


def _is_of_another_system(binary: BinaryRecord, runtime: Runtime) -> bool:
    """Whether a file has the format of another operating system, or is a Python module for
    another processor."""
    if binary.platform in (None, runtime.platform):
        return False
    is_module = re.search(r"\.(cpython-|abi3t?[.-])", binary.path.name) is not None
    return is_module or not str(binary.platform).startswith(f"{runtime.system}-")


def _judge(
    files: list[Path], runtime: Runtime, choice: _Choice, budget: Budget
) -> Iterator[Verdict]:
    """The verdicts on the files that are chosen."""
    for number, path in enumerate(files, 1):
        _show_progress(number, len(files))
        try:
            budget.check_time()
        except BudgetSpentError as error:
            yield cannot_be_told(unread(path), str(error))
            continue
        binary = read_binary(path)
        if not choice.takes(binary, runtime, is_only_one=len(files) == 1):
            continue
        # The version of our package does not matter for binaries of other packages.
        facts = runtime if ours(binary, runtime) else runtime._replace(package_version="")
        yield judge_file(binary, facts, budget=budget)


def _show_progress(number: int, count: int) -> None:
    if sys.stderr.isatty() and (number % 20 == 0 or number == count):
        end = "\n" if number == count else "\r"
        print(f"looked at {number} of {count} files", end=end, file=sys.stderr, flush=True)

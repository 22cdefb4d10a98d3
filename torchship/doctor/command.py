"""`torch-doctor`, `python -m PACKAGE doctor`: tells of each torch extension whether it works.

The doctor lets the judged Python import each package in a process of its own, and reads files to
explain what it saw. With `--no-import`, it only reads.
"""

import argparse
import io
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from ..judge import find_torch, probe_runtime, render
from ..judge.layouts import LAYOUTS
from ..judge.project import NOBODY, Project
from ..judge.records import TorchInstall, dotted, parse_minor
from ..judge.rules import CODES
from ..judge.target import Interpreter, Target
from ..judge.torch_probe import TorchNotFoundError, release
from . import blocks, examine, forms, meaning, pythons, report, run_command
from .pythons import InterpreterError
from .targets import UsageError, exists, find_wheels, is_installed

#: Of one import.
_MAX_SECONDS = 3600


def main(project: Project = NOBODY, arguments: list[str] | None = None) -> int:
    """Runs `doctor`; returns 1 if an extension, audit or pipe fails, 2 for bad usage, else 0.

    Without a project, this is the command `torch-doctor`. Without arguments, those of the
    process count.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may not be UTF-8
    own, command = run_command.split(sys.argv[1:] if arguments is None else arguments)
    options = make_parser(project).parse_args(own)
    if command:
        return _run_command(command, options, project)
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
        "first. `run COMMAND ...`: run a command, and explain how it fails",
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
        "--no-import",
        dest="is_looking",
        action="store_false",
        help="read files alone, and import no package; the result is what reading finds",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=60.0,
        metavar="N",
        help="how long each import may take (60)",
    )
    parser.add_argument(
        "--try-fix",
        action="store_true",
        help="try each fix that installs a package beside the environment, in a folder of its own, "
        "and say whether it mends the import; this downloads what the fix installs",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="a row for each extension, beside what is said of each package",
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


def _run_command(command: list[str], options: argparse.Namespace, project: Project) -> int:
    """Run a command, and explain how it failed; returns its exit code."""
    ended = run_command.run(command)
    if ended.is_of_import:
        print(f"\n{program(project)}:", file=sys.stderr)
        how = "named by --python"
        if options.python is None:
            options.python, how = run_command.python_of(command), "the one of the command"
        explained = options.__class__(**{**vars(options), "what": [], "allow": None})
        try:
            target = Target(_python(explained.python, project, how))
            _explain(ended.output, explained, project, target)
        except (UsageError, TorchNotFoundError, InterpreterError) as error:
            print(render.shorten(str(error)), file=sys.stderr)
    return ended.exit_code


def _seconds(text: str) -> float:
    """The argument of `--seconds`."""
    with suppress(ValueError):
        number = float(text)
        if 0 < number <= _MAX_SECONDS:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds up to {_MAX_SECONDS}")


def run(options: argparse.Namespace, project: Project) -> int:
    """Does what the options of `add_arguments` say; returns the exit code."""
    if options.audit is not None:
        from .audit import main as audit

        return audit(project, Path(options.audit), as_json=options.form == "json")
    target = Target()
    try:
        target = Target(_python(options.python, project))
        if options.build:
            from .build_check import main as check_build

            runtime = probe_runtime(_torch(options.torch), project=project, target=target)
            return check_build(runtime, as_json=options.form == "json")
        wheels = find_wheels(options.what)
        if wheels:
            from .choose import main as choose

            runtime = probe_runtime(_torch(options.torch), project=project, target=target)
            return choose(wheels, runtime, as_json=options.form == "json")
        content = _message(options.what, target)
        if content:
            return _explain(content, options, project, target)
        result = _examine(options, project, target)
        forms.FORMS[_form(options)](result)
        return result.exit_code
    except (UsageError, TorchNotFoundError, InterpreterError) as error:
        print(render.shorten(str(error), target.prefix), file=sys.stderr)
        return 2


def _form(options: argparse.Namespace) -> str:
    """The form of a report, a name in `report.FORMS`."""
    return "rows" if options.form == "text" and options.verbose else str(options.form)


def _python(
    named: str | None, project: Project, how: str = "named by --python"
) -> Interpreter | None:
    """The Python to judge; None for this one. Raises InterpreterError."""
    if named is not None:
        return pythons.ask(named, found_by=how)
    is_alone = not project.package and Path(sys.argv[0]).name.startswith("torch-doctor")
    if not is_alone or _has_torch():
        return None
    # `uvx torch-doctor` runs in an environment of its own, which is not the one that is meant.
    active = pythons.active_python(os.environ, sys.prefix)
    return None if active is None else pythons.ask(active.program, found_by=active.found_by)


def _message(what: list[str], target: Target) -> str:
    """The code or the message that the user asks about; "" if it is files or packages."""
    if what == ["-"]:
        content = meaning.read_message(is_asked_for=True)
        if not content.strip():
            raise UsageError("standard input is empty; pipe a message or a traceback into it")
        return content
    if not what:
        return meaning.read_message(is_asked_for=False)
    if any(exists(name) or is_installed(target, name) for name in what):
        return ""
    return " ".join(what) if what[0] in CODES or meaning.is_message(what) else ""


def _explain(content: str, options: argparse.Namespace, project: Project, target: Target) -> int:
    """Say what a code or a message means, and the verdict on the file that the message names.

    Returns 0, 1 if that file does not work, or 2 if the message is not known. Raises
    TorchNotFoundError or UsageError.
    """
    if content in CODES:
        print("\n".join(meaning.lines_of_meaning(meaning.meaning_of(content))))
        return 0
    runtime = probe_runtime(_torch(options.torch), project=project, target=target)
    is_of_here = meaning.is_of_here(content)
    diagnosis = meaning.diagnose(target, content, runtime.torch if is_of_here else None)
    reason = None
    if is_of_here and not diagnosis.other_python and runtime.torch is not None:
        reason = examine.reason_of_pasted(content, runtime)
    result = _blamed(diagnosis, options, project, target) if is_of_here else None
    if options.form == "json":
        report.print_json_of_message(diagnosis, result, reason, target.prefix)
    else:
        told = meaning.lines_of_diagnosis(diagnosis)
        lines = [render.shorten(line, target.prefix) for line in told]
        # Not shortened: it holds a command.
        lines += meaning.lines_on_other_python(diagnosis, program(project))
        lines += blocks.lines_of_reason(reason, target.prefix)
        print("\n".join(lines) + "\n")
        if result is not None:
            forms.FORMS[_form(options)](result)
    if result is not None and result.exit_code:
        return 1
    return 0 if diagnosis.is_known or reason is not None else 2


def _blamed(
    diagnosis: meaning.Diagnosis, options: argparse.Namespace, project: Project, target: Target
) -> report.Report | None:
    """The report on what a message blames, a file or else a package; None if it is not here.

    What lies in another environment would be judged with the wrong Python and the wrong torch.
    """
    if diagnosis.other_python:
        return None
    file = meaning.existing_file(target, diagnosis)
    installed = (name for name in diagnosis.packages if is_installed(target, name))
    named = [str(file)] if file else [*installed][:1]
    if not named:
        return None
    return _examine(argparse.Namespace(**{**vars(options), "what": named}), project, target)


def _has_torch() -> bool:
    try:
        find_torch()
    except TorchNotFoundError:
        return False
    return True


def _examine(options: argparse.Namespace, project: Project, target: Target) -> report.Report:
    """Look at what the user names, and judge it. Raises UsageError or TorchNotFoundError."""
    request = examine.Request(
        names=tuple(options.what),
        not_looking_since=_not_looking_since(options),
        seconds=options.seconds,
        is_trying=options.try_fix,
        allow_list=Path(options.allow) if options.allow is not None else None,
        program=program(project),
    )
    runtime = probe_runtime(_torch(options.torch), project=project, target=target)
    return examine.examine(request, runtime)


def _not_looking_since(options: argparse.Namespace) -> str:
    """Why no package may be imported; "" if packages are."""
    if not options.is_looking:
        return "--no-import was given"
    return "--torch was given" if options.torch is not None else ""


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

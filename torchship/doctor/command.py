"""`torch-doctor`, `python -m PACKAGE doctor`: tells of each torch extension whether it works.

The doctor lets the judged Python import each package in a process of its own, and reads files to
explain what it saw. With `--no-import`, it only reads.

The folder `torchship/command` has the command `torchship`; `runtime/command_line.py` is
`python -m PACKAGE` of a client.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..judge import find_torch, probe_runtime
from ..judge.budget import Budget, BudgetSpentError
from ..judge.machine.torch_probe import TorchNotFoundError, release
from ..judge.project import NOBODY, Project
from ..judge.reading.layouts import LAYOUTS
from ..judge.records import Finding, Runtime, TorchInstall, dotted, parse_minor
from ..judge.rules import CODES
from ..judge.target import Interpreter, Target
from ..judge.text import printable, quoted
from ..judge.words import codes, render
from . import examine, grammar, run_command
from .clash import find_clash
from .environment import pythons
from .environment.pythons import InterpreterError
from .environment.targets import UsageError, exists, is_installed, wheels_among
from .grammar import Audit, Build, Check, Choose, Explain, Run, Where
from .looking.processes import Python
from .reasons import meaning
from .report import blocks, forms, report
from .run_command import EndedCommand

#: What is written as a code, whether there is one or not.
_CODE = re.compile(r"TD\d{3}", re.IGNORECASE)


def main(
    project: Project = NOBODY, arguments: Sequence[str] | None = None, program: str = ""
) -> int:
    """Runs `doctor`; returns 1 if an extension, audit or pipe fails, 2 for bad usage, else 0.

    Without a project, this is the command `torch-doctor`. Without arguments, those of the
    process count. `program` is how the doctor was called, if the process does not tell.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may not be UTF-8
    given = sys.argv[1:] if arguments is None else arguments
    called = program or program_of(project)
    doctor = _Doctor(project, called)
    request = grammar.read(given, called)
    if isinstance(request, Run):
        return doctor.run(request)
    return render.print_to_the_end(lambda: doctor.carry_out(request))


def program_of(project: Project) -> str:
    """How the doctor was called, to be shown to users."""
    if project.package:
        return f"{project.command} doctor"
    called = Path(sys.argv[0] if sys.argv else "")
    if called.name == "__main__.py":
        return f"python -m {__package__}"
    if called.suffix == ".pyz":
        return f"python {quoted(called)}"
    return "torchship doctor" if called.name == "torchship" else "torch-doctor"


class _Doctor:
    """Carries out what is asked for; `program` is how the doctor was called."""

    def __init__(self, project: Project, program: str) -> None:
        self.project = project
        self.program = program

    def carry_out(self, request: Audit | Build | Check | Choose | Explain) -> int:
        """Does what is asked for; returns the exit code."""
        if isinstance(request, Audit):
            from .wheels.audit import main as audit

            return audit(self.project, request.wheel, as_json=request.as_json)
        where = request.check.where if isinstance(request, Explain) else request.where
        target = Target()
        try:
            target = Target(self._python(where.python))
            return self._of_target(request, where, target)
        except (UsageError, TorchNotFoundError, InterpreterError) as error:
            print(render.shorten_home(str(error)), file=sys.stderr)
            return 2

    def _of_target(
        self, request: Build | Check | Choose | Explain, where: Where, target: Target
    ) -> int:
        """Does what is asked for of a Python. Raises UsageError or TorchNotFoundError."""
        if isinstance(request, Check) and request.is_bare:
            request = _meant(request, target)
        if isinstance(request, Explain):
            return self._explain(_message(request), request.check, target)
        if isinstance(request, Build):
            from .checks.build_check import main as check_build

            return check_build(self._runtime(where, target), as_json=request.as_json)
        if isinstance(request, Choose):
            from .wheels.choose import main as choose

            return choose(request.sources, self._runtime(where, target), as_json=request.as_json)
        result = self._examine(request, target)
        forms.FORMS[request.form](result)
        return result.exit_code

    def run(self, request: Run) -> int:
        """Run a command, and explain how it failed; returns its exit code."""
        ended = run_command.run(request.command)
        if ended.is_of_import:
            print(f"\n{self.program}:", file=sys.stderr)
            python, how = request.check.where.python, pythons.NAMED
            if python is None:
                python, how = run_command.python_of(request.command), "the one of the command"
            try:
                target = Target(self._python(python, how))
                self._explain(ended.output, request.check, target, ended)
            except (UsageError, TorchNotFoundError, InterpreterError) as error:
                print(render.shorten(str(error)), file=sys.stderr)
        return ended.exit_code

    def _explain(
        self, content: str, check: Check, target: Target, ended: EndedCommand | None = None
    ) -> int:
        """Say what a code or a message means, and the verdict on the file that the message names.

        Returns 0, 1 if that file does not work, or 2 if the message is not known. Raises
        TorchNotFoundError or UsageError.
        """
        if _CODE.fullmatch(content.strip()):
            return _explain_code(content.strip().upper(), as_json=check.form == "json")
        runtime = self._runtime(check.where, target)
        is_of_here = meaning.is_of_here(content)
        diagnosis = meaning.diagnose(target, content, runtime.torch if is_of_here else None)
        reason = None
        if is_of_here and not diagnosis.other_python and runtime.torch is not None:
            reason = examine.reason_of_pasted(content, runtime)
        result = self._blamed(diagnosis, check, target) if is_of_here else None
        if ended is not None and check.is_looking and (reason is None or ended.is_of_signal):
            reason = self._clash(content, check, runtime) or reason
        if check.form == "json":
            report.print_json_of_message(diagnosis, result, reason, target.prefix)
        else:
            is_answered = _says_all(reason, diagnosis, ended)
            is_asked = result is not None and result.exit_code == 1
            meant = meaning.lines_of_diagnosis(diagnosis, is_asked=is_asked)
            told = () if is_answered else meant
            lines = [render.shorten(line, target.prefix) for line in told]
            # Not shortened: it holds a command.
            lines += meaning.lines_on_other_python(diagnosis, self.program)
            lines += blocks.lines_of_reason(reason, target.prefix)
            if meaning.is_of_other_system(content):
                lines.append("where:    on Windows or macOS; the doctor knows the loader of Linux")
            print("\n".join(lines) + "\n")
            if result is not None:
                forms.FORMS[check.form](result)
        if result is not None and result.exit_code == 1:
            return 1
        return 0 if diagnosis.is_known or reason is not None else 2

    def _blamed(
        self, diagnosis: meaning.Diagnosis, check: Check, target: Target
    ) -> report.Report | None:
        """The report on what a message blames, a file or else a package; None if it is not here.

        What lies in another environment would be judged with the wrong Python and the wrong torch.
        """
        if diagnosis.other_python:
            return None
        file = meaning.existing_file(target, diagnosis)
        packages = [name for name in diagnosis.packages if is_installed(target, name)]
        named = [str(file)] if file else packages[:1]
        return self._examine(check._replace(names=tuple(named)), target) if named else None

    def _clash(self, content: str, check: Check, runtime: Runtime) -> Finding | None:
        """Whether what the command imported before is why its import failed."""
        python = Python(executable=runtime.target.executable(), seconds=check.seconds)
        runtime.target.budget = Budget()
        with suppress(OSError, BudgetSpentError):
            return find_clash(content, python, runtime)
        return None

    def _examine(self, check: Check, target: Target) -> report.Report:
        """Look at what the user names, and judge it. Raises UsageError or TorchNotFoundError."""
        wanted = examine.Request(
            names=check.names,
            not_looking_since=_not_looking_since(check),
            seconds=check.seconds,
            is_trying=check.is_trying,
            allow_list=check.allow_list,
            program=self.program,
        )
        return examine.examine(wanted, self._runtime(check.where, target))

    def _python(self, named: str | None, how: str = pythons.NAMED) -> Interpreter | None:
        """The Python to judge; None for this one. Raises InterpreterError."""
        if named is not None:
            return pythons.ask(named, found_by=how)
        is_alone = not self.project.package and Path(sys.argv[0]).name.startswith("torch-doctor")
        if not is_alone or _has_torch():
            return None
        # `uvx torch-doctor` runs in an environment of its own, which is not the one that is meant.
        active = pythons.active_python(os.environ, sys.prefix)
        return None if active is None else pythons.ask(active.program, found_by=active.found_by)

    def _runtime(self, where: Where, target: Target) -> Runtime:
        return probe_runtime(_torch(where.torch), project=self.project, target=target)


def _has_torch() -> bool:
    try:
        find_torch()
    except TorchNotFoundError:
        return False
    return True


def _says_all(
    reason: Finding | None, diagnosis: meaning.Diagnosis, ended: EndedCommand | None
) -> bool:
    """Whether the reason that was found here leaves nothing to say of the message as such."""
    if reason is None:
        return False
    # What a process can die of is many things, and the message names one.
    if not diagnosis.is_known or (ended is not None and ended.is_of_signal):
        return True
    # Of a name that a package lacks, the files here know more than the message.
    return diagnosis.code is codes.REQUIREMENT_NOT_MET and reason.code != diagnosis.code


def _meant(check: Check, target: Target) -> Check | Choose | Explain:
    """What is asked for where no command is named. Raises UsageError."""
    names = check.names
    if wheels_among(names):
        return Choose(sources=names, where=check.where, as_json=check.form == "json")
    how = check._replace(names=(), allow_list=None)
    if not names:
        piped = meaning.read_message(is_asked_for=False)
        return Explain(words=(piped,), check=how) if piped.strip() else check
    if names == ("-",):
        return Explain(words=names, check=how)
    are_here = [exists(name) or is_installed(target, name) for name in names]
    near = "" if are_here[0] else grammar.near(names[0])
    if near and (len(names) == 1 or any(are_here)):
        raise UsageError(
            f"{printable(names[0])[:500]} is neither a command nor a package or file that is here. "
            f"Did you mean `{near}`?"
        )
    if any(are_here):
        return check
    if _CODE.fullmatch(names[0]) or meaning.is_message(names):
        return Explain(words=names, check=how)
    return check


def _message(request: Explain) -> str:
    """The code or the message that is asked about. Raises UsageError."""
    if request.words not in ((), ("-",)):
        return " ".join(request.words)
    if sys.stdin.isatty():
        print("paste the message, and end it with Ctrl-D on a line of its own", file=sys.stderr)
    content = meaning.read_message(is_asked_for=True)
    if not content.strip():
        raise UsageError("standard input is empty; pipe a message or a traceback into it")
    return content


def _not_looking_since(check: Check) -> str:
    """Why no package may be imported; "" if packages are."""
    if not check.is_looking:
        return "--no-import was given"
    return "--torch was given" if check.where.torch is not None else ""


def _explain_code(code: str, *, as_json: bool) -> int:
    """Print what is written about a code. Raises UsageError for one that does not exist."""
    if code not in CODES:
        raise UsageError(
            f"{code} is not a code of torch-doctor; they go from {min(CODES)} to {max(CODES)}, and "
            "docs/fails/codes/index.md lists them"
        )
    found = meaning.meaning_of(code)
    if as_json:
        render.print_json(code=code, heading=found.code.heading, meaning=found.why, fix=found.fix)
    else:
        print("\n".join(meaning.lines_of_meaning(found)))
    return 0


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

"""`torch-doctor choose WHEEL|FOLDER|URL ...`: which of these wheels works here, best first.

A wheel's name tells its Python, its platform and often its torch; its metadata tells what it
requires; its shared objects tell the rest. What the name has excluded is not opened, and of a
wheel on a server no more is fetched than the verdict needs.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...judge import fixes
from ...judge.budget import Budget, BudgetSpentError
from ...judge.fixes.installers import Pip
from ...judge.project import NOBODY, Record
from ...judge.reading.binary import needs_torch_or_cuda, read_binary
from ...judge.reading.layouts import LAYOUTS, difference
from ...judge.reading.named_torch import names_torch
from ...judge.records import (
    NO_FIX,
    BinaryRecord,
    Fix,
    GlueName,
    KernelsName,
    Runtime,
    TorchInstall,
    Verdict,
    dotted,
    parse_file_name,
    parse_version,
)
from ...judge.text import list_names, printable, quoted
from ...judge.words import render
from ..checks.judging import judge_package_file_in_run
from ..decide import CANNOT_BE_TOLD, FAILS, WORKS, state_of
from ..environment.built_for import paired_releases, torch_requirements
from ..environment.metadata import Core
from ..environment.owner import find_owner, shared_objects
from ..environment.standards import Python, Tag, admits, tags_here
from . import remote
from .remote import Client
from .unpacking import (
    RemoteError,
    WheelError,
    WheelName,
    core_of_wheel,
    is_code,
    is_metadata,
    open_file,
    unpack,
)

#: Only files are read here, so "fits" is all that can be said: "works" takes an import.
_STATES = {WORKS: "fits", FAILS: "does not work", CANNOT_BE_TOLD: "cannot be told"}
_SECONDS = 25.0
#: Of what is read in wheels, which nobody has to trust yet.
_MEGABYTES = 256
#: How many wheels are opened, how many that work are looked for, and how many rows are printed.
_MAX_OPENED = 20
_MAX_WORKING = 5
_MAX_ROWS = 40
_GLIBC_OF_OLD_TAG = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}


class SourceError(ValueError):
    """What was named is no wheel, no folder with wheels and no page that links to wheels."""


class Choice(Record, kw_only=True):
    """The verdict on one wheel."""

    wheel: str  #: its file name
    place: str  #: its path or address
    state: str  #: "works", "fails" or "unknown"
    why: str
    rank: tuple[object, ...] = ()  #: among the wheels of one state, the best has the least
    is_judged: bool = True  #: whether it was looked at
    is_counted_only: bool = False  #: whether a page lists it, for another system or Python


class _Outcome(Record):
    """The state of a wheel, and why."""

    state: str
    why: str


class _Candidate(Record, kw_only=True):
    """A wheel that may be opened."""

    name: WheelName
    file: str
    place: str  #: its path or address
    is_of_page: bool  #: whether a page of an index lists it, and nobody has chosen it


class _Tools(Record, kw_only=True):
    """What all wheels are judged with."""

    runtime: Runtime
    client: Client


def main(sources: Sequence[str], runtime: Runtime, *, as_json: bool) -> int:
    """Judge wheels; returns the exit code: 0 if one of them works, 1 if none, 2 for bad usage."""
    try:
        choices = choose(sources, runtime)
    except (SourceError, RemoteError) as error:
        print(render.shorten(str(error), runtime.target.prefix), file=sys.stderr)
        return 2
    best = choices[0] if choices[0].state == WORKS else None
    fix = install_wheel(best, runtime) if best else NO_FIX
    torch = runtime.torch.version if runtime.torch else None
    if as_json:
        wheels = [
            {"wheel": c.wheel, "place": c.place, "state": _said(c.state), "why": c.why}
            for c in choices
        ]
        render.print_json(runtime.target.prefix, torch=torch, wheels=wheels, install=fix or None)
    else:
        _print_table(choices, runtime, fix)
    return 0 if best else 1


def _said(state: str) -> str:
    """A state as JSON has it."""
    return "fits" if state == WORKS else state


def _print_table(choices: list[Choice], runtime: Runtime, fix: Fix) -> None:
    torch = runtime.torch
    for_here = [choice for choice in choices if not choice.is_counted_only]
    listed = [choice for choice in for_here if choice.is_judged]
    count = f"{len(choices)} wheel{'s' * (len(choices) != 1)}"
    if len(for_here) < len(choices):
        verb = "is" if len(for_here) == 1 else "are"
        here = f"{_python_here(runtime)} on {runtime.platform}"
        count = f"{len(for_here) or 'none'} of {count} {verb} for {here}"
    print(f"torch {torch.version if torch else 'is not installed'}; {count}")
    if listed:
        rows = [(choice.wheel, _STATES[choice.state], choice.why) for choice in listed[:_MAX_ROWS]]
        print()
        print(render.table(("wheel, best first", "", "why"), rows, runtime.target.prefix))
    if len(listed) > _MAX_ROWS:
        print(f"... and {len(listed) - _MAX_ROWS} more, none of them better")
    if len(listed) < len(for_here):
        print(f"... and {len(for_here) - len(listed)} not looked at, since better ones were")
    if fix:
        print(f"\nto install the first: {fix}")
    elif len(for_here) > 1:
        is_told = all(choice.state == FAILS for choice in for_here)
        print(f"\nnone of them {'fits' if is_told else 'is known to fit'} here")


def install_wheel(choice: Choice, runtime: Runtime) -> Fix:
    """Install a wheel, and leave the installed torch as it is."""
    place = choice.place if "://" in choice.place else str(Path(choice.place).absolute())
    return fixes.command_alone(
        fixes.Kind.INSTALL_WHEEL, Pip(runtime.environment).reinstall(quoted(place))
    )


def choose(sources: Sequence[str], runtime: Runtime) -> list[Choice]:
    """The verdicts on all wheels of the sources, best first.

    Raises SourceError and RemoteError.
    """
    runtime.target.budget = Budget(_SECONDS, _MEGABYTES)
    tools = _Tools(runtime=runtime, client=Client())
    candidates = [item for source in sources for item in _candidates(source, tools.client)]
    choices: list[Choice] = []
    fitting: list[_Candidate] = []
    for candidate in candidates:
        why = excluded_by_name(candidate.name, runtime)
        if why:
            excluded = _choice(candidate, runtime, FAILS, why)
            is_for_others = candidate.is_of_page and _is_for_others(candidate.name, runtime)
            choices.append(excluded._replace(is_counted_only=is_for_others))
        else:
            fitting.append(candidate)
    fitting.sort(key=lambda candidate: rank(candidate.name, runtime))
    working = 0
    for number, candidate in enumerate(fitting):
        if number >= _MAX_OPENED or working >= _MAX_WORKING:
            why = "not looked at, since better ones were"
            unjudged = _choice(candidate, runtime, CANNOT_BE_TOLD, why)
            choices.append(unjudged._replace(is_judged=False))
            continue
        choices.append(_open(candidate, tools))
        working += choices[-1].state == WORKS
    order = (WORKS, CANNOT_BE_TOLD, FAILS)
    return sorted(
        choices,
        key=lambda choice: (not choice.is_judged, order.index(choice.state), choice.rank),
    )


def _choice(candidate: _Candidate, runtime: Runtime, state: str, why: str) -> Choice:
    return Choice(
        wheel=printable(candidate.file),
        place=candidate.place,
        state=state,
        why=why,
        rank=rank(candidate.name, runtime),
    )


def _candidates(source: str, client: Client) -> list[_Candidate]:
    """The wheels that a word of the command line names. Raises SourceError and RemoteError."""
    candidates: list[_Candidate] = []
    problem = f"{printable(source)[:500]} holds no wheel; name a .whl file, a folder or an index"
    for file, place in _places(source, client).items():
        try:
            name = WheelName.parse(file)
        except WheelError as error:
            problem = str(error)
            continue
        is_of_page = remote.is_url(source) and place != source
        candidates.append(_Candidate(name=name, file=file, place=place, is_of_page=is_of_page))
    if not candidates:
        raise SourceError(problem)
    return candidates


def _places(source: str, client: Client) -> dict[str, str]:
    """The path or address of each wheel, by file name. Raises RemoteError."""
    if remote.is_url(source):
        file = remote.file_of(source)
        return {file: source} if file.endswith(".whl") else remote.list_wheels(source, client)
    path = Path(source)
    if source.endswith(".whl"):
        return {path.name: source}
    return {name: str(path / name) for name in list_names(path) if name.endswith(".whl")}


def rank(name: WheelName, runtime: Runtime) -> tuple[object, ...]:
    """A sort key, the best first: the release that is known to go with this torch, then the
    newest, then the build that is nearest to this torch, its CUDA and this Python."""
    torch = runtime.torch
    public = tuple(-number for number in parse_version(name.version) or ())
    releases = paired_releases(name.distribution)
    paired = releases.get(torch.version_tuple, "").split() if torch else []
    is_paired = any(f"{name.version}.".startswith((f"{r}.", f"{r}+")) for r in paired)
    is_for_this_torch = torch is not None and name.torch == torch.version_tuple
    is_for_this_cuda = torch is not None and name.cuda == torch.cuda_major
    tag = runtime.python_tag.removeprefix("cpython-").rstrip("-")
    is_for_this_python = any(one.abi == f"cp{tag}" for one in name.tags)
    return (
        not is_paired,
        public,
        not is_for_this_torch,
        not is_for_this_cuda,
        not is_for_this_python,
        name.version,
        name.compatibility,
    )


def excluded_by_name(name: WheelName, runtime: Runtime) -> str:
    """Why a wheel of this name cannot work here, in a sentence; "" if its name does not tell."""
    torch = runtime.torch
    here = tags_here(runtime)
    if not name.tags & here:
        return _why_tags_differ(name, here, runtime)
    if torch is None:
        return ""
    if name.cuda is not None and not torch.cuda:
        return f"it is built for CUDA {name.cuda}, and torch {torch.version} for {torch.device}"
    if name.cuda is not None and torch.cuda_major not in (None, name.cuda):
        return f"it is built for CUDA {name.cuda}, and torch for {torch.device}"
    if None not in (name.cxx11_abi, torch.cxx11_abi) and name.cxx11_abi != torch.cxx11_abi:
        return f"it has the C++ ABI {name.cxx11_abi}, and torch {torch.version} {torch.cxx11_abi}"
    if name.torch is not None and not _is_alike(name.torch, torch):
        return f"it is built for torch {dotted(name.torch)}, and torch {torch.version} is here"
    return ""


def _why_tags_differ(name: WheelName, here: frozenset[Tag], runtime: Runtime) -> str:
    """Why no installer takes a wheel of these tags."""
    pairs = {(tag.interpreter, tag.abi) for tag in here}
    for_python = [tag for tag in name.tags if (tag.interpreter, tag.abi) in pairs]
    if not for_python:
        tag = name.compatibility.rpartition("-")[0]
        return f"it is for another Python ({printable(tag)}); this is {_python_here(runtime)}"
    platforms = sorted({tag.platform for tag in for_python})
    reasons = filter(None, (_platform_problem(platform, runtime) for platform in platforms))
    return next(reasons, f"no installer takes {printable(name.compatibility)} here")


def _is_for_others(name: WheelName, runtime: Runtime) -> bool:
    """Whether a wheel is for another system, another machine or another Python."""
    pairs = {(tag.interpreter, tag.abi) for tag in tags_here(runtime)}
    return not any(
        (tag.interpreter, tag.abi) in pairs and _is_for_this_system(tag.platform, runtime)
        for tag in name.tags
    )


def _is_alike(minor: tuple[int, int], torch: TorchInstall) -> bool:
    """Whether a torch minor is this one, or has its class layout, or was not measured."""
    layout = LAYOUTS.get(torch.version_tuple)
    other = LAYOUTS.get(minor)
    if minor == torch.version_tuple or layout is None or other is None:
        return True
    return not difference(other, layout)


def _python_here(runtime: Runtime) -> str:
    flavour = " free-threaded" if runtime.free_threaded else ""
    return f"Python {dotted(runtime.python[:2])}{flavour}"


def _is_for_this_system(tag: str, runtime: Runtime) -> bool:
    """Whether a platform tag names this system and machine, with whatever C library."""
    is_for_linux = tag.startswith(("linux_", "manylinux", "musllinux"))
    is_for_machine = is_for_linux and tag.endswith(f"_{runtime.machine}")
    return tag == "any" or (is_for_machine and runtime.system == "linux")


def _platform_problem(tag: str, runtime: Runtime) -> str:
    """Why a platform tag does not fit this machine; "" if it does."""
    if tag == "any":
        return ""
    machine = runtime.machine
    here = f"this is {runtime.platform}"
    if not _is_for_this_system(tag, runtime):
        return f"it is for {printable(tag)}, and {here}"
    libc = runtime.libc or ("glibc", ())
    if tag.startswith("musllinux") != (libc[0] == "musl"):
        return f"it is for another C library ({printable(tag)}); {here}, {libc[0]}"
    named = re.fullmatch(rf"(manylinux\w*?)(?:_(\d{{1,4}})_(\d{{1,4}}))?_{machine}", tag)
    floor: tuple[int, ...] = ()
    if named is not None:
        floor = _GLIBC_OF_OLD_TAG.get(named[1], ())
        floor = floor or (int(named[2] or 0), int(named[3] or 0))
    if libc[1] and floor > libc[1]:
        return f"it needs glibc {dotted(floor)}, and {dotted(libc[1])} is here"
    return ""


def _open(candidate: _Candidate, tools: _Tools) -> Choice:
    """The verdict on a wheel that its name does not exclude."""
    with tempfile.TemporaryDirectory(prefix="torch-doctor-") as folder:
        root = Path(folder, "site-packages")
        root.mkdir()
        try:
            outcome = _judge_wheel(candidate, root, tools)
        except WheelError as error:
            outcome = _Outcome(FAILS, f"it cannot be read as a wheel: {error}")
        except (RemoteError, BudgetSpentError) as error:
            outcome = _Outcome(CANNOT_BE_TOLD, f"not checked: {error}")
    return _choice(candidate, tools.runtime, outcome.state, outcome.why)


def _judge_wheel(candidate: _Candidate, root: Path, tools: _Tools) -> _Outcome:
    """The verdict on an unpacked wheel. Raises WheelError, RemoteError and BudgetSpentError."""
    with _content(candidate, tools.client) as content:
        unpack(content, root, tools.runtime.target.budget, is_metadata)
        core = core_of_wheel(tools.runtime.target, root)
        pins = torch_requirements(core, Python.of(tools.runtime))
        if why := _refused_by_metadata(core, pins, tools.runtime):
            return _Outcome(FAILS, why)
        unpack(content, root, tools.runtime.target.budget, is_code)
    verdicts = list(_judge_objects(candidate.name, root, tools))
    return _summary(verdicts, pins)


def _refused_by_metadata(core: Core, pins: list[str], runtime: Runtime) -> str:
    """Why an installer refuses a wheel of this metadata beside this torch; "" if it does not."""
    torch = runtime.torch
    if not admits(core.requires_python, dotted(runtime.python)):
        wanted = core.requires_python[:200]
        return f"it requires Python {wanted}, and this is Python {dotted(runtime.python)}"
    refusing = [pin for pin in pins if torch is not None and not admits(pin, torch.version)]
    if not refusing or torch is None:
        return ""
    return f"it requires torch {refusing[0][:200]}, and torch {torch.version} is here"


def _content(candidate: _Candidate, client: Client) -> io.BufferedIOBase:
    if remote.is_url(candidate.place):
        return remote.RemoteFile(candidate.place, client)
    return open_file(Path(candidate.place))


def _judge_objects(name: WheelName, root: Path, tools: _Tools) -> Iterator[Verdict]:
    """The verdicts on the extensions of an unpacked wheel. Raises BudgetSpentError."""
    runtime = tools.runtime._replace(package_version="", project=NOBODY)
    for path in shared_objects(root):
        binary = read_binary(path, budget=runtime.target.budget)
        if needs_torch_or_cuda(binary) or not binary.is_read_whole:
            yield judge_package_file_in_run(_with_owner(binary, name, root, runtime), runtime)


def _with_owner(
    binary: BinaryRecord, name: WheelName, root: Path, runtime: Runtime
) -> BinaryRecord:
    """The binary with its distribution, which is built for the torch that the wheel names."""
    owner = find_owner(runtime.target, binary.path, [root])
    if owner is not None and name.torch is not None:
        named = (name.torch, f"the wheel's name ({name.version})")
        owner = owner._replace(built_for=(named, *owner.built_for))
    return binary._replace(owner=owner)


def _summary(verdicts: list[Verdict], pins: list[str]) -> _Outcome:
    """The verdict on a wheel: that on its worst object.

    Of objects that are made for one torch each, or for one device each, one that works is
    enough.
    """
    if not verdicts:
        requirement = f"; it requires torch {printable(pins[0])[:200]}" if pins and pins[0] else ""
        return _Outcome(WORKS, f"it holds no extension of torch{requirement}")
    working = [verdict for verdict in verdicts if verdict.accepted]
    for verdict in verdicts:
        if verdict.accepted or (working and _has_alternatives(verdict.binary)):
            continue
        why = verdict.cause.why if verdict.cause else render.summary(verdict)
        return _Outcome(state_of(verdict), why)
    notes = [f.why for v in working for f in v.findings if f.why and "vouches" in f.why]
    return _Outcome(WORKS, notes[0] if notes else f"{len(working)} extensions fit")


def _has_alternatives(binary: BinaryRecord) -> bool:
    is_variant = isinstance(parse_file_name(binary.path.name), (GlueName, KernelsName))
    return is_variant or names_torch(binary.path)

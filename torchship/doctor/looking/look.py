"""Looks at torch and at packages: what is tried, and what is tried again.

A screening process imports torch once and forks a child for each package, which is quick. Only
success counts there, and only of a package that imports torch itself: whatever else is tried
again in a process of its own, and that decides. An extension that the import of its package did
not load is loaded after it in a child, and on failure in a process of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from ...judge.project import Record
from . import linker_log
from .processes import Ended, Program, Python, run
from .seen import (
    DIED,
    ENDED,
    HIDDEN,
    RAISED,
    WORKED,
    End,
    Found,
    Looked,
    Seen,
    seen_at_end,
    signal_of,
)
from .tracebacks import with_printed_error

#: A module of Python, a library that registers operators with torch, or any other library.
Kind = Literal["module", "library", "plain"]
#: Of one package that are tried alone after they failed.
_MOST_EXTENSIONS = 40
#: Failures whose linker is asked what it does.
_MOST_LOGS = 12
#: What the dynamic linker says names a file, or a symbol.
_OF_LINKER = re.compile(
    r"\.so\b.*: |undefined symbol|cannot open shared object|ELF|Could not load this library"
)


class Extension(Record):
    """A shared object to be loaded."""

    path: Path
    kind: Kind


class Subject(Record, kw_only=True):
    """A package to be imported."""

    module: str
    extensions: tuple[Extension, ...] = ()


def jobs_here() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def find(modules: Iterable[str], python: Python) -> dict[str, Found]:
    """Where Python would import modules from; no entry for what it does not find. Imports none of
    them. Raises OSError if the Python cannot be started."""
    words = tuple(word for module in dict.fromkeys(modules) for word in ("--package", module))
    if not words:
        return {}
    program = Program(how="find", words=words, what="find")
    facts = [fact for ended in run([program], python) for fact in ended.facts]
    return {fact.module: fact for fact in facts if isinstance(fact, Found)}


def look_after(before: Iterable[str], module: str, python: Python) -> Seen:
    """Import a module after others, in a process of its own. Raises OSError if the Python cannot be
    started."""
    words = tuple(word for name in (*before, module) for word in ("--package", name))
    ended = next(run([Program(how="after", words=words, what=module)], python))
    seen = next((one for one in _of(ended) if one.what == module), None)
    return seen or with_printed_error(seen_at_end(ended.end, ended.seconds))


def look(subjects: Sequence[Subject], python: Python) -> Looked:
    """Import torch and the packages, and load the extensions that the imports leave alone.

    Where torch does not import, the packages are not looked at. Raises OSError if the Python cannot
    be started.
    """
    looking = _Looking(subjects, python)
    looking.import_all()
    if looking.torch is not None and looking.torch.works:
        looking.load_alone()
    looking.ask_linker()
    return Looked(torch=looking.torch, packages=looking.packages, extensions=looking.extensions)


class _Looking:
    """The look at some packages, while it goes on."""

    def __init__(self, subjects: Sequence[Subject], python: Python) -> None:
        self.python = python
        self.subjects = {subject.module: subject for subject in subjects}
        self.torch: Seen | None = None
        self.packages: dict[str, Seen] = {}
        self.extensions: dict[Path, Seen] = {}

    def import_all(self) -> None:
        unsure = [*self.subjects.values()]
        if len(unsure) > 1:
            self._screen(unsure)
            unsure = [one for one in unsure if not _is_sure(self.packages.get(one.module))]
            if self.torch is not None and not self.torch.works:
                self.packages = {}
                return
        self._import(unsure)
        if self.torch is None:
            # One that imports torch shows that torch can be imported.
            works = [one for one in self.packages.values() if one.works and one.imports_torch]
            if works:
                file = works[0].torch_file
                self.torch = Seen(what="torch", outcome=WORKED, file=file, torch_file=file)
            else:
                self._import([Subject(module="torch")])
                self.torch = self.packages.pop("torch")
        if not self.torch.works:
            self.packages = {}
            return
        after = [s for s in unsure if self._may_need_torch(s)]
        for ended in run([_after_torch(subject) for subject in after], self.python):
            seen, *extensions = self._take(ended)
            if seen.works:
                failed = self.packages[seen.what]
                self.packages[seen.what] = seen._replace(
                    needs_torch_first=True, errors=failed.errors, imports_torch=False
                )
                self.extensions.update((Path(one.what), one) for one in extensions)

    def _may_need_torch(self, subject: Subject) -> bool:
        """Whether a package failed that did not come to import torch."""
        seen = self.packages[subject.module]
        return seen.outcome in (RAISED, DIED) and not seen.imports_torch

    def _screen(self, subjects: Sequence[Subject]) -> None:
        words = tuple(word for subject in subjects for word in _words(subject))
        program = Program(how="screen", words=words, what="torch")
        for ended in run([program], self.python):
            self.torch = with_printed_error(seen_at_end(ended.end, ended.seconds))
            for seen in _of(ended):
                if seen.what == "torch":
                    self.torch = seen
                elif seen.what in self.subjects:
                    self.packages[seen.what] = seen
                else:
                    self.extensions[Path(seen.what)] = seen

    def _import(self, subjects: Iterable[Subject]) -> None:
        for ended in self._run("import", subjects):
            seen, *extensions = self._take(ended)
            self.packages[seen.what] = seen
            self.extensions.update((Path(one.what), one) for one in extensions)

    def load_alone(self) -> None:
        """Load the extensions that were not mapped and not yet seen to load, each alone."""
        programs = []
        for subject in self.subjects.values():
            failing = [one for one in subject.extensions if not self._is_loaded(subject, one)]
            programs += [
                _program("load", Subject(module=subject.module, extensions=(one,)))
                for one in failing[:_MOST_EXTENSIONS]
            ]
        for ended in run(programs, self.python):
            seen = self._take(ended)[0]
            self.extensions[Path(seen.what)] = seen

    def _is_loaded(self, subject: Subject, extension: Extension) -> bool:
        seen = self.extensions.get(extension.path)
        package = self.packages.get(subject.module)
        if package is not None and os.path.realpath(extension.path) in package.mapped:
            return True
        return seen is not None and seen.outcome in (WORKED, HIDDEN)

    def ask_linker(self) -> None:
        """Look once more at what the linker refused, or what died, and let the linker tell."""
        again: list[tuple[Program, Seen]] = []
        if self.torch is not None and _is_of_linker(self.torch):
            again.append((_program("import", Subject(module="torch")), self.torch))
        for subject in self.subjects.values():
            seen = self.packages.get(subject.module)
            if seen is not None and _is_of_linker(seen):
                bare = Subject(module=subject.module)
                again.append((_program("import", bare), seen))
            for extension in subject.extensions:
                alone = self.extensions.get(extension.path)
                if alone is not None and _is_of_linker(alone):
                    only = Subject(module=subject.module, extensions=(extension,))
                    again.append((_program("load", only), alone))
        if not again:
            return
        with TemporaryDirectory(prefix="torch-doctor-") as folder:
            seen_of = {Path(folder, str(n)): one for n, (_, one) in enumerate(again[:_MOST_LOGS])}
            programs = [
                _asking(program, place) for place, (program, _) in zip(seen_of, again, strict=False)
            ]
            for ended in run(programs, self.python):
                place = ended.program.log_folder
                if place is not None:
                    log = linker_log.read_log(place, "log.")
                    self._put(seen_of[place]._replace(log=log))

    def _put(self, seen: Seen) -> None:
        if seen.what == "torch":
            self.torch = seen
        elif seen.what in self.packages:
            self.packages[seen.what] = seen
        else:
            self.extensions[Path(seen.what)] = seen

    def _run(self, how: str, subjects: Iterable[Subject]) -> Iterator[Ended]:
        return run([_program(how, subject) for subject in subjects], self.python)

    def _take(self, ended: Ended) -> list[Seen]:
        """What a program saw, the package first; how it ended counts where it told nothing."""
        seen = _of(ended)
        what = ended.program.what
        first = next((one for one in seen if one.what == what), None)
        if first is None:
            first = with_printed_error(seen_at_end(ended.end, ended.seconds))
        else:
            first = first._replace(output=first.output or ended.end.output)
            if first.works and ended.program.how != "load" and signal_of(ended.end):
                first = first._replace(outcome=DIED, signal=signal_of(ended.end), is_at_end=True)
        before = next((one.errors for one in seen if one.what == "before"), ())
        rest = [one for one in seen if one.what not in (what, "before")]
        return [first._replace(before=before), *rest]


def _of(ended: Ended) -> list[Seen]:
    """What a program told, each thing once, and of a child that told nothing how it ended."""
    seen: dict[str, Seen] = {}
    for fact in ended.facts:
        if isinstance(fact, Seen):
            seen[fact.what] = fact
        elif isinstance(fact, End) and fact.what in seen:
            seen[fact.what] = seen[fact.what]._replace(output=fact.output)
        elif isinstance(fact, End):
            seen[fact.what] = seen_at_end(fact)
    return [*seen.values()]


def _is_sure(seen: Seen | None) -> bool:
    return seen is not None and seen.works and seen.imports_torch


def _is_of_linker(seen: Seen) -> bool:
    if seen.outcome in (DIED, ENDED):
        return True
    if seen.works:  # after torch, whatever it was before
        return False
    return any(_OF_LINKER.search(error.message) for error in seen.errors)


def _program(how: str, subject: Subject) -> Program:
    what = str(subject.extensions[0].path) if how == "load" else subject.module
    return Program(how=how, words=tuple(_words(subject)), what=what)


def _after_torch(subject: Subject) -> Program:
    words = ("--package", "torch", *_words(subject))
    return Program(how="after", words=words, what=subject.module)


def _asking(program: Program, folder: Path) -> Program:
    """The program, whose linker writes what it does into a new folder."""
    folder.mkdir()
    asked = {
        linker_log.VARIABLE: linker_log.WANTED,
        linker_log.OUTPUT_VARIABLE: str(folder / "log"),
    }
    return program._replace(variables=asked, log_folder=folder, max_log=linker_log.MAX_LOG)


def _words(subject: Subject) -> Iterator[str]:
    yield from ("--package", subject.module)
    for extension in subject.extensions:
        yield from (f"--{extension.kind}", str(extension.path))

"""Examines an environment: looks at its packages, reads their objects, and says what holds.

In comes a `Request`, out goes a `Report`. Begin with `_examine`. The order: find the files, and
which of them Python reaches; read them (`_to_judge`); import the packages and load the objects
(`_Eyes`); judge each object; decide by what was seen (decide.py); make the rows.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..judge import fixes
from ..judge.budget import Budget, BudgetSpentError
from ..judge.machine.torch_probe import other_installs
from ..judge.project import Record
from ..judge.reading.binary import needs_torch_or_cuda, read_binary, unread
from ..judge.records import (
    NO_FIX,
    NOTE,
    NOTHING,
    NOWHERE,
    OK,
    REJECTED,
    BinaryRecord,
    Finding,
    Runtime,
    Verdict,
)
from ..judge.target import Target
from ..judge.text import is_file, printable
from ..judge.verdict.judgement import cannot_be_told
from ..judge.words import codes, messages
from .checks import caches, packages, torch_loading
from .checks.judging import judge_package_file, judge_package_file_in_run
from .decide import FAILS, REMARK, Decider, Decision, decision_by_reading
from .environment import standards
from .environment.catalog import Catalog, with_module
from .environment.families import families, of_other_cudas
from .environment.installed import Distribution, installed, module_at, site_folders
from .environment.leftover import leftover, leftovers
from .environment.owner import distributions, find_owner
from .environment.reached import Reached, reach_of, sort_out
from .environment.standards import normal
from .environment.targets import (
    TORCHS_OWN,
    NotHereError,
    UsageError,
    exists,
    find_files,
    is_module,
)
from .fixes.mending import install_package, install_torch
from .fixes.searching import find_release
from .fixes.trying import Trial, Tried
from .looking import progress
from .looking.look import Subject, find, jobs_here, look
from .looking.processes import Python
from .looking.seen import Looked, Seen
from .looking.subjects import Subjects, subjects_of
from .reasons import damaged, explain
from .reasons.beside_path import module_lies_beside_the_path
from .reasons.case import Case
from .reasons.hidden import behind, empty_in_front, torch_is_hidden
from .reasons.leftover import folder_is_left_over, of_leftover
from .reasons.namespace import part_is_left_out
from .reasons.other_torch import with_pin
from .reasons.pasted import seen_in
from .report import allowances, report, rows
from .spares import pass_over_spares

#: Processor time beside the budget of a run, for each extension beyond the first ones.
_SECONDS_OF_EACH_MORE = 0.08
_EXTENSIONS = 200


class Request(Record, kw_only=True):
    """What is to be examined, and how."""

    names: tuple[str, ...] = ()  #: packages, files and folders; () for all packages
    not_looking_since: str = ""  #: why no package may be imported; "" if packages may be
    seconds: float = 60.0  #: for each import
    is_trying: bool = False  #: whether fixes are tried beside the environment
    allow_list: Path | None = None
    program: str = "torch-doctor"  #: how the doctor was called


def examine(request: Request, runtime: Runtime) -> report.Report:
    """Look at what the user names, and read it, in a run of its own. Raises UsageError."""
    runtime.target.budget = Budget()
    try:
        return _examine(request, runtime)
    except BudgetSpentError as error:  # files that cost too much are rows of the report
        raise UsageError(
            f"the metadata of this environment cannot be read: it takes {error}. "
            "Name one package or one file."
        ) from None
    finally:
        progress.clear()


def _examine(request: Request, runtime: Runtime) -> report.Report:
    """Raises UsageError and BudgetSpentError."""
    start = time.monotonic()
    target = runtime.target
    entries = allowances.read(request.allow_list) if request.allow_list else []
    try:
        files = list(dict.fromkeys(find_files(target, [*request.names], runtime.torch)))
    except NotHereError as error:
        raise UsageError(_how_to_install(error, runtime)) from None
    distributions = [*installed(target, site_folders(target)).values()]
    left = _left_over(request, target)
    files = [file for file in files if not any(folder in file.parents for folder in left)]
    eyes = _Eyes(request, runtime)
    reached = eyes.find(files)
    more = max(0, len(reached.files) - _EXTENSIONS)
    target.budget.allow_more(_SECONDS_OF_EACH_MORE * more)
    wanted = _Filter(request.names, distributions, runtime)
    binaries = [*_to_judge(reached.files, runtime, wanted)]
    examination = _Examination(
        request, runtime, distributions=distributions, binaries=binaries, eyes=eyes
    )
    of_objects, notices = examination.results()
    notices += [rows.notice(of_leftover(one, runtime), one, package=one.name) for one in left]
    notices += packages.hidden_notices(site_folders(target), request.names, runtime, reached.hidden)
    if not request.names:
        with suppress(RuntimeError):  # there is no home folder
            folders = caches.find(os.environ, Path.home())
            notices += caches.notices(folders, runtime)
    if request.is_trying:
        of_objects, notices = _with_untried(of_objects), _with_untried(notices)
    judged = [*of_objects, *notices]
    if request.allow_list:
        notices += allowances.stale(entries, judged, request.allow_list)
    return report.Report(
        runtime=runtime,
        extensions=tuple(allowances.apply(entries, of_objects)),
        notices=tuple(allowances.apply(entries, notices)),
        other_torches=other_installs(runtime.torch, target.search_path()),
        files=len(binaries),
        seconds=time.monotonic() - start,
        program=request.program,
        looked=examination.looked,
        is_looking=examination.looked is not None,
        why_not_looked=eyes.why_not,
        fix=install_torch(runtime) if runtime.torch is None and not judged else NO_FIX,
    )


def _how_to_install(error: NotHereError, runtime: Runtime) -> str:
    """What to do about a package that is not installed, where its release for this torch is
    known; else what the error says."""
    name = normal(error.name)
    command = install_package(name, runtime)
    torch = runtime.torch
    if not command or torch is None or torch.root == NOWHERE:
        return str(error)
    python = printable(runtime.target.executable())
    return (
        f"{name} is not installed for {python}; to install its release for torch "
        f"{torch.version}: {command}"
    )


def _with_untried(judged: Iterable[rows.Row]) -> list[rows.Row]:
    """The rows, of which those that fail and were not tried say why."""
    return [
        row._replace(why_not_tried="only the fix of a package's own import is tried")
        if row.is_failure and row.mends is None and row.tried is None and not row.why_not_tried
        else row
        for row in judged
    ]


def _left_over(request: Request, target: Target) -> list[Path]:
    """The folders of removed packages, of those that the user names or of all."""
    if not request.names:
        return [*leftovers(target)]
    named = (leftover(target, name) for name in request.names if os.sep not in name)
    return [folder for folder in named if folder is not None]


def reason_of_pasted(content: str, runtime: Runtime) -> Finding | None:
    """The reason in this environment for a message that somebody pasted, by the same rules as for
    what was seen; None if none applies."""
    lines = messages.lines_of(content)
    seen = seen_in(lines)
    if seen is None:
        return None
    distributions = [*installed(runtime.target, site_folders(runtime.target)).values()]
    case = Case(
        seen=seen,
        subject=None,
        runtime=runtime,
        catalog=Catalog(distributions, runtime),
        path=runtime.target.search_path(),
        folder=_here(),
        judge=lambda path: judge_package_file(path, runtime),
        of_torch=torch_loading.judge_torch(runtime),
    )
    if not any(case.catalog.of_file(frame.file) for frame in case.frames()):
        found = damaged.files_are_damaged(case) or folder_is_left_over(case)
        return found or part_is_left_out(case) or module_lies_beside_the_path(case)
    finding = explain(case)
    return None if finding.code in _NO_REASON and not finding.fix.command else finding


def _here() -> Path:
    """The folder in which the doctor runs, also one that was removed meanwhile."""
    with suppress(OSError):
        return Path.cwd()
    return Path(os.environ.get("PWD", os.curdir))


#: What says no more than the message, or nothing, where it has no command either.
_NO_REASON = (codes.REASON_NOT_KNOWN, codes.MODULE_MISSING)


class _Eyes:
    """The judged Python, as far as it may look."""

    def __init__(self, request: Request, runtime: Runtime) -> None:
        self.python = Python(
            executable=runtime.target.executable(), seconds=request.seconds, jobs=jobs_here()
        )
        self.target = runtime.target
        self.why_not = _why_not_look(request, runtime)
        self.named = [Path(name) for name in request.names if os.sep in name]
        self.places: Mapping[str, tuple[Path, ...]] = NOTHING
        self.reached = Reached(files=())

    def find(self, files: Sequence[Path]) -> Reached:
        """Which of some files Python reaches, by what it takes for their modules."""
        names = dict.fromkeys(filter(None, map(reach_of(self.target).module_of, files)))
        if not self.why_not:
            with self._if_it_starts():
                self.places = {name: one.places for name, one in find(names, self.python).items()}
        reach = reach_of(self.target, self.places)
        self.reached = sort_out(self.target, files, self.named, reach, is_looking=not self.why_not)
        return self.reached

    def behind(self, module: str) -> Path | None:
        """The file of an installed module behind a folder without code, which Python takes."""
        with self._if_it_starts():
            found = find([module], self.python).get(module)
            return found.behind if found else None
        return None

    def look(self, subjects: Sequence[Subject]) -> Looked | None:
        """What is seen; None if nothing may be imported."""
        with self._if_it_starts():
            if not self.why_not:
                return look(subjects, self.python)
        return None

    @contextmanager
    def _if_it_starts(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # as for a user who may not start this Python
            self.why_not = f"this Python cannot be started ({printable(str(error))})"


def _why_not_look(request: Request, runtime: Runtime) -> str:
    """Why nothing is imported: packages must be meant, and the torch of a Python that runs."""
    if request.not_looking_since:
        return request.not_looking_since
    torch = runtime.torch
    if torch is not None and torch.root == NOWHERE:
        return "this torch need not be installed here"
    if request.names and all(exists(name) and os.sep in name for name in request.names):
        return "files alone were named"
    return ""


class _Examination:
    """An environment while it is examined."""

    def __init__(
        self,
        request: Request,
        runtime: Runtime,
        *,
        distributions: Sequence[Distribution],
        binaries: Sequence[BinaryRecord],
        eyes: _Eyes,
    ) -> None:
        self.request = request
        self.runtime = runtime
        self.distributions = distributions
        self.binaries = binaries
        self.reached = eyes.reached
        self.eyes = eyes
        self.catalog = Catalog(distributions, runtime)
        self.of_torch = torch_loading.judge_torch(runtime)
        self.looked: Looked | None = None
        self.subjects = Subjects(subjects=(), packages={}, module_of={})
        if not eyes.why_not:
            self.subjects = subjects_of(
                runtime.target, self._chosen_packages(), self._tried(), eyes.reached
            ).naming({name: self._having(name) for name in self._modules()})
            self.looked = eyes.look(self.subjects.subjects)
            self.runtime = self._as_seen()

    def _chosen_packages(self) -> list[Distribution]:
        """The distributions to import: those that are named, or all that have to do with torch."""
        if self.request.names:
            chosen = {normal(name) for name in self.request.names} | self._owners()
            chosen |= {normal(p.name) for name in self._modules() for p in self._having(name)}
            return [p for p in self.distributions if normal(p.name) in chosen]
        with_objects = self._owners()
        python = standards.Python.of(self.runtime)
        return [
            package
            for package in self.distributions
            if (packages.is_of_torch(package, python) or normal(package.name) in with_objects)
            and not TORCHS_OWN.fullmatch(package.name)
        ]

    def _modules(self) -> list[str]:
        """What the user names that is no distribution: a module to import, as it is spelled. A
        name with dots is one, though a distribution may be so named: `metatensor.torch`."""
        names = {normal(one.name) for one in self.distributions}
        asked = (name for name in self.request.names if "." in name or normal(name) not in names)
        return [name for name in asked if is_module(self.runtime.target, name)]

    def _having(self, module: str) -> list[Distribution]:
        """The distributions that have a module, or the package in which it is sought."""
        having = with_module(self.runtime.target, self.distributions, module)
        top = module.partition(".")[0]
        return having or with_module(self.runtime.target, self.distributions, top)

    def _owners(self) -> set[str]:
        """The distributions that own the objects."""
        owners = (find_owner(self.runtime.target, binary.path) for binary in self.binaries)
        return {normal(owner.name) for owner in owners if owner is not None}

    def _tried(self) -> list[BinaryRecord]:
        """The objects to be loaded: not those that a package keeps for another torch or CUDA."""
        paths = [binary.path for binary in self.binaries]
        others = _for_others(paths, self.runtime)
        return [binary for binary in self.binaries if binary.path not in others]

    def _as_seen(self) -> Runtime:
        """The runtime, in which torch loads or fails as it was seen to."""
        seen = self.looked.torch if self.looked else None
        torch = self.runtime.torch
        if seen is None or torch is None:
            return self.runtime
        if not seen.works:
            return self.runtime._replace(torch_import=self._explain(seen, None, {}))
        if self._is_another(seen):
            hidden = torch_is_hidden(self._case(seen, None, {}))
            return self.runtime._replace(torch_import=hidden)
        loads = Finding(
            dimension="import torch", status=OK, observed="it was imported", needed="torch"
        )
        return self.runtime._replace(torch_import=loads, torch=torch._replace(problems=()))

    def _is_another(self, seen: Seen) -> bool:
        """Whether Python imported something else as torch than the judged torch."""
        torch = self.runtime.torch
        if torch is None or not seen.torch_file:
            return False
        real = os.path.realpath(torch.root)
        return not os.path.realpath(seen.torch_file).startswith(real)

    def results(self) -> tuple[list[rows.Row], list[rows.Row]]:
        """The rows on objects, and those on packages and on torch."""
        verdicts = self._judge()
        if self.looked is None:
            decisions = [decision_by_reading(verdict) for verdict in verdicts]
        else:
            decider = Decider(
                looked=self.looked,
                module_of=self.subjects.module_of,
                explain=lambda seen, path: self._explain(seen, self._owner(path), {}),
                lacking=self.reached.lacking,
                explain_hidden=self._explain_hidden,
            )
            decisions = decider.decide(verdicts)
        of_objects = [*pass_over_spares(rows.row_of(one, self.runtime) for one in decisions)]
        if not self.request.names:
            others = _for_others([row.path for row in of_objects], self.runtime)
            of_objects = [row for row in of_objects if row.path not in others]
        notices = [*self._of_packages(decisions)]
        notices += self._remarks(of_objects)
        torch_row = self._of_torch()
        if torch_row is not None:
            (of_objects if torch_row.is_failure else notices).insert(0, torch_row)
        if self.runtime.torch is None:
            of_objects = self._with_one_torch(of_objects)
        return of_objects, notices

    def _with_one_torch(self, of_objects: Sequence[rows.Row]) -> list[rows.Row]:
        """The rows, in which the fix of a missing torch is one and the same."""
        owners = (find_owner(self.runtime.target, binary.path) for binary in self.binaries)
        built_for = {owner.built_for[0][0] for owner in owners if owner and owner.built_for}
        fix = install_torch(self.runtime, built_for)
        return [
            row._replace(finding=row.finding._replace(fix=fix))
            if row.finding is not None and row.code == codes.TORCH_MISSING
            else row
            for row in of_objects
        ]

    def _judge(self) -> Iterator[Verdict]:
        for number, binary in enumerate(self.binaries, 1):
            progress.show(f"reading {number} of {len(self.binaries)} files")
            try:
                self.runtime.target.budget.check_time()
            except BudgetSpentError as error:
                yield cannot_be_told(unread(binary.path), str(error))
            else:
                yield self._judge_one(binary)

    def _judge_one(self, binary: BinaryRecord) -> Verdict:
        # The version of our package does not matter for binaries of other packages.
        runtime = self.runtime
        facts = runtime if runtime.is_ours(binary) else runtime._replace(package_version="")
        return judge_package_file_in_run(binary, facts)

    def _owner(self, path: Path) -> Distribution | None:
        return self.subjects.packages.get(self.subjects.module_of.get(path, ""))

    def _explain(
        self, seen: Seen, package: Distribution | None, parts: dict[Path, Seen]
    ) -> Finding:
        """The reason for what was seen."""
        case = self._case(seen, package, parts)
        return with_pin(explain(case), case)

    def _explain_hidden(self, path: Path, package: Seen) -> Finding:
        """Why a file is not reached, though nothing serves in its place."""
        owner = self._owner(path)
        case = self._case(package, owner, {path: package})
        return behind(case, self.reached.lacking[path], owner)

    def _case(self, seen: Seen, package: Distribution | None, parts: dict[Path, Seen]) -> Case:
        return Case(
            seen=seen,
            subject=package or (self.catalog.named("torch") if not parts else None),
            runtime=self.runtime,
            catalog=self.catalog,
            path=self.runtime.target.search_path(),
            folder=_here(),
            judge=lambda path: self._judge_one(read_binary(path)),
            of_torch=self.of_torch,
            extensions=parts,
            places=self.eyes.places,
        )

    def _of_packages(self, decisions: Sequence[Decision]) -> Iterator[rows.Row]:
        """A row for each package whose import failed, or works only in its own way."""
        with_objects = {self.subjects.module_of.get(one.path) for one in decisions}
        for module, seen in self.looked.packages.items() if self.looked else ():
            package = self.subjects.packages.get(module)
            place = package.place if package else Path(module)
            name = package.name if package else module
            version = package.version if package else None
            if seen.works and package is not None and (row := self._of_empty(seen, package)):
                yield row
                continue
            if seen.works and self._is_of_another_file(seen, package):
                instead = module_at(Path(seen.file))
                yield rows.notice(_hidden(instead), place, package=name, version=version)
            if seen.works and not seen.needs_torch_first:
                if module not in with_objects and not self._is_of_another_file(seen, package):
                    yield rows.imported(seen, place, package=name, version=version)
                continue
            if seen.works:
                finding = _torch_first(module, seen, self._case(seen, package, {}))
            else:
                parts = {
                    one.path: one.seen
                    for one in decisions
                    if one.seen is not None
                    and not one.seen.works
                    and self.subjects.module_of.get(one.path) == module
                }
                finding = self._explain(seen, package, parts)
            row = rows.notice(finding, place, package=name, version=version)
            row = row._replace(seen=seen, decided_by="look")
            yield row if seen.works else self._tried_beside(row, module)

    def _is_of_another_file(self, seen: Seen, package: Distribution | None) -> bool:
        return package is not None and self._is_behind(seen, package)

    def _of_empty(self, seen: Seen, package: Distribution) -> rows.Row | None:
        """A row on a package for which Python takes a folder without code, such as a build leaves
        it where the user works."""
        if not Path(seen.file).is_dir() or self.eyes.behind(seen.what) is None:
            return None
        finding = empty_in_front(self._case(seen, package, {}), Path(seen.file), package)
        row = rows.notice(finding, package.place, package=package.name, version=package.version)
        return row._replace(seen=seen, decided_by="look")

    def _tried_beside(self, row: rows.Row, module: str) -> rows.Row:
        """The row, with what its fix does beside the environment, if fixes are to be tried: also
        other releases, where the fix names no command that mends."""
        if not self.request.is_trying or row.finding is None:
            return row
        fix = row.finding.fix
        trial = Trial(module, self.eyes.python)
        tried = Tried(why_not="the fix is not a command")
        if fix.command:
            tried = trial.of_command(fix.command)
        if tried.mends or not fix.releases_of:
            releases = None if tried.mends is None else tried.releases
            return row._replace(mends=tried.mends, tried=releases, why_not_tried=tried.why_not)
        found = find_release(fix, trial, self.catalog, self.runtime)
        if found.fix is None:
            why_not = tried.why_not if fix.command else ""
            all_tried = (*tried.releases, *found.tried)
            return row._replace(mends=tried.mends, tried=all_tried, why_not_tried=why_not)
        return row._replace(
            finding=row.finding._replace(fix=found.fix), mends=True, tried=found.tried[-1:]
        )

    def _is_behind(self, seen: Seen, package: Distribution) -> bool:
        """Whether Python made the module of a distribution of another file than it installed.

        Of a package whose objects are hidden, that is told of them.
        """
        inner = seen.what.replace(".", "/")
        own = [package.site / inner / "__init__.py", package.site / f"{inner}.py"]
        listed = {file.path for file in self.catalog.files(package)}
        installed = next((path for path in own if path in listed and is_file(path)), None)
        objects = distributions(self.runtime.target, package.site).get(package.place, [])
        told = {*self.reached.hidden, *self.reached.lacking}
        if installed is None or not told.isdisjoint(objects):
            return False
        if installed.parent in self.eyes.places.get(seen.what, ()):
            return False  # its parts come from several folders
        return os.path.realpath(seen.file) != os.path.realpath(installed)

    def _remarks(self, of_objects: Sequence[rows.Row]) -> Iterator[rows.Row]:
        """What files tell of packages; of one that was imported, only what its import does not."""
        looked = self.looked.packages if self.looked else {}
        seen_of = {
            normal(package.name): looked[module]
            for module, package in self.subjects.packages.items()
            if package is not None and module in looked
        }
        for row in packages.notices(
            self.distributions, [*self.request.names], of_objects, self.runtime
        ):
            seen = seen_of.get(normal(row.package or ""))
            is_prediction = row.state == FAILS and row.code not in packages.OF_LATER
            is_told = seen is not None and (
                not seen.works or row.code == codes.WRITTEN_FOR_ANOTHER_TORCH
            )
            if is_told:
                continue  # by its import
            if seen is None or not is_prediction:
                yield row
            elif row.code == codes.WITHOUT_ITS_OPS:
                # It imports and goes on without them.
                why = f"import {seen.what} works, but {row.summary}"
                yield row._replace(state=REMARK, summary=why)

    def _of_torch(self) -> rows.Row | None:
        """The row on torch itself: that it fails, or a remark."""
        seen = self.looked.torch if self.looked else None
        torch = self.runtime.torch
        version = torch.version if torch else None
        place = torch.root if torch else Path("torch")
        of_import = self.runtime.torch_import
        is_hidden = of_import is not None and of_import.status == REJECTED
        if seen is not None and (not seen.works or is_hidden):
            finding = self.runtime.torch_import or self._explain(seen, None, {})
            if torch is None and not self.request.names and not self.subjects.subjects:
                return None  # nothing here has to do with torch
            row = rows.notice(finding, place, package="torch", version=version)
            return row._replace(seen=seen, decided_by="look")
        if self.of_torch is None:
            return None
        if self.of_torch.rejection and seen is None:
            return rows.row_of_verdict(self.of_torch, self.runtime)
        notes = [finding for finding in self.of_torch.findings if finding.status == NOTE]
        path = self.of_torch.binary.path
        return rows.notice(notes[0], path, package="torch") if notes else None


def _hidden(instead: Path) -> Finding:
    why = f"Python takes {instead} under its name, and not what was installed"
    return Finding(
        dimension="import",
        status=NOTE,
        code=codes.HIDDEN_COPY,
        observed=printable(str(instead)),
        needed="",
        why=printable(why),
    )


def _torch_first(module: str, seen: Seen, case: Case) -> Finding:
    """An extension by itself is made to come after torch; a package with Python of its own, whose
    import fails alone, does not work as it is."""
    has_python = Path(seen.file).suffix == ".py"
    finding = case.finding(
        codes.LOADED_BEFORE_TORCH,
        f"import {module} works only after import torch",
        needed="import torch before it",
        fix=fixes.in_words(f"import torch before {module}, as its own Python should"),
    )
    return finding if has_python else finding._replace(status=NOTE, fix=NO_FIX)


def _for_others(paths: Sequence[Path], runtime: Runtime) -> set[Path]:
    """The files that a package does not open beside this torch, since they are for another torch
    or another CUDA."""
    torch = runtime.torch
    if torch is None:
        return set()
    others = {path for family in families(paths) for path in family.others(torch)}
    return others | of_other_cudas(paths, torch)


class _Filter:
    """Which of the files that were read are judged."""

    def __init__(
        self, names: Sequence[str], distributions: Sequence[Distribution], runtime: Runtime
    ) -> None:
        python = standards.Python.of(runtime)
        self._names = names
        self._target = runtime.target
        self._of_torch = {
            normal(one.name) for one in distributions if packages.is_of_torch(one, python)
        }

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
        owner = find_owner(self._target, path)
        return owner is not None and normal(owner.name) in self._of_torch


def _is_of_another_system(binary: BinaryRecord, runtime: Runtime) -> bool:
    """Whether a file has the format of another operating system, or is a Python module for
    another processor."""
    if binary.platform in (None, runtime.platform):
        return False
    is_module = re.search(r"\.(cpython-|abi3t?[.-])", binary.path.name) is not None
    return is_module or not str(binary.platform).startswith(f"{runtime.system}-")


def _to_judge(files: Iterable[Path], runtime: Runtime, wanted: _Filter) -> Iterator[BinaryRecord]:
    """The objects to judge. When the budget is spent, the rest comes unread."""
    paths = [*files]
    for path in paths:
        try:
            binary = read_binary(path, budget=runtime.target.budget)
        except BudgetSpentError as error:
            yield unread(path)._replace(too_large=str(error))
            continue
        if wanted.takes(binary, runtime, is_only_one=len(paths) == 1):
            yield binary

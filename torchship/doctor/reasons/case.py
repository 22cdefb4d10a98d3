"""One failure to be explained: what was seen, and where. `examine.py` makes the cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...judge.project import Record
from ...judge.records import NO_FIX, NOTHING, REJECTED, Finding, Fix, Runtime, Verdict
from ...judge.text import printable
from ...judge.words.codes import Code
from ..environment.catalog import Catalog
from ..environment.installed import Distribution
from ..looking.seen import Seen, SeenError, SeenFrame


class Case(Record, kw_only=True):
    """What failed, and the environment in which it did."""

    seen: Seen
    subject: Distribution | None  #: whose import it was; None for a file that no distribution lists
    runtime: Runtime
    catalog: Catalog
    path: tuple[str, ...]  #: the `sys.path` of the judged Python, without the folder it ran in
    folder: Path  #: in which it ran
    #: Reads an object and judges it as part of its package; examine.py says with which budget.
    judge: Callable[[Path], Verdict]
    of_torch: Verdict | None = None  #: the verdict on torch's own libraries
    extensions: Mapping[Path, Seen] = NOTHING  #: of the package, that failed when loaded alone
    #: Where Python told that it finds a module: its file, and the folders of a package.
    places: Mapping[str, tuple[Path, ...]] = NOTHING

    @property
    def errors(self) -> tuple[SeenError, ...]:
        """The errors of the import, and then those that came before an extension was tried."""
        return (*self.seen.errors, *self.seen.before)

    def frames(self) -> Iterator[SeenFrame]:
        """The frames of all errors, innermost first, or where the process died."""
        for error in self.errors:
            yield from reversed(error.frames)
        yield from reversed(self.seen.frames)

    @property
    def compiles(self) -> bool:
        """Whether it failed in the program of torch that compiles an extension on import."""
        program = ("torch", "utils", "cpp_extension.py")
        return any(Path(frame.file).parts[-3:] == program for frame in self.frames())

    @property
    def raiser(self) -> Distribution | None:
        """The distribution in whose code the error was raised; else the one that was imported."""
        for frame in self.frames():
            package = self.catalog.of_file(frame.file)
            if package is not None:
                return package
        return self.subject

    def name_of(self, package: Distribution | None) -> str:
        """A distribution by name and version; where there is none, what was looked at."""
        return f"{package.name} {package.version}" if package else self.seen.what

    def finding(
        self, code: Code, why: str, *, observed: str = "", needed: str = "", fix: Fix = NO_FIX
    ) -> Finding:
        """A reason, as a finding on the import."""
        return Finding(
            dimension="import",
            status=REJECTED,
            code=code,
            observed=printable(observed or self.seen.last_line)[:400],
            needed=printable(needed),
            why=printable(why),
            fix=fix,
        )

"""Finds a release of a distribution that mends an import, by trying some beside the environment.

Which release that is, no file of an environment tells: a package that names no bound works with
what there was when it was written. So they are tried, newest first, as the installer offers them.
"""

from __future__ import annotations

from ...judge.fixes import cures
from ...judge.fixes.cures import Cure
from ...judge.fixes.installers import Pip
from ...judge.project import Record
from ...judge.records import Runtime, parse_version
from ..environment.catalog import Catalog
from ..environment.standards import admits, normal
from .trying import Release, Trial

_MOST_TRIES = 8
#: After so many series, the next one tried is of another major.
_SERIES_IN_TURN = 3


class Found(Record, kw_only=True):
    """What was tried."""

    cure: Cure | None  #: that was seen to mend; None if none did
    tries: int


def find_release(cure: Cure, trial: Trial, installed: Catalog, runtime: Runtime) -> Found:
    """Try releases of the distributions that a cure names, in the order of its names: the newest
    of each, and then older ones."""
    if runtime.environment.kind == "conda":
        return Found(cure=None, tries=0)
    search = _Search(trial, installed, runtime)
    for name in cure.releases_of:
        search.newest(name)
    for name in cure.releases_of:
        search.older(name)
    return Found(cure=search.cure, tries=search.tries)


class _Search:
    def __init__(self, trial: Trial, installed: Catalog, runtime: Runtime) -> None:
        self._trial = trial
        self._installed = installed
        self._pip = Pip(runtime.environment)
        torch = installed.named("torch")
        #: The installer shall leave torch as it is.
        self._torch = f'"torch=={torch.version.partition("+")[0]}"' if torch else ""
        self.cure: Cure | None = None
        self.tries = 0

    def newest(self, name: str) -> None:
        """Try the newest release, if it is newer than what is here."""
        here = self._installed.named(name)
        if here is not None:
            self._try(name, f">{here.version}")

    def older(self, name: str) -> None:
        """Try the newest release of each series before the one that is here."""
        here = self._installed.named(name)
        before = _series(here.version, self.tries) if here else ""
        while before:
            release = self._try(name, f"<{before}")
            before = _series(release.version, self.tries) if release else ""

    def _try(self, name: str, bound: str) -> Release | None:
        """Try the release that the installer takes within a bound, and return it."""
        if self.cure is not None or self.tries >= _MOST_TRIES:
            return None
        asked = self._pip.install(f'"{name}{bound}"', self._torch)
        releases = self._trial.releases_of(asked) or ()
        release = next((one for one in releases if one.name == normal(name)), None)
        if release is None:
            return None
        self.tries += 1
        if self._is_excluded(release):
            return release
        if self._trial.works_beside(asked, releases):
            command = self._pip.install(f'"{name}=={release.version}"')
            self.cure = cures.command_alone(cures.INSTALL_RELEASE, command)
        return release

    def _is_excluded(self, release: Release) -> bool:
        """Whether another distribution, which is content with what is here, requires another."""
        here = self._installed.named(release.name)
        return here is not None and any(
            admits(specifier, here.version) and not admits(specifier, release.version)
            for specifier in self._installed.specifiers_on(release.name)
        )


def _series(version: str, tries: int) -> str:
    """The first release of the series of a version, or of its major after some tries; "" if there
    can be none before it."""
    numbers = parse_version(version) or ()
    if len(numbers) < 2:
        return ""
    if tries < _SERIES_IN_TURN or not numbers[0]:
        return f"{numbers[0]}.{numbers[1]}" if any(numbers[:2]) else ""
    return f"{numbers[0]}.0" if numbers[1] else str(numbers[0])

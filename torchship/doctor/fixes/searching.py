"""Finds a release of a distribution that mends an import, by trying some beside the environment.

Which release that is, no file of an environment tells: a package that names no bound works with
what there was when it was written. So they are tried, newest first, as the installer offers them.
"""

from __future__ import annotations

from ...judge import fixes
from ...judge.fixes.installers import Pip
from ...judge.project import Record
from ...judge.records import Fix, Runtime, parse_version
from ..environment.catalog import Catalog
from ..environment.standards import admits, normal, parse_need
from .trying import Release, Trial

_MOST_TRIES = 8


class Found(Record, kw_only=True):
    """What came of a search."""

    fix: Fix | None  #: that was seen to mend; None if none did
    tried: tuple[str, ...]  #: the releases, such as `einops 0.8.2`; the last one is that of `fix`


def find_release(fix: Fix, trial: Trial, catalog: Catalog, runtime: Runtime) -> Found:
    """Try releases of the distributions that a fix names, in the order of its names: the newest
    of each, and then older ones."""
    if runtime.environment.kind == "conda":
        return Found(fix=None, tried=())
    search = _Search(trial, catalog, runtime)
    for name in fix.releases_of:
        search.newest(name)
    for name in fix.releases_of:
        search.older(name)
    return Found(fix=search.fix, tried=tuple(search.tried))


class _Search:
    def __init__(self, trial: Trial, catalog: Catalog, runtime: Runtime) -> None:
        self._trial = trial
        self._catalog = catalog
        self._pip = Pip(runtime.environment)
        torch = catalog.named("torch")
        #: The installer shall leave torch as it is.
        self._torch = f'"torch=={torch.version.partition("+")[0]}"' if torch else ""
        self.fix: Fix | None = None
        self.tried: list[str] = []
        self._offers = 0

    def newest(self, name: str) -> None:
        """Try the newest release, if it is newer than what is here."""
        here = self._catalog.named(name)
        if here is not None:
            self._try(name, f">{here.version}")

    def older(self, name: str) -> None:
        """Try older releases: of the series before the one that is here, of the second, the fourth
        and so on, and of each major before it alike."""
        here = self._catalog.named(name)
        version = here.version if here else ""
        step = 1
        while before := _bound(version, step):
            release = self._try(name, f"<{before}")
            is_same_major = release is not None and _major(release.version) == _major(version)
            step = 2 * step if is_same_major else 1
            version = release.version if release else ""

    def _try(self, name: str, bound: str) -> Release | None:
        """Try the release that the installer takes within a bound, and return it."""
        if self.fix is not None or self._offers >= _MOST_TRIES:
            return None
        asked = self._pip.install(f'"{name}{bound}"', self._torch)
        releases = self._trial.releases_of(asked) or ()
        release = next((one for one in releases if one.name == normal(name)), None)
        if release is None:
            return None
        self._offers += 1
        if self._is_excluded(release) or self._is_of_another_project(release):
            return release
        works = self._trial.works_beside(asked, releases)
        # uv tells what a release requires only when it is installed.
        known = next((one for one in self._trial.installed if one.name == release.name), release)
        if self._is_of_another_project(known):
            return release
        if works is not None:
            self.tried.append(f"{release.name} {release.version}")
        if works:
            command = self._pip.install(f'"{name}=={release.version}"')
            self.fix = fixes.command_alone(fixes.Kind.INSTALL_RELEASE, command)
        return release

    def _is_of_another_project(self, release: Release) -> bool:
        """Whether what is here requires torch, and the release does not: an index may have another
        project under the name of a package that was never published there."""
        here = self._catalog.named(release.name)
        needs_torch = self._catalog.requirement_on(here, "torch") is not None
        if not needs_torch or release.needs is None:
            return False
        needs = (parse_need(need) for need in release.needs)
        return not any(need is not None and need.name == "torch" for need in needs)

    def _is_excluded(self, release: Release) -> bool:
        """Whether another distribution, which is content with what is here, requires another."""
        here = self._catalog.named(release.name)
        return here is not None and any(
            admits(specifier, here.version) and not admits(specifier, release.version)
            for _, specifier in self._catalog.specifiers_on(release.name)
        )


def _major(version: str) -> int:
    return (parse_version(version) or (0,))[0]


def _bound(version: str, step: int) -> str:
    """The version before which the next release is to be: some series back, or of another major;
    "" if there can be none."""
    numbers = parse_version(version) or ()
    if len(numbers) < 2:
        return ""
    major, minor = numbers[:2]
    if minor >= step:
        return f"{major}.{minor - step + 1}"
    return str(major) if major else ""

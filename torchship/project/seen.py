"""What a build of a repository says of itself, as its setup.py or CMakeLists.txt was seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Macros = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, kw_only=True)
class SeenExtension:
    """One extension. Paths are relative to the repository, except those outside of it."""

    name: str
    place: str  #: where it stands, such as `setup.py`
    is_cuda: bool = False
    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    macros: Macros = ()
    undefined: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  #: for the host's compiler
    nvcc_flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    library_folders: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()  #: that are linked as they are
    py_limited_api: bool = False
    unread: tuple[str, ...] = ()  #: arguments whose values only a run would show
    cmake: str = ""  #: the folder of the CMake project that builds it


@dataclass(frozen=True, kw_only=True)
class SeenMetadata:
    """What the distribution says of itself; "" and () for what it does not say."""

    name: str = ""
    version: str = ""
    summary: str = ""
    license: str = ""
    author: str = ""
    author_email: str = ""
    url: str = ""
    project_urls: Mapping[str, str] = field(default_factory=dict)
    keywords: tuple[str, ...] = ()
    classifiers: tuple[str, ...] = ()
    requires_python: str = ""
    requires: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    entry_points: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    build_requires: tuple[str, ...] = ()
    build_backend: str = ""
    torch: str = ""  #: the release that is installed where setup.py ran
    packages: Mapping[str, str] = field(default_factory=dict)  #: their folders, by name
    data: tuple[str, ...] = ()  #: files of the packages that are no Python
    commands: tuple[str, ...] = ()  #: classes of the author's own that build
    maintainer: str = ""  #: beside an author
    maintainer_email: str = ""
    others: Mapping[str, str] = field(default_factory=dict)  #: what has no field here, shortened


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one look saw: a run of setup.py on one kind of machine, or a reading."""

    place: str  #: what was looked at, such as `setup.py`
    extensions: tuple[SeenExtension, ...] = ()
    metadata: SeenMetadata = SeenMetadata()
    unknown: tuple[str, ...] = ()  #: what could not be seen, and why
    untaken: tuple[str, ...] = ()  #: variables of CMake's conditions that nothing turns on
    written: tuple[str, ...] = ()  #: files of the repository that the run wrote
    error: str = ""  #: why the run ended before there was a distribution


@dataclass(frozen=True, kw_only=True)
class Both:
    """The same build as a machine without CUDA and as one with CUDA see it."""

    without: Seen
    with_cuda: Seen

    @property
    def seen(self) -> Seen:
        """The one that saw a distribution; that of a machine with CUDA, if both did."""
        return self.without if self.with_cuda.error else self.with_cuda

    @property
    def metadata(self) -> SeenMetadata:
        """What both say; where they contradict each other, that of a machine with CUDA."""
        mine, other = self.seen.metadata, self.without.metadata
        if self.without.error:
            return mine
        return replace(
            mine,
            keywords=_each(mine.keywords, other.keywords),
            classifiers=_each(mine.classifiers, other.classifiers),
            requires=_each(mine.requires, other.requires),
            build_requires=_each(mine.build_requires, other.build_requires),
            data=_each(mine.data, other.data),
            commands=_each(mine.commands, other.commands),
            extras=_each_of(mine.extras, other.extras),
            entry_points=_each_of(mine.entry_points, other.entry_points),
            project_urls={**other.project_urls, **mine.project_urls},
            packages={**other.packages, **mine.packages},
            others={**other.others, **mine.others},
        )

    @property
    def needs_cuda(self) -> bool:
        """Whether there is no distribution without CUDA."""
        return bool(self.without.error) and not self.with_cuda.error


def _each(mine: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*mine, *other]))


def _each_of(
    mine: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    return {key: _each(mine.get(key, ()), other.get(key, ())) for key in {**mine, **other}}


def join(first: Both, more: Both) -> Both:
    """The extensions of both builds, such as of setup.py and of the CMake that it calls."""
    return Both(
        without=_joined(first.without, more.without),
        with_cuda=_joined(first.with_cuda, more.with_cuda),
    )


def _joined(first: Seen, more: Seen) -> Seen:
    # An extension without sources is built by what setup.py calls.
    own = tuple(extension for extension in first.extensions if extension.sources)
    return replace(
        first,
        extensions=(*own, *more.extensions),
        unknown=(*first.unknown, *more.unknown),
        untaken=(*first.untaken, *more.untaken),
        error=first.error or more.error,
    )

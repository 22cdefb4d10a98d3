"""The registry of cures: what may mend a fault, and whether a test has carried it out.

A cure is a text that people read. It may hold a command for a shell; then its kind is in
`REGISTRY` as carried out, and a test makes an environment with the fault, types the command
and finds the fault gone (tests/torchship/doctor/test_cures.py fails for a kind without such a
test).
What no test could carry out, such as a new driver, is said in words.
"""

from __future__ import annotations

import os

from ..project import Record

REGISTRY: dict[str, Kind] = {}


class Kind(Record, kw_only=True):
    """One way to fix a fault."""

    id: str
    mends: str  #: the fault, in words
    is_carried_out: bool  #: whether its cures hold a command, which a test has carried out


class Cure(str):
    """A cure as people read it: a command, words, or words with a command in them."""

    __slots__ = ("command", "kind", "releases_of")

    command: str  #: for a shell; "" for words alone
    kind: Kind | None
    releases_of: tuple[str, ...]  #: distributions of which another release may mend it

    def __new__(
        cls,
        text: str = "",
        *,
        kind: Kind | None = None,
        command: str = "",
        releases_of: tuple[str, ...] = (),
    ) -> Cure:
        if command and (kind is None or not kind.is_carried_out):
            raise ValueError(f"no test has carried out {command!r}; say it in words")
        cure = super().__new__(cls, text)
        cure.kind = kind
        cure.command = command
        cure.releases_of = releases_of
        return cure

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:
        named = {"kind": self.kind, "command": self.command, "releases_of": self.releases_of}
        return (str(self),), {**named}


#: Stands for no cure, in findings that need none or know none.
NO_CURE = Cure()


def _carried_out(identifier: str, mends: str) -> Kind:
    kind = Kind(id=identifier, mends=mends, is_carried_out=True)
    REGISTRY[identifier] = kind
    return kind


def _in_words(identifier: str, mends: str) -> Kind:
    kind = Kind(id=identifier, mends=mends, is_carried_out=False)
    REGISTRY[identifier] = kind
    return kind


BUILD_PROJECT = _carried_out("build-project", "a project without a binary for this torch")
INSTALL_PROJECT = _carried_out("install-project", "damaged or missing files of the project")
INSTALL_ONCE = _carried_out("install-once", "a project that is installed over itself")
USE_DEFINITION = _carried_out("use-definition", "a platform without binaries of the project")
KEEP_ONE = _carried_out("keep-one", "two distributions that wrote the same files")
REMOVE_COPY = _carried_out("remove-copy", "operators that two copies of a package register")
UNSET_VARIABLE = _carried_out("unset-variable", "a variable that forces what does not fit")
INSTALL_TORCH = _carried_out("install-torch", "a torch that is missing or too old")
REINSTALL_TORCH = _carried_out("reinstall-torch", "damaged files of torch")
CUDA_TORCH = _carried_out("cuda-torch", "a CPU build of torch that replaced a CUDA build")
INSTALL_RELEASE = _carried_out("install-release", "a release of a package for another torch")
FIT_TORCH = _carried_out("fit-torch", "a torch that is not the one that a package was built for")
REINSTALL_PACKAGE = _carried_out("reinstall-package", "damaged or foreign files of a package")
COMPILE_PACKAGE = _carried_out("compile-package", "a package whose binary does not fit")
BUILD_FOR_GPU = _carried_out("build-for-gpu", "a binary without code for the GPU")
INSTALL_REQUIREMENT = _carried_out("install-requirement", "a required package that is missing")
INSTALL_WHEEL = _carried_out("install-wheel", "a package that is missing, or does not fit")
SET_VARIABLE = _carried_out("set-variable", "a tool or a number of jobs that breaks a build")
RAISE_STANDARD = _carried_out("raise-standard", "a C++ standard older than torch's headers want")
NO_ISOLATION = _carried_out("no-isolation", "a build in an environment without this torch")
OPEN_FILE = _carried_out("open-file", "a file or a folder that is closed to this user")
REMOVE_CACHE = _carried_out("remove-cache", "an object that was compiled for another torch")
REMOVE_FILE = _carried_out("remove-file", "a file that is left over, and hides the right one")
REMOVE_LOCK = _carried_out("remove-lock", "a lock that a killed build left")
INSTALL_PINNED = _carried_out("install-pinned", "a wheel that is not as torch's metadata pins it")
RESTRICT_CACHE = _carried_out("restrict-cache", "a cache of builds that is open to other users")
ALLOW_EXECUTION = _carried_out("allow-execution", "a file system that is mounted with noexec")
RAISE_LIMIT = _carried_out("raise-limit", "a limit of the shell that is too low")
RENAME_SHADOW = _carried_out("rename-shadow", "a file or a folder that hides torch")
SHARE_TORCH = _carried_out("share-torch", "an object that is not linked with torch's libraries")
CLEAR_STACK = _carried_out("clear-stack", "a file that asks for an executable stack")
ENLARGE_TLS = _carried_out("enlarge-tls", "static thread-local storage that does not suffice")
INSTALL_BY_APT = _carried_out("install-by-apt", "a library or part of Python that apt has")
INSTALL_BY_CONDA = _carried_out("install-by-conda", "a package of conda's that does not fit")
REINSTALL_BY_CONDA = _carried_out("reinstall-by-conda", "damaged files of a package of conda's")
REMOVE_BY_CONDA = _carried_out("remove-by-conda", "operators that a package of conda's repeats")

DRIVER = _in_words("driver", "an NVIDIA driver that is missing or too old")
SYSTEM_LIBRARY = _in_words("system-library", "a library of the system that is missing or too old")
OTHER_BUILD = _in_words("other-build", "builds of torch and of a package for two devices")
OTHER_RELEASE = _in_words("other-release", "a package without a release for this torch")
OTHER_PYTHON = _in_words("other-python", "a Python that is too old")
BY_HAND = _in_words("by-hand", "what a person has to move, rename, restart or install")


def in_words(kind: Kind, text: str) -> Cure:
    """A cure without a command."""
    return Cure(text, kind=kind)


def other_release(text: str, *names: str) -> Cure:
    """A cure without a command: another release of one of these distributions. Which one, only a
    trial tells."""
    return Cure(text, kind=OTHER_RELEASE, releases_of=names)


def command_alone(kind: Kind, command: str) -> Cure:
    """A cure that is a command and needs no words."""
    return Cure(command, kind=kind, command=command)


def command_in_words(
    kind: Kind, words: str, command: str, releases_of: tuple[str, ...] = ()
) -> Cure:
    """A cure in which `words` hold `{command}` where the command is to be read."""
    text = words.replace("{command}", command)
    return Cure(text, kind=kind, command=command, releases_of=releases_of)


def quoted(path: str | os.PathLike[str]) -> str:
    """A path as one word of a shell command, on one line and without control characters."""
    name = os.fspath(path)
    if name.isprintable():
        from shlex import quote  # an import of the package does not need it

        return quote(name)
    # Bash and zsh read such escapes between $' and '.
    is_plain = {*range(32, 127)} - {*b"'\\"}
    characters = (chr(b) if b in is_plain else f"\\x{b:02x}" for b in os.fsencode(name))
    return f"$'{''.join(characters)}'"

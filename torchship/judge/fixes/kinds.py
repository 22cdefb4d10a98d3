"""The kinds of fixes that are commands, and how a fix is made.

For each kind, a test makes an environment with the fault, types the command and finds the fault
gone (tests/torchship/doctor/test_fixes_carried_out.py fails for a kind without such a test). What
no test could carry out, such as a new driver, is said in words.
"""

from __future__ import annotations

from enum import Enum

from ..records import Fix


class Kind(str, Enum):
    """What a command mends."""

    BUILD_PROJECT = "build-project"  #: a project without a binary for this torch
    INSTALL_PROJECT = "install-project"  #: damaged or missing files of the project
    INSTALL_ONCE = "install-once"  #: a project that is installed over itself
    USE_DEFINITION = "use-definition"  #: a platform without binaries of the project
    KEEP_ONE = "keep-one"  #: two distributions that wrote the same files
    REMOVE_COPY = "remove-copy"  #: operators that two copies of a package register
    UNSET_VARIABLE = "unset-variable"  #: a variable that forces what does not fit
    INSTALL_TORCH = "install-torch"  #: a torch that is missing or too old
    REINSTALL_TORCH = "reinstall-torch"  #: damaged files of torch
    CUDA_TORCH = "cuda-torch"  #: a CPU build of torch that replaced a CUDA build
    INSTALL_RELEASE = "install-release"  #: a release of a package for another torch
    FIT_TORCH = "fit-torch"  #: a torch that is not the one that a package was built for
    REINSTALL_PACKAGE = "reinstall-package"  #: damaged or foreign files of a package
    COMPILE_PACKAGE = "compile-package"  #: a package whose binary does not fit
    BUILD_FOR_GPU = "build-for-gpu"  #: a binary without code for the GPU
    INSTALL_REQUIREMENT = "install-requirement"  #: a required package that is missing
    INSTALL_WHEEL = "install-wheel"  #: a package that is missing, or does not fit
    SET_VARIABLE = "set-variable"  #: a tool or a number of jobs that breaks a build
    RAISE_STANDARD = "raise-standard"  #: a C++ standard older than torch's headers want
    NO_ISOLATION = "no-isolation"  #: a build in an environment without this torch
    OPEN_FILE = "open-file"  #: a file or a folder that is closed to this user
    REMOVE_CACHE = "remove-cache"  #: an object that was compiled for another torch
    REMOVE_FILE = "remove-file"  #: a file that is left over, and hides the right one
    MAKE_PACKAGE = "make-package"  #: a folder of modules that an installed package hides
    REMOVE_LOCK = "remove-lock"  #: a lock that a killed build left
    INSTALL_PINNED = "install-pinned"  #: a wheel that is not as torch's metadata pins it
    RESTRICT_CACHE = "restrict-cache"  #: a cache of builds that is open to other users
    ALLOW_EXECUTION = "allow-execution"  #: a file system that is mounted with noexec
    RAISE_LIMIT = "raise-limit"  #: a limit of the shell that is too low
    RENAME_SHADOW = "rename-shadow"  #: a file or a folder that hides torch
    SHARE_TORCH = "share-torch"  #: an object that is not linked with torch's libraries
    CLEAR_STACK = "clear-stack"  #: a file that asks for an executable stack
    ENLARGE_TLS = "enlarge-tls"  #: static thread-local storage that does not suffice
    INSTALL_BY_APT = "install-by-apt"  #: a library or part of Python that apt has
    INSTALL_BY_CONDA = "install-by-conda"  #: a package of conda's that does not fit
    REINSTALL_BY_CONDA = "reinstall-by-conda"  #: damaged files of a package of conda's
    REMOVE_BY_CONDA = "remove-by-conda"  #: operators that a package of conda's repeats


#: Those that leave all files of packages as they are, and what Python finds: they mend their own
#: cause and no other.
LEAVING = frozenset(
    {Kind.OPEN_FILE, Kind.ALLOW_EXECUTION, Kind.RAISE_LIMIT, Kind.CLEAR_STACK, Kind.ENLARGE_TLS}
    | {Kind.INSTALL_BY_APT, Kind.REMOVE_LOCK}
)


def in_words(text: str) -> Fix:
    """A fix without a command."""
    return Fix(text)


def other_release(text: str, *names: str) -> Fix:
    """A fix without a command: another release of one of these distributions. Which one, only a
    trial tells."""
    return Fix(text, releases_of=names)


def advice(text: str, *names: str) -> Fix:
    """What to try or to report where nothing says that it mends; `names` are distributions of
    which another release may."""
    return Fix(text, releases_of=names, is_advice=True)


def command_alone(kind: Kind, command: str) -> Fix:
    """A fix that is a command and needs no words."""
    return Fix(command, command, kind)


def command_in_words(
    kind: Kind, words: str, command: str, releases_of: tuple[str, ...] = ()
) -> Fix:
    """A fix in which `words` hold `{command}` where the command is to be read."""
    return Fix(words.replace("{command}", command), command, kind, releases_of)

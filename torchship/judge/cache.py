"""Where binaries are: in the package's folder, and in the user's cache of local builds.

The cache holds code that will be executed, so it belongs to the effective user alone: every
folder is 0700, and a folder or file that is a symlink, belongs to another user or is writable
for others is refused. The key of a build is the torch build, the platform with its C library,
the package's version and a hash of the sources: machines that share a home folder share no
build.
"""

import errno
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from . import fixes
from .machine.system import libc, machine
from .project import Project, Record, checkout_of
from .records import REJECTED, Finding, Fix, TorchInstall, dotted
from .text import is_file, list_names, printable, quoted, read_json, read_regular
from .words import codes

MANIFEST = "build.json"
#: The start of the name of an unfinished build's folder; a killed build leaves such a folder.
UNFINISHED = "building-"
_LOCK = "lock"
# The engine that this module is a part of; one without a builder has no folder `include`.
_ENGINE = Path(__file__).resolve().parents[1]


class CacheError(RuntimeError):
    """The cache cannot be trusted, a folder in it cannot be made, or its lock cannot be opened."""

    def __init__(self, path: Path, reason: str, fix: Fix) -> None:
        super().__init__(
            printable(f"the build cache is not used: {path} {reason}. To fix it: {fix}")
        )
        self.path = path
        self.reason = reason
        self.fix = fix


class NoCacheFolderError(RuntimeError):
    """There is no folder for the cache: neither a setting nor the user's home folder gives one."""


class Manifest(Record, kw_only=True):
    """What the `build.json` of a finished build tells."""

    variant: str = "?"  #: "?" if the file does not tell
    torch: str = "?"  #: the version that the build is for; "?" if the file does not tell
    version: str = "?"  #: of the package; "?" if the file does not tell
    settings: Mapping[str, str]  #: the environment variables that steered the build
    files: Mapping[str, str]  #: the SHA-256 of each shared object, by its name


class Entry(Record, kw_only=True):
    """A build in the cache."""

    path: Path
    key: str
    manifest: Manifest
    finished: bool  #: False for a build that was killed or is still running (see `locked`)

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        total = 0
        for place, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):  # a running build may remove its files meanwhile
                    total += (Path(place) / name).lstat().st_size
        return total


def root(project: Project) -> Path:
    """The cache's folder: the project's `cache`, else `$PREFIX_CACHE`, else the folder PACKAGE in
    `$XDG_CACHE_HOME` or `~/.cache`. Raises NoCacheFolderError."""
    if project.cache is not None:
        return project.cache
    variable = project.variable("CACHE")
    if own := os.environ.get(variable):
        with suppress(RuntimeError):
            return Path(own).expanduser().absolute()
        raise NoCacheFolderError(f"{variable}={own}: unknown home folder; write the whole path")
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        with suppress(RuntimeError):
            base = Path.home() / ".cache"
    if base.is_absolute():
        return base / project.package
    raise NoCacheFolderError(
        "there is no folder for the build cache: HOME is not set, and the password file has no "
        f"home folder for user {os.geteuid()}; {_another(project)}"
    )


def _another(project: Project) -> Fix:
    words = f"set {project.variable('CACHE')} to a folder of your own"
    return fixes.in_words(words)


def entry_folder(project: Project, torch: TorchInstall, sources: str) -> Path:
    """The folder of a build for `torch` from sources with the hash `sources`; it may not exist."""
    device = f"cuda{torch.cuda}" if torch.cuda else "cpu"
    library, version = libc() or ("libc", ())
    key = (
        f"torch{torch.version}-{device}-abi{torch.cxx11_abi}-"
        f"{sys.platform}-{machine()}-{library}{dotted(version)}"
    )
    safe_key = "".join(c if (c.isascii() and c.isalnum()) or c in ".+-" else "_" for c in key)
    return root(project) / safe_key / f"{project.version}-{sources}"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the build in `folder`; of a file that cannot be read, one without facts."""
    data = read_json(folder / MANIFEST)

    def texts(name: str) -> Mapping[str, str]:
        value = data.get(name)
        return value if isinstance(value, dict) else {}

    return Manifest(
        variant=str(data.get("variant", "?")),
        torch=str(data.get("torch", "?")),
        version=str(data.get("version", "?")),
        settings=texts("settings"),
        files=texts("files"),
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes `build.json` for the shared objects in `folder`, whose hashes it adds."""
    facts = manifest._replace(files=_hashes(folder.glob("*.so")))._asdict()
    path = folder / MANIFEST
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    path.chmod(0o600)


def is_whole(folder: Path) -> bool:
    """Whether a build has all shared objects that its manifest lists, as they were built."""
    listed = read_manifest(folder).files
    with suppress(OSError):  # one that is no regular file is none that was built
        return bool(listed) and _hashes(folder.glob("*.so")) == listed
    return False


def _hashes(paths: Iterable[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(read_regular(path)).hexdigest() for path in sorted(paths)}


def distrust(path: Path) -> str | None:
    """Why nothing may be loaded from `path`; None if only the user can change it."""
    try:
        status = os.lstat(path)
    except OSError as error:
        return error.strerror or str(error)
    mode = status.st_mode
    is_folder = stat.S_ISDIR(mode)
    if stat.S_ISLNK(mode):
        return "is a symlink"
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    if is_folder and mode & 0o077:
        return f"has mode {stat.S_IMODE(mode):04o}, not 0700"
    if stat.S_ISREG(mode) and mode & 0o022:
        return f"is writable for others (mode {stat.S_IMODE(mode):04o})"
    return None if is_folder or stat.S_ISREG(mode) else "is neither a folder nor a file"


def trusted_files(project: Project, folder: Path) -> tuple[Path, ...]:
    """The shared objects of a build.

    Raises CacheError if one of them, or a folder from the cache's root down to `folder`,
    cannot be trusted.
    """
    _insist(project, _chain(project, folder))
    files = tuple(sorted(folder.glob("*.so")))
    _insist(project, files)
    return files


def _chain(project: Project, folder: Path) -> list[Path]:
    """The cache's root, then every folder below it down to `folder`."""
    base = root(project)
    parts = folder.relative_to(base).parts
    return [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]


def _insist(project: Project, paths: Iterable[Path]) -> None:
    base = root(project)
    for path in paths:
        if (reason := distrust(path)) is not None:
            can_mend = "mode" in reason and _holds_builds_alone(base)
            restrict = fixes.command_in_words(
                fixes.Kind.RESTRICT_CACHE,
                f"{{command}}   (or {_another(project)})",
                f"chmod -R go= {quoted(base)}",
            )
            raise CacheError(path, reason, restrict if can_mend else _another(project))


def _holds_builds_alone(base: Path) -> bool:
    """Whether nothing but builds is in a folder. The user may have named another one by
    mistake, such as `/tmp`, of which no fix may say to change or to remove it."""
    names = list_names(base)
    return base.is_dir() and all(n.startswith((_LOCK, "torch", UNFINISHED)) for n in names)


def make(project: Project, folder: Path) -> None:
    """Makes the folders down to `folder`, each 0700; refuses folders that are not the user's own.

    Nothing is made inside another user's folder, unless that user is root (as for `/tmp`):
    root running with a user's HOME would leave folders there that the user cannot write to.
    Raises CacheError.
    """
    chain = _chain(project, folder)
    another = _another(project)
    missing = [p for p in (*reversed(chain[0].parents), *chain) if not os.path.lexists(p)]
    try:
        if missing:
            path = missing[0].parent
            owner = path.stat().st_uid
            if owner not in (os.geteuid(), 0):
                reason = f"belongs to user {owner}, not to {os.geteuid()}"
                raise CacheError(path, reason, another)
        for path in missing:
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
                path.chmod(0o700)  # whatever the umask is
    except OSError as error:
        raise CacheError(path, f"cannot be made ({error.strerror})", another) from error
    _insist(project, chain)
    for path in chain:
        if not path.is_dir():
            raise CacheError(path, "is not a folder", another)


@contextmanager
def locked(project: Project, *, wait: bool = True) -> Iterator[bool | None]:
    """Holds the lock of the cache, whose root `make` has made, in a `with` block.

    The lock ends with the process, too. Yields True if the lock is held, False if another
    process holds it and `wait` is false, and None if the file system has no locks. Raises
    CacheError if the lock's file cannot be opened.
    """
    import fcntl

    path = root(project) / _LOCK
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        reason = distrust(path) or f"cannot be opened ({error.strerror})"
        raise CacheError(path, reason, _another(project)) from error
    try:
        is_locked: bool | None = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            is_locked = False
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            is_locked = None
        yield is_locked
    finally:
        os.close(descriptor)


def entries(project: Project) -> tuple[Entry, ...]:
    """The finished builds of the cache, sorted by path, then the unfinished ones."""
    builds = []
    with suppress(OSError, NoCacheFolderError):  # there is no cache, or it cannot be read
        base = root(project)
        for pattern, finished in (("torch*/*", True), (f"{UNFINISHED}*", False)):
            for folder in sorted(base.glob(pattern)):
                if folder.is_dir() and not folder.is_symlink():
                    entry = Entry(
                        path=folder,
                        key=str(folder.relative_to(base)),
                        manifest=read_manifest(folder),
                        finished=finished,
                    )
                    builds.append(entry)
    return tuple(builds)


def find_binaries(
    project: Project, torch: TorchInstall | None
) -> tuple[list[Path], Finding | None]:
    """The shared objects to judge; and a finding if the build cache is refused, else None.

    CUDA kernels that the user built for this torch from the present sources come first, then
    the package's own objects, then the other objects of that build.
    """
    paths: list[Path] = []
    with suppress(OSError):
        # `glob` would take longer, since it compiles a pattern.
        paths = [p for p in sorted((project.folder / "lib").iterdir()) if p.suffix == ".so"]
    try:
        if torch is not None and entry_folder(project, torch, "").parent.is_dir():
            sources = source_hash(project.folder)  # slow, so the folder is looked for first
            folder = entry_folder(project, torch, sources or "")
            if sources is not None and folder.is_dir():
                built = trusted_files(project, folder)
                # An import does not look at the GPU, so it cannot tell which CUDA kernels
                # hold code for that GPU, and prefers the kernels that the user built.
                device = [path for path in built if path.name.startswith("kernels-cuda")]
                paths = [*device, *paths, *(path for path in built if path not in device)]
    except CacheError as error:
        observed = printable(f"{error.path} {error.reason}")
        refusal = Finding(
            dimension="build cache",
            status=REJECTED,
            code=codes.CACHE_REFUSED,
            observed=observed,
            needed="folders and files that only you can write: they are code that is executed",
            why=f"the build cache is refused: {observed}",
            fix=error.fix,
        )
        return paths, refusal
    except (OSError, RuntimeError):
        pass  # there is no folder for the cache, or this user may not read it
    return paths, None


def source_hash(package: Path) -> str | None:
    """A hash of the C++ and CUDA sources that `source_root` finds, and of the engine's headers.

    None without sources.
    """
    root = source_root(package)
    if root is None:
        return None
    digest = hashlib.sha256()
    named = [(package.parent, name) for name in _named_sources(package)]
    for base, pattern in ((root, "csrc/**/*"), (_ENGINE, "include/**/*"), *named):
        for path in sorted(base.glob(pattern)):
            if is_file(path):
                data = read_regular(path)
                digest.update(bytes(path.relative_to(base)) + b"\0%d\0" % len(data) + data)
    return digest.hexdigest()[:16]


def _named_sources(package: Path) -> list[str]:
    """The patterns of the files beside `csrc` that a build of the package reads."""
    path = package / "build.json"
    if not is_file(path):
        return []
    try:
        build = json.loads(read_regular(path))
        objects = [build.get(kind, {}) for kind in ("glue", "cpu", "cuda")]
        objects.append(build.get("glue", {}).get("cuda") or {})
        sources = [name for options in objects for name in options.get("sources", ())]
        sources += [name for step in build.get("generated", ()) for name in step["inputs"]]
        folders = [name for options in objects for name in options.get("include", ())]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []  # the builder refuses such a file, and says so
    beside = [name for name in sources if not name.startswith(("!", "csrc/"))]
    folders += [name for name in beside if not Path(name).suffix]
    return [f"{package.name}/build.json", *beside, *(f"{folder}/**/*" for folder in folders)]


def source_root(package: Path) -> Path | None:
    """The folder that holds `csrc`: the installed package or the checkout around it; else None."""
    for folder in (package, checkout_of(package)):
        if (folder / "csrc" / "project.h").is_file():
            return folder
    return None

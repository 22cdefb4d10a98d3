"""The user's cache of binaries built on this machine.

It holds code that will be executed, so it belongs to the user alone: every folder is 0700, and a
folder or file that is a symlink, belongs to somebody else or is writable for others is refused.
An entry is keyed by the torch build, the version of the package and a hash of its sources.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .records import TorchInstall

MANIFEST = "build.json"


class CacheError(RuntimeError):
    """The cache cannot be trusted or made.

    Attributes:
        path: which folder or file.
        reason: what is wrong with it.
        fix: what to do.
    """

    def __init__(self, path: Path, reason: str, fix: str) -> None:
        super().__init__(f"the build cache is not used: {path} {reason}. To mend it: {fix}")
        self.path = path
        self.reason = reason
        self.fix = fix


class Entry(NamedTuple):
    """One build: its folder, its key and what `build.json` says."""

    path: Path
    key: str
    variant: str
    torch: str
    version: str
    size: int


def root() -> Path:
    """`$LLTM_CONDA_CACHE`, else `$XDG_CACHE_HOME/lltm_conda`, else `~/.cache/lltm_conda`."""
    own = os.environ.get("LLTM_CONDA_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / (
        "lltm_conda"
    )


def source_hash(files: Iterable[tuple[str, Path]]) -> str:
    """A hash over (name, file) pairs: names and contents, in the order of the names."""
    digest = hashlib.sha256()
    for name, path in sorted(files, key=lambda pair: pair[0]):
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


def torch_key(version: str, cuda: str | None, cxx11_abi: int | None) -> str:
    """A folder name for a torch build."""
    text = f"torch{version}-{'cuda' + cuda if cuda else 'cpu'}-abi{cxx11_abi}"
    return re.sub(r"[^A-Za-z0-9.+-]", "_", text)


def entry_folder(torch: "TorchInstall", version: str, sources: str) -> Path:
    """Where the build of these sources for this torch lies (whether or not it exists)."""
    key = torch_key(torch.version, torch.cuda, torch.cxx11_abi)
    return root() / key / f"{version}-{sources}"


def distrust(path: Path) -> str | None:
    """Why `path` must not be loaded from, or None when it is the user's own."""
    try:
        status = os.lstat(path)
    except OSError as error:
        return error.strerror or str(error)
    if stat.S_ISLNK(status.st_mode):
        return "is a symlink"
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return f"belongs to user {status.st_uid}, not to {os.getuid()}"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o077:
        return f"has mode {stat.S_IMODE(status.st_mode):04o}, not 0700"
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o022:
        return f"is writable for others (mode {stat.S_IMODE(status.st_mode):04o})"
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        return "is neither a folder nor a file"
    return None


def trusted_files(folder: Path) -> tuple[Path, ...]:
    """The shared objects of an entry, after checking every folder down from the root.

    Raises:
        CacheError: naming the path that cannot be trusted.
    """
    base = root()
    chain = [base]
    for part in folder.relative_to(base).parts:
        chain.append(chain[-1] / part)
    for path in chain:
        _insist(path)
    files = tuple(sorted(folder.glob("*.so")))
    for path in files:
        _insist(path)
    return files


def _insist(path: Path) -> None:
    reason = distrust(path)
    if reason is not None:
        raise CacheError(path, reason, f"chmod -R go= {root()}   (or remove it: rm -r {root()})")


def make(folder: Path) -> None:
    """Create the folders down to `folder`, each 0700, refusing what is not the user's own."""
    base = root()
    base.parent.mkdir(parents=True, exist_ok=True)
    chain = [base]
    for part in folder.relative_to(base).parts:
        chain.append(chain[-1] / part)
    for path in chain:
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise CacheError(
                path,
                f"cannot be made ({error.strerror})",
                "name another folder in LLTM_CONDA_CACHE",
            ) from error
        _insist(path)


def entries() -> tuple[Entry, ...]:
    """Every build of the cache, by path."""
    found = []
    try:
        manifests = sorted(root().glob(f"*/*/{MANIFEST}"))
    except OSError:
        return ()
    for manifest in manifests:
        folder = manifest.parent
        try:
            data = json.loads(manifest.read_text("utf-8"))
            size = sum(path.stat().st_size for path in folder.glob("*.so"))
        except (OSError, ValueError):
            data, size = {}, 0
        if not isinstance(data, dict):
            data = {}
        found.append(
            Entry(
                path=folder,
                key=f"{folder.parent.name}/{folder.name}",
                variant=str(data.get("variant", "?")),
                torch=str(data.get("torch", "?")),
                version=str(data.get("version", "?")),
                size=size,
            )
        )
    return tuple(found)

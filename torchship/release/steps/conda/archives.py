"""Writes conda packages in the format `.conda`, the same bytes each time."""

import io
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import zstandard

COMPRESSION_LEVEL = 19  # conda-build's default
OLDEST_DATE = 315532800  # zip files have no dates before 1980
PACKAGE_FORMAT = b'{"conda_pkg_format_version":2}'


def write_package(package: Path, root: Path, epoch: int) -> None:
    """Packs an unpacked package, its metadata in `root/info`, with `epoch` as the date of all.

    Folders have no entries of their own: rattler takes no package of patches that has some.
    """
    date = time.gmtime(max(epoch, OLDEST_DATE))[:6]
    info = root / "info"
    payload = [path for path in root.rglob("*") if not path.is_relative_to(info)]
    members = {
        "metadata.json": PACKAGE_FORMAT,
        f"pkg-{package.stem}.tar.zst": _archive(root, payload, epoch),
        f"info-{package.stem}.tar.zst": _archive(root, info.rglob("*"), epoch),
    }
    package.unlink(missing_ok=True)  # rattler-build's, which its owner alone may read
    with ZipFile(package, "w") as outer:
        for name, data in members.items():
            outer.writestr(ZipInfo(name, date), data)


def _archive(root: Path, paths: Iterable[Path], epoch: int) -> bytes:
    """A compressed archive of files, named from `root`, that names no user and no other date."""

    def neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        # Not by TarInfo.replace, which a Python before 3.10.12 or 3.11.4 lacks.
        entry.mtime, entry.mode = epoch, 0o755 if entry.mode & 0o100 else 0o644
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(paths):
            if path.is_symlink() or not path.is_dir():
                archive.add(path, path.relative_to(root).as_posix(), filter=neutral)
    return zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(buffer.getvalue())

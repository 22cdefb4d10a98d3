"""Packs a conda package again: its bytes follow from its content, not from when or where."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

import zstandard

LEVEL = 19  # conda-build's default


def repack(package: Path, epoch: int) -> None:
    """Replaces a `.conda` by one that says nothing of the machine, with `epoch` as its date."""
    from rattler.package_streaming import extract

    with TemporaryDirectory(prefix="package-") as folder:
        root, info = Path(folder), Path(folder, "info")
        extract(package, root)
        index, about = (json.loads((info / f"{n}.json").read_text()) for n in ("index", "about"))
        # The order of the requirements is random.
        index |= {"timestamp": epoch * 1000, "depends": sorted(index["depends"])}
        about["channels"] = [url for url in about["channels"] if not url.startswith("file:")]
        for name, facts in (("index", index), ("about", about)):
            (info / f"{name}.json").write_text(json.dumps(facts, indent=2, sort_keys=True))
        # It names folders, kernel and processor of the machine; the recipe and its variant stay.
        (info / "recipe" / "rendered_recipe.yaml").unlink(missing_ok=True)
        packed = [path for path in root.iterdir() if path != info]
        with ZipFile(package, "w") as archive:
            for name, data in {
                "metadata.json": b'{"conda_pkg_format_version":2}',
                f"pkg-{package.stem}.tar.zst": _archive(root, packed, epoch),
                f"info-{package.stem}.tar.zst": _archive(root, [info], epoch),
            }.items():
                archive.writestr(ZipInfo(name, time.gmtime(max(epoch, 315532800))[:6]), data)


def _archive(root: Path, folders: list[Path], epoch: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(path for folder in folders for path in (folder, *folder.rglob("*"))):
            entry = archive.gettarinfo(path, path.relative_to(root).as_posix())
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0, 0, "", "", epoch
            if not entry.isdir():
                archive.addfile(entry, io.BytesIO(path.read_bytes()) if entry.isreg() else None)
    return zstandard.ZstdCompressor(level=LEVEL).compress(buffer.getvalue())

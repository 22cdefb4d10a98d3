"""Packs a conda package again: its bytes follow from its content, not from when or where."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

import zstandard

LEVEL = 16  # conda-forge's


def repack(package: Path, epoch: int) -> None:
    """Replaces a `.conda` by one without times, paths and addresses of the machine it was built on.

    Args:
        package: the file.
        epoch: seconds since 1970, which become the date of the package and of every file in it.
    """
    from rattler.package_streaming import extract

    with TemporaryDirectory(prefix="package-") as folder:
        root = Path(folder)
        extract(package, root)
        _clean(root / "info", epoch)
        files = sorted(path for path in root.rglob("*") if path.is_symlink() or path.is_file())
        info = [path for path in files if path.is_relative_to(root / "info")]
        content = [path for path in files if path not in info]
        parts = {"metadata.json": b'{"conda_pkg_format_version":2}'}
        for kind, paths in (("pkg", content), ("info", info)):
            parts[f"{kind}-{package.stem}.tar.zst"] = _archive(root, paths, epoch)
    with ZipFile(package, "w") as archive:
        for name, data in parts.items():
            archive.writestr(ZipInfo(name, time.gmtime(max(epoch, 315532800))[:6]), data)


def _clean(info: Path, epoch: int) -> None:
    index = json.loads((info / "index.json").read_text(encoding="utf-8"))
    # The order of the requirements is random.
    index |= {"timestamp": epoch * 1000, "depends": sorted(index["depends"])}
    about = json.loads((info / "about.json").read_text(encoding="utf-8"))
    about["channels"] = [url for url in about.get("channels", []) if not url.startswith("file:")]
    for name, facts in (("index.json", index), ("about.json", about)):
        text = json.dumps(facts, indent=2, sort_keys=True)
        (info / name).write_text(text, encoding="utf-8")
    # It names folders, kernel and processor of the machine; the recipe and its variant stay.
    (info / "recipe" / "rendered_recipe.yaml").unlink(missing_ok=True)


def _archive(root: Path, paths: Iterable[Path], epoch: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            entry = archive.gettarinfo(path, path.relative_to(root).as_posix())
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0, 0, "", "", epoch
            archive.addfile(entry, io.BytesIO(b"" if entry.issym() else path.read_bytes()))
    return zstandard.ZstdCompressor(level=LEVEL).compress(buffer.getvalue())

"""Reads and rewrites wheels: local versions, and bytes that depend on the content alone."""

from __future__ import annotations

import base64
import hashlib
import time
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from packaging.utils import parse_wheel_filename

from release.provenance import source_epoch


def binaries_of(wheel: Path) -> dict[str, bytes]:
    """Name and content of every shared object in a wheel."""
    with ZipFile(wheel) as archive:
        return {n: archive.read(n) for n in archive.namelist() if ".so" in Path(n).name}


def rewrite(wheel: Path, folder: Path, *, local: str | None = None) -> Path:
    """A copy with a local version, sorted entries and fixed times; returns its path."""
    _, version, _, _ = parse_wheel_filename(wheel.name)
    old_version = str(version)
    new_version = f"{version.public}+{local}" if local else old_version
    name, _, *tags = wheel.name.removesuffix(".whl").split("-")
    old_info, new_info = f"{name}-{old_version}.dist-info", f"{name}-{new_version}.dist-info"
    entries: dict[str, bytes] = {}
    with ZipFile(wheel) as archive:
        for item in archive.infolist():
            if item.is_dir() or item.filename == f"{old_info}/RECORD":
                continue
            target = item.filename.replace(f"{old_info}/", f"{new_info}/", 1)
            entries[target] = archive.read(item)
    metadata = entries[f"{new_info}/METADATA"].decode()
    head, blank, body = metadata.partition("\n\n")
    head = head.replace(f"\nVersion: {old_version}", f"\nVersion: {new_version}", 1)
    entries[f"{new_info}/METADATA"] = (head + blank + body).encode()
    record = [f"{n},sha256={_hash(data)},{len(data)}\n" for n, data in sorted(entries.items())]
    entries[f"{new_info}/RECORD"] = "".join([*record, f"{new_info}/RECORD,,\n"]).encode()
    final = folder / f"{name}-{new_version}-{'-'.join(tags)}.whl"
    stamp = time.gmtime(max(source_epoch(), 315532800))[:6]
    with ZipFile(final, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for entry in sorted(entries, key=lambda n: (".dist-info/" in n, n)):
            info = ZipInfo(entry, stamp)
            info.external_attr = (0o755 if entry.endswith(".so") else 0o644) << 16
            info.compress_type = ZIP_DEFLATED
            archive.writestr(info, entries[entry])
    return final


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

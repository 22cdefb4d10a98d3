"""Packs a conda package again: its bytes follow from its content, not from when or where."""

import io
import json
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

import zstandard

from engine.compat.binary import read_binary
from engine.compat.records import dotted

LEVEL = 19  # conda-build's default


def repack(package: Path, epoch: int) -> None:
    """Replaces a `.conda` by one that says nothing of the machine, with `epoch` as its date.

    It asks for the glibc that its objects need, whatever the sysroot was.
    """
    from rattler.package_streaming import extract

    def neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        # A deep copy would copy the archive, too.
        facts = {"mtime": epoch, "mode": 0o755 if entry.mode & 0o100 else 0o644}
        return entry.replace(**facts, uid=0, gid=0, uname="", gname="", deep=False)

    parts = {"metadata.json": b'{"conda_pkg_format_version":2}'}
    with TemporaryDirectory(prefix="package-") as folder:
        root, info = Path(folder), Path(folder, "info")
        extract(package, root)
        index, about = (json.loads((info / f"{n}.json").read_text()) for n in ("index", "about"))
        # The order of the requirements is random.
        depends = sorted(with_floor(index["depends"], root.rglob("*.so")))
        index |= {"timestamp": epoch * 1000, "depends": depends}
        about["channels"] = [url for url in about["channels"] if not url.startswith("file:")]
        for name, facts in (("index", index), ("about", about)):
            (info / f"{name}.json").write_text(json.dumps(facts, indent=2, sort_keys=True))
        # It names folders, kernel and processor of the machine; the recipe and its variant stay.
        (info / "recipe" / "rendered_recipe.yaml").unlink(missing_ok=True)
        for kind in ("pkg", "info"):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                for path in sorted(p for p in root.iterdir() if (p == info) == (kind == "info")):
                    archive.add(path, path.name, filter=neutral)
            data = zstandard.ZstdCompressor(level=LEVEL).compress(buffer.getvalue())
            parts[f"{kind}-{package.stem}.tar.zst"] = data
    with ZipFile(package, "w") as outer:
        for name, data in parts.items():
            outer.writestr(ZipInfo(name, time.gmtime(epoch)[:6]), data)


def with_floor(depends: Iterable[str], objects: Iterable[Path]) -> list[str]:
    """The requirements, with the glibc that these objects need."""
    floors = [floor for path in objects if (floor := read_binary(path).floors.get("GLIBC"))]
    if not floors:
        return list(depends)
    rest = [need for need in depends if need.split()[0] != "__glibc"]
    return [*rest, f"__glibc >={dotted(max(floors))}"]

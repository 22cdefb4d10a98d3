"""Makes a package of a folder in a site folder, and a wheel of it.

python pack.py SITE WHEELS NAME VERSION [REQUIREMENT]
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path


def main(site: Path, wheels: Path, name: str, version: str, *requirements: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    header = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    header += [f"Requires-Dist: {requirement}" for requirement in requirements]
    (info / "METADATA").write_text("\n".join(header) + "\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
    files = [path for folder in (site / name, info) for path in folder.rglob("*") if path.is_file()]
    record = "".join(f"{path.relative_to(site)},{_hash(path)}\n" for path in files)
    (info / "RECORD").write_text(f"{record}{info.name}/RECORD,,\n")
    wheels.mkdir(parents=True, exist_ok=True)
    wheel = wheels / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        for path in (*files, info / "RECORD"):
            file.write(path, path.relative_to(site))


def _hash(path: Path) -> str:
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"sha256={digest},{len(content)}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])

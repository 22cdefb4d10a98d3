"""The folder of thin wheels as a package index (PEP 503), for any web server.

pip install --extra-index-url https://.../simple "lltm==0.1.0+stable.cu13"
pip install --find-links https://.../simple/lltm "lltm==0.1.0+stable.cu13"
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from release.store import digest, write_atomically
from release.wheels import read_wheel

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0">
<title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def write_index(root: Path) -> list[Path]:
    """Writes the page of `root` and one for each project's folder in it; returns the pages."""
    root.mkdir(parents=True, exist_ok=True)
    projects = sorted(path for path in root.iterdir() if path.is_dir())
    pages = [_page(root / "index.html", "Simple index", [f"{p.name}/" for p in projects])]
    for project in projects:
        wheels = sorted(project.glob("*.whl"))
        pages.append(_page(project / "index.html", f"Links for {project.name}", wheels))
    return pages


def _page(path: Path, title: str, entries: Sequence[str | Path]) -> Path:
    links = "\n".join(_link(entry) for entry in entries)
    write_atomically(path, PAGE.format(title=escape(title), links=links))
    return path


def _link(entry: str | Path) -> str:
    if isinstance(entry, str):
        return f'<a href="{entry}">{escape(entry.rstrip("/"))}</a><br>'
    metadata = read_wheel(entry).info["METADATA"].decode()
    needs = next(
        (line.split(": ", 1)[1] for line in metadata.splitlines() if line.startswith("Requires-P")),
        "",
    )
    target = f"{quote(entry.name)}#sha256={digest(entry)}"
    return f'<a href="{target}" data-requires-python="{escape(needs)}">{escape(entry.name)}</a><br>'

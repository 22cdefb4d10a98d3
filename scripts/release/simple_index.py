"""The folder of thin wheels as a package index (PEP 503), for any web server."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from release.store import digest, write_atomically

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0"></head>
<body>
{}
</body>
</html>
"""


def write_index(root: Path) -> None:
    """Writes the page of `root` and one for each project's folder in it."""
    root.mkdir(parents=True, exist_ok=True)
    projects = sorted(path for path in root.iterdir() if path.is_dir())
    _page(root, ((project.name, f"{project.name}/") for project in projects))
    for project in projects:
        wheels = sorted(project.glob("*.whl"))
        _page(project, ((w.name, f"{quote(w.name)}#sha256={digest(w)}") for w in wheels))


def _page(folder: Path, links: Iterable[tuple[str, str]]) -> None:
    lines = (f'<a href="{target}">{name}</a><br>' for name, target in links)
    write_atomically(folder / "index.html", PAGE.format("\n".join(lines)))

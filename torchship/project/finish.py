"""The second step of `torchship init`: the files that follow from the matrix and pyproject.toml."""

import re
from pathlib import Path

from .errors import ProjectError
from .record import replace_file
from .render import Names, render_frame

#: Those of a new project's files that torchship needs, in a package {package}.
_NEEDED = (
    "environment.yml",
    "recipe/build.sh",
    "recipe/recipe.yaml",
    "{package}/__main__.py",
    "{package}/jit.py",
    "{package}/loader.py",
)
_ENGINE = '''\
"""The parts of torchship that the package needs: in a checkout, those of the installed torchship.

A wheel has a copy of them here instead of this file.
"""

from importlib.util import find_spec

_TORCHSHIP = find_spec("torchship")
if _TORCHSHIP is None or _TORCHSHIP.submodule_search_locations is None:
    raise ImportError("torchship is not installed; install it: pip install torchship")
__path__ = list(_TORCHSHIP.submodule_search_locations)
'''


def file_names(package: str) -> list[str]:
    """All files that this step may add to a project with this package."""
    names = (
        *_NEEDED,
        "csrc/project.h",
        "recipe/variants.yaml",
        "{package}/_project.py",
        "{package}/_version.py",
        "{package}/build.json",
        "{package}/engine/__init__.py",
        "{package}/support.json",
    )
    return [name.format(package=package) for name in names]


def finish(root: Path) -> list[str]:
    """Adds the files that are missing, and writes what is generated; returns the files' names.

    Raises ProjectError if the matrix has a mistake, or the release tool's packages are missing.
    """
    try:
        from ..release import ReleaseError
        from ..release.matrix import generated
        from ..release.matrix.load import load, load_settings
    except ImportError as error:
        raise ProjectError(
            f"this step needs the packages of the release tool ({error}); install them: "
            'pip install "torchship[release]"'
        ) from error
    try:
        project = load(root / "build_matrix.yaml").project
        names = Names(
            distribution=project.distribution,
            package=project.package,
            prefix=project.prefix,
            url=project.url,
        )
        written = _add_missing(root, names)
        settings = load_settings(repo=root)
        written += generated.write_stale(settings)
    except ReleaseError as error:
        raise ProjectError(str(error)) from error
    return list(dict.fromkeys(written))


def _add_missing(root: Path, names: Names) -> list[str]:
    package = names.package
    frame = render_frame(names)
    paths = [path.format(package=package) for path in _NEEDED]
    files = {path: frame[path].content for path in paths}
    files[f"{package}/engine/__init__.py"] = _ENGINE.encode()
    files[f"{package}/_version.py"] = f'__version__ = "{_version(root)}"\n'.encode()
    missing = {path: content for path, content in files.items() if not (root / path).exists()}
    for path, content in missing.items():
        replace_file(root / path, content, mode=0o755 if path.endswith(".sh") else 0o644)
    return list(missing)


def _version(root: Path) -> str:
    """The version that pyproject.toml says; it follows from `_version.py` from then on."""
    path = root / "pyproject.toml"
    content = path.read_text(encoding="utf-8") if path.exists() else ""
    version = re.search(r'(?m)^version = "([^"]+)"', content)
    return version[1] if version else "0.1.0"

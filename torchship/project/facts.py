"""What a project says of itself, read without a package: its names, and the torch of its tests."""

import json
import re
from pathlib import Path

from ..builder import BuildError, client
from .errors import ProjectError
from .render import Names


def find_package(root: Path) -> Path:
    """The folder of the project's one Python package."""
    try:
        return client.find_package(root)
    except BuildError as error:
        raise ProjectError(str(error)) from None


def read_names(root: Path) -> Names:
    """The names that the package's record says."""
    folder = find_package(root)
    content = (folder / "_project.py").read_text(encoding="utf-8")
    fields = dict(re.findall(r'^    (\w+)="([^"]*)",$', content, re.MULTILINE))
    try:
        return Names(
            distribution=fields["distribution"],
            package=fields["package"],
            prefix=fields["prefix"],
            folder=folder.relative_to(root).as_posix(),
        )
    except KeyError as error:
        raise ProjectError(
            f"{folder / '_project.py'} says no {error.args[0]}; write it again: "
            "scripts/build_all.sh generate"
        ) from error


def default_torch(root: Path) -> str:
    """The release of the torch that the matrix tests with by default, such as `2.13.0`."""
    path = find_package(root) / "support.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["torch_default"])
    except (OSError, ValueError, KeyError) as error:
        raise ProjectError(
            f"{path} names no torch_default; write it again: "
            "scripts/build_all.sh generate, or name a torch: --torch 2.13.0"
        ) from error

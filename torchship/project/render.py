"""The files of a project, from the templates and the project's names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .workflows import Shape, shape_workflow

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
FRAME = "project"  # the folder of what all templates share

AUTHOR = "YOUR NAME"
URL = "https://example.org/own-op"
YEAR = "THIS YEAR"
SUMMARY = "An operator for PyTorch"
#: What each template is, for `project:` of the matrix and the indexes.
SUMMARIES = {
    "rms_norm": "A fused RMSNorm for PyTorch",
    "aten": "An affine map for PyTorch",
}
#: The files that torchship generates, in a project whose package lies in {folder}; all others are
#: the author's alone.
GENERATED = (
    ".github/workflows/publish.yml",
    ".github/workflows/release.yml",
    ".github/workflows/test.yml",
    "csrc/project.h",
    "environment.yml",
    "recipe/build.sh",
    "recipe/recipe.yaml",
    "recipe/variants.yaml",
    "scripts/build_all.sh",
    "scripts/test.sh",
    "vendor/backend.py",
    "{folder}/__main__.py",
    "{folder}/_project.py",
    "{folder}/engine/__init__.py",
    "{folder}/support.json",
)


@dataclass(frozen=True, kw_only=True)
class Names:
    """What stands in a project's files instead of the templates' names."""

    distribution: str
    package: str
    prefix: str  #: of the environment variables
    folder: str  #: of the package, in the repository
    author: str = AUTHOR
    url: str = URL
    year: str = YEAR
    summary: str = SUMMARY

    def fill(self, text: str) -> str:
        # The URL contains `own-op`, and so comes first.
        replacements = {
            URL: self.url,
            AUTHOR: self.author,
            YEAR: self.year,
            SUMMARY: self.summary,
            "own_op": self.package,
            "own-op": self.distribution,
            "OWN_OP": self.prefix,
        }
        pattern = "|".join(map(re.escape, replacements))
        return re.sub(pattern, lambda match: replacements[match[0]], text)


@dataclass(frozen=True)
class File:
    content: bytes = field(repr=False)
    mode: int


def names_of(name: str) -> Names:
    """The names that follow from that of a new project."""
    package = name.replace("-", "_")
    return Names(
        distribution=package.replace("_", "-"),
        package=package,
        prefix=package.upper(),
        folder=package,
    )


def generated_paths(folder: str) -> list[str]:
    """By the package's folder in the project."""
    return [path.format(folder=folder) for path in GENERATED]


def render(template: str, names: Names) -> dict[str, File]:
    """All files of a new project but the vendored torchship, by path in the project."""
    return _render([TEMPLATES / FRAME, TEMPLATES / template], names, Shape())


def render_frame(names: Names, shape: Shape | None = None) -> dict[str, File]:
    """Those that do not depend on the template; the workflows for a matrix of this shape."""
    return _render([TEMPLATES / FRAME], names, shape or Shape())


def _render(folders: Iterable[Path], names: Names, shape: Shape) -> dict[str, File]:
    files = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            # The caches of tools are no part of a template: its own hidden names begin with `dot-`.
            is_cached = any(
                part.startswith((".", "__pycache__")) for part in path.relative_to(folder).parts
            )
            if path.is_file() and not is_cached:
                name = str(path.relative_to(folder)).replace("own_op", names.folder)
                content = names.fill(path.read_text(encoding="utf-8"))
                if "workflows" in path.parts:
                    content = shape_workflow(content, shape)
                mode = 0o755 if content.startswith("#!") else 0o644
                files[re.sub(r"(^|/)dot-", r"\1.", name)] = File(content.encode(), mode)
    return files

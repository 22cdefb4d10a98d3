"""The clone of a repository that is rehearsed: its last commit, of a matrix of few cells.

What is cut from the matrix is said in a commit of the clone, so that the clone is clean.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from torchship.builder.client import package_folder

IDENTITY = ("-c", "user.name=Maintainer", "-c", "user.email=maintainer@example.org")
MATRIX = "build_matrix.yaml"


@dataclass(frozen=True)
class Source:
    """A clone with the branch `main`."""

    root: Path

    @classmethod
    def clone(cls, repository: Path, root: Path) -> Source:
        source = cls(root)
        subprocess.run(["git", "clone", "--quiet", str(repository), str(root)], check=True)
        source.git("checkout", "--quiet", "-B", "main")
        return source

    def keep_cells(self) -> None:
        """Keeps the cells for the CPU of the stable glue and of the oldest torch with ATen cells;
        where a list has no CPU, its newest CUDA stays, whose compiler PyPI has."""
        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.width = 1000
        yaml.indent(mapping=2, sequence=4, offset=2)
        path = self.root / MATRIX
        tree = yaml.load(path)
        if "stable" in tree:
            tree["stable"]["devices"] = _one_of(tree["stable"]["devices"])
        minors = [minor for minor, torch in tree["torch"].items() if "aten" in torch]
        oldest = min(minors, key=lambda minor: [*map(int, str(minor).split("."))], default=None)
        for minor in minors:
            torch = tree["torch"][minor]
            if minor == oldest:
                torch["aten"] = _one_of(torch["aten"])
                continue
            del tree["torch"][minor]
            for platform in tree["platforms"].values():
                own: MutableMapping[str, object] = platform.get("differs", {}).get("torch", {})
                own.pop(minor, None)
        with path.open("w") as file:
            yaml.dump(tree, file)
        self.run("scripts/build_all.sh", "generate")
        self.commit("Build few cells")

    def commit(self, subject: str) -> None:
        self.git("add", "--all")
        self.git(*IDENTITY, "commit", "--quiet", "--allow-empty", "--message", subject)

    @property
    def version(self) -> str:
        """The version in the package's `_version.py`."""
        name = YAML(typ="safe").load(self.root / MATRIX)["project"]["package"]
        package = package_folder(self.root, name)
        text = (package / "_version.py").read_text(encoding="utf-8")
        match = re.search(r'__version__ = "(.+)"', text)
        if match is None:
            raise ValueError(f'{package}/_version.py: has no line __version__ = "..."; add it')
        return match[1]

    def git(self, *words: str) -> str:
        return self.run("git", *words)

    def run(self, *command: str) -> str:
        """The output of a command in the clone. Raises RuntimeError with what it said."""
        result = subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, errors="replace", check=False
        )
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{result.stdout}{result.stderr}")
        return result.stdout


def _one_of(devices: list[str]) -> list[str]:
    return ["cpu"] if "cpu" in devices else devices[-1:]

"""A clone of this repository that a maintainer releases: version, changelog, commit and tag, as
docs/ship/publish.md has it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from ruamel.yaml import YAML

from measurements.release_accidents import PLATFORMS, REPO
from torchship.release import generated
from torchship.release.matrix import load_settings

IDENTITY = ("-c", "user.name=Maintainer", "-c", "user.email=maintainer@example.org")
#: The files that say the version, and the line of each.
VERSION_FILES = {
    "lltm_conda/_version.py": '__version__ = "{}"',
    "torchship/doctor/_version.py": '__version__ = "{}"',
    "recipe/recipe.yaml": '  version: "{}"',
    "CITATION.cff": "version: {}",
}
#: The section of the changelog that is not released yet.
IN_DEVELOPMENT = r"^## \[.+\] - in development$"


@dataclass(frozen=True)
class Source:
    """A clone with a matrix of few cells."""

    root: Path

    @classmethod
    def clone(cls, root: Path, *, aten: str) -> Source:
        """Clones this checkout's last commit; of the ATen cells, those of one minor stay, for the
        CPU alone."""
        source = cls(root)
        source.run("git", "clone", "--quiet", str(REPO), str(root), folder=REPO)
        yaml = YAML()
        path = root / "build_matrix.yaml"
        tree = yaml.load(path)
        for minor in [minor for minor, torch in tree["torch"].items() if "aten" in torch]:
            if minor == aten:
                tree["torch"][minor]["aten"] = ["cpu"]
                continue
            del tree["torch"][minor]
            for platform in tree["platforms"].values():
                platform.get("differs", {}).get("torch", {}).pop(minor, None)
        with path.open("w") as file:
            yaml.dump(tree, file)
        source._write_generated()
        source._commit("Build few cells")
        return source

    def release(self, version: str, date: str) -> str:
        """Raises the version, cuts the changelog, commits and tags; returns the commit."""
        for name, line in VERSION_FILES.items():
            path = self.root / name
            pattern = re.escape(line.format("VERSION")).replace("VERSION", r"[0-9.]+")
            text, count = re.subn(
                rf"^{pattern}", line.format(version), path.read_text(), flags=re.MULTILINE
            )
            if count != 1:
                raise ValueError(f"{name}: has {count} lines like {line!r}, needs one")
            path.write_text(text)
        changelog = self.root / "CHANGELOG.md"
        text = changelog.read_text(encoding="utf-8")
        section = f"## [{version}] - {date}"
        if re.search(IN_DEVELOPMENT, text, re.MULTILINE):
            text = re.sub(IN_DEVELOPMENT, section, text, count=1, flags=re.MULTILINE)
        else:
            text = text.replace("## [", f"{section}\n\n- A fix.\n\n## [", 1)
        changelog.write_text(text, encoding="utf-8")
        self._write_generated()
        self._commit(f"Release {version}")
        self.run("git", *IDENTITY, "tag", f"v{version}")
        return self.run("git", "rev-parse", "HEAD").strip()

    def build_sdist(self, out: Path) -> Path:
        """The source distribution of the commit."""
        return self._build("--sdist", ".", out)

    def build_wheel(self, folder: str, out: Path, binaries: Path | None = None) -> Path:
        """A wheel of a folder of the clone; with `binaries`, of those, with nothing compiled."""
        return self._build("--wheel", folder, out, binaries)

    def run(self, *command: str, folder: Path | None = None, **variables: str) -> str:
        """The output of a command in the clone. Raises RuntimeError with what it said."""
        dropped = ("LLTM_", "PYTHON", "PIP_", "UV_", "TWINE_")
        env = {name: v for name, v in os.environ.items() if not name.startswith(dropped)}
        result = subprocess.run(
            command,
            cwd=folder or self.root,
            env={**env, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{result.stdout}{result.stderr}")
        return result.stdout

    def _build(self, kind: str, folder: str, out: Path, binaries: Path | None = None) -> Path:
        """Builds in a clone of its own: a build leaves files that the next one would pack."""
        out.mkdir(parents=True)
        tree = out.with_name(f"{out.name}-tree")
        self.run("git", "clone", "--quiet", str(self.root), str(tree))
        variables = {"PYTHONPATH": str(tree)}
        if binaries:
            variables["LLTM_CONDA_PREBUILT"] = str(binaries)
        build = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(out)]
        self.run(*build, str(tree / folder), folder=out, **variables)
        (path,) = out.iterdir()
        return path

    def _write_generated(self) -> None:
        for platform in PLATFORMS[:1]:
            settings = load_settings(platform, self.root)
            generated.write(settings, Console(file=io.StringIO()))

    def _commit(self, subject: str) -> None:
        commit = ("commit", "--quiet", "--all", "--message", subject)
        self.run("git", *IDENTITY, *commit)

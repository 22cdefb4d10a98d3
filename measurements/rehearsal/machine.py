"""What a job runs on: a clean clone, a folder of programs that stand for others, and variables."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import programs
from .forge import Forge
from .workflow import Job

#: Tells the tools where packages come from, and keeps what they downloaded.
KEPT = ("PIP_", "UV_", "SSL_", "REQUESTS_", "HTTP_", "HTTPS_", "NO_PROXY", "http", "no_proxy")
#: Where the images of containers have their Pythons and their CUDA.
IMAGES_PYTHON = "/opt/python/"
IMAGES_CUDA = "/usr/local/cuda"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Machine:
    """The machine of one entry of a job's matrix; `folder` is its own, and `source` is cloned."""

    job: Job
    folder: Path
    source: Path
    forge: Forge

    @property
    def workspace(self) -> Path:
        return self.folder / "work"

    @property
    def is_arm(self) -> bool:
        return self.job.runs_on.endswith("-arm")

    def start(self) -> None:
        for name in ("work", "home", "bin", "tmp"):
            (self.folder / name).mkdir(parents=True)
        for name in programs.PROGRAMS:
            self._write_program(self.folder / "bin" / name, f'exec {self._stand_in(name)} "$@"')
        if self.job.container:
            self.set_up_python()

    def set_up_python(self) -> None:
        """A Python of its own, by both names, so that what a step installs goes nowhere else."""
        python = self.folder / "python"
        subprocess.run([sys.executable, "-m", "venv", str(python)], check=True)
        stands = programs.MODULES
        tests = " ".join(
            f'"-m {name}") exec {self._stand_in(name)} "${{@:3}}" ;;' for name in stands
        )
        real = shlex.quote(str(python / "bin" / "python"))
        script = f'case "$1 $2" in {tests} esac\nexec {real} "$@"'
        for name in ("python", "python3"):
            self._write_program(self.folder / "bin" / name, script)

    def replace_scripts(self) -> None:
        """Puts stand-ins in the place of the scripts that take long; git does not look at them."""
        for name in programs.SCRIPTS:
            path = self.workspace / name
            if path.is_file():
                git = ["git", "-C", str(self.workspace)]
                subprocess.run([*git, "update-index", "--assume-unchanged", name], check=True)
                self._write_program(path, f'exec {self._stand_in(name)} "$@"')

    def variables(self, github: Mapping[str, object]) -> dict[str, str]:
        """The variables that each step finds."""
        cache = Path.home() / ".cache"
        kept = {k: v for k, v in os.environ.items() if k.startswith(KEPT)}
        return {
            "PIP_CACHE_DIR": str(cache / "pip"),
            "UV_CACHE_DIR": str(cache / "uv"),
            **kept,
            **{f"GITHUB_{name.upper()}": str(value) for name, value in github.items()},
            "CI": "true",
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "PATH": f"{self.folder / 'bin'}:{os.defpath}:/usr/local/bin",
            "TMPDIR": str(self.folder / "tmp"),
            "REHEARSAL": json.dumps(
                {
                    "forge": str(self.forge.folder),
                    "ref": self.forge.ref,
                    "permissions": dict(self.job.permissions),
                }
            ),
        }

    def fit(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables of a job or step, with what an image has in the place of this machine's."""
        fitted = {}
        for name, value in env.items():
            if value.startswith(IMAGES_PYTHON):
                fitted[name] = str(self.folder / "bin" / "python")
            elif value != IMAGES_CUDA or Path(value).exists():
                fitted[name] = value
        return fitted

    def _stand_in(self, name: str) -> str:
        python = shlex.quote(sys.executable)
        root = shlex.quote(str(_ROOT))
        return (
            f"env PYTHONPATH={root} {python} -m measurements.rehearsal.programs {shlex.quote(name)}"
        )

    @staticmethod
    def _write_program(path: Path, script: str) -> None:
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

"""Which Pythons this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Only an interpreter that can make environments; prints the base one behind a launcher.
_CODE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys._base_executable)"


def interpreters(minor: str) -> Iterator[str]:
    """Working interpreters of a Python minor (`3.12`): on PATH, then those of pyenv."""
    candidates = [shutil.which(f"python{minor}"), sys.executable]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(str(path) for path in pyenv.glob(f"{minor}.*/bin/python3"))
    for candidate in filter(None, candidates):
        run = subprocess.run([candidate, "-c", _CODE], capture_output=True, text=True)
        found, _, executable = run.stdout.strip().partition(" ")
        if run.returncode == 0 and found == minor:
            yield executable

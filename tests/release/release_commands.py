"""Runs the commands of a release as its maintainer and its users would type them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

#: What the tests' own environment says of packages and indexes.
_DROPPED = ("LLTM_", "PYTHON", "PIP_", "UV_", "TWINE_")


def run(*command: object, cwd: Path, **variables: str) -> str:
    """The output of a command, which must succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    process = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | variables,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout

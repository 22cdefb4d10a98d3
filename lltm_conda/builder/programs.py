"""Asks a compiler or another tool what it is."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from .errors import BuildError


def output_of(command: Sequence[str], repair: str, env: Mapping[str, str] | None = None) -> str:
    """What a program prints, standard output first; `repair` says what to do if it does not run.

    Raises:
        BuildError: it does not start, or fails.
    """
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=env, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{command[0]} does not run: {error}; {repair}") from error
    return run.stdout + run.stderr

"""The programs that a build runs, and the one error of the builder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class BuildError(RuntimeError):
    """A build cannot be planned, or failed; the text names the cause and ends with what to do."""


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


@dataclass(frozen=True)
class HostCompiler:
    """A C++ compiler: its command (a launcher such as ccache may come first), name and version."""

    command: tuple[str, ...]
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_host_compiler(env: Mapping[str, str]) -> HostCompiler:
    """The compiler that `CXX` names, else the first of g++, c++, clang++ on PATH.

    Raises:
        BuildError: there is none, or it does not run.
    """
    named = env.get("CXX")
    candidates = [named] if named else ["g++", "c++", "clang++"]
    for candidate in candidates:
        command = tuple(shlex.split(candidate))
        if command and shutil.which(command[0], path=env.get("PATH")):
            return _identify(command, env)
    looked_for = f"CXX={named!r}" if named else "g++, c++ and clang++ on PATH"
    raise BuildError(
        f"no C++ compiler: looked for {looked_for}; the build needs one with C++17. Install one "
        "(Debian: apt-get install g++; conda: conda install gxx_linux-64) or set CXX"
    )


def _identify(command: tuple[str, ...], env: Mapping[str, str]) -> HostCompiler:
    text = output_of([*command, "--version"], "repair it, or set CXX to another compiler", env)
    first = text.partition("\n")[0]
    version = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b(?!.*\b\d+\.\d+\.\d+\b)", first)
    name = "clang++" if "clang" in first else "g++"
    return HostCompiler(command, name, version.group(1) if version else "unknown")

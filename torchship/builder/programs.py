"""The programs that a build runs, and the builder's error."""

import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

#: A function that gets the lines of a progress report.
Log = Callable[[str], None]

# Other names of the processors that this package knows by one name.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

#: The first major release of setuptools that takes `license` as an SPDX expression; it builds
#: wheels by itself from 70.1 on.
OLDEST_SETUPTOOLS = 77


class BuildError(RuntimeError):
    """A build failed or cannot be planned. The text names the cause and usually a remedy."""


def output_of(command: Sequence[str], repair: str, env: Mapping[str, str] | None = None) -> str:
    """A program's standard output, then its standard error.

    Raises BuildError, whose text ends with `repair`, if the program does not run, fails or
    takes over 60 s.
    """
    try:
        run = subprocess.run(command, capture_output=True, timeout=60, env=env, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{command[0]} does not run: {error}; {repair}") from error
    return (run.stdout + run.stderr).decode("utf-8", "replace")


def split_variable(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The words of a variable such as CXXFLAGS, split as a shell would split them."""
    try:
        return tuple(shlex.split(env.get(name, "")))
    except ValueError as error:
        raise BuildError(
            f"{name}={env[name]!r} cannot be split into words: {error}; "
            "write it as for a shell, each quote closed"
        ) from error


def read_flag(env: Mapping[str, str], name: str) -> bool | None:
    """The environment variable as a bool; None if it is not set, or empty."""
    value = env.get(name, "").strip().lower()
    return None if value == "" else value not in ("0", "off", "no", "false")


@dataclass(frozen=True)
class HostCompiler:
    """A C++ compiler."""

    command: tuple[str, ...]  #: a launcher such as ccache may come first
    name: str
    version: str
    machine: str = ""  #: the target's processor, as `x86_64`; "" if the compiler does not print it

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_host_compiler(env: Mapping[str, str]) -> HostCompiler:
    """The compiler that `CXX` names; if CXX is not set, the first of g++, c++, clang++ on PATH."""
    named = env.get("CXX")
    candidates = [split_variable(env, "CXX")] if named else [("g++",), ("c++",), ("clang++",)]
    for command in candidates:
        if command and shutil.which(command[0], path=env.get("PATH")):
            return _identify(command, env)
    conda_name = platform.machine().replace("x86_64", "64")
    looked_for = f"CXX={named!r}" if named else "g++, c++ and clang++ on PATH"
    raise BuildError(
        f"no C++ compiler: looked for {looked_for}; the build needs one with C++17. "
        f"Install one (Debian: apt-get install g++; conda: conda install gxx_linux-{conda_name}) "
        "or set CXX"
    )


def _identify(command: tuple[str, ...], env: Mapping[str, str]) -> HostCompiler:
    banner = output_of([*command, "--version"], "repair it, or set CXX to another compiler", env)
    first_line = banner.partition("\n")[0]
    version = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b(?!.*\b\d+\.\d+\.\d+\b)", first_line)
    target = ""
    with suppress(BuildError):  # a wrapper may not know this option
        target = output_of([*command, "-dumpmachine"], "set CXX to g++ or clang++", env)
    machine = target.partition("-")[0].strip()
    return HostCompiler(
        command=command,
        name="clang++" if "clang" in first_line else "g++",
        version=version[1] if version else "unknown",
        machine=_MACHINES.get(machine, machine),
    )

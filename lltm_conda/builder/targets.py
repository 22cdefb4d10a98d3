"""Steps of a build, and the flags that every shared object is compiled and linked with."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .host_compiler import HostCompiler
from .record import make_record, record_source
from .sources import source_root

__all__ = ["LINK", "Step", "Target", "debug_wanted", "host_flags", "linker_flags"]

LINK = ["-shared", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--build-id=sha1"]


@dataclass(frozen=True)
class Step:
    """One command. `inputs` are files it reads (headers are found by the depfile)."""

    name: str
    inputs: tuple[Path, ...]
    output: Path
    command: tuple[str, ...]
    depfile: Path | None = None
    # Text to be written to inputs[0] beforehand, when that file is generated.
    generated: str | None = None


class Target:
    """Collects the steps of one shared object.

    Attributes:
        launcher: a compiler cache that is put before every compiler, or nothing.
    """

    def __init__(
        self,
        out_dir: Path,
        file: str,
        env: Mapping[str, str],
        compiler: HostCompiler,
        launcher: Sequence[str] = (),
    ):
        self.output = out_dir / file
        self.objects_dir = out_dir / "objects" / file.removesuffix(".so")
        self.env = env
        self.compiler = compiler
        self.launcher = tuple(launcher)
        self.steps: list[Step] = []
        self._objects: list[Path] = []

    def compile(self, source: Path, command: list[str], generated: str | None = None) -> None:
        """One object file; `command` is the compiler with its flags."""
        stem = source.name.replace(".", "_")
        output = self.objects_dir / f"{source.parent.name}_{stem}.o"
        depfile = output.with_suffix(".d")
        flags = ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
        # A CXX of several words starts with a launcher of its own.
        several = len(self.compiler.command) > 1 and command[0] == self.compiler.command[0]
        launcher = () if several else self.launcher
        self.steps.append(
            Step(
                f"compile {source.name} for {self.output.name}",
                (source,),
                output,
                (*launcher, *command, *flags),
                depfile,
                generated,
            )
        )
        self._objects.append(output)

    def record(self, command: list[str], **facts: object) -> None:
        """The build record, compiled by `command`."""
        kind, _, name = self.output.stem.partition("-")
        text = record_source(make_record(kind, name, self.env, **facts))
        self.compile(self.objects_dir / "record.cpp", command, generated=text)

    def link(self, command: list[str], libraries: list[str]) -> list[Step]:
        """All steps, the last of which links the objects."""
        objects = tuple(self._objects)
        line = (*command, "-o", str(self.output), *map(str, objects), *libraries)
        self.steps.append(Step(f"link {self.output.name}", objects, self.output, line))
        return self.steps


def debug_wanted(env: Mapping[str, str]) -> bool:
    """Whether `DEBUG` asks for objects without optimisation, with debugging symbols."""
    return env.get("DEBUG", "0").strip().lower() not in ("", "0", "off", "no", "false")


def host_flags(env: Mapping[str, str], optimisation: str) -> list[str]:
    """What every source is compiled with, CXXFLAGS first."""
    level = ["-O0", "-g"] if debug_wanted(env) else [optimisation, "-DNDEBUG"]
    root = source_root()
    return [
        *shlex.split(env.get("CXXFLAGS", "")),
        *level,
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        "-Wall",
        f"-ffile-prefix-map={root.parent}{os.sep}=",
    ]


def linker_flags(env: Mapping[str, str]) -> list[str]:
    return shlex.split(env.get("LDFLAGS", ""))

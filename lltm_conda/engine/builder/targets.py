"""What a build is asked for, its steps, and the flags that every shared object is made with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..compat.records import TorchInstall
from ..project import Project
from .clang_cuda import ClangToolkit
from .cuda_toolkit import CudaToolkit
from .programs import HostCompiler, words
from .record import record_source
from .sources import source_root

_LINK = ("-shared", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--build-id=sha1")


@dataclass(frozen=True)
class BuildRequest:
    """The binaries to build, and with what.

    Attributes:
        out_dir: where the binaries go (`glue-*.so`, `kernels-*.so`).
        project: whose binaries they are.
        glue: `stable210`, `aten29-abi1`, ..., or None for kernels alone.
        torch: the torch whose headers and libraries the glue is compiled against.
        kernels: `cpu`, `cuda12`, `cuda13`.
        env: the environment; CXX, CXXFLAGS, LDFLAGS, CUDA_HOME, CUDAHOSTCXX, TORCH_CUDA_ARCH_LIST,
            DEBUG has its usual meaning.
        cuda: the toolkit for CUDA kernels; None: the one that `env` leads to.
        architectures: in TORCH_CUDA_ARCH_LIST's syntax; that variable comes first.
        launcher: the command of a compiler cache, put before every compiler.
    """

    out_dir: Path
    project: Project
    glue: str | None = None
    torch: TorchInstall | None = None
    kernels: tuple[str, ...] = ("cpu",)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cuda: CudaToolkit | ClangToolkit | None = None
    architectures: str | None = None
    launcher: tuple[str, ...] = ()

    @property
    def csrc(self) -> Path:
        """The project's C++ and CUDA sources."""
        return source_root(self.project.folder)


def flag(env: Mapping[str, str], name: str) -> bool | None:
    """The environment variable as a yes or no; None when it is not set, or empty."""
    value = env.get(name, "").strip().lower()
    return None if value == "" else value not in ("0", "off", "no", "false")


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: what it does, for messages.
        inputs: the files it reads; the depfile lists the headers.
        output: the file it writes.
        command: the program and its arguments.
        depfile: where the compiler lists the headers it read.
        generated: the text of inputs[0], when that file is generated; written before the command.
    """

    name: str
    inputs: tuple[Path, ...]
    output: Path
    command: tuple[str, ...]
    depfile: Path | None = None
    generated: str | None = None


class Target:
    """One shared object: collects its steps."""

    def __init__(self, request: BuildRequest, file: str, compiler: HostCompiler) -> None:
        self.output = request.out_dir / file
        self.request = request
        self.compiler = compiler
        self._objects_dir = request.out_dir / "objects" / file.removesuffix(".so")
        self._steps: list[Step] = []

    def compile(self, source: Path, command: list[str], generated: str | None = None) -> None:
        """Add one object file; `command` is the compiler with its flags."""
        stem = source.name.replace(".", "_")
        output = self._objects_dir / f"{source.parent.name}_{stem}.o"
        depfile = output.with_suffix(".d")
        flags = ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
        # A CXX of several words starts with a launcher of its own.
        several = len(self.compiler.command) > 1 and command[0] == self.compiler.command[0]
        self._steps.append(
            Step(
                name=f"compile {source.name} for {self.output.name}",
                inputs=(source,),
                output=output,
                command=(*(() if several else self.request.launcher), *command, *flags),
                depfile=depfile,
                generated=generated,
            )
        )

    def record(self, command: list[str], **facts: object) -> None:
        """Add the build record, compiled by `command`."""
        kind, _, name = self.output.stem.partition("-")
        request, machine = self.request, self.compiler.machine
        text = record_source(request.project, kind, name, request.env, machine, **facts)
        self.compile(self._objects_dir / "record.cpp", command, generated=text)

    def link(self, command: list[str], libraries: list[str]) -> list[Step]:
        """Add the link of all objects, and return all steps."""
        objects = tuple(step.output for step in self._steps)
        line = (*command, "-o", str(self.output), *map(str, objects), *libraries)
        return [*self._steps, Step(f"link {self.output.name}", objects, self.output, line)]


def host_flags(request: BuildRequest, optimisation: str) -> list[str]:
    """What every source is compiled with, CXXFLAGS first."""
    level = ["-O0", "-g"] if flag(request.env, "DEBUG") else [optimisation, "-DNDEBUG"]
    return [
        *words(request.env, "CXXFLAGS"),
        *level,
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        "-Wall",
        # The same bytes wherever the sources lie.
        f"-ffile-prefix-map={request.csrc.parent}{os.sep}=",
    ]


def link_flags(env: Mapping[str, str]) -> list[str]:
    """What every shared object is linked with, LDFLAGS included."""
    # Nothing refers to the sections that are read without loading: they may not be collected.
    return [*_LINK, *words(env, "LDFLAGS"), "-Wl,--no-gc-sections"]

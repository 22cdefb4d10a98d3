"""Small projects whose objects are compiled by the checkout's builder."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

from torchship.builder import BuildRequest, execute, plan
from torchship.builder.options import FILE_NAME
from torchship.judge.project import Project
from torchship.release.matrix.build_schema import Build
from torchship.release.matrix.generated import build_options

HEADER = """\
#pragma once
#define PROJECT_NAME "small"
#define PROJECT_PACKAGE "small"
#define PROJECT_NAMESPACE small
#define PROJECT_SYMBOL(name) small_##name
"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def make_project(
    root: Path, files: dict[str, str], build: dict[str, object] | None = None
) -> Project:
    """A project with these files below `root`; `build` is what its matrix says under `build:`."""
    write(root, {"csrc/project.h": HEADER, "small/_version.py": "", **files})
    if build is not None:
        content = build_options(Build.model_validate(build))
        (root / "small" / FILE_NAME).write_text(content, encoding="utf-8")
        json.loads(content)
    return Project(
        distribution="small",
        package="small",
        namespace="small",
        prefix="SMALL",
        operator="run",
        version="1.0",
        folder=root / "small",
        kernels=("cpu", "cuda"),
    )


def quick_environment() -> dict[str, str]:
    """The environment of a build that does not optimise."""
    return {**os.environ, "DEBUG": "1"}


def kernels_request(project: Project, out: Path) -> BuildRequest:
    """The request for the CPU kernels alone."""
    return BuildRequest(out_dir=out, project=project, kernels=("cpu",), env=quick_environment())


def build_kernels(project: Project, out: Path) -> ctypes.CDLL:
    """The CPU kernels, compiled and loaded."""
    request = kernels_request(project, out)
    execute(plan(request), out / "work", jobs=2, log=lambda line: None)
    return ctypes.CDLL(str(out / "kernels-cpu.so"))


def function(name: str, value: str, before: str = "") -> str:
    """A source with one exported function without arguments, of type int."""
    export = 'extern "C" __attribute__((visibility("default"))) int'
    return f"{before}\n{export} {name}() {{ return {value}; }}\n"

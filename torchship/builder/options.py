"""What `build:` of build_matrix.yaml says of each kind of object.

The builder has the standard library alone, so it reads the JSON file that follows from the
matrix and lies in the project's package. A project without such a file has the folders and
flags that the builder chooses.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..judge.project import Project
from .programs import BuildError

#: The file's name in the package.
FILE_NAME = "build.json"


@dataclass(frozen=True, kw_only=True)
class ObjectOptions:
    """What one kind of object has besides what the builder gives to every object.

    Paths are relative to the folder around the package, and may be patterns. The builder
    looks for sources in the kind's own folder if `sources` is empty.
    """

    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    defines: Mapping[str, str | None] = field(default_factory=dict)
    std: int | None = None  #: the C++ standard; None: the oldest that the headers accept
    libraries: tuple[str, ...] = ()  #: their names, without `lib` and `.so`


@dataclass(frozen=True, kw_only=True)
class GeneratedSources:
    """A command that writes sources or headers before an object is compiled."""

    object: str  #: "glue", "cpu" or "cuda"
    command: tuple[str, ...]  #: `{out}` stands for the folder of `outputs`
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of a project's build, by the kind of object."""

    glue: ObjectOptions = ObjectOptions()
    glue_cuda: ObjectOptions = ObjectOptions()  #: what a glue with CUDA code has besides
    cpu: ObjectOptions = ObjectOptions()
    cuda: ObjectOptions = ObjectOptions()
    generated: tuple[GeneratedSources, ...] = ()
    data: tuple[str, ...] = ()  #: patterns of the files that the package holds besides Python

    @property
    def objects(self) -> tuple[ObjectOptions, ...]:
        return self.glue, self.glue_cuda, self.cpu, self.cuda


def read_options(project: Project) -> BuildOptions:
    """The options that the project's package carries; raises BuildError for a damaged file."""
    path = project.folder / FILE_NAME
    if not path.is_file():
        return BuildOptions()
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, AttributeError) as error:
        raise BuildError(
            f"{path} is damaged ({error}); write it again: scripts/build_all.sh generate"
        ) from error


def _parse(content: Mapping[str, Any]) -> BuildOptions:
    return BuildOptions(
        glue=_parse_object(content.get("glue", {})),
        glue_cuda=_parse_object(content.get("glue", {}).get("cuda") or {}),
        cpu=_parse_object(content.get("cpu", {})),
        cuda=_parse_object(content.get("cuda", {})),
        generated=tuple(map(_parse_generated, content.get("generated", ()))),
        data=tuple(content.get("data", ())),
    )


def _parse_object(content: Mapping[str, Any]) -> ObjectOptions:
    return ObjectOptions(
        sources=tuple(content.get("sources", ())),
        include=tuple(content.get("include", ())),
        flags=tuple(content.get("flags", ())),
        defines=dict(content.get("defines", {})),
        std=content.get("std"),
        libraries=tuple(content.get("libraries", ())),
    )


def _parse_generated(content: Mapping[str, Any]) -> GeneratedSources:
    return GeneratedSources(
        object=content["object"],
        command=tuple(content["command"]),
        inputs=tuple(content["inputs"]),
        outputs=tuple(content["outputs"]),
    )


def project_file(csrc: Path, project: Project, name: str) -> Path:
    """The path of a file or folder that the options name.

    An installed package has its own `csrc`; everything else is beside the package.
    """
    is_in_csrc = name.split("/")[0] == "csrc"
    return (csrc.parent if is_in_csrc else project.checkout) / name

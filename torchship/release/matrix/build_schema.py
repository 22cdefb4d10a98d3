"""The schema of `build:` in build_matrix.yaml: how each kind of object is compiled and packed."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from ...builder.cuda_libraries import CUDA_LIBRARIES, SYSTEM_LIBRARIES

#: No unknown keys, and no conversions: 2.10 is not the text "2.10".
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
_NO_DEVICE_LINK = (
    "needs kernels that call no device function of another file, since no step links device code; "
    "put such functions into a header"
)
_ONE_MACHINE = (
    "needs a flag for the machines of all users; name the oldest processor that you serve, such "
    "as -march=x86-64-v3, or choose at run time"
)
# By a pattern at the start of a flag: the key to which it belongs, or why no package may have it.
_NOT_A_FLAG = {
    r"-I|-isystem": "needs the folder under `include:`",
    r"--?std": "needs the number under `std:`, such as 20",
    r"-D": "needs the macro under `defines:`",
    r"-l(?!ineinfo)|-L": "needs the name of the library under `libraries:`",
    r"-gencode|--gpu-|-arch": "needs the architectures under `kernels:`, in `archs:`",
    r"-m(arch|cpu|tune)=native": _ONE_MACHINE,
    r"-rdc|--relocatable-device-code|-dc": _NO_DEVICE_LINK,
}


def _inside(path: str) -> str:
    name = path.removeprefix("!")
    if not name.strip() or name.startswith("/") or "\\" in name or ".." in name.split("/"):
        raise ValueError("needs a path below the folder of build_matrix.yaml, with / between names")
    return path


def _portable(flag: str) -> str:
    for pattern, advice in _NOT_A_FLAG.items():
        if re.match(pattern, flag):
            raise ValueError(advice)
    return flag


def _vouched(library: str) -> str:
    if library in CUDA_LIBRARIES or library in SYSTEM_LIBRARIES:
        return library
    names = ", ".join((*SYSTEM_LIBRARIES, *CUDA_LIBRARIES))
    raise ValueError(
        f"needs one of {names}: the C library or torch brings these wherever a package is "
        "installed; compile the sources of another library with yours, or link its static archive"
    )


RelativePath = Annotated[str, AfterValidator(_inside)]
Flag = Annotated[str, AfterValidator(_portable)]
Library = Annotated[str, AfterValidator(_vouched)]
# A value that no shell of a compiler must quote.
DefineValue = Annotated[str, StringConstraints(pattern=r"^[\w@%+=:./,-]*$")]
PipRequirement = Annotated[str, StringConstraints(pattern=r"^[\w.-]+ *([<>=!~][^;@#\"']*)?$")]


class _Strict(BaseModel):
    model_config = STRICT


class ObjectBuild(_Strict):
    """How one kind of object is compiled. Paths are relative to the matrix.

    `sources` may have patterns. Without them, the sources of the kind's folder below `csrc` are
    compiled.
    """

    sources: list[RelativePath] = []
    include: list[RelativePath] = []
    flags: list[Flag] = []
    defines: dict[Identifier, DefineValue | int | None] = {}
    std: Literal[17, 20, 23] | None = None
    libraries: list[Library] = []


class GlueBuild(ObjectBuild):
    """The same for the glue; `cuda` is what it has besides where it has code for CUDA.

    Its own `.cu` files are then compiled into the glue by nvcc, with torch's headers.
    """

    cuda: ObjectBuild = ObjectBuild()


class Generated(_Strict):
    """A command that writes sources or headers before they are compiled.

    `{out}` in the command is the folder of `outputs`; a word that is one of `inputs` becomes the
    path of that file.
    """

    object: Literal["glue", "cpu", "cuda"]
    command: list[str] = Field(min_length=1)
    inputs: list[RelativePath] = []
    outputs: list[RelativePath] = Field(min_length=1)


class Requirement(_Strict):
    """What the package needs at run time besides torch, as pip and as conda spell it."""

    pip: PipRequirement
    conda: str


class Build(_Strict):
    """What a project's objects and packages have besides what those of every project have.

    `data` are patterns of files in the package, besides Python, that its wheels hold.
    """

    glue: GlueBuild = GlueBuild()
    cpu: ObjectBuild = ObjectBuild()
    cuda: ObjectBuild = ObjectBuild()
    generated: list[Generated] = []
    data: list[RelativePath] = []
    requires: list[PipRequirement | Requirement] = []

    @property
    def pip_requirements(self) -> list[str]:
        return [entry if isinstance(entry, str) else entry.pip for entry in self.requires]

    @property
    def conda_requirements(self) -> list[str]:
        """The same requirements in conda's spelling: a space before the versions, and no other."""
        return [
            _for_conda(entry) if isinstance(entry, str) else entry.conda for entry in self.requires
        ]

    @property
    def cuda_packages(self) -> list[str]:
        """conda-forge's packages of the CUDA libraries to which the objects are linked."""
        linked = (self.glue, self.glue.cuda, self.cuda)
        libraries = [name for options in linked for name in options.libraries]
        packages = (CUDA_LIBRARIES[name].conda for name in libraries if name in CUDA_LIBRARIES)
        return list(dict.fromkeys(packages))


def _for_conda(requirement: str) -> str:
    name, versions = re.split(r"(?<=[\w.-])(?= *[<>=!~]|$)", requirement, maxsplit=1)
    return f"{name} {versions.replace(' ', '')}".strip()

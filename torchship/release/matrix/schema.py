"""The schema of build_matrix.yaml.

The module `load` finds contradictions between its values.
"""

from typing import Annotated, Any, Literal

from packaging.version import Version
from pydantic import AfterValidator, BaseModel, Field, PrivateAttr, StringConstraints

from ...builder import cxx_standard
from ...judge.records import parse_minor
from .build_schema import STRICT, Build, Identifier
from .platforms import FIRST, facts_of

Minor = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
Python = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+t?$")]  # t: free-threaded
Release = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
Arch = Annotated[str, StringConstraints(pattern=r"^(sm|compute)_\d{2,3}[af]?$")]
Device = Annotated[str, StringConstraints(pattern=r"^(cpu|cu\d+)$")]
KernelsKey = Annotated[str, StringConstraints(pattern=r"^(cpu|cuda\d+)$")]
PlatformName = Annotated[str, StringConstraints(pattern=r"^linux-[a-z0-9_]+$")]
Abi = Literal[0, 1]


def pair(version: str) -> tuple[int, int]:
    """The major and the minor of a version such as `2.10` or `2.10.1`."""
    numbers = parse_minor(version)
    if numbers is None:
        raise ValueError(f"got {version!r}, needs a version such as 2.10")
    return numbers


def machine_of(platform: str) -> str:
    """The processor of a platform: `aarch64` for `linux-aarch64`."""
    return facts_of(platform).machine


def subdir_of(platform: str) -> str:
    """Conda's name of a platform: `linux-64` for `linux-x86_64`."""
    return facts_of(platform).conda


def merge_values(values: object, differs: object) -> object:
    """A copy of the nested mapping `values`, updated by the nested mapping `differs`."""
    if not isinstance(values, dict) or not isinstance(differs, dict):
        return differs
    changes = {key: merge_values(values.get(key), new) for key, new in differs.items()}
    return {**values, **changes}


def _ordered(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"the lower bound {bounds[0]} is above the upper bound {bounds[1]}")
    return bounds


Bounds = Annotated[tuple[int, int], AfterValidator(_ordered)]


class Strict(BaseModel):
    """A model that refuses unknown keys and converts no numbers (2.10 is not the text "2.10")."""

    model_config = STRICT


class Project(Strict):
    """Facts about the project.

    The module `generated` writes the names for the engine and C++.
    """

    distribution: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
    summary: Annotated[str, StringConstraints(pattern=r"^[^\n\"#]+$")]
    license: str
    url: Annotated[str, StringConstraints(pattern=r"^https://[^\s/]+(/[^\s/]+)*$")]
    maintainers: list[str] = Field(min_length=1)
    package: Identifier
    namespace: Identifier
    prefix: Identifier
    operator: Identifier
    definition: str = ""
    smoke: str | None = None  # None: torchship's own
    example: str | None = None  # None: no program is run besides the smoke test
    example_needs: str = ""
    wheel_limit: int
    index: str | None = None
    channel: str | None = None


class Package(Strict):
    manylinux: Minor
    pythons: list[Minor] = Field(min_length=1)
    default_torch: Minor


class Platform(Strict):
    """A platform for binaries.

    `differs` has the matrix's values that differ on this platform.
    """

    debian: str
    differs: dict[Literal["kernels", "stable", "torch"], dict[str, Any]] = {}


class Clang(Strict):
    """The clang that compiles kernels if no nvcc of the toolkit's CUDA major can."""

    major: int
    debian: str
    fatbinary: Minor


class Toolkit(Strict):
    archs: list[int] = Field(min_length=1)
    gcc: Annotated[Bounds, Field(strict=False)]
    nvcc: bool
    clang: Clang | None = None
    pypi: list[str] = Field(min_length=1)


class Kernels(Strict):
    """A kernel object; the object for the CPU has neither a toolkit nor architectures.

    `code_in` says where the CUDA code is: in kernels, which are free of torch; in the glue,
    with torch's headers; or some in both.
    """

    toolkit: Minor | None = None
    archs: list[Arch] = []
    code_in: Literal["kernels", "glue", "both"] = "kernels"

    @property
    def cuda_major(self) -> int | None:
        return pair(self.toolkit)[0] if self.toolkit else None

    @property
    def has_object(self) -> bool:
        return self.code_in != "glue"

    @property
    def is_in_glue(self) -> bool:
        return self.code_in != "kernels"


class Stable(Strict):
    """The stable glue; without devices, each torch minor has a glue of its own.

    `headers` names the torch whose headers the glue of a release is compiled with; None for
    `built_with`, the torch of the environments.
    """

    target: Minor
    built_with: Minor
    headers: Minor | None = None
    devices: list[Device]


class TorchCuda(Strict):
    version: Minor
    archs: list[int] = Field(min_length=1)


class TorchAbi(Strict):
    pypi: Abi
    conda: Abi


class Torch(Strict):
    release: Release
    pythons: list[Minor] = Field(min_length=1)
    free_threaded: list[Python] = []
    cuda: TorchCuda | None
    abi: TorchAbi
    gcc: Annotated[Bounds, Field(strict=False)]
    aten: list[Device] = []

    @property
    def every_python(self) -> list[str]:
        return [*self.pythons, *self.free_threaded]

    @property
    def cxx(self) -> int:
        """The C++ standard of its ATen glue."""
        return cxx_standard("aten", pair(self.release))

    @property
    def conda(self) -> str:
        """The pytorch versions of this minor, which a conda package with its ATen glue takes."""
        major, minor = pair(self.release)
        return f">={major}.{minor}.0,<{major}.{minor + 1}.0a0"

    @property
    def cuda_major(self) -> int | None:
        return pair(self.cuda.version)[0] if self.cuda else None

    @property
    def abis(self) -> list[int]:
        """The C++ ABIs of this torch: PyPI's, then conda-forge's if it differs."""
        return list(dict.fromkeys([self.abi.pypi, self.abi.conda]))


class Tool(Strict):
    """A pure Python distribution of the checkout, released beside the project.

    `folder` holds its pyproject.toml, and `packs` names the folders that it packs beside its own.
    `run` has the command lines that must succeed where it
    is installed. With `zipapp`, it is also one file, which runs the same. Each of `extras` is
    also a conda package, which requires what the extra requires; its values are such lines.
    """

    distribution: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
    folder: str
    packs: list[str] = []
    run: list[str] = Field(min_length=1)
    zipapp: bool = False
    extras: dict[str, list[str]] = {}

    @property
    def name(self) -> str:
        return self.distribution

    @property
    def package(self) -> str:
        """The Python package that the distribution installs."""
        return self.distribution.replace("-", "_")


class Matrix(Strict):
    schema_: Literal[1] = Field(alias="schema")
    project: Project
    tools: list[Tool] = []
    package: Package
    platforms: dict[PlatformName, Platform] = {FIRST: Platform(debian="amd64")}
    toolkits: dict[Minor, Toolkit]
    kernels: dict[KernelsKey, Kernels]
    build: Build = Build()
    stable: Stable
    torch: dict[Minor, Torch]
    _platform: str = PrivateAttr(FIRST)
    _first: "Matrix | None" = PrivateAttr(None)

    @property
    def platform(self) -> str:
        return self._platform

    def on(self, platform: str) -> "Matrix":
        first = self._first or self
        if platform == FIRST:
            return first
        values = merge_values(first.model_dump(by_alias=True), self.platforms[platform].differs)
        matrix = Matrix.model_validate(values)
        matrix._platform = platform
        matrix._first = first
        return matrix

    def minors(self) -> list[str]:
        return sorted(self.torch, key=Version)

    def every_python(self) -> list[str]:
        """The package's Pythons, then the free-threaded Pythons that a torch has wheels for."""
        free = {python for torch in self.torch.values() for python in torch.free_threaded}
        return [*self.package.pythons, *sorted(free)]

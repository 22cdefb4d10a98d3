"""The record of a client of the engine, and its base class `Record`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # Python has it from 3.11 on

    def dataclass_transform(**_):
        return lambda decorated: decorated


Self = TypeVar("Self", bound="Record")


@dataclass_transform(frozen_default=True)
class Record:
    """A frozen record whose fields are the annotations of its class.

    At import, a Record class costs 0.01 ms, a NamedTuple 0.1 ms, a frozen dataclass 1 ms. A
    type checker takes a Record for a dataclass, and checks every call. With `kw_only=True`,
    a class takes its fields by keyword alone: among many fields, two could be swapped
    unseen.
    """

    _fields: ClassVar[tuple[str, ...]]
    _names: ClassVar[frozenset[str]]
    _required: ClassVar[frozenset[str]]
    _positional: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls._names = frozenset(cls._fields)
        cls._required = frozenset(name for name in cls._fields if not hasattr(cls, name))
        cls._positional = () if kw_only else cls._fields

    def __init__(self, *values: object, **named: object) -> None:
        fields = self.__dict__
        if values:
            fields.update(zip(self._positional, values, strict=False))
        fields.update(named)
        is_each_named_once = len(fields) == len(values) + len(named)
        if not is_each_named_once or not self._required <= fields.keys() <= self._names:
            raise TypeError(
                f"{type(self).__name__} has the fields {', '.join(self._fields)}; "
                f"got {[*fields]} and {len(values)} values without a name"
            )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; use _replace({name}=...)")

    def _asdict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self: Self, **changes: object) -> Self:
        """A copy in which the fields named in `changes` have new values."""
        return type(self)(**{**self.__dict__, **changes})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._asdict() == other._asdict()

    def __hash__(self) -> int:
        return hash((type(self), *self._asdict().values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({fields})"


#: The folders of a checkout in which a package may lie, if it does not lie beside pyproject.toml.
LAYOUTS = ("src", "python")


def checkout_of(package: Path) -> Path:
    """The folder of the checkout around a package: that of pyproject.toml."""
    around = package.parent
    is_layout = around.name in LAYOUTS and (around.parent / "pyproject.toml").is_file()
    return around.parent if is_layout else around


class Project(Record, kw_only=True):
    """A client of the engine: an op with its Python package."""

    distribution: str  #: the name of the wheels and of the conda package
    package: str  #: the Python package that users import
    namespace: str  #: of the operators in `torch.ops`; also the prefix of the C symbols
    prefix: str  #: of the environment variables
    operator: str  #: the name of one operator; if it is registered, all operators are registered
    version: str  #: of the Python files; binaries must have the same version
    folder: Path  #: of the Python files
    #: The types of device that have kernels: "cpu", "cuda", both or neither. On a device
    #: without kernels, the operators call only torch.
    kernels: tuple[str, ...] = ()
    #: Whether the glue itself has code for CUDA, so that each CUDA major has a glue of its own.
    has_cuda_glue: bool = False
    #: Whether there is a glue for the CPU. Glue whose whole code is for CUDA has none.
    has_cpu_glue: bool = True
    #: Whether the glue uses the stable ABI beside a torch that has it; else, each torch minor has
    #: a glue of its own.
    is_stable: bool = True
    definition: str = ""  #: the dotted name of the operator in plain PyTorch; "" if there is none
    cache: Path | None = None  #: the folder of local builds; None for that of `cache.root`

    @property
    def has_cuda(self) -> bool:
        """Whether there is code for CUDA, as kernels or in the glue."""
        return self.has_cuda_glue or "cuda" in self.kernels

    @property
    def is_for_cuda_alone(self) -> bool:
        """Whether nothing can be computed without CUDA."""
        return self.kernels == ("cuda",) or not self.has_cpu_glue

    @property
    def checkout(self) -> Path:
        """The folder of the checkout around the package, if the package lies in one."""
        return checkout_of(self.folder)

    @property
    def command(self) -> str:
        """The command that shows the checker's report."""
        return f"python -m {self.package}"

    @property
    def wheel_name(self) -> str:
        """The distribution, as the names of its wheels and of its `.dist-info` folder begin."""
        return self.distribution.replace("-", "_")

    @property
    def operators(self) -> str:
        """The namespace of the operators in torch, as users write it."""
        return f"torch.ops.{self.namespace}"

    def variable(self, name: str) -> str:
        """The name of an environment variable, with the prefix."""
        return f"{self.prefix}_{name}"

    def symbol(self, name: str) -> str:
        """The name of an exported C symbol, with the namespace as prefix."""
        return f"{self.namespace}_{name}"


#: Stands for no project, where a caller names none. No file belongs to it.
NOBODY = Project(
    distribution="",
    package="",
    namespace="",
    prefix="",
    operator="",
    version="",
    folder=Path(os.devnull),
)

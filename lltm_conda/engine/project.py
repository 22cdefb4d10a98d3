"""Who the engine works for: the one record of what it must know of its client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Project(NamedTuple):
    """A client of the engine; it travels in the runtime, the build request and the loader.

    Attributes:
        distribution: the name of its wheels and of its conda package.
        package: the Python package that users import.
        namespace: of its operators, `torch.ops.NAMESPACE`; also the prefix of its C symbols.
        prefix: of its environment variables.
        operator: one of its operators: where it is registered, all are.
        version: of its Python files; binaries must have the same.
        folder: of its Python files.
        kernels: the devices, "cpu" and "cuda", for which it has kernels of its own; on the others
            its operators call torch alone.
        definition: the dotted name of its operator in plain PyTorch, "" where there is none.
    """

    distribution: str
    package: str
    namespace: str
    prefix: str
    operator: str
    version: str
    folder: Path
    kernels: tuple[str, ...] = ()
    definition: str = ""

    @property
    def command(self) -> str:
        """What shows the checker's report."""
        return f"python -m {self.package}"

    @property
    def operators(self) -> str:
        """Where torch has the operators."""
        return f"torch.ops.{self.namespace}"

    def variable(self, name: str) -> str:
        """The environment variable of this name."""
        return f"{self.prefix}_{name}"

    def symbol(self, name: str) -> str:
        """The exported C symbol of this name."""
        return f"{self.namespace}_{name}"


#: For judging without a client: every file belongs to somebody else.
NOBODY = Project("", "", "", "", "", "", Path(os.devnull))

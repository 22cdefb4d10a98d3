"""What a caller asks the builder for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..compat.records import TorchInstall
from .cuda_toolkit import Toolkit


@dataclass(frozen=True)
class BuildRequest:
    """The binaries to build, and with what.

    Attributes:
        out_dir: where the binaries go (`glue-*.so`, `kernels-*.so`).
        glue: `stable210`, `aten29-abi1`, ..., or None for kernels alone.
        torch: the torch whose headers and libraries the glue is compiled against.
        kernels: `cpu`, `cuda12`, `cuda13`.
        env: the environment; CXX, CXXFLAGS, LDFLAGS, CUDA_HOME, CUDAHOSTCXX, TORCH_CUDA_ARCH_LIST,
            DEBUG and SOURCE_DATE_EPOCH have their usual meaning.
        cuda: the toolkit for CUDA kernels; None: the one that `env` leads to.
        architectures: in TORCH_CUDA_ARCH_LIST's syntax; that variable comes first.
        launcher: the command of a compiler cache, put before every compiler.
    """

    out_dir: Path
    glue: str | None = None
    torch: TorchInstall | None = None
    kernels: tuple[str, ...] = ("cpu",)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cuda: Toolkit | None = None
    architectures: str | None = None
    launcher: tuple[str, ...] = ()


def flag(env: Mapping[str, str], name: str) -> bool | None:
    """The environment variable as a yes or no; None when it is not set, or empty."""
    value = env.get(name, "").strip().lower()
    return None if value == "" else value not in ("0", "off", "no", "false")

"""Compiles the binaries of a project, with nothing but the standard library and a compiler.

`pip install .`, ``python -m PACKAGE build`` and the release tool build the same way: a
:class:`BuildRequest` says what is wanted, :func:`plan` lists the steps and compiles nothing,
:func:`execute` runs them.
"""

from __future__ import annotations

from .clang_cuda import ClangToolkit
from .cuda_toolkit import CudaToolkit, find_cuda_toolkit, find_cuda_toolkits
from .execute import execute
from .fit import fitting_request, glue_for
from .plan import cxx_standard, plan
from .programs import BuildError, HostCompiler, find_host_compiler
from .sources import linked_sources, source_root
from .targets import BuildRequest, Step

__all__ = [
    "BuildError",
    "BuildRequest",
    "ClangToolkit",
    "CudaToolkit",
    "HostCompiler",
    "Step",
    "cxx_standard",
    "execute",
    "find_cuda_toolkit",
    "find_cuda_toolkits",
    "find_host_compiler",
    "fitting_request",
    "glue_for",
    "linked_sources",
    "plan",
    "source_root",
]

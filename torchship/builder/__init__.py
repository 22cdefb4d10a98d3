"""Compiles the binaries of a project, with no Python package but the standard library.

`pip install .`, ``python -m PACKAGE build`` and the release tool build the same way: a
:class:`BuildRequest` names the binaries and tools, :func:`plan` lists the steps without
compiling anything, and :func:`execute` runs the steps.
"""

from .cuda_toolkit import ClangToolkit as ClangToolkit
from .cuda_toolkit import CudaToolkit as CudaToolkit
from .cuda_toolkit import find_cuda_toolkit as find_cuda_toolkit
from .cuda_toolkit import find_cuda_toolkits as find_cuda_toolkits
from .execute import execute as execute
from .plan import Step as Step
from .plan import plan as plan
from .programs import BuildError as BuildError
from .programs import HostCompiler as HostCompiler
from .programs import find_host_compiler as find_host_compiler
from .recipes import cxx_standard as cxx_standard
from .request import BuildRequest as BuildRequest
from .request import fitting_request as fitting_request
from .request import glue_for as glue_for
from .sources import include_dirs as include_dirs
from .sources import linked_sources as linked_sources
from .sources import source_root as source_root

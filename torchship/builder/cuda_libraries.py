"""The libraries that a binary may be linked to, and what brings each where it is loaded.

A binary may need only libraries that are there wherever its package is installed. Of CUDA's, a
wheel of torch for CUDA requires these, and loads them before any binary of a project; conda's
pytorch does the same, and the recipe names their packages again.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .programs import BuildError


class CudaLibrary(NamedTuple):
    """A library of CUDA that torch brings."""

    conda: str  #: conda-forge's package of the library; with `-dev`, of its headers
    extra: str  #: the extra of PyPI's `cuda-toolkit` that brings it to a build


#: By the name that the linker takes.
CUDA_LIBRARIES = {
    "cublas": CudaLibrary(conda="libcublas", extra="cublas"),
    "cublasLt": CudaLibrary(conda="libcublas", extra="cublas"),
    "cufft": CudaLibrary(conda="libcufft", extra="cufft"),
    "curand": CudaLibrary(conda="libcurand", extra="curand"),
    "cusolver": CudaLibrary(conda="libcusolver", extra="cusolver"),
    "cusparse": CudaLibrary(conda="libcusparse", extra="cusparse"),
}
#: The libraries of the C library, which every system has.
SYSTEM_LIBRARIES = ("dl", "m", "pthread", "rt")


def cuda_link_inputs(names: Iterable[str], folders: Iterable[str]) -> list[str]:
    """The files to link for CUDA libraries, found in a toolkit's folders of libraries.

    NVIDIA's wheels have no `libNAME.so`, for which the linker's `-lNAME` looks, so the linker gets
    the path of the file. Raises BuildError for a library that is not there.
    """
    places = list(folders)
    files = []
    for name in names:
        if name in SYSTEM_LIBRARIES:
            files.append(f"-l{name}")
            continue
        found = (path for place in places for path in sorted(Path(place).glob(f"lib{name}.so*")))
        file = next(found, None)
        if file is None:
            raise BuildError(
                f"lib{name}.so, which build_matrix.yaml names under `build:`, is not in "
                f"{', '.join(places) or 'the CUDA toolkit'}; install it there "
                f'(of PyPI: pip install "cuda-toolkit[{CUDA_LIBRARIES[name].extra}]", and name '
                "the extra under `toolkits:`)"
            )
        files.append(str(file))
    return files

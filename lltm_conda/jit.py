"""Compiles the op just in time: ``lltm_conda.jit.load()``.

Use it in an environment for which the package has no binary, and while you change the
C++ sources; see docs/start/building/jit.md. An op can be registered only once per process, so
the package must not load a binary of its own. Set ``LLTM_CONDA_LOAD=0`` before the import::

    import os
    os.environ["LLTM_CONDA_LOAD"] = "0"

    import lltm_conda.jit
    lltm_conda.jit.load(verbose=True)

    from lltm_conda import LLTM, lltm
"""

import os

from .engine.builder import BuildError
from .engine.runtime import local_build
from .engine.runtime.loader import LoadedBinaries
from .loader import LOADER

__all__ = ["BuildError", "LoadedBinaries", "load"]


def load(
    *,
    verbose: bool = False,
    with_cuda: bool | None = None,
    build_directory: str | os.PathLike[str] | None = None,
) -> LoadedBinaries:
    """Compiles the op for the torch of this process and loads it.

    Afterwards ``torch.ops.lltm`` exists, and the package has its public names, as in
    ``from lltm_conda import LLTM``. The cache keeps the build. A change of the sources, of
    torch or of a variable below except `MAX_JOBS` causes a new build, and so does a damaged
    file in the cache. If several processes or threads call this function at once, one
    compiles and the others wait.

    The build reads the environment variables `CXX`, `CXXFLAGS`, `LDFLAGS`, `DEBUG`,
    `CUDA_HOME`, `CUDA_PATH`, `CUDAHOSTCXX`, `TORCH_CUDA_ARCH_LIST` (by default the GPUs of
    this machine), `FORCE_CUDA`, `MAX_JOBS` and `LLTM_CONDA_CACHE`.

    Args:
        verbose: print the builder's steps and messages.
        with_cuda: True requires CUDA kernels and False leaves them out, whatever `FORCE_CUDA`
            says. With None and without `FORCE_CUDA`, the build has CUDA kernels if torch is a
            CUDA build and a suitable nvcc is installed; a CUDA torch without a suitable nvcc
            causes a warning.
        build_directory: the cache folder; by default that of ``python -m lltm_conda build``.
            The folder must belong to you, and no other user may have rights on it (mode
            0700).

    Returns:
        The loaded binaries. Another call with equal `with_cuda` and `build_directory` returns
        them, too.

    Raises:
        BuildError: the build failed, for example because CUDA kernels are required and no
            nvcc is suitable; or the cache folder cannot be trusted; or ``torch.ops.lltm`` is
            registered already, by an import of the package, by another library, or by a call
            with another `with_cuda` or `build_directory`. The text says what to do.
        LLTMImportError: torch cannot be imported, or the compiled binaries cannot be loaded.
    """
    return local_build.load(
        LOADER, verbose=verbose, with_cuda=with_cuda, build_directory=build_directory
    )

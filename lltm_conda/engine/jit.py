"""The op compiled just in time: ``lltm_conda.jit.load()``.

For an environment that none of the package's binaries serves, and for work on the C++ sources. The
sources travel inside the package; they are compiled against the torch of the process as by
``python -m lltm_conda build``, into the same cache, judged, and loaded into this process. It needs
a C++ compiler, for CUDA tensors nvcc too.

An op can be registered once per process, so the package must not load a binary of its own:
start Python with ``LLTM_CONDA_LOAD=0`` in the environment, or set it before the import::

    import os
    os.environ["LLTM_CONDA_LOAD"] = "0"

    import lltm_conda.jit
    lltm_conda.jit.load(verbose=True)

    from lltm_conda import LLTM, lltm
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from pathlib import Path

from . import loader, local_build
from .builder import BuildError
from .builder.targets import flag
from .compat import cache
from .compat.records import TorchInstall
from .loader import LoadedBinaries

__all__ = ["BuildError", "LoadedBinaries", "load"]

_RESTART = (
    "an op can be registered once per process. Use the op that is loaded, or start Python with "
    "LLTM_CONDA_LOAD=0 in the environment and call lltm_conda.jit.load() first"
)

_lock = threading.Lock()
_made_with: tuple[bool | None, Path | None] | None = None


def load(
    *,
    verbose: bool = False,
    with_cuda: bool | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> LoadedBinaries:
    """Compile the op for the torch of this process, load it, and complete the package with it.

    Afterwards ``torch.ops.lltm`` is there, and the package has its public names (``from lltm_conda
    import LLTM``). What was compiled before is taken from the cache; a change of the sources, of
    torch or of a setting compiles again. Several processes and threads may call this at once: one
    compiles, the others wait.

    `CXX`, `CXXFLAGS`, `LDFLAGS`, `CUDA_HOME`, `TORCH_CUDA_ARCH_LIST` (by default the GPUs of this
    machine), `FORCE_CUDA`, `MAX_JOBS`, `DEBUG` and `LLTM_CONDA_CACHE` are honoured.

    Args:
        verbose: print what the builder does.
        with_cuda: True demands CUDA kernels, False leaves them out (as `FORCE_CUDA`). None makes
            them when torch is a CUDA build and an nvcc is found that fits, and warns when none is.
        build_directory: the cache folder; by default that of ``python -m lltm_conda build``. It
            must be yours alone, as the default one.
        name: has no effect any more, and gives a DeprecationWarning.

    Returns:
        What was loaded. A second call with the same arguments returns the same object.

    Raises:
        BuildError: there is no compiler or nvcc, or a compiler failed; or the cache folder cannot
            be trusted; or ``torch.ops.lltm`` is registered already, by a binary of the package or
            by a call with other arguments. The text says what to do.
        LLTMImportError: torch cannot be imported, or what was compiled cannot be loaded.
    """
    global _made_with
    if name is not None:
        warnings.warn(
            "lltm_conda.jit.load(name=...) has no effect any more; remove the argument",
            DeprecationWarning,
            stacklevel=2,
        )
    base = None if build_directory is None else Path(build_directory).expanduser().absolute()
    with _lock:
        loaded = loader.loaded()
        if loaded is not None and _made_with == (with_cuda, base):
            return loaded
        if _made_with is not None:
            raise BuildError(
                "lltm_conda.jit.load was called before with other arguments (with_cuda, "
                f"build_directory) = {_made_with}, now {(with_cuda, base)}; {_RESTART}"
            )
        runtime = loader.import_runtime()
        if runtime.registered_by is not None:
            raise BuildError(
                f"torch.ops.lltm is registered already, by {runtime.registered_by}; {_RESTART}"
            )
        assert runtime.torch is not None
        library = loader.load(_built(runtime.torch, with_cuda, base, verbose))
        _made_with = (with_cuda, base)
        # Something is loaded now, so the package takes its public names.
        importlib.reload(sys.modules[__name__.rpartition(".engine.")[0]])
        return library


def _built(
    torch: TorchInstall, with_cuda: bool | None, base: Path | None, verbose: bool
) -> tuple[Path, ...]:
    """The binaries in the cache, compiled where they are not there."""
    env = dict(os.environ)
    if with_cuda is not None:
        env["FORCE_CUDA"] = str(int(with_cuda))
    if flag(env, "FORCE_CUDA") and torch.cuda is None:
        raise BuildError(
            f"CUDA kernels were asked for, but torch {torch.version} is a CPU build and has no "
            "CUDA tensors; install a CUDA build of torch, or leave with_cuda (or FORCE_CUDA) away"
        )
    lines: list[str] = []
    remarks: list[str] = []
    try:
        folder = local_build.build(
            torch,
            env,
            base=base,
            remark=print if verbose else remarks.append,
            log=print if verbose else lines.append,
        )
        return cache.trusted_files(folder, base)
    except (cache.CacheError, cache.NoCacheFolderError) as error:
        raise BuildError(f"lltm_conda.jit.load: {error}") from error
    finally:
        for remark in remarks:
            warnings.warn(f"lltm_conda.jit.load: {remark}", stacklevel=3)

"""Local builds, loaded into this process: what a client's `jit.load` does."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path

from . import local_build
from .builder import BuildError
from .builder.targets import flag
from .compat import cache
from .loader import LoadedBinaries, Loader


def load(
    loader: Loader,
    verbose: bool = False,
    with_cuda: bool | None = None,
    build_directory: str | os.PathLike[str] | None = None,
) -> LoadedBinaries:
    """Compile for the torch of this process unless the cache has it, load, reload the package.

    What it raises is in the docstring of the client's own `load`.
    """
    project = loader.project
    name = f"{project.package}.jit.load"
    restart = (
        "an op can be registered once per process. Use the op that is loaded, or start Python "
        f"with {project.variable('LOAD')}=0 in the environment and call {name}() first"
    )
    base = None if build_directory is None else Path(build_directory).expanduser().absolute()
    with loader.lock:
        loaded, before = loader.loaded(), loader.compiled_with
        if loaded is not None and before == (with_cuda, base):
            return loaded
        if before is not None:
            raise BuildError(
                f"{name} was called before with other arguments (with_cuda, build_directory) = "
                f"{before}, now {(with_cuda, base)}; {restart}"
            )
        runtime = loader.import_runtime()
        if runtime.registered_by is not None:
            raise BuildError(
                f"{project.operators} is registered already, by {runtime.registered_by}; {restart}"
            )
        torch, env = runtime.torch, dict(os.environ)
        assert torch is not None
        if with_cuda is not None:
            env["FORCE_CUDA"] = str(int(with_cuda))
        if flag(env, "FORCE_CUDA") and torch.cuda is None:
            raise BuildError(
                f"CUDA kernels were asked for, but torch {torch.version} is a CPU build and has no "
                "CUDA tensors; install a CUDA build of torch, or leave with_cuda (or FORCE_CUDA) "
                "away"
            )
        place = project._replace(cache=base or project.cache)
        remarks: list[str] = []
        remark, log = (print, print) if verbose else (remarks.append, lambda _: None)
        try:
            folder = local_build.build(place, torch, env, remark=remark, log=log)
            files = cache.trusted_files(place, folder)
        except (cache.CacheError, cache.NoCacheFolderError) as error:
            raise BuildError(f"{name}: {error}") from error
        finally:
            for text in remarks:
                warnings.warn(f"{name}: {text}", stacklevel=3)
        loaded = loader.load(files)
        loader.compiled_with = (with_cuda, base)
        # Something is loaded now, so the package takes its public names.
        importlib.reload(sys.modules[project.package])
        return loaded

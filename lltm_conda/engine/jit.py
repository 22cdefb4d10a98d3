"""Local builds, loaded into this process: what a client's `jit.load` does."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from pathlib import Path

from . import local_build
from .builder import BuildError
from .builder.targets import flag
from .compat import cache
from .compat.records import TorchInstall
from .loader import LoadedBinaries, Loader


class Jit:
    """Compiles the binaries of a loader's project, and lets the loader load them."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._project = loader.project
        self._name = f"{self._project.package}.jit.load"
        self._lock = threading.Lock()
        self._made_with: tuple[bool | None, Path | None] | None = None

    def load(
        self,
        verbose: bool = False,
        with_cuda: bool | None = None,
        build_directory: str | os.PathLike[str] | None = None,
    ) -> LoadedBinaries:
        """Compile for the torch of this process unless the cache has it, load, reload the package.

        What it raises is in the docstring of the client's own `load`.
        """
        project = self._project
        restart = (
            "an op can be registered once per process. Use the op that is loaded, or start Python "
            f"with {project.variable('LOAD')}=0 in the environment and call {self._name}() first"
        )
        base = None if build_directory is None else Path(build_directory).expanduser().absolute()
        with self._lock:
            loaded = self._loader.loaded()
            if loaded is not None and self._made_with == (with_cuda, base):
                return loaded
            if self._made_with is not None:
                raise BuildError(
                    f"{self._name} was called before with other arguments (with_cuda, "
                    f"build_directory) = {self._made_with}, now {(with_cuda, base)}; {restart}"
                )
            runtime = self._loader.import_runtime()
            if runtime.registered_by is not None:
                raise BuildError(
                    f"{project.operators} is registered already, by {runtime.registered_by}; "
                    f"{restart}"
                )
            assert runtime.torch is not None
            library = self._loader.load(self._built(runtime.torch, with_cuda, base, verbose))
            self._made_with = (with_cuda, base)
            # Something is loaded now, so the package takes its public names.
            importlib.reload(sys.modules[project.package])
            return library

    def _built(
        self, torch: TorchInstall, with_cuda: bool | None, base: Path | None, verbose: bool
    ) -> tuple[Path, ...]:
        """The binaries in the cache, compiled where they are not there."""
        env, project = dict(os.environ), self._project._replace(cache=base or self._project.cache)
        if with_cuda is not None:
            env["FORCE_CUDA"] = str(int(with_cuda))
        if flag(env, "FORCE_CUDA") and torch.cuda is None:
            raise BuildError(
                f"CUDA kernels were asked for, but torch {torch.version} is a CPU build and has no "
                "CUDA tensors; install a CUDA build of torch, or leave with_cuda (or FORCE_CUDA) "
                "away"
            )
        remarks: list[str] = []
        try:
            folder = local_build.build(
                project,
                torch,
                env,
                remark=print if verbose else remarks.append,
                log=print if verbose else lambda _: None,
            )
            return cache.trusted_files(project, folder)
        except (cache.CacheError, cache.NoCacheFolderError) as error:
            raise BuildError(f"{self._name}: {error}") from error
        finally:
            for remark in remarks:
                warnings.warn(f"{self._name}: {remark}", stacklevel=4)

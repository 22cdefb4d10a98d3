"""Compiles the variant that fits into the user's cache, and loads it for `jit.load`."""

import importlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..builder import BuildError, execute, fitting_request, plan
from ..builder.programs import Log, read_flag
from ..builder.signals import exit_on_signals
from ..judge import cache
from ..judge.machine import driver_probe
from ..judge.project import Project
from ..judge.records import TorchInstall, dotted, variant_of
from ..judge.words.render import shorten
from .loader import LoadedBinaries, Loader

#: The environment variables on which a build depends. Another value of one, or none where
#: there was one, causes a new build.
SETTINGS = (
    "CXX",
    "CXXFLAGS",
    "LDFLAGS",
    "DEBUG",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDAHOSTCXX",
    "TORCH_CUDA_ARCH_LIST",
    "FORCE_CUDA",
)


@contextmanager
def readable_files() -> Iterator[None]:
    """Replaces, in a `with` block, a umask that denies the owner rights: compilers need them."""
    before = os.umask(0o077)
    if not before & 0o700:
        os.umask(before)
    try:
        yield
    finally:
        os.umask(before)


def build(
    project: Project,
    torch: TorchInstall,
    env: Mapping[str, str] | None = None,
    *,
    force: bool = False,
    remark: Log = print,
    log: Log = print,
) -> Path:
    """Compiles the variant that fits `torch` unless it is cached; returns the folder of binaries.

    A cached variant is compiled again with `force`, if one of SETTINGS has changed, or if its
    files are damaged. If the cache's file system has locks, one process compiles at a time.
    `env` is the build's environment (CXX, FORCE_CUDA, ...), by default that of this process.
    `remark` gets the warnings, such as why CUDA kernels are left out; `log` gets every other
    line.
    """
    env = dict(os.environ if env is None else env)
    base = cache.root(project)
    sources = cache.source_hash(project.folder)
    if sources is None:
        raise BuildError(
            f"this installation of {project.distribution} has no C++ sources (no csrc folder) to "
            "build; install from a source distribution or a checkout: "
            "python -m pip install --no-build-isolation FOLDER"
        )
    folder = cache.entry_folder(project, torch, sources)
    cache.make(project, base)
    with exit_on_signals(), readable_files(), cache.locked(project) as is_locked:
        if is_locked:  # no other process builds, so every unfinished build was killed
            _remove_unfinished(project)
        if folder.is_dir():
            cache.trusted_files(project, folder)
            reason = "building again" if force else _why_again(folder, env)
            if reason is None:
                log(f"built already: {shorten(str(folder))}   (build again: --force)")
                return folder
            log(reason)
        try:
            variant = _compile_into(folder, project, torch, env=env, remark=remark, log=log)
        except OSError as error:
            raise BuildError(
                f"{project.distribution} was not built: "
                f"{error.filename or base}: {error.strerror}. "
                f"Free some space or name another folder in {project.variable('CACHE')}, "
                "and run the same command again"
            ) from error
        except BuildError as error:
            raise BuildError(f"{project.distribution} was not built: {error}") from error
    log(f"built {variant} for torch {torch.version}: {shorten(str(folder))}")
    return folder


def _remove_unfinished(project: Project) -> None:
    for entry in cache.entries(project):
        if not entry.finished:
            shutil.rmtree(entry.path, ignore_errors=True)


def _why_again(folder: Path, env: Mapping[str, str]) -> str | None:
    """Why the cached build in `folder` cannot be used; None if it can."""
    if not cache.is_whole(folder):
        return "building again, since files of the cached build are missing or damaged"
    before = cache.read_manifest(folder).settings
    changed = [name for name in SETTINGS if env.get(name, "") != before.get(name, "")]
    return f"building again, since {' and '.join(changed)} changed" if changed else None


def _compile_into(
    folder: Path,
    project: Project,
    torch: TorchInstall,
    *,
    env: dict[str, str],
    remark: Log,
    log: Log,
) -> str:
    """Compiles in a temporary folder, moves the build to `folder`; returns the variant's name."""
    settings = {name: env[name] for name in SETTINGS if env.get(name)}
    if not env.get("TORCH_CUDA_ARCH_LIST"):
        capabilities = sorted({device.capability for device in driver_probe.probe_devices()})
        if capabilities:
            env["TORCH_CUDA_ARCH_LIST"] = ";".join(map(dotted, capabilities)) + "+PTX"
    base = cache.root(project)
    with tempfile.TemporaryDirectory(dir=base, prefix=cache.UNFINISHED) as unfinished:
        work = Path(unfinished)
        request = fitting_request(project, torch, work / "lib", env, log=remark)
        kernels = None if request.cuda is None else f"cuda{request.cuda.version[0]}"
        variant = variant_of(str(request.glue), kernels, project)
        execute(plan(request), work / "work", log=log)
        finished = work / "finished"
        finished.mkdir(mode=0o700)
        for path in (work / "lib").glob("*.so"):
            path.rename(finished / path.name).chmod(0o700)
        manifest = cache.Manifest(
            variant=variant,
            torch=torch.version,
            version=project.version,
            settings=settings,
            files={},
        )
        cache.write_manifest(finished, manifest)
        cache.make(project, folder.parent)
        if folder.exists():
            folder.rename(work / "replaced")
        finished.rename(folder)
    return variant


def load(
    loader: Loader,
    *,
    verbose: bool = False,
    with_cuda: bool | None = None,
    build_directory: str | os.PathLike[str] | None = None,
) -> LoadedBinaries:
    """Compiles the variant for this process's torch unless it is cached, and loads it.

    After loading, the function reloads the package, which then has its public names. The
    docstring of the client's `jit.load` lists the exceptions.
    """
    base = None if build_directory is None else Path(build_directory).expanduser().absolute()
    with loader.lock:
        loaded = loader.loaded()
        if loaded is not None and loader.compiled_with == (with_cuda, base):
            return loaded
        torch = _torch_without_op(loader, (with_cuda, base))
        env = _environment_for(torch, with_cuda=with_cuda)
        project = loader.project._replace(cache=base or loader.project.cache)
        files = _build_for_load(project, torch, env, verbose=verbose)
        loaded = loader.load(files)
        loader.compiled_with = (with_cuda, base)
        importlib.reload(sys.modules[loader.project.package])
        return loaded


def _torch_without_op(loader: Loader, arguments: tuple[bool | None, Path | None]) -> TorchInstall:
    """The torch of this process; raises BuildError if an op is registered there already."""
    project = loader.project
    name = f"{project.package}.jit.load"
    restart = (
        "an op can be registered once per process. Use the op that is loaded, or start Python "
        f"with {project.variable('LOAD')}=0 in the environment and call {name}() first"
    )
    if loader.compiled_with is not None:
        raise BuildError(
            f"{name} was called before with other arguments (with_cuda, build_directory) = "
            f"{loader.compiled_with}, now {arguments}; {restart}"
        )
    runtime = loader.import_runtime()
    if runtime.registered_by is not None:
        raise BuildError(
            f"{project.operators} is registered already, by {runtime.registered_by}; {restart}"
        )
    assert runtime.torch is not None
    return runtime.torch


def _environment_for(torch: TorchInstall, *, with_cuda: bool | None) -> dict[str, str]:
    """This process's environment, in which `with_cuda` goes before FORCE_CUDA."""
    env = dict(os.environ)
    if with_cuda is not None:
        env["FORCE_CUDA"] = str(int(with_cuda))
    if read_flag(env, "FORCE_CUDA") and torch.cuda is None:
        raise BuildError(
            f"CUDA kernels were asked for, but torch {torch.version} is a CPU build and has no "
            "CUDA tensors; install a CUDA build of torch, or leave out with_cuda (or FORCE_CUDA)"
        )
    return env


def _build_for_load(
    project: Project, torch: TorchInstall, env: dict[str, str], *, verbose: bool
) -> tuple[Path, ...]:
    """The files of the build. What the build remarks is printed if `verbose`, else warned of."""
    name = f"{project.package}.jit.load"
    remarks: list[str] = []
    try:
        folder = build(
            project,
            torch,
            env,
            remark=print if verbose else remarks.append,
            log=print if verbose else lambda line: None,
        )
        return cache.trusted_files(project, folder)
    except (cache.CacheError, cache.NoCacheFolderError) as error:
        raise BuildError(f"{name}: {error}") from error
    finally:
        for remark in remarks:
            warnings.warn(f"{name}: {remark}", stacklevel=4)

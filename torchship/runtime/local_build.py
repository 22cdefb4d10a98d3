"""Compiles the variant that fits into the user's cache: `python -m PACKAGE build`, `jit.load`."""

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ..builder import BuildError, execute, fitting_request, plan
from ..builder.programs import Log, read_flag
from ..doctor import cache, driver_probe, find_torch, judge_file, probe_runtime, render, select
from ..doctor.project import Project
from ..doctor.records import TorchInstall, dotted
from ..doctor.text import read_json
from ..doctor.torch_probe import TorchNotFoundError
from .loader import LoadedBinaries, Loader

#: The environment variables on which a build depends. A new value of one causes a new build.
_SETTINGS = ["CXX", "CXXFLAGS", "LDFLAGS", "DEBUG"]
_SETTINGS += ["CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "FORCE_CUDA"]


def main(project: Project, arguments: list[str]) -> int:
    options = _parser(project).parse_args(arguments)
    try:
        if options.list:
            return _list(project)
        if options.remove is not None:
            return _remove(project, options.remove)
        return _build(project, options)
    except (BuildError, cache.CacheError, cache.NoCacheFolderError, TorchNotFoundError) as error:
        print(render.shorten(str(error)), file=sys.stderr)
        return 1


@contextmanager
def _readable_files() -> Iterator[None]:
    """Replaces, in a `with` block, a umask that denies the owner rights: compilers need them."""
    before = os.umask(0o077)
    if not before & 0o700:
        os.umask(before)
    try:
        yield
    finally:
        os.umask(before)


def _parser(project: Project) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{project.command} build",
        description=f"Compile {project.distribution} for the torch of this environment, into your "
        f"cache: ${project.variable('CACHE')}, else $XDG_CACHE_HOME/{project.package}, else "
        f"~/.cache/{project.package}. import {project.package} finds the result there. The build "
        f"honours {', '.join(_SETTINGS)} and MAX_JOBS.",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--list", action="store_true", help="list the builds in the cache")
    group.add_argument("--remove", metavar="KEY", help="remove one build, or `all`")
    parser.add_argument("--force", action="store_true", help="build again even if it is cached")
    return parser


def _list(project: Project) -> int:
    try:
        print(f"build cache: {render.shorten(str(cache.root(project)))}\n")
    except cache.NoCacheFolderError as error:
        print(f"build cache: none\n\n{error}")
        return 0
    left = "nothing yet: killed or running"
    rows = [
        (e.key, e.variant, f"{e.size / 1e6:.1f} MB", f"torch {e.torch}" if e.finished else left)
        for e in cache.entries(project)
    ]
    print(render.table(("key", "variant", "size", "built for"), rows) if rows else "empty")
    return 0


def _remove(project: Project, key: str) -> int:
    entries = cache.entries(project)
    chosen = [entry for entry in entries if key in ("all", entry.key)]
    if not chosen:
        if key == "all":
            return 0
        known = ", ".join(entry.key for entry in entries) or "nothing"
        raise BuildError(f"no build {key!r} in the cache; it holds: {known}")
    cache.make(project, cache.root(project))
    with _readable_files(), cache.locked(project, wait=False) as held:
        if held is False:
            raise BuildError("nothing was removed: another process builds here. Try again later")
        for entry in chosen:
            with suppress(FileNotFoundError):  # an unfinished build removes its folder at its end
                shutil.rmtree(entry.path)
                if entry.finished and not any(entry.path.parent.iterdir()):
                    entry.path.parent.rmdir()
            print(f"removed {entry.key}")
    return 0


def _build(project: Project, options: argparse.Namespace) -> int:
    torch = find_torch()
    folder = build(project, torch, force=options.force)
    runtime = probe_runtime(torch, project=project)
    # The import will judge the build, too; this check also covers the GPU and all libraries.
    selection = select(cache.trusted_files(project, folder), runtime, judge_file)
    if selection.complete:
        print(f"import {project.package} will find {selection.variant}")
        return 0
    print(render.cause_text(selection.cause), file=sys.stderr)
    return 1


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

    With `force` or a new value of one of `_SETTINGS`, a cached variant is compiled again. If the
    cache's file system has locks, one process compiles at a time. `env` is the build's environment
    (CXX, FORCE_CUDA, ...), by default that of this process. `remark` gets the warnings, such as why
    CUDA kernels are left out; `log` gets every other line of output.
    """
    env = dict(os.environ if env is None else env)
    base = cache.root(project)
    sources = cache.source_hash(project.folder)
    name = project.distribution
    if sources is None:
        raise BuildError(
            f"this installation of {name} has no C++ sources (no csrc folder) to build; install "
            "from a source distribution or a checkout: "
            "python -m pip install --no-build-isolation FOLDER"
        )
    folder = cache.entry_folder(project, torch, sources)
    cache.make(project, base)
    with _readable_files(), cache.locked(project) as held:
        if held:  # no other process builds, so every unfinished build was killed
            for entry in cache.entries(project):
                if not entry.finished:
                    shutil.rmtree(entry.path, ignore_errors=True)
        if folder.is_dir():
            cache.trusted_files(project, folder)
            before = read_json(folder / cache.MANIFEST).get("settings")
            before = before if isinstance(before, dict) else {}
            changed = [n for n in _SETTINGS if n in env and env[n] != before.get(n)]
            if not force and not changed:
                log(f"built already: {render.shorten(str(folder))}   (build again: --force)")
                return folder
            if changed:
                log(f"building again with the new {' and '.join(changed)}")
        try:
            variant = _compile_into(project, folder, torch, env, remark, log)
        except OSError as error:
            raise BuildError(
                f"{name} was not built: {error.filename or base}: {error.strerror}. Free some "
                f"space or name another folder in {project.variable('CACHE')}, and run the same "
                "command again"
            ) from error
        except BuildError as error:
            raise BuildError(f"{name} was not built: {error}") from error
    log(f"built {variant} for torch {torch.version}: {render.shorten(str(folder))}")
    return folder


def _compile_into(
    project: Project, folder: Path, torch: TorchInstall, env: dict[str, str], remark: Log, log: Log
) -> str:
    """Compiles in a temporary folder, moves the build to `folder`; returns the variant's name."""
    settings = {name: env[name] for name in _SETTINGS if name in env}
    if not env.get("TORCH_CUDA_ARCH_LIST"):
        found = sorted({device.capability for device in driver_probe.probe_devices()})
        if found:
            env["TORCH_CUDA_ARCH_LIST"] = ";".join(map(dotted, found)) + "+PTX"
    with tempfile.TemporaryDirectory(dir=cache.root(project), prefix=cache.UNFINISHED) as place:
        work = Path(place)
        request = fitting_request(project, torch, work / "lib", env, log=remark)
        device = "cpu" if request.cuda is None else f"cu{request.cuda.version[0]}"
        variant = f"{request.glue}-{device}"
        execute(plan(request), work / "work", log=log)
        finished = work / "finished"
        finished.mkdir(mode=0o700)
        for path in (work / "lib").glob("*.so"):
            path.rename(finished / path.name).chmod(0o700)
        about = {"variant": variant, "torch": torch.version, "version": project.version}
        text = json.dumps({**about, "settings": settings}, indent=2)
        (finished / cache.MANIFEST).write_text(f"{text}\n")
        (finished / cache.MANIFEST).chmod(0o600)
        cache.make(project, folder.parent)
        if folder.exists():
            folder.rename(work / "replaced")
        finished.rename(folder)
    return variant


def load(
    loader: Loader,
    verbose: bool = False,
    with_cuda: bool | None = None,
    build_directory: str | os.PathLike[str] | None = None,
) -> LoadedBinaries:
    """Compiles the variant for this process's torch unless it is cached, and loads it.

    After loading, the function reloads the package, which then has its public names. The docstring
    of the client's `jit.load` lists the exceptions.
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
        if read_flag(env, "FORCE_CUDA") and torch.cuda is None:
            raise BuildError(
                f"CUDA kernels were asked for, but torch {torch.version} is a CPU build and has no "
                "CUDA tensors; install a CUDA build of torch, or leave out with_cuda (or "
                "FORCE_CUDA)"
            )
        place = project._replace(cache=base or project.cache)
        remarks: list[str] = []
        remark, log = (print, print) if verbose else (remarks.append, lambda _: None)
        try:
            folder = build(place, torch, env, remark=remark, log=log)
            files = cache.trusted_files(place, folder)
        except (cache.CacheError, cache.NoCacheFolderError) as error:
            raise BuildError(f"{name}: {error}") from error
        finally:
            for text in remarks:
                warnings.warn(f"{name}: {text}", stacklevel=3)
        loaded = loader.load(files)
        loader.compiled_with = (with_cuda, base)
        importlib.reload(sys.modules[project.package])
        return loaded

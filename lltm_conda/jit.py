"""The op compiled just in time: ``lltm_conda.jit.load()``.

For an environment that none of the package's binaries serves, and for work on the C++ sources. The
sources travel inside the package; ``torch.utils.cpp_extension.load`` compiles them against the
torch of the process, kernels and glue into one shared object, and keeps it in torch's own cache
(``TORCH_EXTENSIONS_DIR``). It needs a C++ compiler and ninja, for CUDA tensors nvcc too.

An op can be registered once per process, so the package must not load a binary of its own:
start Python with ``LLTM_CONDA_LOAD=0`` in the environment, or set it before the import::

    import os
    os.environ["LLTM_CONDA_LOAD"] = "0"

    import lltm_conda.jit
    lltm_conda.jit.load(verbose=True)

    from lltm_conda import LLTM, lltm
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._version import __version__
from .builder import BuildError, architecture_flags, find_host_compiler, linked_sources
from .builder.cuda_toolkit import CudaToolkit, default_architectures, parse_architectures
from .builder.execute import advice, find_ninja
from .builder.fit import fitting_request, flag
from .builder.plan import debug_wanted, door_flags
from .builder.sources import source_hash, source_root
from .compat import driver_probe, torch_probe
from .compat.records import GlueName, TorchInstall
from .loader import registered_by

__all__ = ["BuildError", "JitLibrary", "load"]

_RESTART = (
    "an op can be registered once per process. Use the op that is loaded, or start Python with "
    "LLTM_CONDA_LOAD=0 in the environment and call lltm_conda.jit.load() first"
)


@dataclass(frozen=True)
class JitLibrary:
    """What :func:`load` compiled and loaded.

    Attributes:
        path: the shared object, in torch's cache of extensions or in `build_directory`.
        door: "stable" (LibTorch's stable ABI, torch 2.10 and newer) or "aten".
        cuda: the version of the nvcc that compiled the CUDA kernels; None without them.
        cuda_architectures: what they were compiled for, e.g. ``("sm_90", "compute_90")``.
    """

    path: Path
    door: str
    cuda: str | None
    cuda_architectures: tuple[str, ...]


_lock = threading.Lock()
_loaded: tuple[tuple[bool | None, str | None, str | None], JitLibrary] | None = None


def load(
    *,
    verbose: bool = False,
    with_cuda: bool | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> JitLibrary:
    """Compile the op for the torch of this process, load it, and complete the package with it.

    Afterwards ``torch.ops.lltm`` is there, `lltm_conda.functions` and `lltm_conda.modules` can be
    imported, and the package has its public names (``from lltm_conda import LLTM``). What was
    compiled before is taken from the cache; a change of the sources, of torch or of the flags
    compiles again. Several processes may call this at once: one compiles, the others wait.

    `CXX`, `CXXFLAGS`, `LDFLAGS`, `CUDA_HOME`, `TORCH_CUDA_ARCH_LIST` (by default the GPUs of this
    machine), `FORCE_CUDA`, `MAX_JOBS`, `DEBUG` and `TORCH_EXTENSIONS_DIR` are honoured.

    Args:
        verbose: print the commands and what the compilers say.
        with_cuda: True demands CUDA kernels in the same object, False leaves them out. None makes
            them when torch is a CUDA build and an nvcc of its CUDA major is found, and warns when
            it is not found.
        build_directory: where to build; by default a folder in torch's cache of extensions.
        name: the name of the shared object, by default made of all that decides its contents.

    Returns:
        What was loaded. A second call with the same arguments returns the same object.

    Raises:
        BuildError: there is no compiler, ninja or nvcc, or a compiler failed; or ``torch.ops.lltm``
            is registered already, by a binary of the package or by a call with other arguments.
            The text says what to do.
    """
    global _loaded
    directory = None if build_directory is None else str(Path(build_directory).resolve())
    arguments = (with_cuda, directory, name)
    with _lock:
        if _loaded is not None:
            made_with, library = _loaded
            if made_with == arguments:
                return library
            raise BuildError(
                "lltm_conda.jit.load was called before with other arguments "
                f"(with_cuda, build_directory, name) = {made_with}, now {arguments}; {_RESTART}"
            )
        import torch

        owner = registered_by(torch)
        if owner is not None:
            raise BuildError(
                f"torch.ops.lltm is registered already, by {owner}; {_RESTART}",
            )
        remarks: list[str] = []
        say = print if verbose else remarks.append
        try:
            install = torch_probe.from_module(torch)
            library = _build(install, verbose, with_cuda, directory, name, say)
        finally:
            for remark in remarks:
                warnings.warn(f"lltm_conda.jit.load: {remark}", stacklevel=2)
        _loaded = (arguments, library)
        _complete_package()
    return library


def _build(
    torch: TorchInstall,
    verbose: bool,
    with_cuda: bool | None,
    directory: str | None,
    name: str | None,
    say: Callable[[str], None],
) -> JitLibrary:
    env = dict(os.environ)
    if with_cuda is not None:
        env["FORCE_CUDA"] = "1" if with_cuda else "0"
    glue, toolkit = _choose(torch, env, say)
    architectures = _architectures(toolkit, env) if toolkit else ()
    level = ["-O0", "-g"] if debug_wanted(env) else ["-O3", "-DNDEBUG"]
    macros = ["-DLLTM_LINKED_CPU_KERNELS"] + (["-DLLTM_LINKED_CUDA_KERNELS"] if toolkit else [])
    linker = ["-Wl,--no-as-needed", *shlex.split(env.get("LDFLAGS", ""))]
    if glue.lane == "aten":
        linker.append("-fopenmp")
    key = _key(torch, glue, toolkit, architectures)
    # The key in the flags: whatever it stands for changes, everything is compiled again, also
    # where a package manager gave new files old dates.
    flags = [*level, "-fvisibility=hidden", "-Wall", *macros, f"-DLLTM_JIT_KEY={key}"]
    name = name or f"lltm_jit_{key}"
    extension = _cpp_extension()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_changed_environment(_tools(env)))
        folder = Path(directory or extension._get_build_directory(name, verbose)).absolute()
        stack.enter_context(_alone_in(folder))
        if toolkit is not None:
            linker += _runtime_flags(toolkit, folder)
            stack.enter_context(_cuda_home(extension, toolkit))
        try:
            extension.load(
                name=name,
                sources=[str(path) for path in linked_sources(glue.lane, cuda=bool(toolkit))],
                extra_cflags=[
                    *shlex.split(env.get("CXXFLAGS", "")),
                    *flags,
                    *door_flags(glue),
                ],
                extra_cuda_cflags=[
                    *(option for option in flags if option.startswith(("-O", "-g", "-D"))),
                    "-std=c++17",
                    *architecture_flags(architectures),
                ],
                extra_ldflags=linker,
                build_directory=str(folder),
                verbose=verbose,
                with_cuda=toolkit is not None,
                is_python_module=False,
            )
        except (RuntimeError, OSError) as error:
            # Else cpp_extension takes a second attempt for one that needs no building.
            extension.JIT_EXTENSION_VERSIONER.entries.pop(name, None)
            text = str(error.__cause__ or error) if isinstance(error, OSError) else str(error)
            raise BuildError(f"lltm_conda.jit.load: {text.strip()}\n{advice(text)}") from error
    return JitLibrary(
        folder / f"{name}.so",
        glue.lane,
        toolkit.version_text if toolkit else None,
        tuple(architectures),
    )


def _choose(
    torch: TorchInstall, env: dict[str, str], say: Callable[[str], None]
) -> tuple[GlueName, CudaToolkit | None]:
    """The door and the CUDA toolkit, by the rules of every other build, and torch's own."""
    demanded = bool(flag(env, "FORCE_CUDA"))
    if demanded and torch.cuda is None:
        raise BuildError(
            f"CUDA kernels were asked for, but torch {torch.version} is a CPU build and has no "
            "CUDA tensors; install a CUDA build of torch, or leave with_cuda (or FORCE_CUDA) away"
        )
    request = fitting_request(torch, Path(), env, say)
    assert request.glue is not None
    toolkit = request.cuda if isinstance(request.cuda, CudaToolkit) else None  # nvcc's alone
    if toolkit is not None and toolkit.version[0] != torch.cuda_major:
        text = (
            f"torch.utils.cpp_extension takes an nvcc of torch's CUDA major alone: got nvcc "
            f"{toolkit.version_text} for torch {torch.version} with CUDA {torch.cuda}. Set "
            f"CUDA_HOME to a CUDA {torch.cuda_major} toolkit"
        )
        if demanded:
            raise BuildError(text)
        say(f"{text}; building for the CPU only")
        toolkit = None
    return GlueName.parse(request.glue), toolkit


def _architectures(toolkit: CudaToolkit, env: dict[str, str]) -> tuple[str, ...]:
    listed = env.get("TORCH_CUDA_ARCH_LIST")
    if not listed or listed.strip().lower() == "native":
        found = sorted({device.capability for device in driver_probe.probe_devices()})
        listed = ";".join(f"{major}.{minor}" for major, minor in found)
    listed = listed or default_architectures(toolkit)
    return tuple(parse_architectures(listed, toolkit.architectures()))


def _key(
    torch: TorchInstall,
    glue: GlueName,
    toolkit: CudaToolkit | None,
    architectures: tuple[str, ...],
) -> str:
    """Twelve digits that change with the sources, torch, the door and the CUDA toolkit.

    With their places too: two environments would else compile each other's object again and again.
    """
    cuda = (toolkit.version_text, *architectures) if toolkit else ()
    torch_parts = (torch.version, str(torch.cxx11_abi), str(torch.root))
    parts = (__version__, source_hash(), str(source_root()), *torch_parts, str(glue), *cuda)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _cpp_extension() -> Any:
    try:
        from torch.utils import cpp_extension
    except ModuleNotFoundError as error:
        raise BuildError(
            f"torch.utils.cpp_extension needs the module {error.name}, which is not installed; "
            f"run: {sys.executable} -m pip install setuptools"
        ) from error
    return cpp_extension


def _tools(env: dict[str, str]) -> dict[str, str]:
    """The environment in which cpp_extension finds the compiler and the ninja that we found."""
    compiler = find_host_compiler(env)
    ninja = find_ninja()
    if ninja is None:
        raise BuildError(
            "building just in time needs ninja, and there is none on PATH nor beside "
            f"{sys.executable}; run: {sys.executable} -m pip install ninja"
        )
    changes = {}
    if not env.get("CXX") and shutil.which("c++", path=env.get("PATH")) is None:
        changes["CXX"] = shlex.join(compiler.command)
    if shutil.which("ninja", path=env.get("PATH")) is None:
        changes["PATH"] = os.pathsep.join(filter(None, (str(Path(ninja).parent), env.get("PATH"))))
    return changes


@contextlib.contextmanager
def _changed_environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a build folder, by a lock that dies with its process.

    Before torch 2.15, cpp_extension's own lock is a file: left behind by a killed build, it would
    make every later one wait for ever. Whoever holds the lock here knows such a file for a relic.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lltm.lock").open("w")
    except OSError as error:
        raise BuildError(
            f"lltm_conda.jit.load cannot write to {folder} ({error.strerror}); set "
            "TORCH_EXTENSIONS_DIR, or pass build_directory, to a folder that can be written"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # some network file systems have no locks: then torch's alone must do
            yield
            return
        (folder / "lock").unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def _cuda_home(extension: Any, toolkit: CudaToolkit) -> Iterator[None]:
    # cpp_extension looked for CUDA when it was imported, and does not know PyPI's toolkit.
    before = extension.CUDA_HOME
    extension.CUDA_HOME = str(toolkit.home())
    try:
        yield
    finally:
        extension.CUDA_HOME = before


def _runtime_flags(toolkit: CudaToolkit, folder: Path) -> list[str]:
    """Lets `-lcudart` find PyPI's library, which has its version in its name."""
    home = toolkit.home()
    for name in ("lib64", "lib"):
        if (home / name / "libcudart.so").exists():
            return [f"-L{home / name}"]
    for name in ("lib64", "lib"):
        versioned = sorted((home / name).glob("libcudart.so.*"))
        if versioned:
            link = folder / "cudart" / "libcudart.so"
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(versioned[0])
            return [f"-L{link.parent}"]
    return []


def _complete_package() -> None:
    """Gives the package the names that it has after an ordinary import."""
    from .functions import LLTMFunction, lltm
    from .modules import LLTM
    from .reference import reference

    package = sys.modules[__package__]
    for name, value in {
        "LLTM": LLTM,
        "LLTMFunction": LLTMFunction,
        "lltm": lltm,
        "reference": reference,
    }.items():
        setattr(package, name, value)

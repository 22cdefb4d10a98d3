"""Probe: find a torch installation and read its facts, without importing it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..budget import Budget, BudgetSpentError
from ..reading.elf import Elf, ElfBoundError, ElfError
from ..records import NOWHERE, BinaryRecord, TorchInstall, parse_minor
from ..text import printable, read_regular, some

if TYPE_CHECKING:
    from ..target import Target

# Since torch 1.0, libc10 exports this constructor, under its name in one of the two C++ ABIs.
_ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationE"
_NEW = _ERROR + "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_OLD = _ERROR + "Ss"

#: The libraries that `import torch` loads, those that define most symbols first.
_LOADED_WITH_TORCH = (
    "libtorch_cpu.so",
    "libc10.so",
    "libtorch_python.so",
    "libtorch_cuda.so",
    "libc10_cuda.so",
    "libtorch_hip.so",
    "libc10_hip.so",
    "libtorch_xpu.so",
    "libc10_xpu.so",
)

# Before Python 3.14, Path.is_file raises for a file in a folder that this user may not search.
_is_file = os.path.isfile


class TorchNotFoundError(LookupError):
    """A torch installation cannot be found, or its facts cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class TorchShadowedError(TorchNotFoundError):
    """What Python imports as torch is a file or a folder that is not PyTorch."""

    def __init__(self, shadow: Path) -> None:
        self.shadow = printable(shadow)
        super().__init__(
            f"{shadow} is not PyTorch, and Python imports it as torch; rename that file or folder"
        )


def find_torch(path: Path | str | None = None, python: str | None = None) -> TorchInstall:
    """Find a torch installation and read its facts, without importing torch.

    Args:
        path: a `torch` package folder, a site-packages folder, or the prefix of an
            environment.
        python: an interpreter whose torch is read if `path` is None. If both are None, the
            torch of the running interpreter is read.

    Raises:
        TorchNotFoundError: a torch cannot be found, or its facts cannot be read; the text
            names the place or the interpreter, and says what to do.
    """
    if path is not None:
        files = [Path(path, "version.py"), Path(path, "torch", "version.py")]
        with suppress(OSError):
            files += sorted(Path(path).glob("lib*/python3*/site-packages/torch/version.py"))
        for file in files:
            if _is_file(file):
                return read_install(file.parent)
        raise TorchNotFoundError(
            f"no torch installation in {path}: looked for {some(list(map(str, files)))}. "
            "Name the folder that holds torch/version.py, or the prefix of the environment."
        )
    located = _located(python)
    if located is None:
        where = python or f"this Python ({sys.executable})"
        raise TorchNotFoundError(f"torch is not installed for {where}; install it there")
    return read_install(located)


def torch_of(target: Target) -> TorchInstall:
    """The torch that the target imports. Raises TorchNotFoundError."""
    if target.python is None:
        return find_torch()
    if target.python.torch is None:
        raise TorchNotFoundError(
            f"torch is not installed for {target.python.executable}; install it there"
        )
    return read_install(target.python.torch)


def _located(python: str | None) -> Path | None:
    """The folder of a Python's torch, or None. Raises TorchNotFoundError if `python` fails."""
    if python is None:
        origin = getattr(sys.modules.get("torch"), "__file__", None)
        if origin is None:
            with suppress(ImportError, ValueError, OSError):
                origin = getattr(importlib.util.find_spec("torch"), "origin", None)
        return Path(origin).parent if origin else None
    # A path may hold any byte but zero, so a zero byte separates the path from other output.
    # The current folder, which `-c` puts on the path, is none of that Python's.
    code = (
        "import sys; sys.path[:] = filter(None, sys.path);"
        "import importlib.util, os; spec = importlib.util.find_spec('torch');"
        "sys.stdout.buffer.write(b'\\0' + os.fsencode(spec and spec.origin or ''))"
    )
    try:
        answer = subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(error)
        if isinstance(error, subprocess.CalledProcessError):  # its text repeats the program
            reason = f"it ended with exit code {error.returncode}"
        elif isinstance(error, subprocess.TimeoutExpired):
            reason = f"it took more than {error.timeout:.0f} s"
        raise TorchNotFoundError(
            f"{python} could not be asked for its torch ({reason}). Name a working interpreter."
        ) from error
    origin = os.fsdecode(answer.stdout.rpartition(b"\0")[2])
    return Path(origin).parent if origin else None


def read_install(root: Path) -> TorchInstall:
    """The facts of the installation whose package folder is `root`. Raises TorchNotFoundError."""
    if not _is_file(root / "version.py") and not _is_pytorch(root):
        raise TorchShadowedError(root if root.name == "torch" else root / "torch.py")
    facts = _version_file(root / "version.py")
    version = facts.get("__version__")
    minor = parse_minor(version)
    if version is None or minor is None:
        raise TorchNotFoundError(
            f"{root / 'version.py'} holds no version (__version__ is {version!r}): a broken "
            "installation. Install torch again with the command that installed it."
        )
    lib_dir = root / "lib"
    problems = [
        f"{name} cannot be read in {lib_dir}"
        for name in ("libc10.so", "libtorch_cpu.so")
        if not _is_file(lib_dir / name)
    ]
    abi = None
    try:
        with Elf(lib_dir / "libc10.so", Budget()) as elf:
            abi = 1 if elf.defines(_NEW) else 0 if elf.defines(_OLD) else None
    except (FileNotFoundError, ElfBoundError, BudgetSpentError):
        pass  # `problems` names a missing file already; of a costly one, the ABI is unknown
    except (ElfError, OSError) as error:
        problems.append(f"{lib_dir / 'libc10.so'}: {error}")
    install = _install(root, version=version, minor=minor, abi=abi, facts=facts)
    return install._replace(
        installer=installer(root, "torch", version),
        python_tags=tuple(sorted(printable(path.name[3:-3]) for path in root.glob("_C.*.so"))),
        problems=tuple(map(printable, problems)),
    )


def _is_pytorch(root: Path) -> bool:
    """Whether a folder is what is left of an installation, which has lost its version.py."""
    with suppress(OSError):
        listed = any(name.startswith("torch-") for name in os.listdir(root.parent))  # noqa: PTH208
        has_libraries = _is_file(root / "lib" / "libtorch_cpu.so") or any(root.glob("_C.*.so"))
        return root.name == "torch" and (has_libraries or listed)
    return False


def _install(
    root: Path,
    *,
    version: str,
    minor: tuple[int, int],
    abi: int | None,
    facts: Mapping[str, Any],
) -> TorchInstall:
    """A TorchInstall; `facts` are the values in torch's `version.py`."""
    return TorchInstall(
        version=version,
        version_tuple=minor,
        cuda=facts.get("cuda"),
        hip=facts.get("hip") or facts.get("rocm"),
        xpu=facts.get("xpu"),
        cxx11_abi=abi,
        root=root,
        lib_dir=root / "lib",
        include_dir=root / "include",
    )


def other_installs(
    judged: TorchInstall | None, search_path: Iterable[str]
) -> tuple[TorchInstall, ...]:
    """The torches in the folders of a `sys.path` that are not the judged one."""
    judged_root = os.path.realpath(judged.root) if judged else None
    others: dict[str, TorchInstall] = {}
    for entry in search_path:
        root = Path(entry, "torch")
        key = os.path.realpath(root)
        if key != judged_root and key not in others and _is_file(root / "version.py"):
            with suppress(TorchNotFoundError):
                others[key] = read_install(root)
    return tuple(others.values())


def from_module(torch: ModuleType) -> TorchInstall:
    """The facts of the torch that is imported. No file is opened. Raises TorchNotFoundError."""
    version = str(getattr(torch, "__version__", ""))
    minor = parse_minor(version)
    origin = getattr(torch, "__file__", None)
    facts = getattr(torch, "version", None)
    if minor is None or origin is None or facts is None:
        raise TorchNotFoundError(
            f"the module named torch ({origin or torch!r}) is not PyTorch: it has no version. "
            "Rename the file or folder that shadows it."
        )
    flavour = getattr(getattr(torch, "_C", None), "_GLIBCXX_USE_CXX11_ABI", None)
    abi = None if flavour is None else int(flavour)
    return _install(
        Path(origin).parent,
        version=version,
        minor=minor,
        abi=abi,
        facts=getattr(facts, "__dict__", {}),
    )


def _version_file(path: Path) -> dict[str, str]:
    """The strings that a `version.py` assigns, by name. Raises TorchNotFoundError."""
    try:
        content = read_regular(path).decode("utf-8", "replace")
    except OSError as error:
        raise TorchNotFoundError(
            f"{path} cannot be read ({error.strerror}). Check the permissions of the folder."
        ) from error
    assignment = r"""^(\w+) *(?::[^=\n]*)?= *(["'])(.*?)\2"""
    assigned = re.findall(assignment, content, re.MULTILINE)
    return {name: printable(value) for name, _, value in assigned}


def release(version: str, minor: tuple[int, int], abi: int | None = None) -> TorchInstall:
    """A release that is not installed; by default, `abi` is that of PyPI's x86-64 wheel."""
    return TorchInstall(
        version=version,
        version_tuple=minor,
        cuda=None,
        hip=None,
        cxx11_abi=int(minor >= (2, 7)) if abi is None else abi,
        root=NOWHERE,
        lib_dir=NOWHERE,
        include_dir=NOWHERE,
    )


def installer(root: Path, name: str, version: str) -> str | None:
    """The installer of the distribution `name` beside `root`, such as "pip"; None if unknown."""
    with suppress(OSError):
        for place in dist_info(root, name, version):
            content = read_regular(place / "INSTALLER").decode("utf-8", "replace")
            return printable(content.strip()[:20]) or None
    return None


def dist_info(root: Path, name: str, version: str) -> Iterator[Path]:
    """The metadata folders of this version of the distribution `name` beside `root`."""
    start = f"{name}-{version.partition('+')[0]}"
    for entry in os.listdir(root.parent):  # noqa: PTH208  # quicker than iterdir, and every import does this
        if entry.startswith(start) and entry.endswith(".dist-info"):
            yield root.parent / entry


def missing_symbols(
    binary: BinaryRecord, torch: TorchInstall, budget: Budget | None = None
) -> tuple[str, ...]:
    """The torch symbols of a binary that this torch does not export; 100 symbols take about 4 ms.

    The function reads libtorch_cpu, libc10, the libraries of torch that the binary needs
    and, for Python bindings, libtorch_python. Raises ElfError or OSError for an unreadable
    one, and BudgetSpentError.
    """
    remaining = list(dict.fromkeys(binary.torch_symbols))
    of_torch = [name for name in binary.needed if name.startswith(("libtorch", "libc10"))]
    libraries = ["libtorch_cpu.so", "libc10.so", *of_torch]
    if any("THP" in name for name in remaining) or binary.modules:
        libraries.append("libtorch_python.so")
    for path in (torch.lib_dir / name for name in dict.fromkeys(libraries)):
        if remaining and _is_file(path):
            with Elf(path, budget) as elf:
                remaining = [name for name in remaining if not elf.defines(name)]
    return tuple(remaining)


def missing_in_process(binary: BinaryRecord, torch: TorchInstall) -> tuple[str, ...]:
    """As `missing_symbols`, for the torch that this process has loaded: the dynamic linker is asked
    first, and only what it does not find is looked up in files."""
    library = _loaded(torch.lib_dir / "libtorch_cpu.so")
    unfound = [name for name in binary.torch_symbols if not hasattr(library, name)]
    return missing_symbols(binary._replace(torch_symbols=tuple(unfound)), torch) if unfound else ()


def _loaded(path: Path) -> ctypes.CDLL | None:
    """The library of this very file, if the process has loaded it."""
    with suppress(OSError):
        return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    return None


def defining_libraries(
    names: Iterable[str], torch: TorchInstall, budget: Budget
) -> dict[str, Path]:
    """The library of torch that defines each of these symbols; without those that none defines.

    Raises BudgetSpentError.
    """
    remaining = [*dict.fromkeys(names)]
    libraries: dict[str, Path] = {}
    for path in (torch.lib_dir / name for name in _LOADED_WITH_TORCH):
        if not remaining or not _is_file(path):
            continue
        with suppress(ElfError, OSError), Elf(path, budget) as elf:
            libraries.update({name: path for name in remaining if elf.defines(name)})
        remaining = [name for name in remaining if name not in libraries]
    return libraries

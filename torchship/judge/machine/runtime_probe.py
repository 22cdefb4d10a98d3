"""The facts about this process and machine, except torch and the driver."""

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ..budget import Budget
from ..project import NOBODY, Project
from ..reading.binary import newest_versions
from ..reading.elf import Elf, ElfError
from ..records import Environment, Runtime, TorchInstall
from ..target import Target
from ..text import printable, read_json, read_regular
from .system import libc, machine, parse_libc, system_folders
from .torch_probe import (
    TorchNotFoundError,
    TorchShadowedError,
    dist_info,
    find_torch,
    installer,
    torch_of,
)

_RTLD_DI_LINKMAP = 2


def probe_runtime(
    torch: TorchInstall | Path | str | None = None,
    *,
    gpu: bool = True,
    project: Project = NOBODY,
    target: Target | None = None,
) -> Runtime:
    """Collect the facts, without importing torch and without initialising CUDA.

    Args:
        torch: an installation, or a folder as in `find_torch`; None for the target's torch.
        gpu: whether to look for the driver and the devices.
        project: the project whose binaries are "ours"; by default no binary is.
        target: the Python whose facts these are; None for the one that runs. What is read in its
            environment is remembered in the result's `target`.
    """
    target = target or Target()
    problem = install = None
    shadow = ""
    try:
        if isinstance(torch, TorchInstall):
            install = torch
        else:
            install = find_torch(torch) if torch else torch_of(target)
    except TorchNotFoundError as error:
        problem = str(error)
        shadow = error.shadow if isinstance(error, TorchShadowedError) else ""
    facts = runtime_of(target, install, project)
    if torch is not None and install is not None:
        # For a torch elsewhere, judge for this Python if the torch was built for this
        # Python, else for a Python that the torch was built for.
        tags = [re.match(r"cpython-([0-9])([0-9]+)(t?)-", f"{tag}-") for tag in install.python_tags]
        pythons = [((int(tag[1]), int(tag[2]), 0), tag[3] == "t") for tag in tags if tag]
        own = ((*facts.python[:2], 0), facts.free_threaded)
        if pythons and own not in pythons:
            python, free_threaded = pythons[0]
            facts = facts._replace(python=python, free_threaded=free_threaded)
    if gpu:
        from .driver_probe import probe_devices, probe_driver  # most imports do not need it

        facts = facts._replace(gpu_probed=True, driver=probe_driver(), devices=probe_devices())
    return facts._replace(torch_problem=problem, torch_shadow=shadow)


def runtime_of(target: Target, torch: TorchInstall | None, project: Project) -> Runtime:
    """The facts of the target with this torch, without the driver and the GPU.

    What another Python than this one does not share, it has told.
    """
    other = target.python
    return Runtime(
        target=target,
        system="windows" if sys.platform == "win32" else sys.platform,
        machine=machine(other.machine if other else None),
        python=other.version if other else sys.version_info[:3],
        implementation=other.implementation if other else sys.implementation.name,
        free_threaded=other.free_threaded if other else "t" in getattr(sys, "abiflags", ""),
        libc=parse_libc(other.libc) if other else libc(),
        libstdcxx=libstdcxx(target),
        torch=torch,
        package_version=project.version,
        environment=environment(target, project),
        project=project,
        page_size=os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0,
        l4t=l4t(),
    )


def l4t(path: Path = Path("/etc/nv_tegra_release")) -> str:
    """`R36.4.3`: the release of NVIDIA's Linux for Jetson; "" on other machines."""
    with suppress(OSError):
        line = printable(read_regular(path, 200).decode("utf-8", "replace"))
        parts = line.replace(",", " ").split()
        release = next((part for part in parts if part.startswith("R")), "R?")
        numbers = [part for part in parts if part[0].isdecimal()]
        return ".".join([release, *numbers[:1]])
    return ""


def libstdcxx(target: Target) -> dict[str, tuple[int, ...]] | None:
    """The newest `GLIBCXX` and `CXXABI` of the libstdc++ that is or would be loaded, or None."""
    loaded = target.python.libstdcxx if target.python else loaded_file("libstdc++.so.6")
    versions = defined_versions(loaded) if loaded else None
    return versions or _libstdcxx_of(library_folders(target))


def _libstdcxx_of(folders: Iterable[Path]) -> dict[str, tuple[int, ...]] | None:
    """What the first readable libstdc++ of these folders defines."""
    paths = (folder / "libstdc++.so.6" for folder in folders)
    return next(filter(None, map(defined_versions, paths)), None)


def library_folders(target: Target) -> Iterator[Path]:
    """The folders in LD_LIBRARY_PATH, then those that this Python names for its libraries, then
    the system's."""
    for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if entry:
            yield Path(entry)
    program = target.program().resolve()
    with suppress(ElfError, OSError), Elf(program) as elf:
        origin = str(program.parent)
        for entry in elf.header.runpath.split(":"):
            if entry:
                yield Path(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
    yield from system_folders()


def loaded_file(library: str) -> Path | None:
    """The file of a library that this process has loaded, by its SONAME; None if not loaded."""
    link_map = ctypes.POINTER(ctypes.c_char_p)()
    with suppress(OSError, AttributeError):
        handle = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)._handle
        ctypes.CDLL(None).dlinfo(ctypes.c_void_p(handle), _RTLD_DI_LINKMAP, ctypes.byref(link_map))
    # A link_map begins with an address and the file's name.
    return Path(os.fsdecode(link_map[1])) if link_map else None


def mapped_files(start: str, maps: Path = Path("/proc/self/maps")) -> list[Path]:
    """The files in this process's memory map whose names begin with `start`."""
    with suppress(OSError):
        lines = [line for line in read_regular(maps).splitlines() if b"/" in line]
        paths = dict.fromkeys(Path(os.fsdecode(line[line.find(b"/") :])) for line in lines)
        return [path for path in paths if path.name.startswith(start)]
    return []


def defined_versions(path: Path, budget: Budget | None = None) -> dict[str, tuple[int, ...]] | None:
    """The newest version of each family that a library defines; None if the file is unreadable.
    Only with a budget, it raises BudgetSpentError."""
    with suppress(ElfError, OSError), Elf(path, budget) as elf:
        return newest_versions(elf.version_definitions())
    return None


def environment(target: Target, project: Project = NOBODY) -> Environment:
    """The environment. Its kind is conda if conda installed the package (even if pip put a
    wheel over it), or if the environment is conda's and the package's installer is
    unknown."""
    name, version = project.distribution, project.version
    by = installer(project.folder, project.wheel_name, version) if version else None
    prefix = Path(target.prefix)
    listed = prefix.glob(f"conda-meta/{name}-*.json")
    conda = is_conda_prefix(prefix) and (by is None or any(listed))
    is_conda = by == "conda" or conda
    return Environment(
        kind="conda" if is_conda else "pip",
        python=target.executable() or "",
        installer=by,
        source=_source(project, prefix, is_conda=is_conda),
        prefix=str(prefix),
        path=target.search_path(),
    )


def _source(project: Project, prefix: Path, *, is_conda: bool) -> str | None:
    """The file or folder that the package was installed from; None if unknown or gone."""
    with suppress(OSError, ValueError, AttributeError):
        name, version = project.distribution, project.version
        infos = dist_info(project.folder, project.wheel_name, version)
        places = [place / "direct_url.json" for place in infos]
        if is_conda:
            places = list(prefix.glob(f"conda-meta/{name}-{version}-*.json"))
        for place in places:
            url = str(read_json(place).get("url"))
            if url.startswith("file:///"):
                from urllib.parse import unquote  # most imports of the package do not need it

                path = unquote(url.removeprefix("file://"))
                return path if Path(path).exists() else None
    return None


def is_conda_prefix(prefix: Path) -> bool:
    """Whether `prefix` is a conda environment (not a venv made inside one)."""
    with suppress(OSError):
        return (prefix / "conda-meta").is_dir() and not (prefix / "pyvenv.cfg").exists()
    return False

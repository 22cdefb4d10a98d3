"""Makes CUDA toolkits of PyPI's wheels, and unpacks clang where the wheels hold no nvcc."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.builder import ClangToolkit, CudaToolkit, find_cuda_toolkit
from release import BUILD, REPO, ReleaseError
from release.environments import REMEDY, uv
from release.paths import fresh
from release.schema import Toolkit
from release.shell import Log
from release.tasks import Context, Task
from release.toolchains import Toolchain, home_of

ADAPTER = REPO / "scripts" / "release" / "fatbinary.sh"
LIBRARIES = "usr/lib/x86_64-linux-gnu"  # where Debian's packages put them


def toolkit(
    context: Context, *, toolchain: Toolchain, wheels: Toolkit, fatbinary: Task | None
) -> Sequence[Path]:
    """The toolkit of a toolchain that is not installed.

    `fatbinary` is the task that made the toolkit whose `fatbinary` clang needs, if one did.
    """
    folder = fresh(BUILD / "toolkits" / toolchain.name)
    if toolchain.clang is None:
        _install(context.log, folder, wheels)
        _complete(home_of(folder))
        return [folder]
    _install(context.log, folder / "wheels", wheels)
    made = resolve(toolchain.fatbinary, context.only(fatbinary) if fatbinary else None)
    _merge(folder / "wheels", folder / "cuda", toolchain.version)
    programs = folder / "cuda" / "bin"
    shutil.copy2(made.home() / "bin" / "fatbinary", programs / "fatbinary.nvidia")
    shutil.copy(ADAPTER, programs / "fatbinary")
    (programs / "fatbinary").chmod(0o755)
    if not toolchain.clang:
        _debian_clang(context.log, wheels.clang.debian, folder / "clang")
    return [folder]


def runtime(context: Context, *, version: str, python: str) -> Sequence[Path]:
    """CUDA's static runtime for the platform of the interpreter `python`, where nvcc has its own's.

    The one output is the folder with the library.
    """
    folder = fresh(BUILD / "toolkits" / f"runtime-{version}")
    words = ["pip", "install", "--target", folder, "--python", python]
    uv(context.log, [*words, f"cuda-toolkit[cudart]=={version}.*"], remedy=REMEDY)
    return [home_of(folder) / "lib"]


def resolve(toolchain: Toolchain, made: Path | None) -> CudaToolkit | ClangToolkit:
    """The toolkit as the builder takes it; `made` is the folder of :func:`toolkit`, if any."""
    if toolchain.nvcc:
        return toolchain.nvcc
    if toolchain.clang is not None:
        major, minor = map(int, toolchain.version.split("."))
        clang = toolchain.clang or str(made / "clang" / "bin" / "clang++")
        return ClangToolkit(clang, made / "cuda", (major, minor))
    found = find_cuda_toolkit({**os.environ, "CUDA_HOME": str(home_of(made))})
    if found is None or found.version_text != toolchain.version:
        text = f"{made}: holds no nvcc {toolchain.version}"
        raise ReleaseError(f"{text}; delete it and run the same again")
    return found


def _install(log: Log, folder: Path, wheels: Toolkit) -> None:
    target = ["--target", folder, "--python", sys.executable]
    uv(log, ["pip", "install", *target, *wheels.pypi], remedy=REMEDY)


def _complete(home: Path) -> None:
    """Adds the names that nvcc and linkers look for and the wheels leave out."""
    (runtime, *_) = home.glob("lib/libcudart.so.*")
    for link, target in ((home / "lib64", "lib"), (home / "lib" / "libcudart.so", runtime.name)):
        if not link.exists():
            link.symlink_to(target)


def _merge(wheels: Path, home: Path, version: str) -> None:
    """Merges the folders of the wheels into one, laid out as clang expects a CUDA installation."""
    for part in sorted(wheels.glob("nvidia/*")):
        for source in sorted(path for path in part.rglob("*") if path.is_file()):
            inside = source.relative_to(part)
            name = "lib64" if inside.parts[0] == "lib" else inside.parts[0]
            target = home / name / Path(*inside.parts[1:])
            if inside.name == "__init__.py" or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
    shutil.rmtree(wheels)
    for library in home.glob("lib64/libcudart.so.*"):
        (home / "lib64" / "libcudart.so").symlink_to(library.name)
    about = {"cuda": {"name": "CUDA SDK", "version": f"{version}.0"}}
    (home / "version.json").write_text(json.dumps(about), encoding="utf-8")


def _debian_clang(log: Log, package: str, folder: Path) -> None:
    """Unpacks Debian's clang and the libraries that it lacks here; this needs no root."""
    asked = ["apt-get", "install", "--print-uris", "-qq", "-y", "--no-install-recommends", package]
    done = subprocess.run(asked, capture_output=True, text=True)
    names = re.findall(r"^'[^']+/([^/_']+)_", done.stdout, re.MULTILINE)
    if done.returncode or package not in names:
        said = (done.stderr.strip().splitlines() or ["it names no file"])[-1]
        raise ReleaseError(f"apt-get does not find {package}: {said}; run apt-get update")
    archives = fresh(folder / "archives")
    command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *names]
    log.run(command, cwd=archives, remedy="Is Debian's mirror in reach? Run apt-get update")
    root = folder / "debian"
    for archive in sorted(archives.glob("*.deb")):
        log.run(["dpkg", "-x", archive, root])
    shutil.rmtree(archives)
    (program,) = root.glob("usr/lib/llvm-*/bin/clang++")
    wrapper = folder / "bin" / "clang++"
    wrapper.parent.mkdir()
    # The system's loader does not look for libraries in these folders.
    folders = (LIBRARIES, program.parents[1].relative_to(root) / "lib")
    paths = [f"$here/debian/{name}" for name in folders]
    wrapper.write_text(
        '#!/bin/sh\nhere=$(dirname "$(dirname "$0")")\n'
        f'export LD_LIBRARY_PATH="{":".join(paths)}"\n'
        f'exec "$here/{program.relative_to(folder)}" "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    log.run([wrapper, "--version"])

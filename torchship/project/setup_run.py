"""Runs the author's setup.py in the author's Python, as a machine without CUDA and as one with.

Each run has a copy of the repository, since a setup.py may write files, and a time limit.
"""

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .errors import ProjectError
from .seen import Both, Seen, SeenExtension, SeenMetadata

MAX_SECONDS = 120
_MAX_BYTES = 2 << 30
_PROGRAM = Path(__file__).with_name("setup_program.py")
#: Folders at any depth that no setup.py reads, and that may be large.
_LEFT_OUT = frozenset(["build", "dist", "__pycache__", ".venv", "venv", "node_modules"])
_NOT_SOURCES = {*_LEFT_OUT, ".git", ".eggs"}
_NVCC = """\
#!/bin/sh
echo "nvcc: NVIDIA (R) Cuda compiler driver"
echo "Cuda compilation tools, release 12.8, V12.8.93"
"""


def run_setup(root: Path, python: str = sys.executable) -> Both:
    """What setup.py of `root` builds; without a setup.py, what pyproject.toml says.

    Raises ProjectError if the repository is too large to copy.
    """
    top = _top(root)
    _check_size(top)
    with TemporaryDirectory(prefix="torchship-init-") as folder:
        with ThreadPoolExecutor() as pool:
            cpu = pool.submit(_run, top, root, python, Path(folder, "cpu"), has_cuda=False)
            cuda = pool.submit(_run, top, root, python, Path(folder, "cuda"), has_cuda=True)
            return Both(without=cpu.result(), with_cuda=cuda.result())


def _top(root: Path) -> Path:
    """The folder of the git repository: a setup.py in a subfolder may read what is beside it."""
    command = ["git", "-C", str(root), "rev-parse", "--show-toplevel"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return root.resolve()
    top = Path(result.stdout.strip()).resolve() if result.returncode == 0 else root.resolve()
    return top if root.resolve().is_relative_to(top) else root.resolve()


def _check_size(top: Path) -> None:
    size = 0
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for name in names:
            size += Path(folder, name).lstat().st_size
        if size > _MAX_BYTES:
            raise ProjectError(
                f"{top} has more than {_MAX_BYTES >> 30} GiB, and init runs setup.py in a copy; "
                "clone the repository elsewhere, without data, or add --no-run, which only reads"
            )


def _run(top: Path, root: Path, python: str, folder: Path, *, has_cuda: bool) -> Seen:
    copy = folder / "repository"
    place = "setup.py" if (root / "setup.py").is_file() else "pyproject.toml"
    shutil.copytree(top, copy, symlinks=True, ignore=_left_out, copy_function=_copy)
    here = copy / root.resolve().relative_to(top)
    out = folder / "seen.json"
    log = folder / "log.txt"
    command = [python, str(_PROGRAM), str(out), "cuda" if has_cuda else "cpu"]
    environment = _environment(folder, has_cuda=has_cuda)
    with log.open("wb") as file:
        try:
            process = subprocess.Popen(
                command,
                cwd=here,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ProjectError(
                f"--python {python} cannot be run ({error.strerror}); name the Python with which "
                "you build this repository"
            ) from error
        try:
            process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            return Seen(place=place, error=f"it took more than {MAX_SECONDS} s, and was ended")
        finally:
            _end(process)
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    try:
        seen = _parse(place, json.loads(out.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return Seen(place=place, error="".join(last) or f"exit code {process.returncode}")
    if "setup()' was never called" in seen.error:  # by sys.exit(), which distutils passes over
        said = "".join(last).strip()
        return replace(seen, error="it ended before setup()" + (f", and said: {said}" * bool(said)))
    return replace(seen, written=tuple(_written(root, here)))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the run, and whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _written(root: Path, copy: Path) -> Iterator[str]:
    """The files that the run wrote or changed, but for what setuptools writes."""
    for folder, folders, names in os.walk(copy):
        folders[:] = sorted(
            name for name in folders if name not in _NOT_SOURCES and not name.endswith(".egg-info")
        )
        for name in sorted(names):
            path = Path(folder, name)
            own = root / path.relative_to(copy)
            is_own = own.is_file() and filecmp.cmp(path, own)
            # Without a setup.py, the run has one of torchship's.
            if path.is_file() and not is_own and own != root / "setup.py":
                yield str(path.relative_to(copy))


def _left_out(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in _LEFT_OUT}


def _copy(source: str, target: str) -> str:
    """git's objects never change, and may be large."""
    if f"{os.sep}.git{os.sep}objects{os.sep}" in source:
        with suppress(OSError):
            os.link(source, target)
            return target
    return shutil.copy2(source, target)


def _environment(folder: Path, *, has_cuda: bool) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CUDA_", "FORCE_")) and name not in ("PYTHONPATH", "CUDACXX")
    }
    # Nobody may be asked, and nothing fetched, for a look.
    environment |= {"GIT_TERMINAL_PROMPT": "0", "PIP_NO_INDEX": "1"}
    paths = os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = [path for path in paths if not Path(path, "nvcc").exists()]
    if has_cuda:
        toolkit = _stand_in_toolkit(folder / "cuda")
        paths.insert(0, str(toolkit / "bin"))
        environment |= {"CUDA_HOME": str(toolkit), "CUDA_PATH": str(toolkit)}
    environment["PATH"] = os.pathsep.join(paths)
    return environment


def _stand_in_toolkit(folder: Path) -> Path:
    """A folder that looks like a CUDA toolkit to a setup.py, with an nvcc that has a version."""
    for name in ("bin", "include", "lib64"):
        (folder / name).mkdir(parents=True)
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(_NVCC, encoding="utf-8")
    nvcc.chmod(0o755)
    (folder / "include" / "cuda_runtime.h").write_text("", encoding="utf-8")
    (folder / "include" / "cuda.h").write_text("#define CUDA_VERSION 12080\n", encoding="utf-8")
    versions = {"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}
    (folder / "version.json").write_text(json.dumps(versions), encoding="utf-8")
    return folder


def _parse(place: str, content: Mapping[str, Any]) -> Seen:
    """The record of what the program wrote; raises KeyError or TypeError for anything else."""
    unknown = tuple(content["unknown"])
    if content["error"]:
        return Seen(place=place, error=content["error"], unknown=unknown)
    return Seen(
        place=place,
        extensions=tuple(_extension(place, each) for each in content["extensions"]),
        metadata=_metadata(content["metadata"]),
        unknown=unknown,
    )


def _extension(place: str, content: Mapping[str, Any]) -> SeenExtension:
    return SeenExtension(
        name=content["name"],
        place=place,
        is_cuda=content["is_cuda"],
        sources=tuple(content["sources"]),
        include=tuple(content["include"]),
        macros=tuple((name, value) for name, value in content["macros"]),
        undefined=tuple(content["undefined"]),
        flags=tuple(content["flags"]),
        nvcc_flags=tuple(content["nvcc_flags"]),
        libraries=tuple(content["libraries"]),
        library_folders=tuple(content["library_folders"]),
        link_flags=tuple(content["link_flags"]),
        objects=tuple(content["objects"]),
        py_limited_api=content["py_limited_api"],
        cmake=content["cmake"],
    )


def _metadata(content: Mapping[str, Any]) -> SeenMetadata:
    return SeenMetadata(
        name=content["name"],
        version=content["version"],
        summary=content["summary"],
        license=content["license"],
        author=content["author"],
        author_email=content["author_email"],
        url=content["url"],
        project_urls=content["project_urls"],
        keywords=tuple(content["keywords"]),
        classifiers=tuple(content["classifiers"]),
        requires_python=content["requires_python"],
        requires=tuple(content["requires"]),
        extras={key: tuple(value) for key, value in content["extras"].items()},
        entry_points={key: tuple(value) for key, value in content["entry_points"].items()},
        build_requires=tuple(content["build_requires"]),
        build_backend=content["build_backend"],
        torch=content["torch"],
        packages=content["packages"],
        data=tuple(content["data"]),
        commands=tuple(content["commands"]),
        maintainer=content["maintainer"],
        maintainer_email=content["maintainer_email"],
        others=content["others"],
    )

"""Caches of code that is made at run time: by torch's JIT, by Triton, by the kernels hub."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.budget import BudgetSpentError
from ...judge.project import Record
from ...judge.records import NO_FIX, NOTE, REJECTED, Finding, Runtime, TorchInstall, parse_version
from ...judge.text import is_file, list_names, printable, read_regular, some
from ...judge.verdict.judgement import budget_is_spent, judge_in_run
from ...judge.words import codes
from ..environment.owner import is_shared_object_name
from ..report.rows import Row, notice

#: A build that is younger than this may be under way on another machine.
_SECONDS_OF_A_BUILD = 3600.0


class Caches(Record, kw_only=True):
    """The folders of the caches; they need not exist."""

    torch_extensions: Path
    triton: Path
    hub: Path
    has_own_folders: bool  #: torch_extensions has a folder for each Python and CUDA


def find(environ: Mapping[str, str], home: Path) -> Caches:
    """The folders that torch, Triton and the kernels hub use with these variables."""
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    hub_home = Path(environ.get("HF_HOME") or cache / "huggingface")
    own = environ.get("TORCH_EXTENSIONS_DIR")
    triton = Path(environ.get("TRITON_HOME") or home) / ".triton" / "cache"
    return Caches(
        torch_extensions=Path(own) if own else cache / "torch_extensions",
        triton=Path(environ.get("TRITON_CACHE_DIR") or triton),
        hub=Path(environ.get("KERNELS_CACHE") or environ.get("HF_HUB_CACHE") or hub_home / "hub"),
        has_own_folders=not own,
    )


def notices(caches: Caches, runtime: Runtime) -> Iterator[Row]:
    """What is wrong in the caches, and where the budget did not suffice to look at all."""
    try:
        for folder in (caches.torch_extensions, caches.triton, caches.hub):
            closed = _closed(folder)
            if closed is not None:
                yield notice(closed, folder)
        yield from _in_torch_extensions(caches, runtime)
        yield from _stale_builds(_subfolders(caches.triton), runtime)
        yield from _in_hub(caches.hub, runtime)
    except BudgetSpentError as error:
        spent = budget_is_spent("all of the caches", str(error))
        yield notice(spent._replace(status=NOTE), caches.torch_extensions)


def _closed(folder: Path) -> Finding | None:
    if not os.path.lexists(folder) or os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return None
    return Finding(
        dimension="cache",
        status=NOTE,
        code=codes.CACHE_CLOSED,
        observed=printable(folder),
        needed="a folder that this user can read and write",
        why=f"this user cannot read and write {printable(folder)}, "
        "so what is compiled at run time fails",
        fix=fixes.in_words("give the folder to this user, or name another one in its variable"),
    )


def _subfolders(folder: Path) -> list[Path]:
    return [folder / name for name in list_names(folder)]


def _in_torch_extensions(caches: Caches, runtime: Runtime) -> Iterator[Row]:
    """The builds of `torch.utils.cpp_extension.load`: stale locks, and builds that do not fit."""
    major, minor, _ = runtime.python
    tops = _subfolders(caches.torch_extensions)
    if caches.has_own_folders:
        starts = (f"py{major}{minor}_", f"py{major}{minor}t_")
        tops = [build for top in tops if top.name.startswith(starts) for build in _subfolders(top)]
    if runtime.torch is None or _waits_for_ever(runtime.torch):
        for build in tops:
            lock = build / "lock"
            finding = _stale_lock(lock, time.time()) if is_file(lock) else None
            if finding is not None:
                yield notice(finding, lock)
    yield from _stale_builds(tops, runtime)


def _waits_for_ever(torch: TorchInstall) -> bool:
    """Whether this torch waits for a lock file to disappear; newer ones take a lock that the
    system frees."""
    with suppress(OSError):
        source = read_regular(torch.root / "utils" / "cpp_extension.py")
        return b"FileBaton(" in source
    return True


def _stale_lock(lock: Path, now: float) -> Finding | None:
    """The finding on the lock of a build; None if a process of this machine holds it."""
    try:
        age = now - lock.stat().st_mtime
    except OSError:
        return None
    if _is_held(lock):
        return None
    minutes = max(0, int(age // 60))
    is_stale = age > _SECONDS_OF_A_BUILD
    return Finding(
        dimension="lock",
        status=REJECTED if is_stale else NOTE,
        code=codes.STALE_LOCK,
        observed=f"{printable(lock)}, {minutes} minutes old, held by no process here",
        needed="no lock, or a process that builds",
        why=(
            f"the build {printable(lock.parent.name)} was killed {minutes} minutes ago and left "
            "its lock: whoever loads it waits for ever"
            if is_stale
            else f"no process here holds the lock of {printable(lock.parent.name)}; if none builds "
            "on another machine, whoever loads it waits for ever"
        ),
        fix=fixes.remove_lock(lock),
    )


def _is_held(lock: Path) -> bool:
    """Whether a process of this machine has the file open, as a build has its lock."""
    path = os.path.realpath(lock)
    processes = (name for name in list_names(Path("/proc")) if name.isdecimal())
    for process in processes:
        for descriptor in list_names(Path("/proc", process, "fd")):
            with suppress(OSError):
                if os.readlink(f"/proc/{process}/fd/{descriptor}") == path:  # noqa: PTH115
                    return True
    return False


def _stale_builds(builds: list[Path], runtime: Runtime) -> Iterator[Row]:
    """A notice for each build with a file that will fail. Raises BudgetSpentError."""
    for build in builds:
        for name in list_names(build):
            path = build / name
            if not is_shared_object_name(name) or not is_file(path):
                continue
            cause = judge_in_run(path, runtime._replace(package_version="")).cause
            if cause is not None and cause.code == codes.BUDGET_SPENT:
                raise BudgetSpentError(cause.observed)
            if cause is not None and cause.status == REJECTED and _is_fatal(cause):
                yield notice(_stale_build(build, cause), path)
                break


def _is_fatal(cause: Finding) -> bool:
    """Whether a file will fail when this Python uses the cache again. A file for another Python
    will not: caches hold the builds of several."""
    return isinstance(cause.code, codes.Code) and cause.code.is_fatal_in_cache


def _stale_build(build: Path, cause: Finding) -> Finding:
    if cause.code == codes.EXECUTION_FORBIDDEN:
        return cause  # whatever is compiled there does not load
    return cause._replace(
        code=codes.STALE_BUILD,
        why=f"a build in the cache does not fit: {cause.why}",
        fix=fixes.remove_folder(build),
    )


def _in_hub(hub: Path, runtime: Runtime) -> Iterator[Row]:
    """The kernels that the hub's library has fetched: is there a build for this torch?"""
    torch = runtime.torch
    for repository in _subfolders(hub):
        for snapshot in _subfolders(repository / "snapshots"):
            variants = list_names(snapshot / "build")
            if torch is None or not variants:
                continue
            runtime.target.budget.spend()
            fitting = [name for name in variants if fits_variant(name, torch, runtime.machine)]
            if not fitting:
                name = printable(repository.name.removeprefix("models--").replace("--", "/"))
                yield notice(_no_variant(name, variants, torch), snapshot)
                continue
            folders = [folder for name in fitting for folder in _with_subfolders(snapshot, name)]
            yield from _stale_builds(folders, runtime)


def _with_subfolders(snapshot: Path, variant: str) -> list[Path]:
    folder = snapshot / "build" / variant
    return [folder, *_subfolders(folder)]


def fits_variant(name: str, torch: TorchInstall, machine: str) -> bool:
    """Whether a build such as `torch29-cxx11-cu128-x86_64-linux` is for this torch."""
    if "universal" in name or "noarch" in name:
        return True
    major, minor = torch.version_tuple
    flavour = "cxx98" if torch.cxx11_abi == 0 else "cxx11"
    parts = name.split("-")
    is_torch = parts[0] in (f"torch{major}{minor}", f"torch{major}.{minor}")
    is_machine = any(
        part in (machine, "aarch64" if machine == "arm64" else machine) for part in parts
    )
    return is_torch and is_machine and flavour in parts and _device(torch) in parts


def _device(torch: TorchInstall) -> str:
    """How the hub's builds name the device of a torch: `cu128`, `rocm63` or `cpu`."""
    for start, version in (("cu", torch.cuda), ("rocm", torch.hip), ("xpu", torch.xpu)):
        numbers = parse_version(version)
        if numbers:
            return start + "".join(map(str, numbers[:2]))
    return "cpu"


def _no_variant(name: str, variants: list[str], torch: TorchInstall) -> Finding:
    is_offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
    consequence = "and HF_HUB_OFFLINE forbids to fetch one" if is_offline else "one will be fetched"
    return Finding(
        dimension="kernels hub",
        status=REJECTED if is_offline else NOTE,
        code=codes.NO_FILE_FOR_CUDA,
        observed=some([printable(variant) for variant in variants], 6),
        needed=f"a build for torch {torch.version} and {torch.device}",
        why=f"the cache of {name} holds no build for torch {torch.version}: {consequence}",
        fix=fixes.unset("HF_HUB_OFFLINE") if is_offline else NO_FIX,
    )

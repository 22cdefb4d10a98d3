"""Finds the Pythons of this machine, and makes environments with torch from them."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ....judge.records import TorchInstall
from ... import ReleaseError
from ...matrix.cells import Cell
from ...matrix.settings import Settings
from ...paths import fresh, tool
from ...plan.machine import Host
from ...plan.plan import Plan
from ...run.shell import Log
from ...run.tasks import Context, FileTask, Tasks
from . import emulation
from .downloads import uv

# The bytes of an unpacked torch, which uv's cache and an environment share by hard links.
# ROOM is for two torches with CUDA, so that the tool can fetch one while it uses the other.
CUDA_TORCH = 7_500_000_000
CPU_TORCH = 1_200_000_000
ROOM = 2 * CUDA_TORCH
# A program that describes the base interpreter of the Python that runs it.
_CODE = """
import json, os, sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print(json.dumps({
    "exe": os.path.realpath(sys._base_executable),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "minor": "%d.%d" % sys.version_info[:2] + free,
    "prefix": sys.base_prefix,
    "stdlib": sysconfig.get_path("stdlib"),
    "include": sysconfig.get_path("include"),
}))
"""


def python_facts(python: str, modules: str = "ensurepip, venv") -> dict[str, str]:
    """The path, the version and the folders of the base interpreter of `python`.

    Raises ReleaseError if `python` does not run or lacks one of `modules`.
    """
    code = f"import {modules}{_CODE}"
    try:
        process = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        cause = str(getattr(error, "stderr", error)).strip()
        raise ReleaseError(f"{python} does not run: {cause}; name one that does") from error
    facts: dict[str, str] = json.loads(process.stdout)
    return facts


@cache
def interpreter(minor: str) -> str | None:
    """An interpreter of a minor (`3.14t`): from PATH, the tool's or pyenv's.

    None if none fits.
    """
    candidates = [shutil.which(f"python{minor}"), sys.executable]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(str(path) for path in pyenv.glob(f"{minor.rstrip('t')}.*/bin/python3"))
    for candidate in filter(None, candidates):
        with contextlib.suppress(ReleaseError):
            facts = python_facts(candidate)
            if facts["minor"] == minor:
                return facts["exe"]
    return None


def borrowed_torch(cell: Cell, host: Host) -> TorchInstall | None:
    """The environment's torch if it is a release that an optional cell's glue serves, else None."""
    torch = host.torch
    if torch and cell.optional and torch.is_release and cell.variant.glue.serves(torch):
        return torch
    return None


class TorchEnv(NamedTuple):
    """An environment with a torch that uv installs, or with a link to the folder `borrowed`.

    The files of an environment are hard links into uv's `cache` (None: the user's), so only
    the deletion of both frees the disk.
    """

    folder: Path
    python: str
    release: str
    cache: Path | None = None
    find_links: bool = True
    borrowed: Path | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def of(cls, cell: Cell, plan: Plan) -> "TorchEnv":
        """The environment with the torch that the cell's glue is compiled against."""
        settings, host = plan.settings, plan.host
        release = cell.torch.release
        borrowed = borrowed_torch(cell, host)
        if borrowed:
            name = f"torch-{borrowed.version}-abi{borrowed.cxx11_abi}"
            return cls(settings.envs / name, host.python, release, borrowed=borrowed.root)
        name = f"torch-{release}-py{host.python_minor}"
        # One of a release that a stable cell takes too stays, as that cell's does.
        stays = cell.stable or any(
            other.stable and other.torch.release == release for other in plan.cells
        )
        cache = None if stays else own_cache(name, settings)
        return cls(settings.envs / name, host.python, release, cache)


def own_cache(env_name: str, settings: Settings) -> Path:
    """A cache of uv for one environment, which is deleted with it."""
    return settings.cache / f"uv-{env_name}"


@dataclass(frozen=True, eq=False, kw_only=True)
class MakeTorchEnv(FileTask):
    """Makes the environment with the torch to compile against; the output is its folder.

    An environment with its own cache is temporary.
    """

    env: TorchEnv

    @classmethod
    def plan(
        cls, cell: Cell, plan: Plan, *, env: TorchEnv | None = None, after: Tasks = ()
    ) -> "MakeTorchEnv":
        """Without `env`, the cell's own."""
        env = env or TorchEnv.of(cell, plan)
        temporary: tuple[Path, ...] = ()
        disk = 0
        if env.cache:
            temporary = (env.folder, env.cache)
            disk = CUDA_TORCH if cell.torch.cuda else CPU_TORCH
        step = cls(
            name=f"env/{env.name}",
            env=env,
            after=(*after, *emulation.tasks(cell, plan)),
            temporary=temporary,
            disk=disk,
        )
        return plan.add(step, cell)

    def run(self, context: Context) -> Sequence[Path]:
        env = self.env
        if env.borrowed:
            site = fresh(env.folder) / "lib" / "python3" / "site-packages"
            site.mkdir(parents=True)
            (site / "torch").symlink_to(env.borrowed)
            context.log.write(f"torch of {env.borrowed}")
        else:
            make_venv(context.log, env.folder, env, [f"torch=={env.release}", "numpy"])
        return [env.folder]


@dataclass(frozen=True, eq=False, kw_only=True)
class FetchHeaders(FileTask):
    """Unpacks a torch's wheel without what it requires, to compile against; the output is its
    folder.

    The wheel is for the Python `python_minor`, which need not be on this machine.
    """

    release: str
    python_minor: str
    machine: str

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "FetchHeaders | None":
        """None if the cell's glue is compiled with the headers of its own torch."""
        if cell.headers is None:
            return None
        step = cls(
            name=f"headers/torch-{cell.headers.release}",
            release=cell.headers.release,
            python_minor=cell.headers.pythons[0],
            machine=plan.settings.machine,
        )
        return plan.add(step, cell)

    def run(self, context: Context) -> Sequence[Path]:
        folder = fresh(context.settings.build / self.name)
        arguments: list[str | Path] = ["pip", "install", "--python", sys.executable]
        arguments += ["--target", folder, "--python-version", self.python_minor]
        arguments += ["--python-platform", f"{self.machine}-manylinux_2_28"]
        arguments += ["--no-deps", "--only-binary", "torch", f"torch=={self.release}"]
        uv(context.log, arguments)
        return [folder]


def make_venv(log: Log, folder: Path, env: TorchEnv, requirements: Sequence[str | Path]) -> Path:
    """Makes an environment like `env` in `folder`, over an older one; returns its interpreter.

    `requirements` may hold options of `uv pip install`. If `env` borrows a torch, so does
    the new environment, and uv installs no torch.
    """
    log.run([tool("uv"), "venv", "--quiet", "--python", env.python, fresh(folder)])
    interpreter = folder / "bin" / "python"
    arguments = ["pip", "install", "--python", interpreter, *requirements]
    if env.cache:
        arguments += ["--cache-dir", env.cache]
    if env.borrowed:
        without = folder / "without-torch.txt"
        without.write_text('torch; python_version < "3"\n', encoding="utf-8")
        arguments += ["--override", without]
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(f"{env.borrowed.parent}\n", encoding="utf-8")
    uv(log, arguments, find_links=env.find_links)
    return interpreter

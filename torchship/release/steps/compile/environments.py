"""Finds the Pythons of this machine, makes environments from them, and unpacks Debian's packages.

uv fetches torch from PyPI, or from where PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and
PIP_FIND_LINKS point. The tool fetches a download with a wrong hash once more; a second
wrong hash is a failure.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ... import ReleaseError
from ...paths import fresh, tool
from ...run.shell import CommandFailed, Log, clean_env
from ...run.tasks import Context, Task

REMEDY = "Is the package index in reach? The tool uses PIP_INDEX_URL and PIP_FIND_LINKS"
# The messages of uv and pip for a wrong hash.
WRONG_HASH = re.compile(r"hash(es)? (mismatch|do not match)|do not match the hashes", re.IGNORECASE)
TWICE = (
    "The hash of a download was wrong twice: the index, or a proxy before the index, serves "
    "another file than the announced one; try again later, or name another index in PIP_INDEX_URL"
)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class MakeTorchEnv(Task):
    """Makes the environment with the torch to compile against; the output is its folder."""

    env: TorchEnv

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
class FetchHeaders(Task):
    """Unpacks a torch's wheel without what it requires, to compile against; the output is its
    folder.

    The wheel is for the Python `python_minor`, which need not be on this machine.
    """

    release: str
    python_minor: str
    machine: str

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


def uv_settings(*, find_links: bool = True) -> dict[str, str]:
    """pip's index variables as uv's.

    Command-line options would show the passwords in the URLs.
    """
    names = ("INDEX_URL", "EXTRA_INDEX_URL")
    settings = {name: os.environ.get(f"PIP_{name}", "") for name in names}
    if find_links:
        settings["FIND_LINKS"] = ",".join(os.environ.get("PIP_FIND_LINKS", "").split())
    return {f"UV_{name}": value for name, value in settings.items() if value}


def uv(log: Log, arguments: Sequence[str | Path], *, find_links: bool = True) -> None:
    """Runs `uv`.

    After a wrong hash of a download, runs it once more and refreshes its cache.
    """
    env = clean_env(log.settings.project, **uv_settings(find_links=find_links))
    _fetch(log, [tool("uv"), *arguments], env, without_cache="--refresh")


def pip(log: Log, arguments: Sequence[str | Path]) -> None:
    """Runs the tool's own `pip`; after a wrong hash, runs it once more without its cache."""
    command = [sys.executable, "-m", "pip", *arguments]
    _fetch(log, command, clean_env(log.settings.project), without_cache="--no-cache-dir")


def _fetch(
    log: Log, command: Sequence[str | Path], env: Mapping[str, str], *, without_cache: str
) -> None:
    """Runs the command; after a wrong hash, once more with the option `without_cache`."""
    try:
        log.run(command, env=env, remedy=REMEDY)
    except CommandFailed as error:
        if not WRONG_HASH.search(error.log_end):
            raise
        log.write("the hash of a download is wrong: fetching again, not from the cache")
        log.run([*command, without_cache], env=env, remedy=TWICE)


def apt(log: Log, place: Path, packages: Sequence[str], debian: str = "") -> None:
    """Unpacks Debian's packages and their dependencies into the folder `place`, without root.

    It leaves out what this machine has, unless `debian` names an architecture.
    """
    state = fresh(place.with_name("apt"))
    (state / "status").touch()
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    settings = [f"Dir::Cache={state}/cache", "APT::Sandbox::User=root", "Debug::NoLocking=1"]
    if debian:
        settings += [f"APT::Architecture={debian}", f"APT::Architectures::={debian}"]
        settings += [f"Dir::State={state}/state", f"Dir::State::status={state}/status"]
    command = ["apt-get", "-qq"]
    for setting in settings:
        command += ["-o", setting]
    remedy = "Is Debian's mirror in reach? Run apt-get update"
    if debian:
        remedy = f"Does the mirror in /etc/apt have {debian}? Ubuntu has it on another mirror"
        log.run([*command, "update"], remedy=remedy)
    download = ["install", "-y", "--no-install-recommends", "--download-only", *packages]
    log.run([*command, *download], remedy=remedy)
    for archive in sorted(state.glob("cache/archives/*.deb")):
        log.run(["dpkg", "-x", archive, place])
    shutil.rmtree(state)

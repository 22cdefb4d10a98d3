"""Makes projects with `torchship new` in processes of their own."""

from __future__ import annotations

import atexit
import hashlib
import os
import subprocess
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from processes import Forks, forks

REPO = Path(__file__).resolve().parents[2]
TEMPLATES = ("rms_norm", "aten")
MODULES = (
    "torchship.command",
    "torchship.project.new",
    "torchship.project.update",
    "torchship.project.regenerate",
)
_SERVERS = ExitStack()
atexit.register(_SERVERS.close)
PROGRAM = "import sys; from torchship.command import main; sys.exit(main())"


def torchship(
    *arguments: str | Path, cwd: Path, path: Path = REPO
) -> subprocess.CompletedProcess[str]:
    """Runs the command of the torchship in the folder `path`."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return forks_of(path).run(PROGRAM, *map(str, arguments), cwd=cwd, env=environment)


@cache
def forks_of(path: Path) -> Forks:
    """Runs code in processes that have imported the torchship in a folder, and what it needs."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return _SERVERS.enter_context(forks(*MODULES, env=environment))


def make(root: Path, name: str, *options: str, path: Path = REPO) -> Path:
    """A new project in root/NAME, by the torchship in the folder `path`."""
    result = torchship("new", name, *options, cwd=root, path=path)
    assert result.returncode == 0, result.stdout + result.stderr
    return root / name


def borrow_tools(repo: Path) -> None:
    """Gives a project the release tool's environment of this checkout, if there is one.

    The tool takes it for its own, as it was made by the same requirements and the same Python.
    """
    own = REPO / "build" / "tools"
    folder = repo / "build" / "tools"
    if folder.exists() or not (own / ".complete").is_file():
        return
    folder.mkdir(parents=True)
    for name in (".complete", "bin", "include", "lib", "lib64", "pyvenv.cfg"):
        (folder / name).symlink_to(own / name)


def commit(repo: Path) -> None:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    command = ["git", "-C", str(repo), *identity, "commit", "-qm", "Start"]
    subprocess.run(command, check=True)


def tracked(repo: Path) -> list[str]:
    command = ["git", "-C", str(repo), "ls-files", "-z"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [name for name in listing.split("\0") if name]


def files(repo: Path) -> dict[str, str]:
    """The hash of every file and the target of every link, without those of git."""
    return {
        str(path.relative_to(repo)): (
            str(path.readlink())
            if path.is_symlink()
            else hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in repo.rglob("*")
        if ".git" not in path.parts and (path.is_symlink() or path.is_file())
    }

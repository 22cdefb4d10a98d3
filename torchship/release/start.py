"""Starts the release tool in an environment of its own, which this module makes in `build/tools`.

    python torchship/release/launch/run_module.py torchship.release.start MODULE [ARGUMENT ...]

The environment is made again when the locked requirements or the Python change.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from . import ReleaseError
from .root import PROJECT_VARIABLE, find_root

# Every running tool holds a shared lock by this descriptor, so that no other run replaces the
# tool's environment. `run_module.py` keeps the tool's commands from inheriting it.
_LOCK = 9
_TAIL = 25  # lines
_TORCHSHIP = Path(__file__).resolve().parents[1]
REQUIREMENTS = _TORCHSHIP / "release" / "requirements"  #: locked, with hashes


def missing_requirements() -> list[str]:
    """The distributions that the release tool needs and this Python does not have."""
    names = re.findall(r"^([\w.-]+)>=[\w.]+$", _read("release.in"), re.MULTILINE)
    missing = []
    for name in names:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    return missing


def _read(name: str) -> str:
    return (REQUIREMENTS / name).read_text(encoding="utf-8")


def start(module: str, arguments: Sequence[str], root: Path) -> NoReturn:
    """Replaces this process by `module`, run in the tool's environment of the project in `root`."""
    if re.search(r"[:\n\r]", str(root)):
        raise ReleaseError(
            "the folder of this project has a colon or a line break in its name, which PYTHONPATH "
            f"or ninja cannot hold: {str(root)!r}; rename or move it"
        )
    build = root / "build"
    try:
        (build / "logs").mkdir(parents=True, exist_ok=True)
        (root / "dist").mkdir(exist_ok=True)
        lock = os.open(build / "tools.lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ReleaseError(
            f"build/ and dist/ of {root} cannot be written ({error.strerror}); "
            "make them writable, or clone it elsewhere"
        ) from None
    os.dup2(lock, _LOCK)
    tools = build / "tools"
    stamp = _stamp()
    _lock(fcntl.LOCK_SH)
    if not _is_made(tools, stamp):
        _lock(fcntl.LOCK_EX)
    if not _is_made(tools, stamp):
        print("making the release tool's environment (build/tools)", file=sys.stderr, flush=True)
        _make(tools, build / "logs" / "tools.log")
        (tools / ".complete").write_text(f"{stamp}\n", encoding="utf-8")
    program = _importable(tools, root) / "release" / "launch" / "run_module.py"
    _lock(fcntl.LOCK_SH)
    python = str(tools / "bin" / "python")
    os.execve(python, [python, str(program), module, *arguments], _environment(root))


def _stamp() -> str:
    """What the environment depends on."""
    content = _read("release.txt") + sys.version + sys.base_prefix
    return hashlib.sha256(content.encode()).hexdigest()


def _is_made(tools: Path, stamp: str) -> bool:
    with suppress(OSError):
        return (tools / ".complete").read_text(encoding="utf-8").strip() == stamp
    return False


def _lock(kind: int) -> None:
    try:
        fcntl.flock(_LOCK, kind | fcntl.LOCK_NB)
    except OSError:
        print(
            "waiting for another run of the release tool in this checkout (build/tools.lock)",
            file=sys.stderr,
            flush=True,
        )
        fcntl.flock(_LOCK, kind)


def _make(tools: Path, log: Path) -> None:
    """Makes the environment with the locked requirements; raises ReleaseError if it cannot."""
    shutil.rmtree(tools, ignore_errors=True)
    python = str(tools / "bin" / "python")
    uv = str(tools / "bin" / "uv")
    requirements = REQUIREMENTS / "release.txt"
    # uv reads its own variable, not pip's. An option would show the URL's password to all users.
    env = dict(os.environ)
    if index := env.get("PIP_INDEX_URL"):
        env["UV_INDEX_URL"] = index
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as uv_requirement:
        uv_requirement.write(_lines_of_uv())
        uv_requirement.flush()
        # pip and uv install a file only if it has the hash that the requirements file names.
        hashed = ["install", "--quiet", "--require-hashes", "-r"]
        commands = [
            [sys.executable, "-m", "venv", str(tools)],
            [python, "-m", "pip", *hashed, uv_requirement.name],
            [uv, "pip", *hashed, str(requirements), "--python", python],
        ]
        output = ""
        for command in commands:
            code, said = _output_of(command, env)
            output += said
            log.write_text(output, encoding="utf-8")
            if code:
                _refuse(output, log)


def _lines_of_uv() -> str:
    """The lines of the locked requirements that pin uv itself."""
    match = re.search(r"^uv==(?:.*\\\n)*.*\n", _read("release.txt"), re.MULTILINE)
    if match is None:
        raise ReleaseError(f"{REQUIREMENTS / 'release.txt'} pins no uv; run scripts/lock.sh")
    return match[0]


def _output_of(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """A command's exit code and its output, without the passwords in URLs."""
    try:
        process = subprocess.run(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return 1, f"{command[0]}: {error.strerror}\n"
    return process.returncode, re.sub(r"(://)[^ /]+@", r"\1***@", process.stdout)


def _refuse(output: str, log: Path) -> NoReturn:
    print(*output.splitlines()[-_TAIL:], sep="\n", file=sys.stderr)
    raise ReleaseError(
        f"the tool's environment cannot be made (log: {log}). It needs the venv module (Debian: "
        "apt-get install python3-venv) and a package index, which PIP_INDEX_URL may name; or "
        f"install beside torchship what {REQUIREMENTS / 'release.txt'} lists"
    )


def _importable(tools: Path, root: Path) -> Path:
    """The folder of torchship, below one that holds no other package than the project's.

    An installed torchship lies among packages that would hide the environment's, so links in a
    folder of the environment lead to it and to its metadata.
    """
    if _TORCHSHIP.parent == root:
        return _TORCHSHIP
    targets = [_TORCHSHIP, *sorted(_TORCHSHIP.parent.glob("torchship-*.dist-info"))]
    digest = hashlib.sha256("\n".join(map(str, targets)).encode()).hexdigest()
    folder = tools / f"torchship-{digest[:16]}"
    folder.mkdir(exist_ok=True)
    for target in targets:
        with suppress(FileExistsError):
            (folder / target.name).symlink_to(target)
    # The workflows of a project find it as build/tools/path.
    link = tools / f"path-{os.getpid()}"
    link.symlink_to(folder.name)
    link.replace(tools / "path")
    return folder / _TORCHSHIP.name


def _environment(root: Path) -> dict[str, str]:
    left_out = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    env[PROJECT_VARIABLE] = str(root)
    env["RELEASE_PYTHON"] = sys.executable
    env["PYTHONUNBUFFERED"] = "1"
    return env


def main() -> int:
    """Starts a module for the project that the variable RELEASE_PROJECT names."""
    _, module, *arguments = sys.argv
    try:
        start(module, arguments, find_root())
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""The environment of a project's tests and linters: build/test-env, torch and locked tools."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import ProjectError
from .toml_text import table

#: Prints the requirements of a distribution and its extra of the tests, but for torch.
_REQUIREMENTS = """\
import sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

for word in requires(sys.argv[1]) or []:
    one = Requirement(word)
    extras = ("", "test", "tests", "testing")
    holds = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
    if holds and one.name != "torch":
        one.marker = None
        print(one)
"""
#: The groups of pyproject.toml that tests need; `dev` is the one that uv installs by itself.
_GROUPS = ("test", "tests", "testing", "dev")
_LOCK = Path(__file__).with_name("requirements.txt")
# uv does not read pip's variables.
_UV_NAMES = {
    "PIP_INDEX_URL": "UV_INDEX_URL",
    "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}


def make_environment(root: Path, torch: str, *, is_default: bool) -> Path:
    """The folder of the environment, made again when its torch, lock or Python changes.

    Another torch than the default has a folder of its own.
    """
    folder = root / "build" / ("test-env" if is_default else f"test-env-{torch}")
    stamp = hashlib.sha256(_LOCK.read_bytes())
    stamp.update(f"{sys.version} {sys.base_prefix} {folder} torch=={torch}".encode())
    complete = folder / ".complete"
    if complete.is_file() and complete.read_text(encoding="utf-8") == stamp.hexdigest():
        return folder
    print(f"making {folder}: Python {sys.version.split()[0]}, torch {torch}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = str(folder / "bin" / "python")
    uv_lock = folder / "uv.txt"
    run([sys.executable, "-m", "venv", str(folder)])
    uv_lock.write_text(_lines_of_uv(), encoding="utf-8")
    # All files must have locked hashes, except for torch and its dependencies.
    run([python, "-m", "pip", "install", "-q", "--require-hashes", "-r", str(uv_lock)])
    install = [str(folder / "bin" / "uv"), "pip", "install", "--quiet", "--python", python]
    variables = _uv_variables()
    run([*install, "--require-hashes", "-r", str(_LOCK)], variables=variables)
    run([*install, f"torch=={torch}"], variables=variables)
    complete.write_text(stamp.hexdigest(), encoding="utf-8")
    return folder


def install_requirements(root: Path, env: Path, distribution: str) -> None:
    """Installs what the package requires besides torch, and its extra and groups of the tests."""
    python = str(env / "bin" / "python")
    command = [python, "-c", _REQUIREMENTS, distribution]
    listed = subprocess.run(command, cwd=env, capture_output=True, text=True, check=True)
    words = listed.stdout.split("\n")[:-1]
    for name in _groups(root):
        words += ["--group", name]
    if words:
        # A group may name torch too, and the one that is here is under test.
        command = [python, "-c", "from importlib.metadata import version as v; print(v('torch'))"]
        torch = subprocess.run(command, cwd=env, capture_output=True, text=True, check=True)
        overrides = env / "overrides.txt"
        overrides.write_text(f"torch=={torch.stdout}", encoding="utf-8")
        install = [str(env / "bin" / "uv"), "pip", "install", "--quiet", "--python", python]
        options = ["--overrides", str(overrides)]
        run([*install, *options, *words], cwd=root, variables=_uv_variables())


def _groups(root: Path) -> list[str]:
    content = (root / "pyproject.toml").read_text(encoding="utf-8")
    named = set(re.findall(r"(?m)^\s*[\"']?(\w+)[\"']?\s*=", table(content, "dependency-groups")))
    return [name for name in _GROUPS if name in named]


def _uv_variables() -> dict[str, str]:
    variables = {new: os.environ[old] for old, new in _UV_NAMES.items() if old in os.environ}
    if "UV_FIND_LINKS" in variables:
        variables["UV_FIND_LINKS"] = variables["UV_FIND_LINKS"].replace(" ", ",")
    return variables


def _lines_of_uv() -> str:
    """The part of the lock that pins uv itself."""
    content = _LOCK.read_text(encoding="utf-8")
    match = re.search(r"^uv==(?:.*\\\n)*.*\n", content, re.MULTILINE)
    if match is None:
        raise ProjectError(f"{_LOCK} pins no uv; install torchship again")
    return match[0]


def run(
    command: Sequence[str], *, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> None:
    """Raises ProjectError if the command fails; its output is not caught."""
    environment = {**os.environ, **(variables or {})}
    code = subprocess.run(command, cwd=cwd, env=environment, check=False).returncode
    if code:
        raise ProjectError(f"{' '.join(command)}: exit code {code}; what it printed says why")

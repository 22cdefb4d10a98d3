"""Makes environments with a Python, a fake torch and packages, and runs the doctor on them."""

from __future__ import annotations

import atexit
import base64
import hashlib
import os
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from packaging_alone import packaging_alone
from processes import Forks, forks
from shared_objects import fake_torch, shared_object

REPO = Path(__file__).resolve().parents[3]
SYMBOL = "_ZN2at6Tensor3addEv"
ABSENT = "_ZN2at6absentEv"


@cache
def base_of(python: str) -> tuple[str, str]:
    """The prefix of the Python that an environment was made with, and its minor version."""
    code = "import sys; print(sys.base_prefix); print('%d.%d' % sys.version_info[:2])"
    base, version = subprocess.check_output([python, "-I", "-c", code], text=True).split()
    return base, version


def make_environment(prefix: Path, python: str = sys.executable) -> Path:
    """A virtual environment without pip, and without what lies beside its base; returns its
    site-packages."""
    base, version = base_of(python)
    (prefix / "bin").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {base}/bin\ninclude-system-site-packages = false\n")
    (prefix / "bin" / "python").symlink_to(f"{base}/bin/python{version}")
    site = prefix / "lib" / f"python{version}" / "site-packages"
    site.mkdir(parents=True)
    return site


def add_pip(site: Path) -> None:
    """What the doctor takes for pip, so that commands are those of pip."""
    (site / "pip").mkdir()
    (site / "pip" / "__main__.py").touch()


def add_torch(site: Path, version: str = "2.9.1", cuda: str | None = None) -> Path:
    """A fake torch, whose import would fail; returns its folder."""
    root = fake_torch(site, version, cuda=cuda, exports=[SYMBOL])
    (root / "__init__.py").write_text("raise AssertionError('torch is imported')\n")
    return root


def add_package(site: Path, name: str, files: dict[str, str], *lines: str, tag: str = "") -> Path:
    """A distribution of text files, with lines for its METADATA; returns its metadata's folder."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("\n".join([f"Name: {name}", "Version: 1.0", *lines, "", ""]))
    if tag:
        is_pure = "true" if tag.endswith("any") else "false"
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n")
    record = ""
    for file, content in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode()
        record += f"{file},sha256={digest.rstrip('=')},{len(content.encode())}\n"
    (info / "RECORD").write_text(record)
    return info


def add_extension(site: Path, name: str, *symbols: str, file: str = "_C.so", pin: str = "") -> Path:
    """A distribution with one Python module that needs these symbols of torch; returns the file."""
    libraries = [site / "torch" / "lib" / "libtorch_cpu.so"]
    module = f"PyInit_{file.partition('.')[0]}"
    path = shared_object(
        site / name / file, undefined=symbols or [SYMBOL], defined=[module], libraries=libraries
    )
    info = add_package(site, name, {}, *([f"Requires-Dist: torch=={pin}"] if pin else []))
    (info / "RECORD").write_text(f"{name}/{file},sha256=x,1\n")
    return path


def run_doctor(
    *arguments: str, text: str | None = None, cwd: Path = REPO, **variables: str
) -> subprocess.CompletedProcess[str]:
    """torch-doctor out of the checkout, in a process that has no torch and finds no GPU.

    It only reads: the torch of `add_torch` cannot be imported.
    """
    path = variables.pop("PYTHONPATH", str(REPO))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "PYTHONPATH": f"{path}:{packaging_alone()}",
        **variables,
    }
    words = ("torchship.doctor", "--no-import", "--verbose", *arguments)
    if "--python" in arguments and path == str(REPO):
        return doctor_forks().module(*words, cwd=cwd, env=env, text=text or "")
    return subprocess.run(
        [sys.executable, "-S", "-m", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        env=env,
        timeout=120,
    )


@cache
def doctor_forks() -> Forks:
    """Runs the doctor in processes that have imported it, which is most of what they take; for the
    judgement of another Python it does not matter."""
    env = {"PYTHONPATH": f"{REPO}:{packaging_alone()}"}
    modules = ("torchship.doctor.command", "torchship.doctor.run_command")
    return _SERVERS.enter_context(forks(*modules, env=env, options=("-S",)))


_SERVERS = ExitStack()
atexit.register(_SERVERS.close)

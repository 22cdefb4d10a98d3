"""Small environments with a fault, and what the checker says of them before and after a fix."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from packaging_alone import packaging_alone
from shared_objects import fake_torch, shared_object

from torchship.judge.fixes.kinds import Kind

REPO = Path(__file__).resolve().parents[3]
SITE = Path(sysconfig.get_path("purelib"))
UV = Path(sys.executable).with_name("uv")
Test = TypeVar("Test", bound=Callable[..., None])

PROBE = textwrap.dedent(
    """
    import json, sys
    from torchship.doctor import judge_file
    from torchship.judge import probe_runtime
    from torchship.judge.records import Device, Driver
    runtime = probe_runtime(gpu=False)
    if len(sys.argv) > 2:
        capability = tuple(map(int, sys.argv[2].split(".")))
        gpu = Device(0, "a GPU", capability)
        driver = Driver("999.1", (13, 9))
        runtime = runtime._replace(devices=(gpu,), driver=driver, gpu_probed=True)
    verdict = judge_file(sys.argv[1], runtime)
    cause = verdict.cause
    fix = cause.fix if cause else None
    print(json.dumps({
        "accepted": verdict.accepted, "why": cause.why if cause else "",
        "text": fix.text if fix else "", "command": fix.command if fix else "",
        "kind": fix.kind if fix else "",
    }))
    """
)


#: The kinds of fixes that some test carries out, of the test modules imported so far.
CARRIED_OUT: set[str] = set()


def carries_out(*kinds: Kind) -> Callable[[Test], Test]:
    """Says which kinds of fixes a test carries out."""
    CARRIED_OUT.update(kind.value for kind in kinds)
    return lambda test: test


class Judged(NamedTuple):
    """A verdict on one file, and its fix."""

    accepted: bool
    why: str
    text: str
    command: str
    kind: str


class SickEnvironment:
    """A virtual environment with setuptools alone, pip or uv, a folder as index, and a shell.

    With uv, pip is outside the environment, for the preparations of a test.
    """

    def __init__(self, folder: Path, *, installer: Literal["pip", "uv"] = "pip") -> None:
        folder.mkdir(exist_ok=True)
        venv.create(folder / "env", with_pip=False, symlinks=True)
        self.folder = folder
        self.has_pip = installer == "pip"
        self.index = folder / "index"
        self.index.mkdir()
        (self.site,) = (folder / "env").glob("lib/python*/site-packages")
        self.pip = self.site if self.has_pip else folder / "pip"
        self.pip.mkdir(exist_ok=True)
        for name in ("pip", "setuptools", "_distutils_hack", "wheel"):
            place = self.pip if name == "pip" else self.site
            for entry in SITE.glob(f"{name}*"):
                if entry.suffix != ".pth":
                    (place / entry.name).symlink_to(entry)
        self.env = {
            "PATH": f"{folder / 'env' / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_OFFLINE": "1",
            "UV_FIND_LINKS": str(self.index),
            "UV_CACHE_DIR": str(folder / "cache"),
        }
        if not self.has_pip:
            (folder / "env" / "bin" / "uv").symlink_to(UV)

    def type(self, command: str, **more: str) -> str:
        """Type a command into a shell; it must succeed."""
        process = subprocess.run(
            ["bash", "-c", command],
            env={**self.env, **more},
            cwd=self.folder,
            input="y\n",
            timeout=120,
            capture_output=True,
            text=True,
        )
        output = f"{command}\n{process.stdout[-2000:]}{process.stderr[-4000:]}"
        assert process.returncode == 0, output
        return process.stdout

    def publish_wheel(
        self,
        name: str,
        version: str,
        files: Mapping[str, Path | str],
        requires: Iterable[str] = (),
    ) -> Path:
        """A wheel in the index."""
        info = f"{name}-{version}.dist-info"
        header = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        header += [f"Requires-Dist: {requirement}" for requirement in requires]
        members: dict[str, Path | str] = {
            **files,
            f"{info}/METADATA": "\n".join(header) + "\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        path = self.index / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as file:
            record = ""
            for inner, content in members.items():
                data = content.read_bytes() if isinstance(content, Path) else content.encode()
                member = zipfile.ZipInfo(inner)
                member.external_attr = 0o100755 << 16  # a script must be executable
                file.writestr(member, data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                record += f"{inner},sha256={digest.rstrip('=')},{len(data)}\n"
            file.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
        return path

    def publish_torch(
        self, version: str, exports: Iterable[str] = (), cuda: str | None = None
    ) -> Path:
        """A wheel of a torch that holds what the checker reads; returns its libc10.so."""
        folder = self.folder / f"torch-{version}"
        root = fake_torch(folder, version, exports=exports, cuda=cuda)
        (root / "__init__.py").write_text("")
        files = {p.relative_to(folder).as_posix(): p for p in root.rglob("*") if p.is_file()}
        self.publish_wheel("torch", version, dict(files))
        return root / "lib" / "libc10.so"

    def make_extension(
        self,
        version: str,
        symbols: Iterable[str],
        *,
        defined: Iterable[str] = (),
        flags: Iterable[str] = (),
    ) -> Path:
        """An extension that needs these symbols of torch."""
        folder = self.folder / "made" / version
        stub = folder / "stub" / "libtorch_cpu.so"
        shared_object(stub, soname="libtorch_cpu.so")
        return shared_object(
            folder / "_C.so", undefined=symbols, libraries=[stub], defined=defined, flags=flags
        )

    def install(self, *requirements: str, options: str = "") -> None:
        """As pip would leave it, by uv, which is quicker."""
        quoted = " ".join(f"'{requirement}'" for requirement in requirements)
        python = self.folder / "env" / "bin" / "python"
        command = f"'{UV}' pip install -q --no-deps --link-mode copy --python '{python}'"
        self.type(f"{command} {options} {quoted}")
        for tool in self.site.glob("*.dist-info/INSTALLER"):
            if not tool.parent.is_symlink():
                tool.write_text("pip\n")

    def judge(self, path: str | Path, *arguments: str) -> Judged:
        """The verdict of a process of this environment on a file of its site folder."""
        (self.folder / "probe.py").write_text(PROBE)
        words = " ".join(arguments)
        command = f"python probe.py '{self.site / path}' {words}"
        output = self.type(command, PYTHONPATH=f"{REPO}:{packaging_alone()}")
        return Judged(**json.loads(output.splitlines()[-1]))

    def failing_row(self, words: str) -> dict[str, Any]:
        """The one row that fails, in the JSON of the doctor that checks what these words name."""
        ask = f"python -m torchship.doctor --json {words} || true"
        report = json.loads(self.type(ask, PYTHONPATH=f"{REPO}:{packaging_alone()}"))
        (row,) = [row for row in report["notices"] if row["state"] == "fails"]
        assert isinstance(row, dict)
        return row

    def is_mended(self, path: str | Path, kind: Kind, *arguments: str) -> Judged:
        """The fault is there, its fix is of this kind and is carried out, the fault is gone."""
        before = self.judge(path, *arguments)
        assert not before.accepted
        assert before.kind == kind.value, before
        self.type(before.command)
        after = self.judge(path, *arguments)
        assert after.accepted, after
        return before

    def installed_version(self, name: str) -> str:
        (found,) = distributions(name=name, path=[str(self.site)])
        return found.version

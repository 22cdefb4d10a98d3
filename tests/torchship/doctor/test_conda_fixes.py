"""Every fix of an environment of conda, carried out there: the fault, the command that the doctor
prints, typed into a shell, and the environment without the fault.

`conda` is a stand-in, which solves and installs with py-rattler (conda_stand_in.py).
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from made_facts import make_runtime
from packaging_alone import packaging_alone
from shared_objects import fake_torch, shared_object
from sick_environment import REPO, carries_out
from small_client import PROJECT

from torchship.judge import BinaryRecord, Environment, fixes

pytest.importorskip("rattler")

ADD = "_ZN2at6Tensor3addEv"
ONLY_OLD = "_ZN2at10only_in_29Ev"
#: A symbol of torch 2.13 and every later measured one, which have one class layout.
SINCE_213 = "_ZN5torch8autograd4Node17release_resourcesEv"
SITE = "lib/python3.11/site-packages"
#: The verdict on a file of the environment, whose Python this process stands for.
PROBE = """
import json, sys
from pathlib import Path
prefix, path = Path(sys.argv[1]), Path(sys.argv[2])
sys.prefix = sys.base_prefix = str(prefix)
site = str(next(prefix.glob("lib/python3.*/site-packages")))
sys.path[:] = [site, *(entry for entry in sys.path if "site-packages" not in entry)]
from torchship.doctor import judge_file
from torchship.judge import probe_runtime
cause = judge_file(prefix / path, probe_runtime(gpu=False)).cause
fix = cause.fix if cause else None
print(json.dumps({
    "why": cause.why if cause else "",
    "command": fix.command if fix else "",
    "kind": fix.kind if fix else "",
}))
"""


class CondaEnvironment:
    """An environment of conda, and channels that are folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix = folder / "env"
        self.channels = folder / "channels"
        self.site = self.prefix / SITE
        (self.prefix / "conda-meta").mkdir(parents=True)
        (folder / "bin").mkdir()
        conda = folder / "bin" / "conda"
        stand_in = Path(__file__).with_name("conda_stand_in.py")
        words = shlex.join([sys.executable, str(stand_in)])
        conda.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        conda.chmod(0o755)

    def type(self, command: str) -> None:
        """Type a command into a shell in which the environment is active."""
        variables = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "CONDA_PREFIX": str(self.prefix),
            "CONDA_CHANNELS": str(self.channels),
        }
        process = subprocess.run(
            ["bash", "-c", command], env=variables, capture_output=True, text=True, timeout=120
        )
        assert process.returncode == 0, f"{command}\n{process.stdout}{process.stderr}"

    def publish(
        self,
        name: str,
        version: str,
        files: Mapping[str, Path | str],
        *,
        build: str = "0",
        depends: Iterable[str] = (),
        channel: str = "conda-forge",
    ) -> Path:
        """Put a package into a channel; returns its file."""
        index = {
            "name": name,
            "version": version,
            "build": build,
            "build_number": 0,
            "depends": list(depends),
            "subdir": "linux-64",
        }
        paths = [{"_path": inner, "path_type": "hardlink"} for inner in files]
        members: dict[str, Path | str] = {
            "info/index.json": json.dumps(index),
            "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
            **files,
        }
        folder = self.channels / channel / "linux-64"
        folder.mkdir(parents=True, exist_ok=True)
        package = folder / f"{name}-{version}-{build}.tar.bz2"
        with tarfile.open(package, "w:bz2", compresslevel=1) as archive:
            for inner, content in members.items():
                data = content.read_bytes() if isinstance(content, Path) else content.encode()
                member = tarfile.TarInfo(inner)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        entry = {**index, "sha256": digest, "size": package.stat().st_size}
        self._index(channel, package.name, entry)
        return package

    def _index(self, channel: str, name: str, entry: dict[str, object]) -> None:
        for subdir in ("linux-64", "noarch"):
            path = self.channels / channel / subdir / "repodata.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            packages = json.loads(path.read_text())["packages"] if path.exists() else {}
            if subdir == "linux-64":
                packages[name] = entry
            document = {"info": {"subdir": subdir}, "packages": packages, "packages.conda": {}}
            path.write_text(json.dumps(document))

    def publish_torch(
        self, version: str, exports: Iterable[str] = (), *, cuda: str | None = None
    ) -> None:
        folder = self.folder / f"torch-{version}-{cuda}"
        root = fake_torch(folder, version, exports=exports, cuda=cuda)
        (root / "__init__.py").write_text("")
        files = {
            f"{SITE}/{path.relative_to(folder)}": path for path in root.rglob("*") if path.is_file()
        }
        self.publish("pytorch", version, files, build="cuda130_0" if cuda else "cpu_0")

    def publish_extension(
        self, name: str, version: str, symbols: Iterable[str], **more: Iterable[str]
    ) -> None:
        folder = self.folder / f"{name}-{version}"
        names = ["libtorch_cpu.so", *more.get("libraries", ())]
        stubs = [shared_object(folder / "stubs" / stub, soname=stub) for stub in names]
        path = shared_object(folder / "_C.so", undefined=symbols, libraries=stubs)
        depends = more.get("depends", ())
        self.publish(name, version, {f"{SITE}/{name}/_C.so": path}, depends=depends)

    def judge(self, path: str) -> dict[str, str]:
        command = [sys.executable, "-c", PROBE, str(self.prefix), path]
        variables = {
            "PYTHONPATH": f"{REPO}:{packaging_alone()}",
            "PATH": "/usr/bin:/bin",
            "CONDA_PREFIX": str(self.prefix),
        }
        answer = subprocess.check_output(command, env=variables, text=True)
        verdict: dict[str, str] = json.loads(answer.splitlines()[-1])
        return verdict

    def is_mended(self, path: str, kind: fixes.Kind) -> str:
        """The fault is there, its fix is of this kind and is carried out, the fault is gone."""
        before = self.judge(path)
        assert before["kind"] == kind.value, before
        self.type(before["command"])
        assert self.judge(path)["why"] == ""
        return before["command"]


@pytest.fixture
def place(tmp_path: Path) -> CondaEnvironment:
    return CondaEnvironment(tmp_path)


@carries_out(fixes.Kind.INSTALL_BY_CONDA)
def test_the_release_for_this_torch_replaces_another(place: CondaEnvironment) -> None:
    place.publish_torch("2.9.1", [ADD])
    for version, symbols in (("0.23.0", [ADD, ONLY_OLD]), ("0.24.0", [ADD]), ("0.29.0", [ADD])):
        place.publish_extension("torchvision", version, symbols)
    place.type('conda install pytorch "torchvision=0.23"')
    command = place.is_mended(f"{SITE}/torchvision/_C.so", fixes.Kind.INSTALL_BY_CONDA)
    assert command == 'conda install "torchvision=0.24"'


@carries_out(fixes.Kind.INSTALL_BY_CONDA)
def test_the_torch_that_a_package_was_built_for_replaces_another(place: CondaEnvironment) -> None:
    place.publish_torch("2.9.1", [ADD])
    place.publish_torch("2.15.0", [ADD, SINCE_213])
    place.publish_extension("theirs", "1.0", [ADD, SINCE_213], depends=["pytorch"])
    place.type('conda install "pytorch=2.9" theirs')
    command = place.is_mended(f"{SITE}/theirs/_C.so", fixes.Kind.INSTALL_BY_CONDA)
    assert command == 'conda install "pytorch=2.15"'


@carries_out(fixes.Kind.INSTALL_BY_CONDA)
def test_a_build_for_cuda_replaces_one_for_the_cpu(place: CondaEnvironment) -> None:
    place.publish_torch("2.9.1", [ADD], cuda="13.0")
    place.publish_torch("2.9.1", [ADD])
    place.type('conda install "pytorch=*=cpu*"')
    version = place.site / "torch" / "version.py"
    assert "None" in version.read_text()
    torch = fixes.cuda_torch(Environment("conda"), None)
    place.type(torch.command)
    assert "13.0" in version.read_text()


@carries_out(fixes.Kind.INSTALL_BY_CONDA)
def test_a_newer_libstdcxx_comes_from_conda_forge(place: CondaEnvironment) -> None:
    library = shared_object(place.folder / "libstdc++.so.6", soname="libstdc++.so.6")
    place.publish("libstdcxx-ng", "15.1", {"lib/libstdc++.so.6": library})
    binary = BinaryRecord(path=Path("/x/_C.so"), kind="extension", name="_C.so")
    runtime = make_runtime(environment=Environment("conda"))
    place.type(fixes.newer_libstdcxx(binary, runtime).command)
    assert (place.prefix / "lib" / "libstdc++.so.6").exists()


@carries_out(fixes.Kind.REINSTALL_BY_CONDA)
@pytest.mark.parametrize("damaged", ["the package", "torch"])
def test_damaged_files_come_back(place: CondaEnvironment, damaged: str) -> None:
    place.publish_torch("2.9.1", [ADD])
    place.publish_torch("2.15.0", [ADD])
    for version in ("1.0", "2.0"):
        place.publish_extension("theirs", version, [ADD], depends=["pytorch 2.9.*"])
    place.type('conda install "pytorch=2.9" "theirs=1.0"')
    path = place.site / ("theirs/_C.so" if damaged == "the package" else "torch/lib/libc10.so")
    content = path.read_bytes()
    path.unlink()  # a hard link to the cache of packages
    path.write_bytes(content[:40])
    command = place.is_mended(f"{SITE}/theirs/_C.so", fixes.Kind.REINSTALL_BY_CONDA)
    name = "theirs=1.0" if damaged == "the package" else "pytorch=2.9.1"
    assert command == f"conda install --force-reinstall {name}"


@carries_out(fixes.Kind.REINSTALL_BY_CONDA)
def test_the_package_at_hand_comes_back_into_another_environment(place: CondaEnvironment) -> None:
    """`-p` names the environment of the Python that is judged, which need not be the active one."""
    file = f"{SITE}/tiny_client/__init__.py"
    package = place.publish("tiny-client", "0.1.0", {file: "whole"})
    place.type(f"conda install {package}")
    (place.prefix / file).unlink()
    environment = Environment("conda", source=str(package), prefix=str(place.prefix))
    project = PROJECT._replace(folder=place.site / "tiny_client")
    runtime = make_runtime(environment=environment)._replace(project=project)
    fix = fixes.reinstall(runtime)
    assert fix.kind == fixes.Kind.REINSTALL_BY_CONDA
    place.type(f"CONDA_PREFIX=/nowhere {fix.command}")
    assert (place.prefix / file).read_text() == "whole"


@carries_out(fixes.Kind.REMOVE_BY_CONDA)
def test_one_of_two_copies_is_removed(place: CondaEnvironment) -> None:
    file = f"{SITE}/tiny_client/__init__.py"
    place.publish("tiny-client", "0.1.0", {file: ""})
    place.type("conda install tiny-client")
    assert (place.prefix / file).exists()
    environment = Environment("conda", prefix=str(place.prefix))
    place.type(fixes.remove_copy(environment, PROJECT, "/x/glue.so").command)
    assert not (place.prefix / file).exists()
    assert not [*place.prefix.glob("conda-meta/tiny-client-*")]

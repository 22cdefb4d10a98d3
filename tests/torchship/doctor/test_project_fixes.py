"""Every fix, carried out: an environment with the fault, the command that the checker names for
it, typed into a shell, and the same environment without the fault.

The numbers are those of the classes. 4 and 7 need a GPU (test_compat_gpu.py); 5 asks for another
driver, which no test can install.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
import textwrap
import venv
import zipfile
from pathlib import Path
from typing import Any

import fault_classes
import pytest
import rendered_client
from new_projects import make
from shared_objects import GLUE_RECORD, KERNELS_RECORD, fake_torch, shared_object
from sick_environment import UV, carries_out
from small_client import PROJECT
from small_clients import copy_with_engine, glues
from test_compat_faults import elf_hash, judged

from torchship.builder import BuildError, BuildRequest, plan
from torchship.builder.cuda_toolkit import parse_architectures
from torchship.judge import find_torch, fixes
from torchship.judge.reading import layouts
from torchship.judge.reading.elf import Elf
from torchship.judge.words import codes, faults

SITE = Path(sysconfig.get_path("purelib"))

IMPORT = textwrap.dedent(
    """
    import json
    try:
        from tiny_client import scale
        import torch
        scale(torch.ones(3), 2.0)
        print(json.dumps({"fault": None, "fix": ""}))
    except ImportError as error:
        print(json.dumps({"fault": error.finding.fault, "fix": error.finding.fix.text}))
    """
)


def wheel_of(folder: Path, name: str, version: str, files: dict[str, Path | str]) -> Path:
    """A wheel of these files, as pip installs it."""
    info = f"{name}-{version}.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    members: dict[str, Path | str] = {**files, **metadata}
    with zipfile.ZipFile(path, "w") as file:
        for inner, content in members.items():
            if isinstance(content, Path):
                file.write(content, inner)
            else:
                file.writestr(inner, content)
        file.writestr(f"{info}/RECORD", "".join(f"{inner},,\n" for inner in [*members, "RECORD"]))
    return path


class Place:
    """A virtual environment that borrows this one's packages, and a shell in it."""

    def __init__(self, folder: Path, *, without: tuple[str, ...] = ()) -> None:
        venv.create(folder / "env", with_pip=False, symlinks=True)
        self.folder = folder
        (folder / "index").mkdir(exist_ok=True)
        self.bin = folder / "env" / "bin"
        (self.site,) = (folder / "env").glob("lib/python*/site-packages")
        for entry in SITE.iterdir():
            if not entry.name.startswith(("__", *without)) and entry.suffix != ".pth":
                (self.site / entry.name).symlink_to(entry)
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(folder), "FORCE_CUDA": "0"}
        self.env |= {"TINY_CACHE": str(folder / "cache"), "DEBUG": "1", "PIP_NO_INDEX": "1"}
        # Without the machine's own settings, which may constrain torch.
        self.env |= {"PIP_FIND_LINKS": str(folder / "index"), "PIP_CONFIG_FILE": os.devnull}

    def type(self, command: str, **more: str) -> str:
        """Type a command into a shell; it must succeed."""
        process = subprocess.run(
            ["bash", "-c", command], env={**self.env, **more}, cwd=self.folder, input="y\n",
            capture_output=True, text=True,
        )  # fmt: skip
        assert process.returncode == 0, (
            f"{command}\n{process.stdout[-2000:]}{process.stderr[-4000:]}"
        )
        return process.stdout

    def install(self, requirement: Path | str) -> None:
        """As pip would leave it, by uv, which is quicker."""
        options = f"--offline --no-deps --link-mode copy --python '{self.bin}/python'"
        options += f" --cache-dir '{self.folder}/uv' --find-links '{self.folder}/index'"
        self.type(f"'{UV}' pip install -q {options} '{requirement}'")
        for tool in self.site.glob("*.dist-info/INSTALLER"):
            if not tool.parent.is_symlink():
                tool.write_text("pip\n")

    def tries(self, program: str = IMPORT) -> dict[str, Any]:
        """The class of the fault and the fix that a program gets; no fault where it works."""
        (self.folder / "program.py").write_text(program)
        result: dict[str, Any] = json.loads(self.type("python program.py").splitlines()[-1])
        return result

    def is_mended_of(self, fault: int, cache: Path | None = None) -> str:
        """The fault is there, its fix is carried out, the fault is gone; returns the fix.

        `cache` is where the fix builds: the tests share what one of them has compiled.
        """
        before = self.tries()
        assert before["fault"] == fault
        if cache is not None:
            self.env["TINY_CACHE"] = str(cache)
        self.type(before["fix"])
        assert self.tries() == {"fault": None, "fix": ""}
        return str(before["fix"])

    @property
    def lib(self) -> Path:
        return self.site / "tiny_client" / "lib"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, tiny_package: Path) -> Path:
    """The client as a wheel: what its users have at hand."""
    folder = tmp_path_factory.mktemp("wheel")
    package = copy_with_engine(tiny_package, folder / "tiny_client")
    files = [p for p in package.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    content: dict[str, Path | str] = {f.relative_to(folder).as_posix(): f for f in files}
    return wheel_of(folder, "tiny_client", PROJECT.version, content)


@pytest.fixture
def place(tmp_path: Path, wheel: Path) -> Place:
    place = Place(tmp_path)
    place.install(wheel)
    return place


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A cache in which `python -m tiny_client build` finds what it was asked for before."""
    place = Place(tmp_path_factory.mktemp("build"))
    place.install(wheel)
    place.type("python -m tiny_client build")
    return place.folder / "cache"


def foreign_glue(place: Place, name: str, layout: dict[str, int], **record: object) -> None:
    """The only glue of the package becomes one for another torch."""
    for path in place.lib.glob("glue-*.so"):
        path.unlink()
    shared_object(
        place.lib / f"glue-{name}.so",
        record={**GLUE_RECORD, "name": name, "lane": "aten", "torch_built": "2", **record},
        layout=layout,
    )


@pytest.mark.slow
@carries_out(fixes.Kind.BUILD_PROJECT)
def test_1_a_build_mends_a_glue_of_another_torch(place: Place, built: Path) -> None:
    torch = find_torch()
    minor = next(
        m for m in layouts.LAYOUTS if m[0] == 2 and m < (2, 9) and m != torch.version_tuple
    )
    name = f"aten{minor[0]}{minor[1]}-abi{torch.cxx11_abi}"
    target = f"{minor[0]}.{minor[1]}"
    foreign_glue(place, name, layouts.LAYOUTS[minor], torch_target=target)
    assert place.is_mended_of(faults.TORCH_VERSION, built) == "python -m tiny_client build"


@pytest.mark.slow
def test_2_a_build_mends_a_glue_of_the_other_abi(place: Place, built: Path) -> None:
    torch = find_torch()
    abi = 1 - (torch.cxx11_abi or 0)
    name = f"aten{torch.version_tuple[0]}{torch.version_tuple[1]}-abi{abi}"
    target = ".".join(map(str, torch.version_tuple))
    layout = layouts.LAYOUTS[torch.version_tuple]
    foreign_glue(place, name, layout, torch_target=target, cxx11_abi=abi)
    place.is_mended_of(faults.CXX_ABI, built)


@pytest.mark.parametrize(
    ("number", "library"),
    [
        (faults.CUDA_MAJOR, "libcudart.so.7"),
        pytest.param(faults.CPU_TORCH_SWAPPED_IN, "libtorch_cuda.so", marks=pytest.mark.slow),
    ],
)
def test_3_6_the_owners_build_for_this_torch_mends_a_build_for_another(
    number: int, library: str, tmp_path: Path
) -> None:
    torch = find_torch()
    if torch.cuda is not None:
        pytest.skip("torch is a CUDA build here")
    place = Place(tmp_path)
    stub = shared_object(tmp_path / "gone" / library, soname=library)
    for version, libraries in (("1.0+cu7", [stub]), ("1.0+cpu", [])):
        path = shared_object(tmp_path / version / "_C.so", libraries=libraries)
        wheel_of(tmp_path / "index", "theirs", version, {"theirs/_C.so": path})
    stub.unlink()
    place.install("theirs==1.0+cu7")
    path = place.site / "theirs" / "_C.so"
    cause = judged(path).cause
    assert cause is not None
    assert cause.fault == number
    assert cause.fix.text.startswith(f"install a build of theirs for {torch.device}, or ")
    place.install("theirs==1.0+cpu")
    assert judged(path).accepted


@pytest.mark.slow
@carries_out(fixes.Kind.CUDA_TORCH)
def test_6_installing_the_same_release_from_an_index_of_cuda_builds_mends_a_cpu_torch(
    tmp_path: Path, wheel: Path
) -> None:
    """The command is the real one; the torches are stubs, as real ones take gigabytes and a GPU."""
    place = Place(tmp_path, without=("torch", "functorch"))
    for folder, version, cuda in (("now", "2.13.0+cpu", None), ("index", "2.13.0", "13.0")):
        root = fake_torch(tmp_path / "stub" / folder, version, cuda=cuda)
        (root / "__init__.py").touch()
        files = {p.relative_to(root.parent).as_posix(): p for p in root.rglob("*") if p.is_file()}
        wheel_of(tmp_path / folder, "torch", version, dict(files))
    place.install(tmp_path / "now" / "torch-2.13.0+cpu-py3-none-any.whl")
    record = {**KERNELS_RECORD, "name": "cuda13", "device": "cuda", "cuda": "13.0"}
    kernels = shared_object(tmp_path / "kernels-cuda13.so", record=record)
    place.install(wheel)
    place.env["TINY_LOAD"] = "0"

    def rejected() -> list[dict[str, Any]]:
        output = place.type(f"python -m tiny_client --json --binary '{kernels}' || true")
        (binary,) = json.loads(output)["binaries"]
        return [finding for finding in binary["findings"] if finding["status"] == "rejected"]

    (before,) = rejected()
    assert before["fault"] == faults.CPU_TORCH_SWAPPED_IN
    place.type(before["fix"].replace("$PREFIX", str(place.bin.parent)))
    assert not rejected()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut", "missing", "old"])
@carries_out(fixes.Kind.INSTALL_PROJECT)
def test_8_the_wheel_at_hand_mends_the_packages_files(
    fault: str, place: Place, wheel: Path
) -> None:
    for path in place.lib.glob("*.so"):
        if fault == "cut":
            path.write_bytes(path.read_bytes()[:40])
        elif fault == "missing":
            path.unlink()
    if fault == "old":
        (place.lib.parent / "_version.py").write_text('__version__ = "9.9.9"\n')
        info = next(place.site.glob("tiny_client-*.dist-info"))
        info.rename(info.with_name("tiny_client-9.9.9.dist-info"))
    assert str(wheel) in place.is_mended_of(faults.PACKAGE_FILES)


@pytest.mark.slow
@carries_out(fixes.Kind.INSTALL_TORCH)
def test_9_installing_torch_mends_its_absence(tmp_path: Path, wheel: Path) -> None:
    place = Place(tmp_path, without=("torch-", "torch", "functorch"))
    place.install(wheel)
    # A wheel of torch without a copy of its gigabytes: what it installs points to the real one.
    (tmp_path / "real").mkdir()
    for name in ("torch", "functorch", "torchgen"):
        if (SITE / name).exists():
            (tmp_path / "real" / name).symlink_to(SITE / name)
    wheel_of(tmp_path / "index", "torch", "2.99.0", {"real_torch.pth": f"{tmp_path / 'real'}\n"})
    assert '"torch>=2.4"' in place.is_mended_of(faults.TORCH_NOT_LOADED)


@pytest.mark.slow
def test_10_a_build_mends_a_binary_of_a_newer_system(place: Place, built: Path) -> None:
    path = place.lib / f"glue-{glues()[0]}.so"
    data = path.read_bytes()
    with Elf(path) as elf:
        versions = {v.encode() for _, v in elf.version_needs() if v.startswith("GLIBC_2.")}
    old = max(versions, key=len)
    new = old[:8] + b"9" * (len(old) - 8)
    at = data.index(b"\0" + old + b"\0")
    data = data[: at + 1] + new + data[at + 1 + len(new) :]
    hashes = (elf_hash(name).to_bytes(4, "little") for name in (old, new))
    path.write_bytes(data.replace(*hashes))
    place.is_mended_of(faults.SYSTEM_LIBRARIES, built)


def nvcc(folder: Path, release: str) -> dict[str, str]:
    """An environment whose CUDA_HOME names a toolkit of this release."""
    program = folder / release / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1, compute_80'\n"
    )
    program.chmod(0o755)
    return {**os.environ, "CUDA_HOME": str(folder / release)}


def test_11_the_right_toolkit_in_cuda_home_mends_an_nvcc_of_another_major(tmp_path: Path) -> None:
    def planned(env: dict[str, str]) -> object:
        return plan(BuildRequest(tmp_path, rendered_client.PROJECT, kernels=("cuda12",), env=env))

    with pytest.raises(BuildError, match="set CUDA_HOME"):
        planned(nvcc(tmp_path, "13.0"))
    assert planned(nvcc(tmp_path, "12.8"))


def test_12_a_compiler_in_cxx_mends_its_absence(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")

    def planned(env: dict[str, str]) -> object:
        return plan(BuildRequest(tmp_path, rendered_client.PROJECT, kernels=("cpu",), env=env))

    with pytest.raises(BuildError, match="set CXX"):
        planned({"PATH": str(tmp_path)})
    assert planned({"PATH": str(tmp_path), "CXX": str(compiler)})


@pytest.mark.slow
def test_13_no_build_isolation_mends_a_build_that_cannot_see_torch(tmp_path: Path) -> None:
    tree = make(tmp_path, "some-op")
    isolated = Place(tmp_path / "isolated", without=("torch",))
    build = "import sys; sys.path.insert(0, 'vendor'); import backend; backend.build_wheel('.')"
    output = isolated.type(f"cd '{tree}' && ! python -c \"{build}\" 2>&1")
    assert "--no-build-isolation" in output
    place = Place(tmp_path / "place")
    pages = Path(__file__).parents[3] / "docs" / "fails" / "codes"
    page = (pages / f"{codes.BUILD_ISOLATION.lower()}.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^(.* install \. .*)$", page, re.MULTILINE)
    place.type(f"cd '{tree}' && {command}", PIP_NO_DEPS="1")
    place.type("python -c 'import some_op'")


def test_14_the_architectures_that_the_message_names_mend_unknown_ones() -> None:
    with pytest.raises(BuildError) as error:
        parse_architectures("9.9", {"75", "80", "90"})
    example = re.search(r"write for example (\S+?)[,.]?(\s|$)", str(error.value))
    assert example is not None
    assert parse_architectures(example[1], {"75", "80", "90"})


@pytest.mark.slow
@carries_out(fixes.Kind.REMOVE_COPY)
def test_15_uninstalling_one_of_two_copies_mends_a_double_registration(
    place: Place, tmp_path: Path
) -> None:
    shutil.copytree(place.site / "tiny_client", tmp_path / "other" / "tiny_client")
    place.env["PYTHONPATH"] = str(tmp_path / "other")
    (place.site / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(place.site)!r})\n")
    # Every copy of the path but the one that is imported belongs to another program of the process.
    program = textwrap.dedent(
        """
        import pathlib, sys, torch
        copies = [p for p in map(pathlib.Path, sys.path) if (p / "tiny_client" / "lib").is_dir()]
        for copy in dict.fromkeys(copies[1:]):
            if copy != copies[0]:
                torch.ops.load_library(str(next(copy.glob("tiny_client/lib/glue-*.so"))))
        """
    )
    before = place.tries(program + IMPORT)
    assert before["fault"] == faults.REGISTERED_TWICE
    assert str(tmp_path / "other") in before["fix"]
    place.type(re.sub(r" \(the other copy: .*\); then restart Python", "", before["fix"]))
    assert place.tries(program + IMPORT)["fault"] is None


@pytest.mark.slow
@carries_out(fixes.Kind.UNSET_VARIABLE)
def test_a_variable_that_forces_a_variant_is_mended_by_unsetting_it(place: Place) -> None:
    place.env["TINY_VARIANT"] = "aten29-abi0-cpu"
    before = place.tries()
    assert before["fix"] == "unset TINY_VARIANT"
    place.type(f"{before['fix']}; python program.py | grep -q null")


@pytest.mark.slow
def test_a_variable_that_stops_loading_is_named_and_unset(place: Place) -> None:
    (place.folder / "program.py").write_text("from tiny_client import scale")
    output = place.type("! python program.py 2>&1", TINY_LOAD="0")
    assert "unset TINY_LOAD" in output
    place.type("unset TINY_LOAD; python program.py", TINY_LOAD="0")


def test_every_class_has_its_cure_carried_out() -> None:
    source = Path(__file__).read_text()
    tested = {
        int(n)
        for names in re.findall(r"def test_((?:\d+_)+)", source)
        for n in names.split("_")
        if n
    }
    assert tested == {n for n, proof in fault_classes.PROOFS.items() if proof == "injected"}

"""The classes of docs/fails/codes/index.md, made to happen for real on this machine.

For each: what the user would see without a checker (the dynamic linker, Python, pip or nvcc really
say it), that the text is classified, and that the judge or the builder says the class beforehand,
with the cause first and a command. Faults of the package's own files (class 8) and double
registration (15) are injected in tests/torchship/runtime/test_loader.py.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import fault_classes
import pytest
from new_projects import make
from processes import Forks
from shared_objects import shared_object
from small_client import PROJECT
from small_clients import FOLDER, glues, project_of

from torchship.builder import BuildError, BuildRequest, execute, plan
from torchship.builder.cuda_toolkit import parse_architectures
from torchship.doctor import judge_file
from torchship.judge import Finding, Runtime, TorchInstall, Verdict, find_torch, probe_runtime
from torchship.judge.machine import torch_probe
from torchship.judge.reading.elf import Elf
from torchship.judge.records import REJECTED
from torchship.judge.words import faults, messages

REPO = Path(__file__).resolve().parents[3]


#: The files whose tests make the classes of faults happen.
PROVING_TESTS = ("test_compat_faults.py", "test_compat_gpu.py", "test_loader.py")

Say = Callable[[Path], str]
Foretell = Callable[[Path, int], Finding]


def open_with_the_linker(path: Path) -> str:
    """A program that opens a file as the dynamic linker does."""
    return f"import ctypes\nctypes.CDLL({str(path)!r})"


def refusal_of(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode != 0, "it loads"
    return process.stderr.strip().splitlines()[-1]


@pytest.fixture
def linker_says(forked: Forks, tmp_path: Path) -> Say:
    """What really happens after `import torch`, in a process of its own."""
    return lambda path: refusal_of(forked.run(open_with_the_linker(path), cwd=tmp_path))


def linker_says_without_torch(path: Path) -> str:
    command = [sys.executable, "-c", open_with_the_linker(path)]
    return refusal_of(subprocess.run(command, capture_output=True, text=True))


def judged(path: Path) -> Verdict:
    return judge_file(path, probe_runtime(gpu=False, project=PROJECT))


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    """With what was read of the real torch, for files that do not change."""
    return probe_runtime(gpu=False, project=PROJECT)


def refusals(path: Path) -> list[Finding]:
    """Nothing says for which torch these files were made, so they are not accepted either."""
    return [finding for finding in judged(path).findings if finding.status == REJECTED]


@pytest.fixture
def foretold(linker_says: Say, runtime: Runtime) -> Foretell:
    """The linker refuses it, the text is of this class, and the judge had said so."""

    def compare(path: Path, fault: int) -> Finding:
        classified = messages.classify(linker_says(path))
        assert classified is not None
        assert classified == fault
        cause = judge_file(path, runtime).cause
        assert cause is not None
        assert cause.fault == fault
        assert cause.fix.text
        return cause

    return compare


def compile_cxx(path: Path, source: str, *flags: str) -> Path:
    torch = find_torch()
    file = path.with_suffix(".cpp")
    file.write_text(source)
    standard = 20 if torch.version_tuple >= (2, 14) else 17
    command = ["g++", "-shared", "-fPIC", f"-std=c++{standard}", *flags, f"-I{torch.include_dir}"]
    command += ["-o", str(path), str(file), f"-L{torch.lib_dir}", "-lc10", "-ltorch_cpu"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return path


def other_flavour(torch: TorchInstall) -> int:
    return 1 - (torch.cxx11_abi or 0)


THROWS = """
#include <c10/util/Exception.h>
#include <string>
void refuse(const std::string& text) { throw c10::Error({__func__, __FILE__, 1}, text); }
"""


def test_2_an_object_of_the_other_cxx_abi(tmp_path: Path, foretold: Foretell) -> None:
    flavour = other_flavour(find_torch())
    path = compile_cxx(tmp_path / "x.so", THROWS, f"-D_GLIBCXX_USE_CXX11_ABI={flavour}")
    cause = foretold(path, faults.CXX_ABI)
    assert f"flavour {flavour}" in cause.why


@pytest.mark.slow  # torch's headers take a second
def test_2_the_right_abi_is_not_refused_and_loads(tmp_path: Path, linker_says: Say) -> None:
    flavour = find_torch().cxx11_abi
    path = compile_cxx(tmp_path / "x.so", THROWS, f"-D_GLIBCXX_USE_CXX11_ABI={flavour}")
    assert refusals(path) == []
    with pytest.raises(AssertionError, match="it loads"):
        linker_says(path)


def test_1_a_symbol_that_this_torch_does_not_have(tmp_path: Path, foretold: Foretell) -> None:
    source = "namespace at { struct Tensor; void gone(const Tensor&); }\n"
    source += "void use(const at::Tensor& tensor) { at::gone(tensor); }\n"
    path = compile_cxx(tmp_path / "x.so", source)
    cause = foretold(path, faults.TORCH_VERSION)
    assert "_ZN2at4goneERKNS_6TensorE" in cause.observed


def test_3_the_runtime_of_another_cuda_major(tmp_path: Path, foretold: Foretell) -> None:
    stub = shared_object(tmp_path / "gone" / "libcudart.so.7", soname="libcudart.so.7")
    path = shared_object(tmp_path / "ext.so", libraries=[stub])
    stub.unlink()
    cause = foretold(path, faults.CUDA_MAJOR)
    assert "libcudart.so.7" in cause.why


def test_6_a_cuda_extension_on_a_cpu_torch(tmp_path: Path, foretold: Foretell) -> None:
    if find_torch().cuda is not None:
        pytest.skip("torch is a CUDA build here")
    stub = shared_object(tmp_path / "gone" / "libtorch_cuda.so", soname="libtorch_cuda.so")
    path = shared_object(tmp_path / "ext.so", libraries=[stub])
    stub.unlink()
    cause = foretold(path, faults.CPU_TORCH_SWAPPED_IN)
    assert "CUDA build of torch" in cause.why


def test_8_a_module_renamed_to_another_python_is_not_even_found(tmp_path: Path) -> None:
    name = f"renamed.cpython-3{sys.version_info[1] + 1}-x86_64-linux-gnu.so"
    path = shared_object(tmp_path / name, defined=["PyInit_renamed"])
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import renamed"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ModuleNotFoundError: No module named 'renamed'" in process.stderr
    cause = judged(path).cause
    assert cause is not None
    assert (cause.dimension, cause.fault) == ("python", faults.PACKAGE_FILES)


def test_8_a_truncated_object(tmp_path: Path, foretold: Foretell) -> None:
    path = shared_object(tmp_path / "cut.so")
    path.write_bytes(path.read_bytes()[:40])
    foretold(path, faults.PACKAGE_FILES)


def test_9_our_own_glue_before_torch(tiny_package: Path) -> None:
    glue = tiny_package / "lib" / f"glue-{glues()[0]}.so"
    classified = messages.classify(linker_says_without_torch(glue))
    assert classified is not None
    assert classified == faults.TORCH_NOT_LOADED


def test_9_an_extension_before_torch(tmp_path: Path) -> None:
    path = shared_object(tmp_path / "ext.so", undefined=["THPVariableClass"])
    classified = messages.classify(linker_says_without_torch(path))
    assert classified is not None
    assert classified == faults.TORCH_NOT_LOADED
    # There is nothing wrong with one that is linked as torch's build tools link it.
    python = find_torch().lib_dir / "libtorch_python.so"
    linked = shared_object(
        tmp_path / "linked.so", undefined=["THPVariableClass"], libraries=[python]
    )
    assert refusals(linked) == []


def elf_hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


@pytest.mark.parametrize("family", [b"GLIBC_2.", b"GLIBCXX_3.4."])
def test_10_a_binary_that_needs_a_newer_system(
    tmp_path: Path, family: bytes, tiny_package: Path, foretold: Foretell
) -> None:
    """Our own binary, with one version need patched to a version that does not exist yet."""
    source = tiny_package / "lib" / f"glue-{glues()[0]}.so"
    data = source.read_bytes()
    with Elf(source) as elf:
        versions = {version.encode() for _, version in elf.version_needs()}
    old = max((v for v in versions if v.startswith(family)), key=len)
    new = old[: len(family)] + b"9" * (len(old) - len(family))
    at = data.index(b"\0" + old + b"\0")
    data = data[: at + 1] + new + data[at + 1 + len(new) :]
    data = data.replace(struct.pack("<I", elf_hash(old)), struct.pack("<I", elf_hash(new)))
    path = tmp_path / source.name
    path.write_bytes(data)
    cause = foretold(path, faults.SYSTEM_LIBRARIES)
    assert new.decode() in cause.needed


def test_11_an_nvcc_of_another_major(tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.48'\n")
    nvcc.chmod(0o755)
    env = {**os.environ, "CUDA_HOME": str(tmp_path)}
    with pytest.raises(BuildError, match=r"need an nvcc 12\.x, got 13\.0.*set CUDA_HOME"):
        plan(BuildRequest(tmp_path, PROJECT, kernels=("cuda12",), env=env))


def test_12_no_compiler(tmp_path: Path) -> None:
    for env in ({"PATH": str(tmp_path)}, {**os.environ, "CXX": "g++-99"}):
        with pytest.raises(BuildError, match=r"no C\+\+ compiler.*set CXX"):
            plan(BuildRequest(tmp_path, PROJECT, kernels=("cpu",), env=env))


def test_12_cuda_home_that_holds_no_nvcc(tmp_path: Path) -> None:
    env = {**os.environ, "CUDA_HOME": str(tmp_path)}
    with pytest.raises(BuildError, match="holds no bin/nvcc"):
        plan(BuildRequest(tmp_path, PROJECT, kernels=("cuda13",), env=env))


@pytest.mark.slow
def test_13_a_build_that_cannot_see_torch(tmp_path: Path) -> None:
    """The backend in an environment as pip's build isolation makes it: setuptools and no torch."""
    isolated = tmp_path / "isolated"
    venv.create(isolated, with_pip=False, symlinks=True)
    python = isolated / "bin" / "python"
    (site,) = isolated.glob("lib/python*/site-packages")
    site_packages = Path(sysconfig.get_path("purelib"))
    for pattern in ("setuptools*", "_distutils_hack", "pkg_resources"):
        for path in site_packages.glob(pattern):
            (site / path.name).symlink_to(path)
    tree = make(tmp_path, "some-op")
    build = "import sys; sys.path.insert(0, 'vendor'); import backend; backend.build_wheel('.')"
    process = subprocess.run([python, "-c", build], cwd=tree, capture_output=True, text=True)
    assert process.returncode != 0
    assert "--no-build-isolation" in process.stderr


@pytest.mark.parametrize("architectures", ["9.9", "sm_90", "8.0;Hopperish", "1"])
def test_14_an_architecture_that_nvcc_does_not_know(architectures: str) -> None:
    with pytest.raises(BuildError, match=r"TORCH_CUDA_ARCH_LIST.*write for example"):
        parse_architectures(architectures, {"75", "80", "90"})


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("minor", ["2.8", "2.9"])
def test_1_a_binary_for_another_torch_really_installed(tmp_path: Path, minor: str) -> None:
    """The ATen glue compiled against another torch, judged for ours, then loaded all the same."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    target = tmp_path / "other"
    settings = []
    if os.environ.get("PIP_INDEX_URL"):  # uv does not read pip's settings
        settings = ["--index-url", os.environ["PIP_INDEX_URL"]]
    command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(target), *settings]
    command += ["--python-version", "3.11", f"torch=={minor}.*"]
    subprocess.run(command, check=True)
    other = torch_probe.find_torch(target)
    glue = f"aten{minor.replace('.', '')}-abi{other.cxx11_abi}"
    out = tmp_path / "out"
    root = tmp_path / "tiny"
    shutil.copytree(FOLDER / "tiny", root)
    request = BuildRequest(out, project_of("tiny", root), glue=glue, torch=other, kernels=())
    execute(plan(request), out / "work", jobs=2)
    shutil.rmtree(target)  # more than a gigabyte
    path = out / f"glue-{glue}.so"
    cause = judged(path).cause
    assert cause is not None
    assert cause.fault == faults.TORCH_VERSION
    assert f"built for torch {minor}" in cause.why
    code = f"import torch; torch.ops.load_library({str(path)!r}); torch.ops.tiny.scale"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode != 0


def test_every_class_has_its_proof() -> None:
    """Each number is named by a test of its kind, so the table's last column is no claim."""
    tests = REPO / "tests"
    places = ("torchship/doctor", "torchship/runtime", "compat")
    files = [tests / place / name for place in places for name in PROVING_TESTS]
    sources = {path.name: path.read_text() for path in files if path.exists()}
    for fault, proof in fault_classes.PROOFS.items():
        if proof == "injected":
            named = f"def test_{fault}_" in sources["test_compat_faults.py"] or (
                fault == faults.REGISTERED_TWICE
                and "faults.REGISTERED_TWICE" in sources["test_loader.py"]
            )
        elif proof == "GPU machine":
            named = f"def test_{fault}_" in sources["test_compat_gpu.py"]
        else:
            assert fault == faults.DRIVER
            named = "faults.DRIVER" in sources["test_loader.py"]
        assert named, fault

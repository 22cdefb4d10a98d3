"""Probes: torch without importing it, the driver without CUDA, the host, whole files of ours."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest
from made_facts import make_runtime
from shared_objects import GLUE_RECORD, KERNELS_RECORD, fake_torch, gpu_object, shared_object
from small_client import PROJECT

from torchship.doctor import judge_file
from torchship.judge import Device, TorchNotFoundError, find_torch, probe_runtime, read_binary
from torchship.judge.linking import after_torch
from torchship.judge.machine import driver_probe, runtime_probe, torch_probe
from torchship.judge.reading.binary import is_torch_symbol, symbol_flavour
from torchship.judge.records import REJECTED, Environment
from torchship.judge.target import Target
from torchship.judge.verdict import explain

REPO = Path(__file__).resolve().parents[3]


def test_the_probe_agrees_with_the_imported_torch() -> None:
    import torch

    probed = find_torch()
    live = torch_probe.from_module(torch)
    assert probed.version == live.version == torch.__version__
    assert (probed.cuda, probed.hip, probed.cxx11_abi) == (live.cuda, live.hip, live.cxx11_abi)
    assert probed.root == live.root
    assert probed.problems == ()


def test_another_interpreter_is_asked_where_its_torch_is(torch_root: Path) -> None:
    assert find_torch(python=sys.executable).root.resolve() == torch_root.resolve()


@pytest.mark.parametrize("folder", [os.fsdecode(b"caf\xe9"), "a\nb"])
def test_another_interpreter_may_keep_its_torch_in_any_folder(tmp_path: Path, folder: str) -> None:
    root = fake_torch(tmp_path / folder)
    (root / "__init__.py").touch()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncd "$(dirname "$0")"/*/ && exec "$PYTHON" "$@"\n')
    python.write_bytes(
        b'#!/bin/sh\nPYTHONPATH=%s exec %s "$@"\n'
        % (shlex.quote(str(root.parent)).encode(errors="surrogateescape"), sys.executable.encode())
    )
    python.chmod(0o755)
    assert find_torch(python=str(python)).root == root


def test_the_torch_of_an_interpreter_is_none_of_the_current_folder(
    tmp_path: Path, torch_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(tmp_path, "2.4.1")
    (tmp_path / "torch" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert find_torch(python=sys.executable).root.resolve() == torch_root.resolve()


def test_finding_torch_does_not_import_it(torch_root: Path) -> None:
    code = (
        "import sys; from torchship.judge import find_torch; "
        f"t = find_torch({str(torch_root)!r}); "
        "print(t.version, 'torch' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    process = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert process.stdout.split()[1] == "False"


@pytest.mark.parametrize("abi", [0, 1])
@pytest.mark.parametrize("level", ["torch", "site-packages", "prefix"])
def test_a_torch_folder_is_read(tmp_path: Path, abi: int, level: str) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    root = fake_torch(site, "2.6.0+cu124", cuda="12.4", abi=abi)
    path = {"torch": root, "site-packages": site, "prefix": tmp_path}[level]
    torch = find_torch(path)
    assert (torch.version, torch.version_tuple, torch.cuda) == ("2.6.0+cu124", (2, 6), "12.4")
    assert (torch.cxx11_abi, torch.cuda_major, torch.is_release) == (abi, 12, True)
    assert torch.lib_dir == root / "lib"


@pytest.mark.parametrize(
    ("version", "release"),
    [("2.9.0", True), ("2.9.1+cu128", True), ("2.9.0.post1", True), ("2.9.0a0+gitabc", False),
     ("2.10.0.dev20260101", False), ("2.9.0rc1", False)],
)  # fmt: skip
def test_what_is_a_release(tmp_path: Path, version: str, release: bool) -> None:
    assert find_torch(fake_torch(tmp_path, version)).is_release == release


@pytest.mark.parametrize(
    "content",
    ["", "__version__ = \n", "x = (", "\x00", "__version__ = 3", "__version__ = 'abc'",
     "__version__ = open('x').read()", "__version__ = None", "(" * 300],
)  # fmt: skip
def test_a_broken_version_file_is_a_clear_error(tmp_path: Path, content: str) -> None:
    root = fake_torch(tmp_path)
    (root / "version.py").write_text(content)
    with pytest.raises(TorchNotFoundError, match=r"version\.py"):
        find_torch(root)
    runtime = probe_runtime(root, gpu=False)
    assert runtime.torch is None
    assert "version.py" in (runtime.torch_problem or "")


def test_version_py_is_never_executed(tmp_path: Path) -> None:
    root = fake_torch(tmp_path)
    marker = tmp_path / "executed"
    with (root / "version.py").open("a") as file:
        file.write(f"open({str(marker)!r}, 'w')\n")
    assert find_torch(root).version == "2.13.0+cpu"
    assert not marker.exists()


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TorchNotFoundError, match="no torch installation"):
        find_torch(tmp_path)


def test_a_symlink_loop_in_the_place_of_torch(tmp_path: Path) -> None:
    loop = tmp_path / "torch"
    loop.symlink_to(loop)
    with pytest.raises(TorchNotFoundError):
        find_torch(tmp_path)
    root = fake_torch(tmp_path / "other")
    (root / "lib" / "libtorch_cpu.so").unlink()
    (root / "lib" / "libtorch_cpu.so").symlink_to("libtorch_cpu.so")
    assert "libtorch_cpu.so" in find_torch(root).problems[0]


def test_a_torch_without_or_with_broken_libraries_is_a_finding(
    tmp_path: Path, sample: Path
) -> None:
    root = fake_torch(tmp_path)
    for break_it in (
        lambda path: path.write_bytes(path.read_bytes()[:500]),
        lambda path: path.unlink(),
    ):
        break_it(root / "lib" / "libc10.so")
        verdict = judge_file(sample, probe_runtime(root, gpu=False))
        assert verdict.cause is not None
        assert (verdict.cause.dimension, verdict.cause.status) == ("torch", REJECTED)
        assert "libc10.so" in verdict.cause.observed


def test_a_truncated_libtorch_cpu_is_a_finding(tmp_path: Path, sample: Path) -> None:
    root = fake_torch(tmp_path, exports=["aoti_torch_get_dim"])
    library = root / "lib" / "libtorch_cpu.so"
    library.write_bytes(library.read_bytes()[:900])
    cause = judge_file(sample, probe_runtime(root, gpu=False)).cause
    assert cause is not None
    assert "libraries cannot be read" in cause.why


def test_a_torch_folder_without_permission_is_a_clear_error(public_folder: Path) -> None:
    root = fake_torch(public_folder)
    root.chmod(0)
    try:
        child = os.fork()
        if child == 0:  # root may read anything, so ask as nobody
            if os.getuid() == 0:
                os.setuid(65534)
            runtime = probe_runtime(root, gpu=False)
            os._exit(0 if runtime.torch is None and runtime.torch_problem else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        root.chmod(0o755)


def test_missing_symbols_are_those_that_the_libraries_do_not_export(
    tmp_path: Path, sample: Path
) -> None:
    full = find_torch(
        fake_torch(tmp_path / "a", exports=["aoti_torch_get_dim", "_ZN2at6Tensor3addEv"])
    )
    half = find_torch(fake_torch(tmp_path / "b", exports=["aoti_torch_get_dim"]))
    binary = read_binary(sample)
    assert torch_probe.missing_symbols(binary, full) == ()
    assert torch_probe.missing_symbols(binary, half) == ("_ZN2at6Tensor3addEv",)


def test_a_real_torch_library_misses_nothing_of_its_own(torch_root: Path) -> None:
    torch = find_torch(torch_root)
    binary = read_binary(torch_root / "lib" / "libtorch_python.so")
    assert len(binary.torch_symbols) > 1000
    assert binary.cxx11_abi == torch.cxx11_abi
    assert torch_probe.missing_symbols(binary, torch) == ()


def test_a_binary_is_read_without_loading_it(sample: Path) -> None:
    binary = read_binary(sample)
    assert (binary.kind, binary.name, binary.platform) == ("glue", "stable210", "linux-x86_64")
    assert binary.record is not None
    assert binary.record.torch_target == (2, 10)
    assert sorted(binary.torch_symbols) == ["_ZN2at6Tensor3addEv", "aoti_torch_get_dim"]
    assert binary.python_symbols == ("PyObject_Call",)
    assert binary.modules == ("sample",)
    assert binary.layout is not None
    assert binary.layout["sizeof_cpp_function"] == 104
    assert str(sample) not in Path("/proc/self/maps").read_text()


def test_a_file_that_is_named_otherwise_than_its_record_is_a_problem(tmp_path: Path) -> None:
    path = shared_object(tmp_path / "glue-aten29-abi1.so", record=GLUE_RECORD)
    assert "record says stable210" in read_binary(path).problems[0]
    bare = shared_object(tmp_path / "kernels-cpu.so")
    assert "no build record" in read_binary(bare).problems[0]


def test_a_plain_library_is_no_extension(tmp_path: Path) -> None:
    assert read_binary(shared_object(tmp_path / "x.so")).kind == "library"


@pytest.mark.parametrize(
    ("name", "flavour"),
    [
        ("_ZN3c105ErrorC2ENS_14SourceLocationESs", 0),
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", 0),
        (
            "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIc"
            "ESaIcEEE",
            1,
        ),
        ("_ZN2at6Tensor3addEv", None),
        ("_ZN3c1015DispatchKeySsetEv", None),
        ("_ZN2at8functionILj8EE3SsxEv", None),
        ("aoti_torch_get_dim", None),
        ("_Z", None),
        ("_Z99999999999999999999", None),
    ],
)
def test_the_flavour_of_a_symbol(name: str, flavour: int | None) -> None:
    assert symbol_flavour(name) == flavour


@pytest.mark.parametrize(
    ("name", "is_torch"),
    [
        ("_ZN2at6Tensor3addEv", True),
        ("_ZNK2at6Tensor3addEv", True),
        ("_ZN3c105ErrorC1Ev", True),
        ("_ZTIN3c105ErrorE", True),
        ("_ZTVN5torch8autograd4NodeE", True),
        ("_ZNR5torch7Library4_defEv", True),
        ("_ZN6caffe28TypeMeta1xEv", True),
        ("aoti_torch_get_dim", True),
        ("torch_call_dispatcher", True),
        ("THPVariableClass", True),
        ("_ZNSt6vectorIN2at6TensorESaIS1_EE1xEv", False),
        ("_ZN12att3fooEv", False),
        ("_ZN3fooEv", False),
        ("strlen", False),
        ("PyObject_Call", False),
    ],
)
def test_which_symbols_torch_must_provide(name: str, is_torch: bool) -> None:
    assert is_torch_symbol(name.encode()) == is_torch


def test_missing_libraries(tmp_path: Path) -> None:
    stub = shared_object(tmp_path / "elsewhere" / "libcudart.so.12", soname="libcudart.so.12")
    path = shared_object(tmp_path / "x.so", libraries=[stub])
    assert after_torch.missing_libraries(Target(), read_binary(path), None) == ("libcudart.so.12",)
    beside = shared_object(
        tmp_path / "y.so", libraries=[stub], flags=["-Wl,-rpath,$ORIGIN/elsewhere"]
    )
    assert after_torch.missing_libraries(Target(), read_binary(beside), None) == ()


GPUS = [
    ("GPU-aaaa-1", "H100", (9, 0)),
    ("GPU-bbbb-2", "T4", (7, 5)),
    ("GPU-bbcc-3", "A100", (8, 0)),
]


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        (None, ["H100", "T4", "A100"]),
        ("", []),
        ("2,0", ["A100", "H100"]),
        ("1, 2", ["T4", "A100"]),
        ("0,7,1", ["H100"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("GPU-aaaa", ["H100"]),
        ("GPU-bb", []),
        ("GPU-bbcc,0", ["A100", "H100"]),
        ("²", []),
    ],
)
def test_cuda_visible_devices(variable: str | None, names: list[str]) -> None:
    devices = driver_probe.visible(GPUS, variable)
    assert [device.name for device in devices] == names
    assert [device.index for device in devices] == list(range(len(names)))
    assert all(isinstance(device, Device) for device in devices)


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\nGCC 12",
            "580.65.06",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86  Release Build\n",
            "570.86",
        ),
        ("garbage", None),
        ("", None),
    ],
)
def test_the_driver_version_is_read_from_proc(
    tmp_path: Path, content: str, version: str | None
) -> None:
    proc = tmp_path / "version"
    proc.write_text(content)
    driver = driver_probe.probe_driver(proc)
    assert (driver.version if driver else None) == version


def test_an_unreadable_proc_is_no_driver(tmp_path: Path) -> None:
    driver = driver_probe.probe_driver(tmp_path)
    assert driver is None or driver.version is None
    assert runtime_probe.mapped_files("libc", tmp_path) == []
    assert runtime_probe.mapped_files("libc", tmp_path / "missing") == []


def test_libstdcxx_is_the_one_that_is_loaded() -> None:
    import torch

    assert torch.__version__
    (mapped,) = runtime_probe.mapped_files("libstdc++.so")
    loaded = runtime_probe.loaded_file("libstdc++.so.6")
    assert loaded is not None
    assert loaded.resolve() == mapped.resolve()
    versions = runtime_probe.defined_versions(loaded)
    assert versions is not None
    assert versions["GLIBCXX"] >= (3, 4, 20)


def test_asking_for_a_library_that_is_not_loaded_does_not_load_it() -> None:
    assert runtime_probe.loaded_file("libnothing-of-that-name.so.1") is None


def test_a_conda_prefix_is_told_from_a_venv_inside_one(tmp_path: Path) -> None:
    assert not runtime_probe.is_conda_prefix(tmp_path)
    (tmp_path / "conda-meta").mkdir()
    assert runtime_probe.is_conda_prefix(tmp_path)
    (tmp_path / "pyvenv.cfg").touch()
    assert not runtime_probe.is_conda_prefix(tmp_path)


def test_architectures_are_found_in_the_gpu_code(tmp_path: Path) -> None:
    entries = [(2, 90, 0x11), (2, 90, 0x100011), (2, 100, 0x1200011), (1, 120, 0x8011), (7, 80, 0)]
    binary = read_binary(gpu_object(tmp_path / "x.so", entries))
    assert binary.cuda_archs == ("sm_90", "sm_90a", "sm_100f", "compute_120")


def test_a_record_that_names_absent_gpu_code_is_a_problem(tmp_path: Path) -> None:
    record = {
        **KERNELS_RECORD,
        "name": "cuda13",
        "device": "cuda",
        "cuda": "13.0",
        "cuda_archs": ["sm_80", "sm_90"],
    }
    code = [(2, 75, 0x11), (2, 90, 0x11)]
    binary = read_binary(gpu_object(tmp_path / "kernels-cuda13.so", code, record))
    assert "GPU code that is not in it: sm_80" in binary.problems[0]
    assert binary.cuda_archs == ("sm_80", "sm_90")  # not the linker's stub for sm_75


def test_a_torch_elsewhere_brings_its_own_python(tmp_path: Path) -> None:
    other = fake_torch(tmp_path / "a", python_tag="cpython-399-x86_64-linux-gnu")
    assert probe_runtime(other, gpu=False).python == (3, 99, 0)
    free = fake_torch(tmp_path / "b", python_tag="cpython-399t-x86_64-linux-gnu")
    assert probe_runtime(free, gpu=False).free_threaded
    own = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"
    same = fake_torch(tmp_path / "c", python_tag=own)
    assert probe_runtime(same, gpu=False).python == sys.version_info[:3]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A package with the list of files that pip leaves."""
    package = tmp_path / "tiny_client"
    (package / "lib").mkdir(parents=True)
    (package / "lib" / "kernels-cpu.so").write_bytes(b"binary")
    (package / "loader.py").write_text("code\n")
    record = tmp_path / "tiny_client-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    digest = "mjsZ1zr4d2oxk1Lz20I3TPTRC_p7vv6zncJQuh-TrDs"
    lines = [
        f"tiny_client/lib/kernels-cpu.so,sha256={_urlsafe_sha256(b'binary')},6",
        f"tiny_client/loader.py,sha256={digest},5",
        "tiny_client/__pycache__/loader.cpython-311.pyc,,",
        "tiny_client-0.1.0.dist-info/RECORD,,",
    ]
    record.write_text("\n".join(lines) + "\n")
    return package


@pytest.mark.parametrize(
    ("place", "script", "fix"),
    [
        ("", "tool.py", "script out of the folder of the source"),
        ("", "other/tool.py", "start Python in another folder"),
        ("src", "tool.py", "start Python in another folder"),
    ],
)
def test_a_source_folder_is_told_from_an_installed_package_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, script: str, fix: str
) -> None:
    """What is run beside the source finds it in whatever folder Python was started."""
    source = tmp_path / place / "tiny_client"
    installed = tmp_path / "site" / "tiny_client"
    for folder in (source, installed / "lib", tmp_path / "csrc"):
        folder.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "csrc" / "project.h").touch()
    monkeypatch.setattr(sys, "path", [str(source.parent), str(installed.parent)])
    main = sys.modules["__main__"]  # of pytest, or of its worker, which has no file
    monkeypatch.setattr(main, "__file__", str(tmp_path / script), raising=False)
    finding = explain.no_binaries(make_runtime(project=PROJECT._replace(folder=source)))
    assert finding.why == "the source folder shadows the installed package"
    assert finding.needed == f"the installed package {installed}"
    assert fix in finding.fix.text


def _urlsafe_sha256(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def problems_of(folder: Path) -> tuple[str, ...]:
    return explain.package_problems(PROJECT._replace(folder=folder), Environment())


def test_a_whole_installation_has_no_problems(installed: Path, tmp_path: Path) -> None:
    assert problems_of(installed) == ()
    assert problems_of(tmp_path / "source" / "tiny_client") == ()


def test_missing_and_altered_files_are_named(installed: Path) -> None:
    (installed / "lib" / "kernels-cpu.so").write_bytes(b"BINARY")  # of the same size
    (installed / "loader.py").unlink()
    missing, altered = problems_of(installed)
    assert "missing since it was installed: tiny_client/loader.py" in missing
    assert "altered since it was installed: tiny_client/lib/kernels-cpu.so" in altered


def test_an_edited_module_of_the_same_size_is_no_problem(installed: Path) -> None:
    """Whoever edits a module knows it, and every import would hash it."""
    (installed / "loader.py").write_text("edit\n")
    assert problems_of(installed) == ()


def test_a_hash_of_another_kind_is_not_compared(installed: Path) -> None:
    record = installed.parent / "tiny_client-0.1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("sha256=", "sha512="))
    assert problems_of(installed) == ()


def test_two_installations_over_each_other_are_named(installed: Path) -> None:
    other = installed.parent / "tiny_client-0.0.9.dist-info"
    other.mkdir()
    (other / "RECORD").write_text("")
    (problem,) = problems_of(installed)
    assert "tiny_client-0.0.9.dist-info, tiny_client-0.1.0.dist-info" in problem


def test_a_list_of_files_that_is_none_is_a_problem(installed: Path) -> None:
    record = installed.parent / "tiny_client-0.1.0.dist-info" / "RECORD"
    record.write_bytes(b"\xff\xfe")
    assert "cannot be read" in problems_of(installed)[0]


class Pointed(Protocol):
    """What ctypes.byref returns."""

    _obj: ctypes.c_int


class OneGpu:
    """NVML as far as it is asked, which writes no more than it is told that there is room for."""

    def nvmlDeviceGetCount_v2(self, count: Pointed) -> int:
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: object) -> int:
        return index

    def nvmlDeviceGetCudaComputeCapability(
        self, handle: object, major: Pointed, minor: Pointed
    ) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return 0

    def nvmlDeviceGetName(
        self, handle: object, text: ctypes.Array[ctypes.c_char], length: int
    ) -> int:
        text.raw = b"a GPU".ljust(length, b"\0")
        return 0

    def nvmlDeviceGetUUID(
        self, handle: object, text: ctypes.Array[ctypes.c_char], length: int
    ) -> int:
        text.raw = b"GPU-1".ljust(length, b"\0")
        return 0


def test_nvml_is_told_how_much_room_there_is() -> None:
    devices = driver_probe._nvml_devices(OneGpu())  # type: ignore[arg-type]
    assert devices == [("GPU-1", "a GPU", (9, 0))]

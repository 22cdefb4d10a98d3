"""Other people's files: what they are, whose they are, what they need. All are made here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_facts import unread
from shared_objects import fake_torch, shared_object
from small_client import PROJECT

from torchship.doctor import judge_file
from torchship.doctor.environment.owner import find_owner
from torchship.judge import find_torch, probe_runtime, read_binary
from torchship.judge.linking import after_torch, search
from torchship.judge.reading.named_torch import built_for
from torchship.judge.records import Runtime, Verdict
from torchship.judge.target import Target

SYMBOL = "_ZN2at6Tensor3addEv"


def distribution(site: Path, name: str, version: str, *files: Path, requires: str = "") -> Path:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", requires]
    (info / "METADATA").write_text("\n".join(filter(None, lines)) + "\n\ntext\n")
    (info / "RECORD").write_text(
        "".join(f"{file.relative_to(site).as_posix()},sha256=x,1\n" for file in files)
    )
    return info


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    root = fake_torch(tmp_path / "site", "2.9.1", exports=[SYMBOL])
    return probe_runtime(find_torch(root), gpu=False)


def extension(path: Path, runtime: Runtime, *undefined: str, **facts: object) -> Path:
    assert runtime.torch is not None
    library = runtime.torch.lib_dir / "libtorch_cpu.so"
    flags = [f"-L{library.parent}", "-l:libtorch_cpu.so"]
    return shared_object(path, undefined=[SYMBOL, *undefined], flags=["-Wl,--no-as-needed", *flags])


def cause_of(verdict: Verdict) -> str:
    return "" if verdict.cause is None else verdict.cause.why


def test_the_metadata_that_lists_a_file_vouches_for_the_torch_that_it_pins(
    tmp_path: Path, runtime: Runtime
) -> None:
    site = tmp_path / "site"
    path = extension(site / "theirs" / "_C.so", runtime)
    assert not judge_file(path, runtime).accepted
    distribution(site, "theirs", "1.0", path, requires="Requires-Dist: torch (==2.9.1)")
    verdict = judge_file(path, unread(runtime))
    assert verdict.accepted, cause_of(verdict)
    assert any("its metadata (==2.9.1) vouches" in f.why for f in verdict.findings)


@pytest.mark.parametrize(
    ("pin", "minors"),
    [
        ("torch==2.9.1", [(2, 9)]),
        ("torch (==2.9.1)", [(2, 9)]),
        ("torch ==2.9.1+cpu", [(2, 9)]),
        ("torch~=2.9.0", [(2, 9)]),
        ("torch<2.10.0,>=2.9.0", [(2, 9)]),
        ("torch~=2.9", []),
        ("torch<2.11,>=2.9", []),
        ("torch<2.10.1,>=2.9", []),
        ("torch>=2.9,<2.9.2", [(2, 9)]),
        ("torch>=2.9", []),
        ("torch", []),
        ('torch==2.9.1 ; extra == "all"', []),
        ("torchvision==2.9.1", []),
        ("torch-geometric==2.9.1", []),
    ],
)
def test_what_a_requirement_pins(pin: str, minors: list[tuple[int, int]], tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    path = site / "theirs" / "_C.so"
    distribution(site, "theirs", "1.0", path, requires=f"Requires-Dist: {pin}")
    owner = find_owner(Target(), path)
    assert owner is not None
    assert [minor for minor, _ in owner.built_for] == minors


def test_conda_metadata_names_the_owner_and_its_torch(tmp_path: Path) -> None:
    inner = "lib/python3.11/site-packages/theirs/_C.so"
    data = {"name": "theirs", "version": "1.0", "files": [inner], "depends": ["pytorch 2.9.* *_0"]}
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "theirs.json").write_text(json.dumps(data))
    owner = find_owner(Target(), tmp_path / inner)
    assert owner is not None
    assert (owner.name, owner.channel, owner.built_for[0][0]) == ("theirs", "conda", (2, 9))


@pytest.mark.parametrize(
    ("file", "content", "minors"),
    [
        ("libx_torch29-cpu.so", "", [(2, 9)]),
        ("libx_pytorch_2.10.1.so", "", [(2, 10)]),
        ("libtorchx2.so", "", []),
        ("torch-2.9/lib/libx.so", "", [(2, 9)]),
        ("torch29/libx.so", "", []),
        ("torch-2.9/lib/python3.11/libx.so", "", []),
        ("_C.so", "torch = '2.9.1+cu128'", [(2, 9)]),
        ("_C.so", "torchvision = '0.24.1'", []),
    ],
)
def test_the_torch_that_a_files_name_or_a_version_file_names(
    file: str, content: str, minors: list[tuple[int, int]], tmp_path: Path
) -> None:
    site = tmp_path / "site-packages"
    path = shared_object(site / "theirs" / file)
    (path.parent / "version.py").write_text(content)
    distribution(site, "theirs", "1.0", path)
    binary = read_binary(path)._replace(owner=find_owner(Target(), path))
    assert [minor for minor, _ in built_for(binary)] == minors


def test_a_library_beside_it_counts_as_present_and_is_judged_too(
    tmp_path: Path, runtime: Runtime
) -> None:
    site = tmp_path / "site"
    below = extension(site / "theirs" / "lib" / "libbelow.so", runtime, "_ZN3c106absentEv")
    path = shared_object(site / "theirs" / "_C.so", libraries=[below])
    distribution(site, "theirs", "1.0", path, below, requires="Requires-Dist: torch==2.9.1")
    verdict = judge_file(path, runtime)
    assert verdict.cause is not None
    assert verdict.cause.dimension == "torch symbols"
    assert "libbelow.so, which it needs" in verdict.cause.why


def test_a_library_of_the_same_package_counts_as_present_wherever_it_lies(
    tmp_path: Path, runtime: Runtime
) -> None:
    site = tmp_path / "site"
    below = shared_object(site / "theirs.libs" / "libbelow.so", soname="libbelow.so")
    path = shared_object(site / "theirs" / "_C.so", libraries=[below])
    assert "libbelow.so" in cause_of(judge_file(path, runtime))
    distribution(site, "theirs", "1.0", path, below)
    assert judge_file(path, unread(runtime)).accepted


def test_a_library_that_only_another_library_needs_is_missed(tmp_path: Path) -> None:
    gone = shared_object(tmp_path / "gone" / "libgone.so", soname="libgone.so")
    flags = ["-Wl,-rpath,$ORIGIN"]
    middle = shared_object(tmp_path / "libmiddle.so", libraries=[gone], soname="libmiddle.so")
    path = shared_object(tmp_path / "x.so", libraries=[middle], flags=flags)
    gone.unlink()
    assert after_torch.missing_libraries(Target(), read_binary(path), None) == ("libgone.so",)


def test_a_library_of_the_loaders_cache_is_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = shared_object(tmp_path / "cuda" / "libcudart.so.99", soname="libcudart.so.99")
    path = shared_object(tmp_path / "x.so", libraries=[cached])
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(b"glibc-ld.so.cache1.1\0libz.so.1\0" + bytes(cached) + b"\0")
    assert after_torch.missing_libraries(Target(), read_binary(path), None) == ("libcudart.so.99",)
    monkeypatch.setattr(search, "_LOADER_CACHE", cache)
    assert after_torch.missing_libraries(Target(), read_binary(path), None) == ()


def test_a_symbol_of_no_library_is_named(tmp_path: Path, runtime: Runtime) -> None:
    path = shared_object(tmp_path / "libx.so", undefined=["nobody_has_this"])
    cause = judge_file(path, runtime).cause
    assert cause is not None
    assert cause.dimension == "symbols"
    assert "nobody_has_this" in cause.why


def test_a_python_symbol_is_looked_up_in_this_python(tmp_path: Path, runtime: Runtime) -> None:
    good = shared_object(tmp_path / "good.so", undefined=["PyLong_FromLong"])
    bad = shared_object(tmp_path / "bad.so", undefined=["PyNobody_HasThis"])
    assert judge_file(good, runtime).accepted
    assert "PyNobody_HasThis" in cause_of(judge_file(bad, runtime))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("content", "dimension", "says"),
    [
        (b"", "file", "an empty file"),
        (LFS, "file", "git-lfs pointer"),
        (b"/* GNU ld script */ INPUT(libx.so.1)", "file", "a linker script"),
        (b"!<arch>\n", "file", "a static library"),
        (b"<!DOCTYPE html>", "file", "a web page"),
        (b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01" + bytes(90), "platform", "darwin-aarch64"),
        (b"MZ" + bytes(90), "platform", "windows-x86_64"),
    ],
)
def test_what_is_no_shared_object_is_called_what_it_is(
    content: bytes, dimension: str, says: str, tmp_path: Path, runtime: Runtime
) -> None:
    path = tmp_path / "lib" / "x.so"
    path.parent.mkdir()
    path.write_bytes(content)
    cause = judge_file(path, runtime).cause
    assert cause is not None
    assert cause.dimension == dimension
    assert says in cause.why
    assert PROJECT.distribution not in cause.fix.text


def test_a_program_is_no_shared_library(runtime: Runtime) -> None:
    assert "a program" in cause_of(judge_file(Path(sys.executable).resolve(), runtime))


@pytest.fixture(scope="module")
def with_layout(tmp_path_factory: pytest.TempPathFactory, torch_root: Path) -> Path:
    """An extension of nobody's, which includes the one file that holds the fingerprint."""
    folder = tmp_path_factory.mktemp("layout")
    source = folder / "theirs.cpp"
    layout = Path(__file__).parents[3] / "torchship/include/torchship/torch_aten/layout.cpp"
    # One compilation, as torch's headers are what takes the time.
    source.write_text(
        f'#include "{layout}"\n#include <ATen/ops/zeros.h>\n'
        "at::Tensor f() { return at::zeros({1}); }\n"
    )
    command = ["g++", "-std=c++20", "-shared", "-fPIC", "-O0", "-o", str(folder / "theirs.so")]
    command += [f"-I{torch_root / 'include'}", str(source)]
    command += [f"-L{torch_root / 'lib'}", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder / "theirs.so"


@pytest.mark.slow
def test_an_embedded_layout_vouches_for_torches_of_that_layout(
    with_layout: Path, torch_root: Path
) -> None:
    runtime = probe_runtime(find_torch(torch_root), gpu=False)
    verdict = judge_file(with_layout, runtime)
    assert verdict.accepted, cause_of(verdict)
    assert any("the same class layout" in f.why for f in verdict.findings)
    assert runtime.torch is not None
    older = runtime._replace(torch=runtime.torch._replace(version="2.8.0", version_tuple=(2, 8)))
    cause = judge_file(with_layout, older).cause
    assert cause is not None
    assert cause.dimension == "torch version"
    assert "lays its classes out differently" in cause.why


@pytest.mark.parametrize(
    ("loading", "first", "loaded"),
    [
        ('_preload_cuda_deps("cuda_nvrtc", "libnvrtc.so.*[0-9]")', "nvidia/cuda_nvrtc", True),
        ('x = [\n        ("cuda_nvrtc", "libnvrtc.so.*[0-9]"),', "nvidia/cu13", True),
        ('x = [("cublas", "libcublas.so.*[0-9]"), ("a", "libnvrtc.so.*[0-9]")]', "a", False),
        ('{"cuda_nvrtc": "libnvrtc.so.*[0-9]"}', "nvidia/cuda_nvrtc", False),
        ('except OSError as err: f("nvtx", "libnvrtc.so.*[0-9]")', "nvidia/nvtx", False),
    ],
)
def test_what_torch_loads_from_nvidias_wheels_counts_as_present(
    loading: str, first: str, loaded: bool, tmp_path: Path
) -> None:
    root = fake_torch(tmp_path, "2.9.1", cuda="12.8")
    (root / "__init__.py").write_text(
        f"def _load_global_deps(): {loading} except OSError as err: x"
    )
    (root / "lib" / "libtorch_cuda.so").touch()
    library = shared_object(tmp_path / first / "lib" / "libnvrtc.so.12", soname="libnvrtc.so.12")
    path = shared_object(tmp_path / "theirs" / "_C.so", libraries=[library])
    torch = find_torch(tmp_path)
    assert after_torch.missing_libraries(Target(), read_binary(path), torch) == (
        () if loaded else ("libnvrtc.so.12",)
    )

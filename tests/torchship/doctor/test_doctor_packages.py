"""What the doctor says of packages whose binaries are not all of it, each in a made environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from environments import (
    ABSENT,
    REPO,
    SYMBOL,
    add_extension,
    add_package,
    add_torch,
    make_environment,
    run_doctor,
)
from made_facts import make_runtime, make_torch
from shared_objects import gpu_object, shared_object

from torchship.doctor.checks import packages
from torchship.doctor.environment.installed import Distribution
from torchship.doctor.environment.metadata import Core
from torchship.doctor.environment.standards import Python, fits_python
from torchship.judge import probe_runtime
from torchship.judge.machine.torch_probe import read_install
from torchship.judge.reading.binary import read_binary
from torchship.judge.records import Device, Owner, Runtime
from torchship.judge.rules.miscompiled import check_miscompiled
from torchship.judge.words import codes


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = make_environment(tmp_path / "env")
    add_torch(site, cuda="13.0")
    return site


def notices(site: Path, *arguments: str) -> dict[str, str]:
    """The codes of the notices, by package."""
    process = run_doctor("--json", "--python", str(site.parents[2]), *arguments)
    report = json.loads(process.stdout)
    return {row["package"]: row["code"] for row in report["notices"]}


@pytest.mark.parametrize("arguments", [(), ("fancy",)])
def test_a_package_with_sources_alone_compiles_them(site: Path, arguments: tuple[str]) -> None:
    add_package(site, "fancy", {"fancy/op.cu": "", "fancy/a.py": ""}, "Requires-Dist: torch")
    assert notices(site, *arguments) == {"fancy": codes.COMPILES_AT_FIRST_USE}


def test_a_pure_package_is_said_to_be_pure_if_it_is_asked_for(site: Path) -> None:
    add_package(site, "plain", {"plain/a.py": ""}, "Requires-Dist: torch", tag="py3-none-any")
    assert notices(site, "plain") == {"plain": codes.PURE_PYTHON}
    assert notices(site) == {}


def test_a_platform_wheel_without_objects_lacks_its_ops(site: Path) -> None:
    tag = "py3-none-manylinux_2_28_x86_64"
    add_package(site, "empty", {"empty/a.py": ""}, "Requires-Dist: torch", tag=tag)
    assert notices(site) == {"empty": codes.WITHOUT_ITS_OPS}


def test_a_package_that_needs_its_binaries_fails_without_them(site: Path) -> None:
    add_package(site, "flash-attn", {"flash_attn/__init__.py": ""}, "Requires-Dist: torch")
    process = run_doctor("--json", "--python", str(site.parents[2]))
    (row,) = json.loads(process.stdout)["notices"]
    assert (row["code"], row["state"]) == (codes.WITHOUT_ITS_OPS, "fails")
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("package", "compiles"),
    [("flash-attn", False), ("torch-scatter", True), ("bitsandbytes", False)],
)
def test_only_what_compiles_with_torch_alone_comes_with_a_command(
    package: str, compiles: bool, tmp_path: Path
) -> None:
    """flash-attn's build imports psutil, which its metadata does not name."""
    runtime = make_runtime(make_torch("2.13.0", cuda="13.0"))
    installed = Distribution(place=tmp_path, core=Core(name=package, version="1.0"))
    (row,) = packages.notices([installed], [package], [], runtime)
    assert row.code == codes.WITHOUT_ITS_OPS
    assert row.finding is not None
    assert bool(row.finding.fix.command) == compiles


def test_a_damaged_extension_is_reported_though_nobody_asked_for_it(site: Path) -> None:
    path = add_extension(site, "cut", SYMBOL, pin="2.9.1")
    path.write_bytes(path.read_bytes()[:40])
    info = add_package(site, "other", {"other/x.so": "no shared object"})
    assert info.exists()
    process = run_doctor("--json", "--python", str(site.parents[2]))
    rows = json.loads(process.stdout)["extensions"]
    assert [(row["package"], row["code"]) for row in rows] == [("cut", codes.DAMAGED_FILE)]


def test_an_installed_egg_without_its_binaries_is_a_package(site: Path) -> None:
    info = site / "apex-0.1-py3.11.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: apex\nVersion: 0.1\n")
    (info / "installed-files.txt").write_text("../apex/__init__.py\n")
    assert notices(site) == {"apex": codes.FALLS_BACK}


@pytest.mark.parametrize("listed", [True, False], ids=["installed-files", "top-level"])
def test_the_objects_of_an_egg_info_belong_to_it(site: Path, listed: bool) -> None:
    flags = [f"-L{site / 'torch' / 'lib'}", "-Wl,--no-as-needed", "-l:libtorch_cpu.so"]
    shared_object(site / "old" / "_C.so", undefined=[SYMBOL], flags=flags)
    info = site / "old-1.0-py3.11.egg-info"
    info.mkdir()
    requires = "Name: old\nVersion: 1.0\nRequires-Dist: torch==2.9.1\n"
    (info / "PKG-INFO").write_text(requires)
    name = "installed-files.txt" if listed else "top_level.txt"
    (info / name).write_text("../old/_C.so\n" if listed else "old\n")
    process = run_doctor("--json", "--python", str(site.parents[2]))
    (row,) = json.loads(process.stdout)["extensions"]
    assert (row["package"], row["state"]) == ("old", "nothing found"), process.stderr


def test_an_egg_on_the_path_owns_its_objects(site: Path) -> None:
    egg = site / "old-1.0-py3.11-linux-x86_64.egg"
    (egg / "EGG-INFO").mkdir(parents=True)
    (egg / "EGG-INFO" / "PKG-INFO").write_text("Name: old\nVersion: 1.0\n")
    flags = [f"-L{site / 'torch' / 'lib'}", "-Wl,--no-as-needed", "-l:libtorch_cpu.so"]
    shared_object(egg / "old" / "_C.so", undefined=[SYMBOL, ABSENT], flags=flags)
    (site / "easy-install.pth").write_text(f"./{egg.name}\n")
    process = run_doctor("--json", "--python", str(site.parents[2]))
    (row,) = json.loads(process.stdout)["extensions"]
    assert (row["package"], row["state"]) == ("old", "fails"), process.stderr


def test_the_wheel_of_another_python_is_named(site: Path) -> None:
    tag = "cp27-cp27mu-manylinux_2_28_x86_64"
    add_package(site, "other", {"other/a.py": ""}, "Requires-Dist: torch", tag=tag)
    assert notices(site) == {"other": codes.PACKAGE_OF_ANOTHER_PYTHON}


def test_a_module_of_such_a_wheel_fails_though_it_needs_no_torch(site: Path) -> None:
    tag = "cp27-cp27mu-manylinux_2_28_x86_64"
    info = add_package(site, "other", {"other/a.py": ""}, "Requires-Dist: torch", tag=tag)
    shared_object(site / "other" / "_C.so", defined=["PyInit__C"])
    (info / "RECORD").write_text("other/_C.so,,\n")
    process = run_doctor("--json", "--python", str(site.parents[2]))
    (row,) = json.loads(process.stdout)["notices"]
    assert (row["code"], row["state"]) == (codes.PACKAGE_OF_ANOTHER_PYTHON, "fails")


@pytest.mark.parametrize(
    ("tag", "fits"),
    [
        ("cp311-cp311-linux_x86_64", True),
        ("cp310-cp310-linux_x86_64", False),
        ("cp39-abi3-manylinux_2_28_x86_64", True),
        ("cp312-abi3-manylinux_2_28_x86_64", False),
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py2-none-any", False),
        ("py310-none-any", True),
    ],
)
def test_tags_are_read_as_pip_reads_them(tag: str, fits: bool) -> None:
    python = Python((3, 11, 7), "cpython", free_threaded=False, machine="x86_64")
    assert fits_python(tag, python) is fits


@pytest.mark.parametrize(
    ("tag", "state"), [("cp27-cp27mu-linux_x86_64", "fails"), ("", "nothing found")]
)
def test_a_module_without_a_tag_is_for_the_python_of_its_wheel(
    site: Path, tag: str, state: str
) -> None:
    add_extension(site, "theirs", pin="2.9.1")
    info = site / "theirs-1.0.dist-info"
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n" if tag else "")
    process = run_doctor("--json", "--python", str(site.parents[2]))
    (row,) = json.loads(process.stdout)["extensions"]
    assert row["state"] == state
    assert row["code"] == (codes.OTHER_PYTHON if tag else None)


def test_a_package_that_goes_on_without_its_binaries_is_named(site: Path) -> None:
    add_extension(site, "torchao", SYMBOL, ABSENT)
    assert notices(site) == {"torchao": codes.FALLS_BACK}


def test_one_whose_binaries_work_is_not(site: Path) -> None:
    add_extension(site, "torchao", SYMBOL, pin="2.9.1")
    assert notices(site) == {}


@pytest.mark.parametrize(("number", "expected"), [("128", codes.NO_FILE_FOR_CUDA), ("130", None)])
def test_a_package_that_picks_a_file_by_cuda_and_finds_none(
    site: Path, number: str, expected: str | None
) -> None:
    files = {f"bitsandbytes/libbitsandbytes_cuda{n}.so": "" for n in ("118", number)}
    add_package(site, "bitsandbytes", files, "Requires-Dist: torch")
    assert notices(site).get("bitsandbytes") == expected


@pytest.mark.parametrize(
    ("torch", "numpy", "fails"),
    [("2.2.2", "2.1.0", True), ("2.2.2", "1.26.4", False), ("2.9.1", "2.1.0", False)],
)
def test_a_torch_for_numpy_1_beside_numpy_2(
    tmp_path: Path, torch: str, numpy: str, fails: bool
) -> None:
    site = make_environment(tmp_path / "env")
    add_torch(site, torch)
    info = add_package(site, "numpy", {"numpy/__init__.py": ""})
    (info / "METADATA").write_text(f"Name: numpy\nVersion: {numpy}\n\n")
    assert notices(site) == ({"torch": codes.NUMPY_1_TORCH} if fails else {})


def gpu_runtime(site: Path, capability: tuple[int, int]) -> Runtime:
    runtime = probe_runtime(read_install(site / "torch"), gpu=False)
    return runtime._replace(devices=(Device(0, "a GPU", capability),), gpu_probed=True)


@pytest.mark.parametrize(
    ("capability", "code"),
    [
        ((9, 0), None),  # sm_90a
        ((10, 3), None),  # the family of sm_100f
        ((8, 9), None),  # sm_80
        ((12, 0), codes.TORCH_LACKS_GPU),
        ((7, 5), codes.TORCH_LACKS_GPU),
    ],
)
def test_a_torch_without_code_for_the_gpu(
    site: Path, capability: tuple[int, int], code: str | None
) -> None:
    specific = 1 << 20
    family = 1 << 21
    library = site / "torch" / "lib" / "libtorch_cuda.so"
    gpu_object(library, [(2, 80, 0), (2, 90, specific), (2, 100, family)])
    rows = list(packages.notices([], [], [], gpu_runtime(site, capability)))
    assert [row.code for row in rows] == ([code] if code else [])


def architecture_of_b300(site: Path, name: str, archs: list[int], cuda: int = 13) -> str | None:
    """The code of the finding on a package's GPU code on a B300."""
    runtime = Path(site.parent / f"libcudart.so.{cuda}")
    stub = shared_object(runtime, soname=runtime.name)
    path = gpu_object(site / name / "_C.so", [(2, arch, 0) for arch in archs])
    binary = read_binary(path)._replace(needed=(stub.name,))
    owner = Owner(name=name, version="1.0", libraries={})
    finding = check_miscompiled(binary._replace(owner=owner), gpu_runtime(site, (10, 3)))
    return finding and finding.code and f"{finding.code} {finding.status}"


def test_sm_103_of_nvcc_13_is_refused_where_it_is_known_to_compute_wrongly(site: Path) -> None:
    rejected = f"{codes.MISCOMPILED_GPU_CODE} rejected"
    assert architecture_of_b300(site, "causal-conv1d", [100, 103]) == rejected
    assert architecture_of_b300(site, "other", [103]) == f"{codes.MISCOMPILED_GPU_CODE} note"
    assert architecture_of_b300(site, "causal-conv1d", [100]) is None
    assert architecture_of_b300(site, "causal-conv1d", [103], cuda=12) is None


@pytest.mark.parametrize("first", ["working", "broken"])
def test_only_the_copy_that_python_imports_is_judged(
    site: Path, tmp_path: Path, first: str
) -> None:
    """A copy in the user's site behind that of the environment, or before it."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "torch").symlink_to(site / "torch")  # to link with it
    for place, symbol in ((site, SYMBOL), (other, ABSENT)):
        add_extension(place, "alpha", symbol, pin="2.9.1")
        (place / "alpha" / "__init__.py").touch()
    (other / "torch").unlink()
    (site / "behind.pth").write_text(f"{other}\n")
    before = {"PYTHONPATH": f"{REPO}:{other}"} if first == "broken" else {}
    process = run_doctor("--json", "--python", str(site.parents[2]), **before)
    report = json.loads(process.stdout)
    (row,) = report["extensions"]
    assert row["path"].startswith(str(other)) is (first == "broken")
    assert process.returncode == (first == "broken")
    (notice,) = (row for row in report["notices"] if row["code"] == codes.HIDDEN_COPY)
    assert notice["state"] == "note"


@pytest.mark.parametrize("names", [("theirs",), ()])
def test_a_requirement_on_another_torch_is_told_where_nothing_is_imported(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    site = make_environment(tmp_path / "env")
    add_torch(site)
    add_package(site, "theirs", {"theirs/__init__.py": ""}, "Requires-Dist: torch==1.11.0")
    add_package(site, "fitting", {"fitting/__init__.py": ""}, "Requires-Dist: torch>=1.11")
    process = run_doctor("--json", "--python", str(tmp_path / "env"), *names)
    (row,) = json.loads(process.stdout)["notices"]
    assert (row["package"], row["state"], row["cause"]["code"]) == ("theirs", "note", "TD710")
    assert "requires torch==1.11.0, and torch 2.9.1 is here" in row["cause"]["why"]
    assert process.returncode == 0

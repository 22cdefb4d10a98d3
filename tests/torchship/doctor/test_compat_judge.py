"""Every dimension of the judge: what is accepted, what is refused, and the words of it."""

from __future__ import annotations

import itertools
import platform
import sys
import sysconfig
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest
from made_facts import make_aten, make_cuda, make_glue, make_runtime, make_torch, opened
from small_client import PROJECT

from torchship.builder.sources import kernel_abi
from torchship.judge import (
    BinaryRecord,
    Device,
    Driver,
    Environment,
    Finding,
    Runtime,
    Verdict,
    judge,
)
from torchship.judge.reading.layouts import LAYOUTS
from torchship.judge.records import NOTE, OK, REJECTED, UNKNOWN, Owner
from torchship.judge.rules.cuda import driver_cuda, runs_on
from torchship.judge.rules.libraries import cuda_major
from torchship.judge.words import faults


def finding(binary: BinaryRecord, runtime: Runtime, dimension: str) -> Finding:
    findings = [f for f in judge(binary, runtime).findings if f.dimension == dimension]
    assert len(findings) == 1, [f.dimension for f in judge(binary, runtime).findings]
    return findings[0]


def test_a_fitting_glue_is_accepted_in_every_dimension() -> None:
    glue = make_glue()
    verdict = judge(glue, make_runtime(openings=opened(glue.path), gpu_probed=True))
    assert verdict.accepted
    assert {f.status for f in verdict.findings} == {OK}
    assert verdict.cause is None


def test_judging_is_pure() -> None:
    binary = make_aten((2, 8))
    runtime = make_runtime(make_torch("2.9.1"))
    assert judge(binary, runtime) == judge(binary, runtime)


REJECTIONS: list[tuple[str, Callable[[], tuple[BinaryRecord, Runtime]], str, int | None]] = [
    ("damaged", lambda: (make_glue(problems=("truncated",)), make_runtime()), "file", 8),
    (
        "stale",
        lambda: (make_glue(), make_runtime(package_version="9.9")),
        "package version",
        8,
    ),
    ("aarch64", lambda: (make_glue(), make_runtime(machine="aarch64")), "platform", None),
    ("macOS", lambda: (make_glue(), make_runtime(system="darwin")), "platform", None),
    ("Windows", lambda: (make_glue(), make_runtime(system="windows")), "platform", None),
    ("old Python", lambda: (make_glue(), make_runtime(python=(3, 9, 1))), "python", None),
    (
        "old glibc",
        lambda: (make_glue(), make_runtime(libc=("glibc", (2, 17)))),
        "glibc",
        10,
    ),
    ("musl", lambda: (make_glue(), make_runtime(libc=("musl", ()))), "glibc", 10),
    (
        "old libstdc++",
        lambda: (make_glue(), make_runtime(libstdcxx={"GLIBCXX": (3, 4, 19)})),
        "libstdc++",
        10,
    ),
    (
        "no torch",
        lambda: (make_glue(), make_runtime()._replace(torch=None)),
        "torch",
        9,
    ),
    (
        "torch without libraries",
        lambda: (make_glue(), make_runtime(make_torch(problems=("libc10.so cannot be read",)))),
        "torch",
        9,
    ),
    (
        "torch of another Python",
        lambda: (
            make_glue(),
            make_runtime(make_torch(python_tags=("cpython-312-x86_64-linux-gnu",))),
        ),
        "torch",
        9,
    ),
    (
        "stable, torch too old",
        lambda: (make_glue(), make_runtime(make_torch("2.9.1"))),
        "torch version",
        1,
    ),
    (
        "other layout",
        lambda: (make_aten((2, 8)), make_runtime(make_torch("2.9.1"))),
        "torch version",
        1,
    ),
    (
        "unknown torch",
        lambda: (make_aten((2, 9)), make_runtime(make_torch("2.99.0"))),
        "torch version",
        1,
    ),
    (
        "nightly torch",
        lambda: (make_aten((2, 9)), make_runtime(make_torch("2.9.0.dev20250801"))),
        "torch version",
        1,
    ),
    (
        "other flavour",
        lambda: (make_aten((2, 6), abi=1), make_runtime(make_torch("2.6.0", cxx11_abi=0))),
        "C++ ABI",
        2,
    ),
    (
        "missing symbols",
        lambda: (
            make_glue(),
            make_runtime(missing_symbols={str(make_glue().path): ("aoti_torch_get_dim",)}),
        ),
        "torch symbols",
        1,
    ),
    (
        "registered twice",
        lambda: (make_glue(), make_runtime(registered_by="/other/glue-stable210.so")),
        "op registration",
        15,
    ),
    ("CPU torch", lambda: (make_cuda(), make_runtime()), "CUDA build of torch", 6),
    (
        "ROCm torch",
        lambda: (make_cuda(), make_runtime(make_torch(hip="6.2"))),
        "CUDA build of torch",
        6,
    ),
    (
        "newer CUDA than torch and driver",
        lambda: (
            make_cuda("13.0"),
            make_runtime(
                make_torch(cuda="12.8"), gpu_probed=True, driver=Driver("570.86.10", (12, 8))
            ),
        ),
        "CUDA build of torch",
        3,
    ),
    (
        "old driver",
        lambda: (
            make_cuda("13.0"),
            make_runtime(
                make_torch(cuda="13.0"), gpu_probed=True, driver=Driver("535.1.2", (12, 2))
            ),
        ),
        "driver",
        5,
    ),
    (
        "other GPU",
        lambda: (
            make_cuda("13.0", ("sm_90",)),
            make_runtime(
                make_torch(cuda="13.0"),
                gpu_probed=True,
                driver=Driver("580.65.06", (13, 0)),
                devices=(Device(0, "T4", (7, 5)),),
            ),
        ),
        "GPU architecture",
        4,
    ),
    (
        "missing CUDA runtime",
        lambda: (
            make_cuda("12.8", needed=("libcudart.so.12",)),
            make_runtime(
                make_torch(cuda="13.0"),
                missing_libraries={str(make_cuda("12.8").path): ("libcudart.so.12",)},
            ),
        ),
        "libraries",
        3,
    ),
    (
        "kernels of another table",
        lambda: (make_cuda(), make_runtime(make_torch(cuda="13.0"), kernel_abi=kernel_abi() + 1)),
        "kernel table",
        8,
    ),
]


@pytest.mark.parametrize(
    ("case", "dimension", "fault"),
    [pytest.param(case, dim, fault, id=name) for name, case, dim, fault in REJECTIONS],
)
def test_each_mismatch_is_refused_with_its_cause(
    case: Callable[[], tuple[BinaryRecord, Runtime]], dimension: str, fault: int | None
) -> None:
    verdict = judge(*case())
    assert not verdict.accepted
    cause = verdict.cause
    assert cause is not None
    assert (cause.dimension, cause.status, cause.fault) == (dimension, REJECTED, fault)
    assert cause.why
    assert cause.observed
    assert cause.needed
    assert cause.fix.text


@pytest.mark.parametrize("system", ["darwin", "windows"])
def test_other_platforms_are_pointed_to_the_reference(system: str) -> None:
    assert "reference" in finding(make_glue(), make_runtime(system=system), "platform").fix.text


@pytest.mark.parametrize("facts", [{"hip": "6.2"}, {"xpu": "2025.0"}])
def test_rocm_and_xpu_serve_the_cpu_and_are_pointed_to_the_reference(facts: dict[str, str]) -> None:
    verdict = judge(make_glue(), make_runtime(make_torch(**facts)))
    assert verdict.accepted
    assert any("reference" in f.why for f in verdict.findings if f.status == NOTE)


def test_an_unknown_newer_torch_is_taken_by_the_stable_lane_with_a_remark() -> None:
    verdict = judge(make_glue(), make_runtime(make_torch("3.1.0")))
    assert verdict.accepted
    assert finding(make_glue(), make_runtime(make_torch("3.1.0")), "torch version").status == NOTE


def test_free_threaded_python_is_accepted_and_named() -> None:
    remark = finding(make_glue(), make_runtime(free_threaded=True), "python")
    assert remark.status == OK and remark.observed.endswith("free-threaded")


def test_aten_accepts_its_own_minor() -> None:
    for minor in LAYOUTS:
        version = f"{minor[0]}.{minor[1]}.0"
        abi = 1 if minor >= (2, 7) else 0
        path = str(make_aten(minor, abi).path)
        verdict = judge(
            make_aten(minor, abi), make_runtime(make_torch(version), missing_symbols={path: ()})
        )
        assert verdict.accepted, version


def test_aten_accepts_another_minor_exactly_when_no_layout_that_matters_differs() -> None:
    same = {(10, 11), (10, 12), (11, 12), (13, 14), (13, 15), (14, 15)}
    for built, installed in itertools.permutations(LAYOUTS, 2):
        binary = make_aten(built, abi=1)
        torch = make_torch(f"{installed[0]}.{installed[1]}.0", cxx11_abi=1)
        verdict = judge(binary, make_runtime(torch, missing_symbols={str(binary.path): ()}))
        pair = tuple(sorted((built[1], installed[1])))
        assert verdict.accepted == (pair in same), (built, installed)


def test_aten_built_against_this_very_nightly_is_accepted() -> None:
    version = "2.99.0.dev20270101+cpu"
    binary = make_aten((2, 99), built=version)
    torch = make_torch(version)
    assert judge(binary, make_runtime(torch, missing_symbols={str(binary.path): ()})).accepted


def test_a_lying_abi_record_is_refused() -> None:
    binary = make_aten((2, 6), abi=1, cxx11_abi=0)
    rejection = finding(binary, make_runtime(make_torch("2.6.0", cxx11_abi=1)), "C++ ABI")
    assert rejection.status == REJECTED
    assert "wrong C++ ABI flag" in rejection.why


def test_symbols_that_were_not_looked_up_are_no_yes() -> None:
    verdict = judge(make_glue(), make_runtime(missing_symbols={}))
    assert not verdict.accepted
    assert verdict.cause is not None
    assert verdict.cause.status == UNKNOWN


def test_a_damaged_file_is_judged_no_further() -> None:
    verdict = judge(make_glue(problems=("truncated",)), make_runtime())
    assert [f.dimension for f in verdict.findings] == ["file"]


def test_older_kernels_run_beside_a_newer_cuda_torch() -> None:
    verdict = judge(make_cuda("12.8"), make_runtime(make_torch(cuda="13.0")))
    assert verdict.accepted


def test_newer_kernels_wait_for_the_driver_and_take_a_new_one() -> None:
    torch = make_torch(cuda="12.8")
    assert not judge(make_cuda("13.0"), make_runtime(torch)).accepted
    driver = Driver("580.65.06", (13, 0))
    assert judge(make_cuda("13.0"), make_runtime(torch, gpu_probed=True, driver=driver)).accepted


def test_no_driver_is_a_remark_since_the_cpu_works() -> None:
    verdict = judge(make_cuda(), make_runtime(make_torch(cuda="13.0"), gpu_probed=True))
    assert verdict.accepted
    # Of the binary it is not known whether it has such code.
    (note,) = [f for f in verdict.findings if f.code == "TD404"]
    assert note.why == "no GPU can be used here; code for the CPU can"


@pytest.mark.parametrize(
    ("archs", "capability", "how"),
    [
        (("sm_90",), (9, 0), "code"),
        (("sm_80",), (8, 6), "code"),
        (("sm_86",), (8, 0), None),
        (("sm_80",), (9, 0), None),
        (("sm_90a",), (9, 0), "code"),
        (("sm_90a",), (9, 1), None),
        (("sm_100f",), (10, 3), "code"),
        (("sm_100f",), (12, 0), None),
        (("compute_90",), (12, 0), "ptx"),
        (("compute_120",), (9, 0), None),
        (("compute_90a",), (10, 0), None),
        (("sm_80", "compute_90"), (9, 0), "ptx"),
        (("sm_120", "compute_120"), (12, 1), "code"),
        (("sm_100", "sm_120"), (10, 7), "code"),
        (("sm_120f",), (12, 1), "code"),
        (("nonsense", "sm_", "sm_9", "sm_x0"), (9, 0), None),
        ((), (9, 0), None),
    ],
)
def test_architectures(
    archs: tuple[str, ...], capability: tuple[int, int], how: str | None
) -> None:
    assert runs_on(archs, capability) == how


def test_ptx_needs_a_driver_as_new_as_its_toolkit() -> None:
    facts: dict[str, Any] = {
        "gpu_probed": True,
        "devices": (Device(0, "GB200", (10, 0)),),
    }
    kernels = make_cuda("12.8", ("sm_90", "compute_90"))
    old = make_runtime(make_torch(cuda="12.8"), driver=Driver(None, (12, 4)), **facts)
    new = make_runtime(make_torch(cuda="12.8"), driver=Driver(None, (12, 8)), **facts)
    assert finding(kernels, old, "GPU architecture").fault == faults.DRIVER
    assert finding(kernels, new, "GPU architecture").status == OK


def test_one_unsupported_gpu_of_two_is_a_remark() -> None:
    devices = (Device(0, "H100", (9, 0)), Device(1, "T4", (7, 5)))
    runtime = make_runtime(
        make_torch(cuda="13.0"), gpu_probed=True, driver=Driver(None, (13, 0)), devices=devices
    )
    remark = finding(make_cuda("13.0", ("sm_90",)), runtime, "GPU architecture")
    assert remark.status == NOTE
    assert "T4" in remark.why


#: The first driver that NVIDIA's release notes name for each CUDA, and what older ones leave open.
FIRST_DRIVERS = {
    "580.65.06": (13, 0),
    "575.51.03": (12, 9),
    "570.26": (12, 8),
    "565.57.01": (12, 7),
    "560.28.03": (12, 6),
    "555.42.02": (12, 5),
    "550.54.14": (12, 4),
    "545.23.06": (12, 3),
    "535.54.03": (12, 2),
    "530.30.02": (12, 1),
    "525.60.13": (12, 0),
    "450.36.06": (11, 0),
    "300.1": None,
}


def test_the_cuda_of_a_driver_is_known_from_its_version() -> None:
    known = {version: driver_cuda(Driver(version, None)) for version in FIRST_DRIVERS}
    assert known == FIRST_DRIVERS


def foreign(**facts: object) -> BinaryRecord:
    defaults: dict[str, Any] = {
        "path": Path("/nowhere/their_ext.cpython-311-x86_64-linux-gnu.so"),
        "kind": "extension",
        "name": "their_ext.cpython-311-x86_64-linux-gnu.so",
        "platform": "linux-x86_64",
        "modules": ("their_ext",),
        "torch_symbols": ("_ZN2at6Tensor3addEv",),
        "cxx11_abi": 1,
        "size": 1000,
    }
    return BinaryRecord(**{**defaults, **facts})


def judge_foreign(binary: BinaryRecord, **facts: object) -> Verdict:
    missing = facts.pop("missing", ())
    return judge(binary, make_runtime(missing_symbols={str(binary.path): missing}, **facts))


def test_an_aten_extension_for_which_nothing_vouches_is_unknown() -> None:
    cause = judge_foreign(foreign()).cause
    assert cause is not None
    assert (cause.dimension, cause.status) == ("torch version", UNKNOWN)
    assert "nothing says" in cause.why


def test_a_stable_extension_is_accepted_wherever_its_symbols_are() -> None:
    assert judge_foreign(foreign(torch_symbols=("aoti_torch_get_dim",))).accepted


# PyPI has torchvision for CUDA alone.
FROM_THE_CPU_INDEX = (
    "python -m pip install --force-reinstall --no-deps "
    "--index-url https://download.pytorch.org/whl/cpu"
)


def owned(version: str, *built_for: tuple[int, int]) -> BinaryRecord:
    stated = tuple((minor, "its metadata") for minor in built_for)
    releases = {(2, 13): "0.28", (2, 9): "0.24"}
    owner = Owner(
        name="torchvision", version=version, libraries={}, built_for=stated, release_for=releases
    )
    return foreign(owner=owner)


def test_the_owners_pin_vouches_for_its_minor_and_for_those_of_the_same_layout() -> None:
    for torch in ("2.13.0", "2.14.1"):
        verdict = judge_foreign(owned("0.28.0", (2, 13)), torch=make_torch(torch))
        assert verdict.accepted
        assert any("its metadata vouches" in f.why for f in verdict.findings)


def test_a_pin_to_another_layout_is_no_yes() -> None:
    cause = judge_foreign(owned("0.27.1", (2, 12))).cause
    assert cause is not None
    assert cause.status == UNKNOWN
    assert cause.fix.text == f'{FROM_THE_CPU_INDEX} "torchvision==0.28.0+cpu"'


def test_operators_registered_with_classes_of_another_size_are_refused() -> None:
    registers = owned("0.23.0", (2, 8))._replace(torch_symbols=("_ZN5torch7LibraryC1Ev",))
    cause = judge_foreign(registers, torch=make_torch("2.9.1")).cause
    assert cause is not None
    assert cause.status == REJECTED
    assert cause.fix.text == f'{FROM_THE_CPU_INDEX} "torchvision==0.24.1+cpu"'


@pytest.mark.parametrize(
    ("built_for", "torch", "status"),
    [
        ((2, 1), "2.2.2", REJECTED),  # the class torch::Library grew
        ((2, 2), "2.1.2", REJECTED),
        ((2, 3), "2.3.1", NOTE),
        ((2, 4), "2.3.1", NOTE),  # one class layout
        ((2, 2), "2.3.1", UNKNOWN),  # other dispatch keys
        ((1, 13), "2.1.2", UNKNOWN),  # was never measured
        ((2, 1), "1.13.1", UNKNOWN),
    ],
)
def test_torches_before_the_served_ones_are_told_by_their_measured_layout(
    built_for: tuple[int, int], torch: str, status: str
) -> None:
    registers = owned("0.16.0", built_for)
    registers = registers._replace(torch_symbols=("_ZN5torch7LibraryC1Ev",), cxx11_abi=0)
    findings = judge_foreign(registers, torch=make_torch(torch)).findings
    assert [f.status for f in findings if f.dimension == "torch version"] == [status]


def test_two_vouchers_that_contradict_each_other_vouch_for_nothing() -> None:
    assert not judge_foreign(owned("0.28.0", (2, 13), (2, 8))).accepted


@pytest.mark.parametrize("torch", ["2.13.0.dev20260801", "2.99.0"])
def test_nothing_vouches_for_a_torch_that_was_never_measured(torch: str) -> None:
    assert not judge_foreign(owned("0.28.0", (2, 13)), torch=make_torch(torch)).accepted


@pytest.mark.parametrize(
    ("missing", "status", "says", "fix"),
    [
        ("libcuda.so.1", faults.DRIVER, "NVIDIA driver", "install the NVIDIA driver"),
        ("libavutil.so.58", faults.SYSTEM_LIBRARIES, "libavutil.so.58", "install FFmpeg"),
        ("libsycl.so.8", faults.SYSTEM_LIBRARIES, "libsycl.so.8", "install Intel's oneAPI"),
        ("libcudart.so.12", faults.CUDA_MAJOR, "libcudart.so.12", "download.pytorch.org/whl/cpu"),
        ("libtorchaudio.so", faults.SYSTEM_LIBRARIES, "libtorchaudio.so", "libtorchaudio.so"),
    ],
)
def test_each_missing_library_is_mended_by_whoever_provides_it(
    missing: str, status: int, says: str, fix: str
) -> None:
    binary = owned("0.28.0", (2, 13))
    runtime = make_runtime(
        missing_symbols={str(binary.path): ()}, missing_libraries={str(binary.path): (missing,)}
    )
    cause = judge(binary, runtime).cause
    assert cause is not None
    assert cause.fault == status
    assert says in cause.why
    assert fix in cause.fix.text
    assert PROJECT.distribution not in cause.fix.text


@pytest.mark.parametrize(
    ("version", "cuda", "fix"),
    [
        (
            "0.24.1",
            "13.0",
            'python -m pip install --force-reinstall --no-deps "torchvision==0.28.*"',
        ),
        ("0.28.0", "13.0", "install a build of torchvision for CUDA 13.0"),
        ("0.24.1", None, f'{FROM_THE_CPU_INDEX} "torchvision==0.28.0+cpu"'),
        ("0.28.0", None, f'{FROM_THE_CPU_INDEX} "torchvision==0.28.0+cpu"'),
        ("0.28.0a0+48b1edf", None, f'{FROM_THE_CPU_INDEX} "torchvision==0.28.0+cpu"'),
    ],
)
def test_another_cuda_major_is_mended_by_the_release_that_goes_with_this_torch(
    version: str, cuda: str | None, fix: str
) -> None:
    binary = owned(version, (2, 13))
    torch = make_torch("2.13.0", cuda=cuda)
    libraries = {str(binary.path): ("libcudart.so.12",)}
    facts = make_runtime(torch, missing_symbols={str(binary.path): ()}, missing_libraries=libraries)
    cause = judge(binary, facts).cause
    assert cause is not None
    assert cause.fix.text.startswith(fix)


def test_a_python_symbol_that_this_python_lacks_names_python() -> None:
    cause = judge_foreign(owned("0.28.0", (2, 13)), missing=("PyMutex_Unlock",)).cause
    assert cause is not None
    assert cause.dimension == "python"
    assert "PyMutex_Unlock" in cause.why


def test_an_object_for_musl_is_called_that() -> None:
    cause = judge_foreign(foreign(needed=("libc.musl-x86_64.so.1",))).cause
    assert cause is not None
    assert cause.dimension == "platform"
    assert "musl" in cause.why


FREE_THREADED_315 = {"python": (3, 15, 0), "free_threaded": True}


@pytest.mark.parametrize(
    ("name", "facts", "accepted"),
    [
        ("their_ext.cpython-311-x86_64-linux-gnu.so", {}, True),
        ("their_ext.cpython-312-x86_64-linux-gnu.so", {}, False),
        ("their_ext.cpython-31-x86_64-linux-gnu.so", {}, False),
        ("their_ext.cpython-311-x86_64-linux-gnu.so", {"free_threaded": True}, False),
        ("their_ext.cpython-311t-x86_64-linux-gnu.so", {"free_threaded": True}, True),
        ("their_ext.abi3.so", {}, True),
        ("their_ext.abi3.so", {"python": (3, 13, 0)}, True),
        ("their_ext.abi3.so", {"free_threaded": True}, False),
        ("their_ext.abi3t.so", {"python": (3, 14, 0)}, False),
        ("their_ext.abi3t.so", {"python": (3, 14, 0), "free_threaded": True}, False),
        ("their_ext.abi3t.so", {"python": (3, 15, 0)}, True),
        ("their_ext.abi3t.so", FREE_THREADED_315, True),
        ("their_ext.abi3-x86_64-linux-gnu.so", {"python": (3, 14, 0)}, False),
        ("their_ext.abi3-x86_64-linux-gnu.so", {"python": (3, 15, 0)}, True),
        ("their_ext.abi3-x86_64-linux-musl.so", {"python": (3, 15, 0)}, False),
        ("their_ext.abi3-x86_64-linux-gnu.so", FREE_THREADED_315, False),
        ("their_ext.abi3t-x86_64-linux-gnu.so", {"python": (3, 14, 0)}, False),
        ("their_ext.abi3t-x86_64-linux-gnu.so", FREE_THREADED_315, True),
        ("their_ext.abi3x.so", {"python": (3, 15, 0)}, False),
        ("their_ext.cpython-311.so", {}, False),
        ("their_ext.cpython-311-x86_64-linux-musl.so", {}, False),
        ("their_ext.pypy311-pp73-x86_64-linux-gnu.so", {}, False),
        ("their_ext.nobody_knows.so", {}, False),
        ("their_ext.so", {}, True),
    ],
)
def test_python_tags_of_modules(name: str, facts: dict[str, Any], accepted: bool) -> None:
    binary = foreign(path=Path("/nowhere") / name, torch_symbols=())
    assert judge_foreign(binary, **facts).accepted == accepted


@pytest.mark.parametrize(
    ("tag", "needed"),
    [("abi3", "any CPython 3 (abi3)"), ("cpython-311-x86_64-linux-gnu",) * 2],
)
def test_a_module_that_python_imports_says_for_which_pythons_it_is(tag: str, needed: str) -> None:
    binary = foreign(path=Path(f"/nowhere/their_ext.{tag}.so"), torch_symbols=())
    findings = judge_foreign(binary).findings
    assert [f.needed for f in findings if f.dimension == "python"] == [needed]


@pytest.mark.parametrize("name", ["abi3", "abi3t", "abi3-TRIPLET", "abi3t-TRIPLET"])
def test_modules_of_the_limited_apis_are_accepted_where_this_python_imports_them(name: str) -> None:
    triplet = f"{platform.machine()}-linux-gnu"
    suffix = f".{name.replace('TRIPLET', triplet)}.so"
    binary = foreign(path=Path("/nowhere") / f"their_ext{suffix}", torch_symbols=())
    verdict = judge_foreign(
        binary,
        python=tuple(sys.version_info[:3]),
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    )
    assert verdict.accepted == (suffix in EXTENSION_SUFFIXES)


def test_somebody_elses_missing_symbols_are_named() -> None:
    cause = judge_foreign(foreign(), missing=("_ZN2at6Tensor3addEv",)).cause
    assert cause is not None
    assert "_ZN2at6Tensor3addEv" in cause.observed
    assert "their_ext" in cause.fix.text


def test_somebody_elses_cuda_extension_on_a_cpu_torch() -> None:
    binary = foreign(needed=("libtorch_cuda.so", "libc10_cuda.so"))
    runtime = make_runtime(
        missing_symbols={str(binary.path): ()},
        missing_libraries={str(binary.path): ("libtorch_cuda.so",)},
    )
    cause = judge(binary, runtime).cause
    assert cause is not None
    assert cause.fault == faults.CPU_TORCH_SWAPPED_IN


@pytest.mark.parametrize(
    ("missing", "major"),
    [
        (("libcudart.so.12",), "12"),
        (("libavutil.so.58", "libnvrtc.so.13"), "13"),
        (("libcublasLt.so.12", "libcufft.so.11"), "12"),
        (("libcufft.so.11",), ""),  # which is of CUDA 12
    ],
)
def test_the_cuda_that_missing_libraries_are_of(missing: tuple[str, ...], major: str) -> None:
    assert cuda_major(missing) == major


@pytest.mark.parametrize("kind", ["pip", "conda"])
def test_every_rejection_ends_in_a_command_of_the_environment(kind: str) -> None:
    other = "pip install" if kind == "conda" else "conda install"
    for name, case, _, _ in REJECTIONS:
        binary, runtime = case()
        cause = judge(binary, runtime._replace(environment=Environment(kind))).cause
        assert cause is not None
        assert other not in cause.fix.text, name


@pytest.mark.parametrize("kind", ["pip", "conda"])
def test_every_rejection_speaks_of_the_project_of_the_runtime(kind: str) -> None:
    project = PROJECT._replace(
        distribution="other-op", package="other_op", namespace="other", prefix="OTHER"
    )
    project = project._replace(definition="other_op.plain.op")
    for name, case, _, _ in REJECTIONS:
        binary, runtime = case()
        if binary.record is not None:
            binary = binary._replace(record=binary.record._replace(package="other-op"))
        runtime = runtime._replace(project=project, environment=Environment(kind))
        for each in judge(binary, runtime).findings:
            content = f"{each.observed} {each.needed} {each.why} {each.fix.text}"
            assert PROJECT.distribution not in content, name

"""Libraries that lie in other wheels, and what a package requires and does not get."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_facts import make_runtime, make_torch
from shared_objects import shared_object
from sick_environment import SickEnvironment, carries_out

from torchship.doctor.environment.standards import Python, combine, parse_need
from torchship.judge import fixes

ADD = "_ZN2at6Tensor3addEv"
OPENS = "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path('libcudnn.so.9')))\n"


@pytest.fixture
def place(tmp_path: Path) -> SickEnvironment:
    """A torch, a wheel of cuDNN in the index, and an extension that needs cuDNN's library."""
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0", [ADD])
    library = shared_object(tmp_path / "cudnn" / "libcudnn.so.9", soname="libcudnn.so.9")
    files: dict[str, Path | str] = {"nvidia/cudnn/lib/libcudnn.so.9": library}
    place.publish_wheel("nvidia_cudnn_cu12", "9.1.0", files)
    return place


def publish_extension(
    place: SickEnvironment, source: str, requires: str = "nvidia-cudnn-cu12"
) -> None:
    library = place.folder / "cudnn" / "libcudnn.so.9"
    stub = shared_object(place.folder / "stub" / "libtorch_cpu.so", soname="libtorch_cpu.so")
    extension = shared_object(
        place.folder / "made" / "_C.so", undefined=[ADD], libraries=[stub, library]
    )
    files: dict[str, Path | str] = {"theirs/_C.so": extension, "theirs/__init__.py": source}
    place.publish_wheel("theirs", "1.0", files, ["torch==2.13.0", requires])


def test_a_library_that_the_package_opens_itself_is_no_fault(place: SickEnvironment) -> None:
    publish_extension(place, OPENS)
    place.install("torch", "theirs", "nvidia-cudnn-cu12")
    assert place.judge("theirs/_C.so").accepted


def test_of_a_library_in_a_required_wheel_it_cannot_be_told(place: SickEnvironment) -> None:
    publish_extension(place, "")
    place.install("torch", "theirs", "nvidia-cudnn-cu12")
    judged = place.judge("theirs/_C.so")
    assert not judged.accepted
    assert "libcudnn.so.9 is in nvidia_cudnn_cu12, where the dynamic linker" in judged.why
    assert "cannot be told" in judged.why


def test_a_library_in_a_wheel_that_nobody_requires_or_opens_is_missing(
    place: SickEnvironment,
) -> None:
    publish_extension(place, "", requires="numpy")
    place.install("torch", "theirs", "nvidia-cudnn-cu12")
    assert "needs libcudnn.so.9, which is not here" in place.judge("theirs/_C.so").why


@carries_out(fixes.Kind.INSTALL_REQUIREMENT)
def test_a_requirement_that_is_missing_is_named_and_installed(place: SickEnvironment) -> None:
    publish_extension(place, OPENS, requires='nvidia-cudnn-cu12 (>=9.0) ; sys_platform == "linux"')
    place.install("torch", "theirs")
    before = place.is_mended("theirs/_C.so", fixes.Kind.INSTALL_REQUIREMENT)
    assert "its package requires nvidia-cudnn-cu12>=9.0, which is missing" in before.why


def test_a_library_of_the_driver_is_in_no_wheel_of_nvidias(place: SickEnvironment) -> None:
    """That a wheel is NVIDIA's, and for CUDA 12, does not say which libraries it has."""
    library = place.folder / "cudnn" / "libcudnn.so.9"
    shared_object(library, soname="libnvidia-ml.so.1")
    publish_extension(place, "")
    place.install("torch", "theirs")
    assert "libnvidia-ml.so.1 is part of the NVIDIA driver" in place.judge("theirs/_C.so").why


def test_a_requirement_of_an_extra_is_none(place: SickEnvironment) -> None:
    publish_extension(place, "", requires='nvidia-cudnn-cu12 ; extra == "gpu"')
    place.install("torch", "theirs")
    assert "which is not here" in place.judge("theirs/_C.so").why


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ('python_version < "3.12"', True),
        ('python_version < "3.9"', False),
        ('python_version >= "3.9" and sys_platform == "linux"', True),
        ("platform_system == 'Linux' and platform_machine == 'x86_64'", True),
        ("platform_system == 'Windows' or platform_machine == 'x86_64'", True),
        ('sys_platform != "darwin"', True),
        ('extra == "gpu"', False),
        ('python_version < "3.12" and extra == "gpu"', False),
        ('(sys_platform == "linux" or os_name == "nt") and extra == "x"', False),
        ('python_version in "3.11 3.12"', True),
        ('python_version < "3.11.0"', False),
        ('python_version < "3.12" or extra == "gpu"', True),
        ('python_full_version >= "3.11.2"', True),
    ],
)
def test_a_marker_that_holds_counts(marker: str, expected: bool) -> None:
    need = parse_need(f"other ; {marker}")
    assert need is not None
    assert need.holds(Python.of(make_runtime(make_torch())).variables) == expected


@pytest.mark.parametrize("line", ["other ; nonsense", "other ; " + "(" * 5000, "other >= x", ""])
def test_a_malformed_requirement_is_none(line: str) -> None:
    assert parse_need(line) is None


@pytest.mark.parametrize(
    ("texts", "together"),
    [
        (["<82", ">=77.0.3"], "<82,>=77.0.3"),
        (["<70", ">=77.0.3"], None),
        ([">=1.9", ">=2.0", "<3", "<=2.9"], "<=2.9,>=2.0"),
        (["==2.13.0", ">=1.9"], "==2.13.0"),
        (["==2.13.0", "==2.12.*"], None),
        (["~=2.9", "!=2.9.1", ""], "!=2.9.1,~=2.9"),
        ([">1.0", "<1.0.1"], "<1.0.1,>1.0"),
        (["<2", ">=2.0.0rc1"], None),
        (["nonsense", "<2"], "<2"),
        ([], ""),
    ],
)
def test_what_several_ask_for_is_one_specifier(texts: list[str], together: str | None) -> None:
    assert combine(texts) == together


def test_a_bound_with_a_star_is_read_as_older_installers_did() -> None:
    need = parse_need("torch (>=1.9.*,<2.0.*)")
    assert need is not None and combine([need.specifier]) == "<2.0,>=1.9"

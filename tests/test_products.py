"""The three products live together: of one version, without a file or a command in common."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO / "tests" / "torchship"))

from processes import Forks  # noqa: E402
from tool_wheels import (  # noqa: E402
    FOLDERS,
    build_wheel,
    commands_of,
    copy_distribution,
    copy_tracked,
    metadata_of,
)

from lltm_conda._project import PROJECT  # noqa: E402
from torchship.release.publishing.provenance import wheel_problems  # noqa: E402
from torchship.release.steps.pack.wheels import Wheel  # noqa: E402

packs_all = pytest.mark.slow  # three wheels are built


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """The wheels of the three, by their packages."""
    work = tmp_path_factory.mktemp("wheels")
    prebuilt = work / "prebuilt"
    prebuilt.mkdir()
    (prebuilt / "glue-none.so").touch()  # to pack, instead of compiling
    built = {}
    for package in (*FOLDERS, "lltm_conda"):
        tree = work / package / "source"
        is_own = package == "lltm_conda"
        source = copy_tracked(".", tree) if is_own else copy_distribution(package, tree)
        wheel = build_wheel(source, work / package / "out", LLTM_CONDA_PREBUILT=str(prebuilt))
        built[package] = zipfile.ZipFile(wheel)
    return built


@packs_all
def test_all_products_have_one_version(wheels: dict[str, zipfile.ZipFile]) -> None:
    assert len({metadata_of(wheel)["Version"] for wheel in wheels.values()}) == 1


@packs_all
def test_no_product_has_a_file_or_a_command_of_another(wheels: dict[str, zipfile.ZipFile]) -> None:
    files = [name for wheel in wheels.values() for name in wheel.namelist()]
    assert sorted(files) == sorted(set(files))
    commands = {
        package: commands_of(wheel)
        for package, wheel in wheels.items()
        if any(name.endswith("entry_points.txt") for name in wheel.namelist())
    }
    assert commands == {"torchship": {"torchship"}, "torch_doctor": {"torch-doctor"}}


@packs_all
def test_the_wheel_of_lltm_has_a_module_of_its_distributions_name(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    wheel = wheels["lltm_conda"]
    assert wheel.read("lltm.py") == (REPO / "lltm.py").read_bytes()
    sources = {name: (REPO / name).read_bytes() for name in ("lltm.py",)}
    packed = Wheel("lltm", "0.1.0", "py3-none-any", {"lltm.py": wheel.read("lltm.py")}, {})
    assert [*wheel_problems(packed, sources, PROJECT)] == []


@pytest.mark.slow
def test_a_module_of_the_distributions_name_has_the_public_names(forked: Forks) -> None:
    """An extension or a package called lltm in the same folder would come before the module."""
    code = (
        "import lltm, lltm_conda\n"
        "names = lltm_conda.__all__\n"
        "assert lltm.__all__ == names and not hasattr(lltm, '__path__')\n"
        "assert all(getattr(lltm, name) is getattr(lltm_conda, name) for name in names)\n"
    )
    run = forked.run(code, cwd=Path("/"), env=dict(os.environ))
    assert run.returncode == 0, run.stderr

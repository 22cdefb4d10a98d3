"""Ahead of time with setuptools: a wheel from a source distribution, a wheel from a checkout.

Both take the installed binaries; tests/release/test_artefacts.py has pip compile the source
distribution, and test_build_editable.py a checkout.
"""

from __future__ import annotations

import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from build_places import Place, environment, run

import lltm_conda
from lltm_conda.engine.judge import read_binary
from torchship.engine import MODULES, PARTS

# Quick: the backend and setup.py make one wheel (test_checkout_backend.py), and the wheel that
# scripts/build_all.sh made is installed and run (tests/release/test_artefacts.py).
pytestmark = pytest.mark.slow

INSTALLED = str(Path(lltm_conda.__file__).parent / "lib")
BACKEND = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"


@pytest.fixture(scope="module")
def sdist(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-c", BACKEND, out, cwd=source_tree).good()
    (path,) = out.iterdir()
    return path


def wheel_of(source: Path, out: Path, **changes: str) -> Path:
    """The wheel that pip makes of a checkout or of a source distribution."""
    command = ("-m", "pip", "wheel", source, "--no-build-isolation", "--no-deps", "-w", out)
    run(sys.executable, *command, env=environment(**changes)).good()
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(sdist, tmp_path_factory.mktemp("wheel"), LLTM_CONDA_PREBUILT=INSTALLED)


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(name for name in archive.namelist() if not name.endswith("/"))


def test_wheel_serves_every_python(wheel: Path) -> None:
    assert wheel.name.split("-", 2)[2].startswith("py3-none-linux_")


def test_wheel_asks_for_python_3_10(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(archive.read(metadata).decode())
    assert fields["Requires-Python"] == ">=3.10"


def test_binaries_of_wheel_reference_no_python_symbol(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        binaries = [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(tmp_path, binaries)
    inspected = {name: read_binary(tmp_path / name) for name in binaries}
    assert {Path(name).name.partition("-")[0] for name in inspected} == {"glue", "kernels"}
    assert {name: binary.python_symbols for name, binary in inspected.items()} == dict.fromkeys(
        inspected, ()
    )


def test_the_engine_in_the_wheel_is_torchship_byte_by_byte(wheel: Path, source_tree: Path) -> None:
    """All that run time and local builds need, and nothing that only an op's author needs."""
    torchship = source_tree / "torchship"
    start = "lltm_conda/engine/"
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            name.removeprefix(start): archive.read(name)
            for name in archive.namelist()
            if name.startswith(start)
        }
    assert packed == {name: (torchship / name).read_bytes() for name in packed}
    parts = {*PARTS, *(f"{name}.py" for name in MODULES)}
    assert packed.keys() == {
        str(path.relative_to(torchship))
        for path in torchship.rglob("*")
        if path.suffix in (".py", ".json", ".h", ".cpp", ".cmake")
        and path.relative_to(torchship).parts[0] in parts
    }


def test_wheel_installs_and_computes(wheel: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.pip("install", "--no-deps", wheel).good()
    assert str(place.site) in place.smoke()


def test_sdist_holds_what_every_way_of_building_needs(sdist: Path, source_tree: Path) -> None:
    import tarfile

    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    folders = (
        "csrc",
        "torchship/cmake",
        "include",
        "examples/cpp",
        "torchship/builder",
        "torchship/include",
    )
    required = {
        str(path.relative_to(source_tree))
        for folder in folders
        for path in (source_tree / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    required |= {"CMakeLists.txt", "setup.py", "pyproject.toml", "LICENSE", "lltm_conda/py.typed"}
    assert required - inside == set()


def test_wheel_of_the_checkout_is_that_of_the_sdist(
    wheel: Path, source_tree: Path, tmp_path: Path
) -> None:
    again = wheel_of(source_tree, tmp_path, LLTM_CONDA_PREBUILT=INSTALLED)
    assert again.name == wheel.name
    assert names(again) == names(wheel)

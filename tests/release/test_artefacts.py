"""What scripts/build_all.sh left in dist/ and build/envs is what it should be, and runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from checkout import SETTINGS
from release_places import REPO

from lltm_conda._version import __version__
from torchship.judge.reading.binary import read_binary
from torchship.release.run.manifest import Manifest, parse, wrong_files
from torchship.release.run.store import digest

HOW = "run scripts/build_all.sh host first"
SMOKE = REPO / "scripts" / "engine_smoke.py"
LARGEST_WHEEL = 20_000_000  # bytes, as docs/ship/costs.md promises


def newest(folder: Path, pattern: str) -> Path:
    paths = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not paths:
        pytest.skip(f"no {pattern} in {folder.relative_to(REPO)}: {HOW}")
    return paths[-1]


def run(python: Path, *arguments: object, cwd: Path, **more: str) -> str:
    dropped = ("PYTHONPATH", "LLTM_CONDA_LOAD", "LLTM_CONDA_PREBUILT")
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    command = [str(word) for word in (python, *arguments)]
    process = subprocess.run(command, cwd=cwd, env=env | more, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def wheel() -> Path:
    return newest(SETTINGS.thin_wheels, "lltm-*+stable.cpu-*.whl")


def test_pages_name_the_files_of_dist_where_they_lie(wheel) -> None:
    """But for wheels of one variant, of which the host builds only its own."""
    named = re.compile(
        r"\bdist/(?:[\w-]+/)*(?:lltm|torchship|torch.doctor)[\w*.-]*\.(?:whl|pyz|tar\.gz)"
    )
    pages = [*REPO.glob("*.md"), *REPO.glob("docs/**/*.md"), *REPO.glob("torchship/*.md")]
    places = {place for page in pages for place in named.findall(page.read_text("utf-8"))}
    assert len(places) >= 4
    assert {place for place in places if not any(REPO.glob(place))} == set()


def test_the_wheel_serves_every_python_of_a_true_platform(wheel) -> None:
    tags = wheel.name.removesuffix(".whl").split("-")[2:]
    assert tags[:2] == ["py3", "none"]
    assert all(tag.startswith(("manylinux_", "linux_")) for tag in tags[2].split("."))


def test_the_wheel_asks_no_newer_glibc_than_its_tag_says(wheel, tmp_path) -> None:
    tag = wheel.name.removesuffix(".whl").split("-")[-1].split(".")[0]
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    floors = [read_binary(p).floors.get("GLIBC", (0,)) for p in tmp_path.rglob("*.so")]
    assert tag.startswith("manylinux_")
    assert max(floors) <= tuple(int(part) for part in tag.split("_")[1:3])


def test_the_wheel_holds_binaries_without_python_symbols_or_rpaths(wheel, tmp_path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
    binaries = [read_binary(path) for path in tmp_path.rglob("*.so")]
    assert {b.path.name for b in binaries} == {"glue-stable210.so", "kernels-cpu.so"}
    assert not any(b.python_symbols or b.runpath or b.problems for b in binaries)
    assert not [name for name in names if ".libs/" in name or name.startswith("tests/")]


def test_the_wheel_names_its_variant_in_its_version(wheel) -> None:
    with ZipFile(wheel) as archive:
        info = f"lltm-{__version__}+stable.cpu.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        assert f"{info}/RECORD" in archive.namelist()
    assert f"\nVersion: {__version__}+stable.cpu\n" in metadata
    assert "\nRequires-Python: >=3.10\n" in metadata


@pytest.fixture
def manifest() -> Manifest:
    path = newest(SETTINGS.dist, "manifest.json")
    return parse(path)


def test_the_manifest_is_true_to_what_lies_there(manifest) -> None:
    assert wrong_files(manifest.artefacts, SETTINGS.dist) == []
    kinds = {artefact.kind for artefact in manifest.artefacts}
    assert {"fat", "thin", "sdist"} <= kinds
    assert (SETTINGS.dist / "report.html").exists() and (
        SETTINGS.dist / "logs" / "stable210-cpu.log"
    ).exists()


def test_a_run_stops_at_the_promised_size_of_the_fat_wheel(matrix) -> None:
    assert matrix.project.wheel_limit == LARGEST_WHEEL


def test_the_fat_wheel_is_small_and_says_what_it_lacks(manifest) -> None:
    assert manifest.fat.size <= LARGEST_WHEEL
    assert ("+partial." in manifest.fat.path) == bool(manifest.missing)
    assert len(manifest.fat.cells) + len(manifest.missing) == manifest.total


def test_the_fat_wheel_holds_what_the_manifest_says(manifest, tmp_path) -> None:
    with ZipFile(SETTINGS.dist / manifest.fat.path) as archive:
        archive.extractall(tmp_path)
    digests = {path.name: digest(path) for path in tmp_path.rglob("*.so")}
    cells = [manifest.cells[name] for name in manifest.fat.cells]
    assert digests.keys() == {name for cell in cells for name in cell.binaries}
    assert digests == {name: manifest.binaries[name].sha256 for name in digests}


def test_an_index_takes_every_file_that_pip_installs(manifest) -> None:
    kinds = ("sdist", "fat", "thin", "pure")
    files = [SETTINGS.dist / item.path for item in manifest.artefacts if item.kind in kinds]
    names = {file.name.partition("-")[0] for file in files}
    assert names == {"lltm", "torchship", "torch_doctor"}
    said = run(Path(sys.executable), "-m", "twine", "check", "--strict", *files, cwd=REPO)
    assert said.count("PASSED") == len(files)


def test_each_kind_of_artefact_was_installed_and_ran(manifest) -> None:
    """By the run that made it, in an environment of its own."""
    runs = {run.kind: run for run in manifest.cells["stable210-cpu"].runs}
    assert runs.keys() >= {"venv", "conda", "fat"}
    for kind in ("venv", "conda", "fat"):
        facts = runs[kind].facts
        assert runs[kind].ran and facts["failed"] == 0, kind
        assert facts["gradcheck"] and facts["comparisons"] >= 16, kind


def test_the_sdist_holds_the_sources_and_no_binary() -> None:
    with tarfile.open(newest(SETTINGS.dist, "lltm-*.tar.gz")) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"setup.py", "pyproject.toml", "csrc/ops/operands.h", "LICENSE"} <= set(names)
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]


def test_the_conda_package_serves_every_python_and_needs_no_exact_torch(manifest) -> None:
    index = json.loads(newest(SETTINGS.dist, "channel/linux-64/repodata.json").read_text())
    facts = index["packages.conda"][Path(manifest.cells["stable210-cpu"].conda).name]
    needs = {need for need in facts["depends"] if not need.startswith("__glibc ")}
    assert needs == {"python >=3.10", "pytorch >=2.10.0 *_py*"}  # any build, CUDA ones too
    assert len(needs) == len(facts["depends"]) - 1, "the glibc that the binaries need"
    assert facts["noarch"] == "python"


def test_the_conda_package_leaves_no_trace_of_its_build() -> None:
    prefix = newest(SETTINGS.envs, "stable210-cpu-conda")
    files = [path for path in prefix.rglob("*lltm*") if path.is_file()]
    assert files and not list(prefix.glob("lib/python*/site-packages/lltm-*/direct_url.json"))


def test_the_digits_were_learned() -> None:
    facts = json.loads(
        newest(SETTINGS.build / "digits" / "stable210-cpu", "metrics.json").read_text()
    )
    assert facts["held_out_accuracy"] >= 0.95
    assert facts["held_out_images"] > 300

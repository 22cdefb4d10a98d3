"""Packages whose import fails although each of their binaries loads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from environments import SYMBOL, add_extension, add_torch, make_environment, run_doctor
from packaging_alone import packaging_alone
from sick_environment import REPO, carries_out

from torchship.judge import codes, cures

SAFE_PATH = "export PYTHONSAFEPATH=1"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """torch 2.9.1 for CUDA 13.0, with an extension."""
    site = make_environment(tmp_path / "env")
    add_torch(site, cuda="13.0")
    add_extension(site, "audio", SYMBOL, pin="2.9.1")
    (site / "audio" / "__init__.py").touch()
    return site


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working folder with a source folder of the extension's package."""
    work = tmp_path / "work"
    (work / "audio").mkdir(parents=True)
    (work / "audio" / "__init__.py").touch()
    return work


def remarks(site: Path, cwd: Path, **variables: str) -> list[tuple[str, str, str]]:
    """The code, the state and the command of each notice."""
    process = run_doctor("--json", "--python", str(site.parents[2]), cwd=cwd, **variables)
    rows = json.loads(process.stdout)["notices"]
    return [(row["code"], row["state"], row["cause"]["command"]) for row in rows]


@carries_out(cures.SET_VARIABLE)
def test_a_source_folder_that_hides_the_binaries_is_named_and_left_out(
    site: Path, work: Path
) -> None:
    assert remarks(site, work) == [(codes.SOURCE_FOLDER, "fails", SAFE_PATH)]
    python = site.parents[2] / "bin" / "python"
    where = f"{python} -c 'import audio; print(audio.__file__)'"
    hidden = subprocess.check_output(["bash", "-c", where], cwd=work, text=True)
    assert Path(hidden).is_relative_to(work)
    shown = subprocess.check_output(["bash", "-c", f"{SAFE_PATH}; {where}"], cwd=work, text=True)
    assert Path(shown).is_relative_to(site)
    assert remarks(site, work, PYTHONSAFEPATH="1") == []


def test_a_source_folder_in_which_the_package_was_built_hides_nothing(
    site: Path, work: Path
) -> None:
    (work / "audio" / "_C.so").write_bytes((site / "audio" / "_C.so").read_bytes())
    assert remarks(site, work) == []


def test_a_folder_that_is_no_package_hides_nothing(site: Path, work: Path) -> None:
    (work / "audio" / "__init__.py").unlink()
    assert remarks(site, work) == []


def test_a_source_folder_on_the_path_hides_the_binaries_too(
    site: Path, work: Path, tmp_path: Path
) -> None:
    ((code, state, command),) = remarks(
        site, tmp_path, PYTHONPATH=f"{REPO}:{packaging_alone()}:{work}"
    )
    assert (code, state, command) == (codes.SOURCE_FOLDER, "fails", "")


def compare_cuda(site: Path, built: str, text: str, file: str = "extension.py") -> None:
    """Let the package look at torch's CUDA when it is imported."""
    package = site / "audio"
    (package / "version.py").write_text(f"__version__ = '2.11.0+{built}'\n")
    path = package / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'raise RuntimeError("PyTorch and it were compiled with {text}.")\n')
    (info,) = site.glob("audio-*.dist-info")
    with (info / "RECORD").open("a") as record:
        record.write(f"audio/{file},sha256=x,1\n")


@pytest.mark.parametrize(
    ("built", "text", "file", "fails"),
    [
        ("cu132", "different CUDA versions", "_extension/utils.py", True),
        ("cu130", "different CUDA versions", "_extension/utils.py", False),
        ("cu132", "different CUDA major versions", "extension.py", False),
        ("cu128", "different CUDA major versions", "extension.py", True),
        ("cu128", "different compilers", "extension.py", False),
    ],
)
def test_a_package_that_compares_its_cuda_with_torchs_refuses_another(
    site: Path, tmp_path: Path, built: str, text: str, file: str, fails: bool
) -> None:
    compare_cuda(site, built, text, file)
    found = [(code, state) for code, state, _ in remarks(site, tmp_path)]
    assert found == ([(codes.OTHER_CUDA, "fails")] if fails else [])


def test_a_package_that_requires_no_torch_is_looked_at_for_its_extension(
    site: Path, tmp_path: Path
) -> None:
    compare_cuda(site, "cu132", "different CUDA versions")
    (metadata,) = site.glob("audio-*.dist-info/METADATA")
    metadata.write_text("Name: audio\nVersion: 1.0\n")
    assert [code for code, _, _ in remarks(site, tmp_path)] == [codes.OTHER_CUDA]


def test_beside_a_torch_without_cuda_no_package_compares_it(site: Path, tmp_path: Path) -> None:
    version = site / "torch" / "version.py"
    version.write_text(version.read_text().replace("'13.0'", "None"))
    compare_cuda(site, "cu132", "different CUDA versions")
    assert remarks(site, tmp_path) == []

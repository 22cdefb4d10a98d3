"""`doctor`: every torch extension of an environment, other packages' included, and what if."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from shared_objects import fake_torch, shared_object

Doctor = Callable[..., subprocess.CompletedProcess[str]]
SYMBOL = "_ZN2at6Tensor3addEv"
REPO = Path(__file__).resolve().parents[2]


def package(site: Path, name: str, version: str, path: Path, requires: str = "") -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n{requires}\n\n")
    (info / "RECORD").write_text(f"{path.relative_to(site).as_posix()},sha256=x,1\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """torch 2.9.1, an extension that pins it, one that pins nothing, and one that it breaks."""
    site = tmp_path / "site"
    root = fake_torch(site, "2.9.1", exports=[SYMBOL])
    (root / "__init__.py").write_text("raise AssertionError('torch is imported')\n")
    flags = ["-Wl,--no-as-needed", f"-L{root / 'lib'}", "-l:libtorch_cpu.so"]
    for name, symbols, requires in (
        ("good", [SYMBOL], "Requires-Dist: torch==2.9.1"),
        ("silent", [SYMBOL], ""),
        ("broken", [SYMBOL, "_ZN2at6absentEv"], ""),
    ):
        path = shared_object(site / name / "_C.so", undefined=symbols, flags=flags)
        package(site, name, "1.0", path, requires)
    plain = shared_object(site / "plain" / "_impl.so")
    package(site, "plain", "1.0", plain)
    return site


@pytest.fixture
def doctor(site: Path) -> Doctor:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys; from lltm_conda.engine.doctor import main;"
            "from lltm_conda.engine.project import NOBODY;"
            "code = main(NOBODY, sys.argv[1:]); assert 'torch' not in sys.modules; sys.exit(code)"
        )
        return subprocess.run(
            [sys.executable, "-S", "-c", code, *arguments],
            capture_output=True,
            text=True,
            cwd=site.parent,
            env={"PYTHONPATH": f"{site}:{REPO}", "LLTM_CONDA_LOAD": "0", "PATH": "/usr/bin:/bin"},
        )

    return run


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    said = json.loads(done.stdout)
    assert said["schema"] == 1
    return {item["package"]: item["state"] for item in said["extensions"]}


def test_every_extension_of_the_environment_is_found_and_judged(doctor: Doctor) -> None:
    done = doctor("--json")
    assert states(done) == {"good": "works", "silent": "unknown", "broken": "fails"}, done.stderr
    assert done.returncode == 1
    said = {item["package"]: item for item in json.loads(done.stdout)["extensions"]}
    assert "_ZN2at6absentEv" in said["broken"]["cause"]["observed"]
    assert said["good"]["cause"] is None


@pytest.mark.parametrize(
    ("name", "code"), [("good", 0), ("silent", 0), ("broken", 1), ("site/good/_C.so", 0)]
)
def test_a_package_or_a_file_can_be_asked_for(doctor: Doctor, name: str, code: int) -> None:
    done = doctor("--json", name)
    assert len(states(done)) == 1
    assert done.returncode == code


def test_the_table_names_package_state_and_cure(doctor: Doctor) -> None:
    out = doctor().stdout
    assert "good 1.0" in out
    assert "does not work" in out
    assert "to mend broken 1.0:" in out
    assert "1 works, 1 does not work, 1 cannot be told" in out


@pytest.mark.parametrize(
    "arguments", [["no/such/path"], ["no_such_package"], ["--torch", "1.3"], ["--torch", "nowhere"]]
)
def test_what_does_not_exist_is_bad_usage(doctor: Doctor, arguments: list[str]) -> None:
    done = doctor(*arguments)
    assert done.returncode == 2
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_a_verdict_without_a_cure_has_no_line_for_one(doctor: Doctor) -> None:
    assert "to mend" not in doctor("--torch", "2.9", "good").stdout


def test_what_if_another_torch_were_here(doctor: Doctor, tmp_path: Path) -> None:
    root = fake_torch(tmp_path / "other", "2.10.0", exports=[SYMBOL])
    done = doctor("--json", "--torch", str(root), "good")
    assert states(done) == {"good": "unknown"}
    done = doctor("--json", "--torch", "2.9", "good")
    assert states(done) == {"good": "unknown"}
    assert "not looked up" in json.loads(done.stdout)["extensions"][0]["cause"]["observed"]


def test_a_pipe_that_closes_early_is_no_error(site: Path) -> None:
    code = f"import sys; sys.path[:0] = ['{site}', '{REPO}']; " + (
        "from lltm_conda.engine.doctor import main; from lltm_conda.engine.project import NOBODY;"
        "sys.exit(main(NOBODY, ['--json']))"
    )
    command = f"LLTM_CONDA_LOAD=0 '{sys.executable}' -S -c \"{code}\" | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=site)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr

"""The folder of a removed package, which Python takes for an empty one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from environments import ABSENT, SYMBOL, add_pip
from looked_environment import LookedEnvironment, diagnose, row_of
from sick_environment import SickEnvironment, carries_out
from test_doctor_look import doctor

from torchship.doctor.environment.targets import UsageError
from torchship.judge import fixes


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    env = LookedEnvironment(tmp_path / "env")
    add_pip(env.site)
    return env


def _leave(env: LookedEnvironment, name: str, kind: str) -> Path:
    """What is left of a package: some files, what Python compiled, or folders alone."""
    folder = env.site / name
    (folder / "ops" / "nothing").mkdir(parents=True)
    if kind == "files":
        env.add_module(folder / "_C.so", needs=ABSENT)
        (folder / "version.py").write_text("x = 1\n")
    if kind == "compiled":
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc").touch()
    return folder


@pytest.mark.parametrize("kind", ["files", "folders"])
@pytest.mark.parametrize("named", [(), ("torchvision",)])
def test_the_report_names_the_folder_and_none_of_its_parts(
    env: LookedEnvironment, kind: str, named: tuple[str, ...]
) -> None:
    folder = _leave(env, "torchvision", kind)
    report = diagnose(env, *named)
    (row,) = [row for row in report.rows if row.state == "fails"]
    assert (row.package, row.code, report.exit_code) == ("torchvision", "TD203", 1)
    assert f"{folder} is left over" in row.summary
    assert row.finding is not None
    assert row.finding.fix.command.startswith(f"rm -r {folder} && ")


@pytest.mark.parametrize(("kind", "count"), [("compiled", 1), ("folders", 0)])
def test_an_unknown_folder_must_have_been_a_package(
    env: LookedEnvironment, kind: str, count: int
) -> None:
    _leave(env, "formerly", kind)
    assert len([row for row in diagnose(env).rows if row.code == "TD203"]) == count
    assert row_of_code(env, "formerly") == "TD203"  # who names it asks for a package


def row_of_code(env: LookedEnvironment, name: str) -> str:
    (row,) = [row for row in diagnose(env, name).rows if row.state == "fails"]
    return row.code


def test_a_folder_of_somebodys_own_modules_is_none(env: LookedEnvironment) -> None:
    (env.site / "own").mkdir()
    (env.site / "own" / "part.py").write_text("import torch\n")
    env.add_module(env.site / "own" / "_C.so", needs=SYMBOL)
    assert [row.state for row in diagnose(env).rows] == ["works"]
    with pytest.raises(UsageError):
        diagnose(env, "own")


@pytest.mark.parametrize("how", ["listed", "elsewhere"])
def test_a_folder_that_a_package_has_is_none(env: LookedEnvironment, how: str) -> None:
    if how == "listed":
        folder = env.add("torchaudio", "")
        (folder / "__init__.py").unlink()
        (folder / "part.py").touch()
    else:
        _leave(env, "torchaudio", "folders")
        later = env.prefix / "later"
        (later / "torchaudio").mkdir(parents=True)
        (later / "torchaudio" / "__init__.py").touch()
        (env.site / "later.pth").write_text(f"{later}\n")
    assert "TD203" not in {row.code for row in diagnose(env).rows}


@pytest.mark.parametrize(
    "message",
    [
        "AttributeError: module 'torchvision' has no attribute 'ops'",
        "ImportError: cannot import name 'transforms' from 'torchvision' (unknown location)",
        "ModuleNotFoundError: No module named 'torchvision.models'",
    ],
)
def test_a_message_of_it_has_the_same_reason(env: LookedEnvironment, message: str) -> None:
    folder = _leave(env, "torchvision", "folders")
    process = doctor(env, "explain", message)
    said = " ".join(process.stdout.split())
    assert "here: TD203: " in said and f"{folder.name} is left over" in said
    assert f"to fix: rm -r {folder} && " in said
    assert "TD707" not in said
    assert process.returncode == 0


def test_a_package_that_misses_what_the_folder_lacks_is_told_of_it(env: LookedEnvironment) -> None:
    _leave(env, "lower", "files")
    env.add("upper", "import torch, lower\nlower.part\n")
    row = row_of(diagnose(env, "upper"), "upper")
    assert row.code == "TD203" and "lower is left over" in row.summary


def test_what_is_left_of_torch_itself_is_told(env: LookedEnvironment) -> None:
    shutil.rmtree(env.torch)
    for info in env.site.glob("torch-*"):
        shutil.rmtree(info)
    (env.site / "torch" / "lib").mkdir(parents=True)
    report = diagnose(env)
    (row,) = [row for row in report.rows if row.code == "TD203"]
    assert row.finding is not None and row.finding.fix.command.endswith('"torch>=2.4"')


@carries_out(fixes.Kind.REMOVE_FILE)
def test_the_command_brings_the_package_back(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    for version in ("0.24.0+cpu", "0.28.0", "0.28.0+cpu"):
        place.publish_wheel("torchvision", version, {"torchvision/__init__.py": "ops = 1\n"})
    place.install("torch")
    (place.site / "torchvision" / "ops").mkdir(parents=True)
    row = place.failing_row("torchvision")
    place.type(row["cause"]["command"])
    assert place.installed_version("torchvision") == "0.28.0+cpu"
    place.type("python -c 'import torchvision; torchvision.ops'")

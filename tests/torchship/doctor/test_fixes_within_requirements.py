"""No command installs a version that an installed package excludes by what it requires."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from environments import SYMBOL, add_extension, add_package, add_pip, make_environment
from looked_environment import LookedEnvironment, diagnose, fix_of, row_of
from shared_objects import shared_object
from sick_environment import SickEnvironment, carries_out

from torchship.doctor.checks.judging import judge_package_file
from torchship.doctor.environment import pythons
from torchship.doctor.report import blocks
from torchship.judge import fixes, probe_runtime
from torchship.judge.machine.torch_probe import release
from torchship.judge.target import Target


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    env = LookedEnvironment(tmp_path / "env")
    add_pip(env.site)
    return env


def _set_version(env: LookedEnvironment, name: str, version: str) -> None:
    for info in env.site.glob(f"{name}-*"):
        shutil.rmtree(info)
    info = add_package(env.site, name, {f"{name}/__init__.py": ""})
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n\n")


def _command(env: LookedEnvironment, name: str) -> str:
    return fix_of(row_of(diagnose(env), name)).command


@pytest.mark.parametrize(
    ("bound", "asked"),
    [(">=77.0.3", "'setuptools<82,>=77.0.3'"), (">=60,<81", "'setuptools<81,>=60'")],
)
def test_what_others_require_bounds_a_module_that_was_removed(
    env: LookedEnvironment, bound: str, asked: str
) -> None:
    _set_version(env, "setuptools", "84.0")
    env.add("other", "import torch\n", f"Requires-Dist: setuptools{bound}", "Requires-Dist: torch")
    env.add("old", "import torch\nimport pkg_resources\n")
    assert _command(env, "old").endswith(f"pip install {asked}")


def test_where_no_version_is_for_both_none_is_printed(
    env: LookedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    _set_version(env, "setuptools", "84.0")
    needs = ("Requires-Dist: setuptools>=83", "Requires-Dist: torch")
    env.add("other", "import torch\n", *needs)
    env.add("old", "import torch\nimport pkg_resources\n")
    report = diagnose(env, "old")
    row = row_of(report, "old")
    assert row.finding is not None and not row.finding.fix.command
    assert "other 1.0 requires setuptools>=83" in row.finding.fix.text
    blocks.print_blocks(report)
    assert "pip install" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bound", "asked"), [("<3", "'solver<3,>=1.5'"), ("<1", ""), ("", "'solver>=1.5'")]
)
def test_what_others_require_bounds_the_package_of_a_missing_library(
    env: LookedEnvironment, bound: str, asked: str
) -> None:
    """Where the judge's rule finds it, beside a torch that is not installed, too."""
    folder = env.add("theirs", "import torch\n", "Requires-Dist: solver>=1.5")
    library = shared_object(folder / "libsolver.so.1", soname="libsolver.so.1")
    env.add_module(folder / "_C.so", needs=SYMBOL, libraries=(library,))
    library.unlink()
    env.list_objects("theirs")
    env.add("other", "import torch\n", f"Requires-Dist: solver{bound}")
    target = Target(pythons.ask(str(env.python)))
    for torch in (None, release("2.13.0", (2, 13))):
        runtime = probe_runtime(torch, gpu=False, target=target)
        cause = judge_package_file(folder / "_C.so", runtime).cause
        assert cause is not None and "its package requires solver>=1.5" in cause.why
        assert cause.fix.command.partition("pip install ")[2] == asked
        assert asked or "other 1.0 requires solver<1" in cause.fix.text


def test_a_requirement_that_is_met_by_none_anyway_is_no_bound(env: LookedEnvironment) -> None:
    """What is broken already is not broken by the fix."""
    _set_version(env, "lower", "3.0")
    env.add("other", "import torch\n", "Requires-Dist: lower<2", "Requires-Dist: torch")
    source = "import torch\nimport lower.part\n"
    env.add("upper", source, "Requires-Dist: lower>=4", "Requires-Dist: torch")
    assert _command(env, "upper").endswith("'lower>=4'")


@carries_out(fixes.Kind.INSTALL_REQUIREMENT)
def test_the_command_mends_and_breaks_no_other_requirement(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    for version in ("1.9", "2.5", "3.0"):
        part = {} if version == "3.0" else {"lower/part.py": ""}
        place.publish_wheel("lower", version, {"lower/__init__.py": "", **part})
    place.publish_wheel("other", "1.0", {"other.py": ""}, ["lower>=2"])
    source = {"upper/__init__.py": "import lower.part\n"}
    place.publish_wheel("upper", "1.0", source, ["torch", "lower<3"])
    place.install("torch", "other", "upper", "lower==3.0")
    row = place.failing_row("upper")
    assert row["cause"]["command"].endswith("'lower<3,>=2'")
    place.type(row["cause"]["command"])
    place.type("python -c 'import upper'")
    assert place.installed_version("lower") == "2.5"  # as `other` requires


# Where torch is missing.


def _without_torch(tmp_path: Path, *packages: tuple[str, str]) -> LookedEnvironment:
    env = LookedEnvironment(tmp_path / "env")
    add_pip(env.site)
    for name, pin in packages:
        add_extension(env.site, name, pin=pin)
    shutil.rmtree(env.torch)
    for info in env.site.glob("torch-*"):
        shutil.rmtree(info)
    return env


@pytest.mark.parametrize("named", [(), ("vision",)])
def test_the_pin_of_a_package_decides_which_torch_is_installed(
    tmp_path: Path, named: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    report = diagnose(_without_torch(tmp_path, ("vision", "2.13.0")), *named)
    blocks.print_blocks(report)
    commands = [line for line in capsys.readouterr().out.splitlines() if "pip install" in line]
    assert len(commands) == 1 and commands[0].endswith('install "torch==2.13.0"'), commands
    assert report.exit_code == 1


def test_packages_for_two_torches_come_without_a_command(tmp_path: Path) -> None:
    env = _without_torch(tmp_path, ("vision", "2.13.0"), ("audio", "2.12.0"))
    rows = [row for row in diagnose(env).rows if row.code == "TD101"]
    assert {row.finding.fix.command for row in rows if row.finding} == {""}
    assert rows[0].finding is not None
    assert "audio 1.0 requires torch==2.12.0" in rows[0].finding.fix.text


def test_a_package_of_python_alone_says_which_torch_it_needs(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env")
    add_pip(site)
    add_package(site, "pure", {"pure.py": "import torch\n"}, "Requires-Dist: torch>=1.9,<2.13")
    env = LookedEnvironment.__new__(LookedEnvironment)
    env.folder, env.python = tmp_path, tmp_path / "env" / "bin" / "python"
    row = row_of(diagnose(env, "pure"), "torch")
    assert row.finding is not None
    assert row.finding.fix.command.endswith('"torch<2.13,>=2.4"')

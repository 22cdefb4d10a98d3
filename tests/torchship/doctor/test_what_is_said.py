"""What the report says of imports that work, of names that are nowhere, and while it goes on."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ABSENT, SYMBOL, add_package, add_pip, make_environment
from looked_environment import LookedEnvironment, diagnose, row_of
from packaging_alone import packaging_alone
from shared_objects import shared_object
from sick_environment import REPO, UV, SickEnvironment, carries_out
from test_doctor_look import doctor

from torchship.doctor import command
from torchship.doctor.environment.targets import UsageError
from torchship.doctor.fixes.trying import Trial
from torchship.doctor.looking.processes import Python
from torchship.doctor.report import blocks
from torchship.judge import fixes
from torchship.judge.project import NOBODY


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    env = LookedEnvironment(tmp_path / "env")
    add_pip(env.site)
    return env


# Imports that work.


@pytest.mark.parametrize("named", [(), ("pure",)])
def test_a_package_without_extensions_that_imports_works(
    env: LookedEnvironment, named: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    env.add("pure", "import torch\n")
    report = diagnose(env, *named)
    blocks.print_blocks(report)
    lines = capsys.readouterr().out.splitlines()
    assert "works: pure 1.0 (imports)" in lines
    assert "1 package, 1 import or file: working: 1, not working: 0, cannot be told: 0" in lines
    assert any(line.startswith("torch and 1 package imported, 0 files read") for line in lines)


# Fixes that are tried.


def _tried(place: SickEnvironment) -> dict[str, object]:
    return place.failing_row("--try-fix theirs")


@pytest.mark.slow
def test_why_a_fix_cannot_be_tried_is_what_the_installer_says(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    source = {"theirs/__init__.py": "import gone\n"}
    place.publish_wheel("theirs", "1.0", source, ["torch", "gone>=2"])
    place.install("torch", "theirs")
    row = _tried(place)
    assert row["mends"] is None
    assert "pip cannot install it here: ERROR: No matching distribution" in str(
        row["why_not_tried"]
    )
    words = "python -m torchship.doctor --try-fix theirs || true"
    said = place.type(words, PYTHONPATH=f"{REPO}:{packaging_alone()}")
    assert "tried:   nothing, since pip cannot install it here" in said


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_an_index_that_was_not_reached_is_named(
    installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS", "UV_OFFLINE", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_RETRIES", "1")  # without one, pip tells nothing of it
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("PATH", f"{UV.parent}:/usr/bin:/bin")
    index = "http://127.0.0.1:9/whl/cpu"  # a port on which nothing listens
    start = f"{sys.executable} -m pip install"
    if installer == "uv":
        start = f"uv pip install --python {sys.executable}"
    trial = Trial("json", Python(executable=sys.executable))
    tried = trial.of_command(f"{start} --no-deps --index-url {index} 'theirs==1.*'")
    assert tried.mends is None
    assert f"{index} was not reached; a mirror of it" in tried.why_not
    assert "a wheel of theirs==1.*, in the build cpu, that" in tried.why_not


@pytest.mark.slow
def test_a_build_of_another_index_than_the_named_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's settings name a second place, which has the release in a build that fails."""
    place = SickEnvironment(tmp_path)
    place.publish_wheel("theirs", "1.0", {"theirs/__init__.py": "import gone\n"})
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(place.index))
    monkeypatch.setenv("PIP_RETRIES", "1")
    index = "http://127.0.0.1:9/whl/cpu"  # a port on which nothing listens
    trial = Trial("theirs", Python(executable=sys.executable))
    start = f"{sys.executable} -m pip install --no-deps"
    tried = trial.of_command(f"{start} --index-url {index} theirs")
    assert tried.mends is None
    assert f"{index} was not reached, and theirs 1.0 of another index" in tried.why_not
    assert "does not fix the import; a mirror of it will do" in tried.why_not


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise RuntimeError('built for torch==2.9.1')", "would install torch, which is too large"),
        ("raise RuntimeError('no idea')", "the fix is not a command"),
    ],
)
@pytest.mark.slow
def test_why_a_fix_is_not_tried_at_all_is_said(tmp_path: Path, source: str, why: str) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    place.publish_wheel("theirs", "1.0", {"theirs/__init__.py": f"{source}\n"}, ["torch"])
    place.install("torch", "theirs")
    assert why in str(_tried(place)["why_not_tried"])


def test_the_torch_of_a_release_is_said_beside_what_it_lacks(env: LookedEnvironment) -> None:
    folder = env.add("theirs", "import torch\nfrom . import _C\n", "Requires-Dist: torch==2.5.1")
    env.add_module(folder / "_C.so", needs=ABSENT)
    env.list_objects("theirs")
    row = row_of(diagnose(env), "theirs")
    assert "theirs 1.0 requires torch==2.5.1, and 2." in row.summary


# Names that are nowhere, and torch that is nowhere.


def test_a_wrong_name_is_answered_with_near_ones_and_the_python(env: LookedEnvironment) -> None:
    env.add("torchvision", "import torch\n")
    with pytest.raises(UsageError) as raised:
        diagnose(env, "torchvison")
    said = str(raised.value)
    assert "Did you mean torchvision?" in said
    assert str(env.python) in said and "--python" in said


@carries_out(fixes.Kind.INSTALL_RELEASE)
def test_a_package_that_is_not_installed_gets_its_release_for_this_torch(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    for version in ("0.24.0", "0.28.0", "0.28.0+cpu"):
        place.publish_wheel("torchvision", version, {"torchvision/__init__.py": "import torch\n"})
    place.install("torch")
    ask = "python -m torchship.doctor torchvision 2>&1 >/dev/null || true"
    said = place.type(ask, PYTHONPATH=f"{REPO}:{packaging_alone()}")
    assert "torchvision is not installed for " in said
    place.type(said.partition("for torch 2.13.0+cpu: ")[2])
    assert place.installed_version("torchvision") == "0.28.0+cpu"


def test_no_release_is_named_that_another_package_excludes(env: LookedEnvironment) -> None:
    env.add("upper", "import torch\n", "Requires-Dist: torchvision<0.20", "Requires-Dist: torch")
    with pytest.raises(UsageError, match="neither a file nor"):
        diagnose(env, "torchvision")


def test_how_the_python_was_found_is_said_of_a_name_that_is_not_there(
    env: LookedEnvironment,
) -> None:
    process = doctor(env, "nowhere")
    assert process.returncode == 2
    assert "bin/python (named by --python)" in " ".join(process.stderr.split())


def test_each_of_two_files_that_lack_one_library_is_named_in_its_own_row(
    env: LookedEnvironment,
) -> None:
    """The import tries the first file, and goes on without it."""
    source = (
        "import ctypes, os, torch\ntry:\n    ctypes.CDLL(os.path.dirname(__file__) + '/_C.so')\n"
        "except OSError:\n    pass\n"
    )
    folder = env.add("theirs", source)
    gone = shared_object(env.prefix / "stubs" / "libcudart.so.12", soname="libcudart.so.12")
    for name in ("_C", "image"):
        env.add_module(folder / f"{name}.so", needs=SYMBOL, libraries=(gone,))
    gone.unlink()
    env.list_objects("theirs")
    report = diagnose(env, "theirs")
    for name in ("_C.so", "image.so"):
        assert f"{name} needs libcudart.so.12" in row_of(report, name).summary


@carries_out(fixes.Kind.INSTALL_TORCH)
@pytest.mark.slow
def test_an_environment_without_torch_gets_the_command(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    ask = "python -m torchship.doctor check"
    told = place.type(f"{ask} --json || true", PYTHONPATH=f"{REPO}:{packaging_alone()}")
    report = json.loads(told)
    assert report["exit_code"] == 2
    said = place.type(f"{ask} || true", PYTHONPATH=f"{REPO}:{packaging_alone()}")
    assert f"  or:      {report['fix']}\n" in said
    assert "to fix:  name a Python that has torch: " in said
    assert "--python /env/bin/python\n" in said
    place.type(report["fix"])
    assert place.installed_version("torch") == "2.13.0+cpu"


def test_a_package_that_needs_a_torch_that_is_missing_fails(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env")
    add_pip(site)
    add_package(site, "pure", {"pure.py": "import torch\n"}, "Requires-Dist: torch>=2.9")
    ask = [sys.executable, "-m", "torchship.doctor", "--python", str(tmp_path / "env")]
    process = subprocess.run(ask, capture_output=True, text=True, cwd=REPO)
    assert process.returncode == 1
    assert 'install "torch>=2.9"' in process.stdout


# While it goes on, and at its end.


def test_a_terminal_shows_what_is_imported_and_is_left_clean(env: LookedEnvironment) -> None:
    env.add("slow", "import torch\n")
    terminal, end = pty.openpty()
    ask = [sys.executable, "-m", "torchship.doctor", "--python", str(env.python), "slow"]
    process = subprocess.run(
        ask, stderr=end, stdout=subprocess.PIPE, cwd=env.folder, env=_variables(), text=True
    )
    os.close(end)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert process.returncode == 0
    assert "importing slow ..." in shown
    assert shown.endswith("\r\x1b[2K")
    assert "\n" not in shown


def test_where_there_is_no_terminal_nothing_is_shown(env: LookedEnvironment) -> None:
    env.add("slow", "import torch\n")
    assert doctor(env, "slow").stderr == ""


def _variables() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{REPO}:{packaging_alone()}"}


@pytest.mark.parametrize("started", ["torch-doctor.pyz", "dist/torch-doctor.pyz", "/a b/doc.pyz"])
def test_the_one_file_form_is_named_as_it_was_started(
    monkeypatch: pytest.MonkeyPatch, started: str
) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    expected = f"python '{started}'" if " " in started else f"python {started}"
    assert command.program_of(NOBODY) == expected


@pytest.mark.slow
def test_verbose_adds_rows_and_keeps_the_block(env: LookedEnvironment) -> None:
    folder = env.add("broken", "import torch\nfrom . import _C\n")
    for name in ("_C", "_D"):
        env.add_module(folder / f"{name}.so", needs=ABSENT)
    env.list_objects("broken")
    plain = doctor(env).stdout.splitlines()
    whole = doctor(env, "--verbose").stdout
    start = next(i for i, line in enumerate(plain) if line.startswith("broken 1.0"))
    for line in plain[start : plain.index("", start)]:
        assert line in whole
    assert "seen:" in whole and "\nbroken 1.0  _D.so" in whole


def test_a_message_whose_report_follows_gives_no_homework(env: LookedEnvironment) -> None:
    env.add("theirs", "import torch\nraise RuntimeError('operator theirs::f does not exist')\n")
    words = "RuntimeError: operator {}::f does not exist"
    here = doctor(env, words.format("theirs")).stdout
    assert "TD127" in here and "import theirs: " in here
    assert "Ask the doctor about the package" not in here
    assert "Ask the doctor about the package" in doctor(env, words.format("nowhere")).stdout

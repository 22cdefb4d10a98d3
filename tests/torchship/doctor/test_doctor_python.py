"""`--python`: the doctor judges another Python, which may be old or broken."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environments import (
    ABSENT,
    REPO,
    SYMBOL,
    add_extension,
    add_pip,
    add_torch,
    make_environment,
    run_doctor,
)
from packaging_alone import packaging_alone

from torchship.doctor.environment import pythons
from torchship.judge import fixes
from torchship.judge.machine.runtime_probe import environment
from torchship.judge.project import NOBODY
from torchship.judge.target import Target

PROBE = REPO / "torchship" / "doctor" / "environment" / "python_probe.py"


def old_pythons() -> list[str]:
    folders = sorted(Path("~/.pyenv/versions").expanduser().glob("3.[789].*"))
    return [str(folder / "bin" / "python") for folder in folders]


def states(process_output: str) -> dict[str, str]:
    return {row["package"]: row["state"] for row in json.loads(process_output)["extensions"]}


def test_the_environment_of_another_python_is_judged(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env")
    add_torch(site)
    add_extension(site, "good", SYMBOL, pin="2.9.1")
    add_extension(site, "broken", SYMBOL, ABSENT)
    process = run_doctor("--json", "--python", str(tmp_path / "env" / "bin" / "python"))
    assert states(process.stdout) == {"good": "nothing found", "broken": "fails"}, process.stderr
    assert json.loads(process.stdout)["torch"] == "2.9.1"
    assert process.returncode == 1


def test_a_prefix_names_its_python(tmp_path: Path) -> None:
    add_torch(make_environment(tmp_path / "env"))
    process = run_doctor("--json", "--python", str(tmp_path / "env"))
    assert json.loads(process.stdout)["torch"] == "2.9.1", process.stderr


@pytest.mark.parametrize("python", old_pythons())
def test_an_old_python_is_judged_with_its_own_tags(python: str, tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env", python)
    add_torch(site)
    tag = f"cpython-{site.parent.name.removeprefix('python').replace('.', '')}-x86_64-linux-gnu"
    path = add_extension(site, "good", SYMBOL, file=f"_C.{tag}.so", pin="2.9.1")
    assert path.exists()
    process = run_doctor("--json", "--python", str(tmp_path / "env" / "bin" / "python"))
    assert states(process.stdout) == {"good": "nothing found"}, process.stdout + process.stderr


def test_the_commands_that_mend_name_the_judged_python(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env")
    add_torch(site)
    add_pip(site)
    path = add_extension(site, "broken", SYMBOL)
    path.write_bytes(path.read_bytes()[:40])
    process = run_doctor("--json", "--python", str(tmp_path / "env"), "broken")
    (row,) = json.loads(process.stdout)["extensions"]
    assert f"{tmp_path}/env/bin/python -m pip" in row["cause"]["fix"]


@pytest.mark.parametrize("kind", ["pip", "conda"])
@pytest.mark.parametrize("is_active", [True, False])
def test_a_command_for_the_python_that_runs_goes_to_it_from_any_shell(
    kind: str, is_active: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A venv's Python is a link, so another venv of the same base has the same file."""
    for name in ("env", "other"):
        make_environment(tmp_path / name)
    monkeypatch.setenv("PATH", str(tmp_path / ("env" if is_active else "other") / "bin"))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / ("env" if is_active else "other")))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    facts = environment(Target())._replace(kind=kind, path=())
    command = fixes.install_torch(facts, NOBODY).command
    by_path = {"pip": f"{sys.executable} -m pip", "conda": f"conda install -p {sys.prefix} "}
    assert (by_path[kind] in command) != is_active
    assert is_active == command.startswith(("python -m pip", 'conda install "'))


def test_the_probe_is_valid_for_python_3_7() -> None:
    ast.parse(PROBE.read_text(), feature_version=(3, 7))


@pytest.mark.slow
def test_what_the_environment_prints_and_leaves_running_does_not_disturb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "_SECONDS", 4.0)  # which the child outlives
    site = make_environment(tmp_path / "env")
    add_torch(site)
    child = "subprocess.Popen(['sleep', '60'], start_new_session=False)"
    noise = "print('torch-doctor-probe:{\"executable\": 1}', flush=True)"
    (site / "hostile.pth").write_text(f"import subprocess; {child}; {noise}\n")
    before = time.monotonic()
    assert pythons.ask(str(tmp_path / "env")).torch == site / "torch"
    assert time.monotonic() - before < 30


@pytest.mark.parametrize(
    "line",
    ["import time; time.sleep(60)", "import os; [os.write(1, b'x' * 4096) for _ in iter(int, 1)]"],
)
def test_an_environment_that_hangs_or_floods_is_given_up(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "_SECONDS", 1.0)
    site = make_environment(tmp_path / "env")
    (site / "hostile.pth").write_text(line + "\n")
    before = time.monotonic()
    with pytest.raises(pythons.InterpreterError, match="--python"):
        pythons.ask(str(tmp_path / "env"))
    assert time.monotonic() - before < 10


@pytest.mark.parametrize("named", ["/no/such/python", "/bin/false", "/etc"])
def test_what_is_no_python_is_bad_usage(named: str) -> None:
    process = run_doctor("--python", named)
    assert process.returncode == 2
    assert "--python /env/bin/python" in process.stderr
    assert "Traceback" not in process.stderr


def test_the_folder_in_which_the_doctor_runs_is_not_searched(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('executed')\n")
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert pythons.ask(str(tmp_path / "env")).torch is None
    finally:
        os.chdir(here)


def test_an_active_environment_is_found_but_not_the_doctors_own(tmp_path: Path) -> None:
    make_environment(tmp_path / "own")
    make_environment(tmp_path / "env")
    path = f"{tmp_path}/own/bin:{tmp_path}/env/bin"
    own = str(tmp_path / "own")
    program = str(tmp_path / "env" / "bin" / "python")
    by_variable = pythons.active_python({"VIRTUAL_ENV": str(tmp_path / "env")}, own)
    assert by_variable == pythons.ActivePython(program, "by $VIRTUAL_ENV")
    by_path = pythons.active_python({"VIRTUAL_ENV": own, "PATH": path}, own)
    assert by_path == pythons.ActivePython(program, "the first on PATH")
    assert pythons.active_python({"PATH": f"{tmp_path}/own/bin"}, own) is None


@pytest.mark.parametrize(("name", "torch"), [("torch-doctor", "2.9.1"), ("other", None)])
def test_a_doctor_in_an_environment_of_its_own_judges_the_active_one(
    tmp_path: Path, name: str, torch: str | None
) -> None:
    """As `uvx torch-doctor` does; `python -m ...` judges the Python that runs it."""
    add_torch(make_environment(tmp_path / "env"))
    code = f"import sys; sys.argv[0] = {name!r}; from torchship.doctor.command import main; main()"
    process = subprocess.run(
        [sys.executable, "-S", "-c", code, "--json", "--no-import"],
        capture_output=True,
        text=True,
        cwd=REPO,
        stdin=subprocess.DEVNULL,
        env={
            "VIRTUAL_ENV": str(tmp_path / "env"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": packaging_alone(),
        },
    )
    assert json.loads(process.stdout)["torch"] == torch, process.stderr

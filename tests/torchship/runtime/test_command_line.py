"""`python -m tiny_client`: tables, JSON, exit codes, other files and other torches."""

from __future__ import annotations

import json
import pwd
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_facts import make_glue, make_runtime, make_torch
from processes import Forks, clean_environment
from shared_objects import fake_torch, shared_object

from torchship.judge import judge
from torchship.judge.words import faults, render

Run = Callable[..., subprocess.CompletedProcess[str]]
Copy = Callable[..., Path]
DOCS = Path(__file__).resolve().parents[3] / "docs"


def documented(section: str) -> set[str]:
    """The field names of a table of docs/fails/compat.md."""
    section_content = (DOCS / "fails" / "compat.md").read_text().partition(f"### {section}\n")[2]
    table = section_content.partition("\n###")[0].partition("\n## ")[0]
    return set(re.findall(r"^\| `([a-z_0-9]+)` \|", table, re.MULTILINE))


def test_a_working_installation(package_copy: Copy, run_module: Run) -> None:
    process = run_module(package_copy())
    assert process.returncode == 0, process.stdout + process.stderr
    assert re.search(r"^cpu +ok +relative difference", process.stdout, re.MULTILINE)
    assert process.stdout.rstrip().endswith("tiny-client works here")


@pytest.mark.slow
def test_json_is_what_is_documented(package_copy: Copy, run_module: Run) -> None:
    process = run_module(package_copy(), "--json")
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["schema"] == 1
    assert report["works"] is True
    assert set(report) == documented("The report")
    assert set(report["runtime"]) == documented("`runtime`")
    assert set(report["runtime"]["torch"]) == documented("`runtime.torch`")
    assert set(report["binaries"][0]) == documented("`binaries`")
    assert set(report["binaries"][0]["findings"][0]) == documented("`findings`")
    assert set(report["smoke"]) == documented("`smoke`")
    assert set(report["smoke"]["devices"][0]) == documented("`smoke.devices`")
    chosen = [b["name"] for b in report["binaries"] if b["accepted"] and b["kind"] == "glue"]
    assert report["chosen"].startswith(chosen[0])


def test_a_broken_installation_is_explained_although_its_import_fails(
    package_copy: Copy, run_module: Run
) -> None:
    package = package_copy()
    (glue,) = (package / "lib").glob("glue-*.so")
    glue.write_bytes(glue.read_bytes()[:1000])
    process = run_module(package)
    assert process.returncode == 1
    assert "nothing fits" in process.stdout
    assert re.search(r"^cause: .*damaged", process.stdout, re.MULTILINE)
    assert re.search(r"^to fix: +\S", process.stdout, re.MULTILINE)
    report = json.loads(run_module(package, "--json").stdout)
    assert report["works"] is False
    assert report["cause"]["fault"] == faults.PACKAGE_FILES
    assert report["chosen"] is None


@pytest.mark.slow  # the process of a live run imports torch
def test_a_crash_in_the_live_run_does_not_take_the_report_along(
    package_copy: Copy, run_module: Run
) -> None:
    package = package_copy()
    (package / "functions.py").write_text("import os; os.abort()\n")
    process = run_module(package)
    assert process.returncode == 1
    assert "signal 6" in process.stdout
    assert "tiny-client does not work here" in process.stdout


@pytest.mark.slow
def test_the_live_run_is_of_the_same_copy(
    package_copy: Copy, forked: Forks, environment_of: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """Also in a folder that PYTHONPATH cannot name."""
    package = package_copy()
    answer = "{'variant': None, 'error': 'the copy ran', 'devices': []}"
    (package / "smoke.py").write_text(f"def run():\n    return {answer}\n")
    folder = package.parent / "a:b"
    folder.mkdir()
    package.rename(folder / package.name)
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop())\n"
        "from tiny_client.__main__ import PROJECT, main\n"
        "sys.exit(main(PROJECT))"
    )
    process = forked.run(code, str(folder), cwd=tmp_path, env=environment_of(package))
    assert "live run failed: the copy ran" in process.stdout, process.stdout + process.stderr


@pytest.mark.slow
def test_wrong_numbers_are_a_failure(package_copy: Copy, run_module: Run) -> None:
    package = package_copy()
    path = package / "reference.py"
    path.write_text(path.read_text().replace("values * factor", "values * factor * 1.001"))
    process = run_module(package)
    assert process.returncode == 1
    assert "differs from the reference" in process.stdout


def test_another_torch_is_judged_without_being_run(
    package_copy: Copy, run_module: Run, tmp_path: Path
) -> None:
    other = fake_torch(tmp_path / "other", "2.3.0")
    process = run_module(package_copy(), "--torch", str(other))
    assert process.returncode == 1
    assert "2.3.0" in process.stdout
    assert "live run" not in process.stdout
    assert 'pip install "torch>=2.4"' in process.stdout


def test_a_folder_without_torch_is_named(
    package_copy: Copy, run_module: Run, tmp_path: Path
) -> None:
    process = run_module(package_copy(), "--torch", str(tmp_path / "none"))
    assert process.returncode == 1
    assert "no torch installation" in process.stdout


@pytest.mark.slow
def test_any_shared_object_can_be_judged(
    package_copy: Copy, run_module: Run, tmp_path: Path, torch_root: Path
) -> None:
    package = package_copy()
    theirs = shared_object(
        tmp_path / "their_ext.so", undefined=["_ZN2at10no_such_opEv"], defined=["PyInit_their_ext"]
    )
    process = run_module(package, "--binary", str(theirs))
    assert process.returncode == 1
    assert "_ZN2at10no_such_opEv" in process.stdout
    fine = torch_root / "lib" / "libtorch_python.so"
    process = run_module(package, "--binary", str(fine), "--json")
    assert process.returncode == 0, process.stdout
    (judged,) = json.loads(process.stdout)["binaries"]
    assert judged["accepted"] is True
    process = run_module(package, "--binary", str(tmp_path / "missing.so"))
    assert process.returncode == 1
    assert "No such file" in process.stdout


@pytest.mark.slow
def test_a_variant_is_explained_in_every_dimension(package_copy: Copy, run_module: Run) -> None:
    package = package_copy()
    (glue,) = (package / "lib").glob("glue-*.so")
    chosen = f"{glue.stem.removeprefix('glue-')}-cpu"
    process = run_module(package, "--explain", chosen)
    assert process.returncode == 0, process.stdout
    for dimension in ("platform", "torch version", "torch symbols", "glibc"):
        assert dimension in process.stdout
    absent = run_module(package, "--explain", "aten24-abi0-cpu")
    assert absent.returncode == 1
    assert "not installed: glue-aten24-abi0.so" in absent.stdout
    assert run_module(package, "--explain", "x").returncode == 2


@pytest.mark.slow  # compiles, as test_jit.py does in the default tests
def test_building_here_end_to_end(
    package_copy: Copy, run_module: Run, run_code: Run, tmp_path: Path
) -> None:
    """Build into the cache, list, load from it, refuse it when others can write it, remove."""
    package = package_copy(binaries=False)
    env = {"FORCE_CUDA": "0", "DEBUG": "1"}  # compiles in a third of the time
    process = run_module(package, "build", env=env)
    assert process.returncode == 0, process.stdout + process.stderr
    again = run_module(package, "build", env=env)
    assert "built already" in again.stdout
    code = "import tiny_client; print(tiny_client.loader.LOADER.loaded().paths[0])"
    loaded = run_code(package, code)
    assert str(tmp_path / "cache") in loaded.stdout, loaded.stderr
    for path in (tmp_path / "cache").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    (tmp_path / "cache").chmod(0o770)
    refused = run_code(package, code)
    assert "build cache is refused" in refused.stderr
    assert "chmod -R go=" in refused.stderr
    (tmp_path / "cache").chmod(0o700)
    listed = run_module(package, "build", "--list").stdout
    assert "abi" in listed
    assert run_module(package, "build", "--remove", "x").returncode == 1
    assert run_module(package, "build", "--remove", "all").returncode == 0
    assert "holds no binaries" in run_code(package, code).stderr


def test_private_folders_are_shortened() -> None:
    shortened = render.shorten(f"{Path.home()}/secret/place and /usr/lib")
    assert shortened == "~/secret/place and /usr/lib"
    torch = make_torch(root=Path.home() / "env" / "torch")
    assert str(Path.home()) not in render.runtime_table(make_runtime(torch))


def test_a_user_without_a_home_folder_gets_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    assert render.shorten("/srv/secret and ~") == "/srv/secret and ~"
    assert "glibc" in render.runtime_table(make_runtime())


@pytest.mark.parametrize("problem", ["", "torch/version.py cannot be read"])
def test_the_report_says_why_there_is_no_torch(problem: str) -> None:
    lines = render.runtime_table(
        make_runtime()._replace(torch=None, torch_problem=problem)
    ).splitlines()
    (line,) = (line for line in lines if line.startswith("torch "))
    assert line.removeprefix("torch").strip() == (problem or "not installed")


def test_tables_fit_a_terminal_and_end_in_no_blanks() -> None:
    verdict = judge(make_glue(), make_runtime(make_torch("2.9.1"), missing_symbols={}))
    table = render.verdict_text(verdict)
    assert all(line == line.rstrip() for line in table.splitlines())
    rows = [("a", "b " * 200)]
    assert max(map(len, render.table(("x", "y"), rows).splitlines())) <= 100


def test_a_cause_fits_a_terminal_and_its_command_stays_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    verdict = judge(make_glue(), make_runtime(make_torch("2.9.1")))
    assert verdict.cause is not None
    finding = verdict.cause._replace(why="because " * 30, observed="seen " * 30)
    lines = render.cause_text(finding).splitlines()
    (fix,) = [line for line in lines if line.startswith("to fix:")]
    assert fix == f"to fix:   {finding.fix}"
    assert max(len(line) for line in lines if line != fix) <= 80
    assert sum(line.startswith(" " * 10 + "because") for line in lines) >= 2


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_whose_columns_leave_no_room_for_the_last_has_it_below(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """The reasons beside file names of wheels, in a terminal or where COLUMNS is set."""
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [("w" * 57, "it does not fit for a long reason " * 4), ("w", "short")]
    lines = render.table(("wheel", "why"), rows).splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0] == "wheel"
    assert lines[2] == "w" * 57
    assert lines[-2:] == ["w", "    short"]


@pytest.mark.parametrize(
    "arguments",
    [
        "--explain stable210-cpu",
        "build --list",
        # With a live run, in another process that imports torch.
        pytest.param("", marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_leaves_early_gets_no_traceback(
    arguments: str, tmp_path: Path, tiny_package: Path
) -> None:
    """As `| head` does."""
    command = f"'{sys.executable}' -m tiny_client {arguments} | true; exit ${{PIPESTATUS[0]}}"
    env = clean_environment(PYTHONPATH=str(tiny_package.parent))
    process = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=env
    )
    assert process.returncode == 1
    assert process.stderr == ""

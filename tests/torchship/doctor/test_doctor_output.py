"""What the doctor prints: torch first, stable codes, and forms for machines; and the allow-list."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environments import (
    ABSENT,
    REPO,
    SYMBOL,
    add_extension,
    add_package,
    add_pip,
    add_torch,
    make_environment,
    run_doctor,
)
from packaging_alone import packaging_alone

from torchship.doctor.report.blocks import print_all, print_blocks
from torchship.doctor.report.forms import FORMS
from torchship.doctor.report.report import (
    Report,
    print_github,
    print_json,
    print_markdown,
)
from torchship.doctor.report.rows import Row, notice, row_of_verdict
from torchship.judge import fixes
from torchship.judge.records import (
    NO_FIX,
    NOTE,
    REJECTED,
    BinaryRecord,
    Finding,
    Fix,
    Owner,
    Runtime,
    Verdict,
)
from torchship.judge.target import Target
from torchship.judge.words import codes


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torch 2.9.1 with a good and a broken extension."""
    prefix = tmp_path_factory.mktemp("env") / "env"
    site = make_environment(prefix)
    add_torch(site)
    add_extension(site, "good", SYMBOL, pin="2.9.1")
    add_extension(site, "broken", SYMBOL, ABSENT)
    return prefix


def test_the_judged_torch_and_its_folder_come_first(environment: Path) -> None:
    lines = run_doctor("--python", str(environment)).stdout.splitlines()
    (root,) = environment.glob("lib/*/site-packages/torch")
    assert lines[0] == f"torch 2.9.1 (CPU) in {root}"


def test_a_second_torch_on_the_path_is_named(environment: Path, tmp_path: Path) -> None:
    add_torch(tmp_path / "other", "2.8.0")
    process = run_doctor("--python", str(environment), PYTHONPATH=str(tmp_path / "other"))
    first, second = process.stdout.splitlines()[:2]
    assert first == f"torch 2.8.0 (CPU) in {tmp_path}/other/torch"
    assert second.startswith("a second torch is on the path and not used: 2.9.1 in ")
    assert codes.SECOND_TORCH in second


def test_one_torch_is_not_called_a_second_one(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(next(environment.glob("lib/*/site-packages")))
    process = run_doctor("--python", str(environment), PYTHONPATH=str(tmp_path / "link"))
    assert "second torch" not in process.stdout


def test_every_form_shows_the_code(environment: Path) -> None:
    for form in ((), ("--json",), ("--github",), ("--markdown",)):
        process = run_doctor("--python", str(environment), *form)
        assert codes.TORCH_LACKS_SYMBOLS in process.stdout, (form, process.stderr)
        assert process.returncode == 1


def test_json_is_the_documented_report(environment: Path) -> None:
    data = json.loads(run_doctor("--json", "--python", str(environment)).stdout)
    assert data["schema"] == 1
    assert data["exit_code"] == 1
    assert data["torch"] == "2.9.1"
    page = (Path(__file__).parents[3] / "docs" / "fails" / "compat.md").read_text()
    section = page.partition("### The doctor's report\n")[2].partition("\n### ")[0]
    tables = [table for table in section.split("\n\n") if table.startswith("| field |")]
    documented = [set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) for table in tables]
    assert documented == [set(data), set(data["extensions"][0])]


def test_github_annotations_name_file_and_code(environment: Path) -> None:
    out = run_doctor("--github", "--python", str(environment)).stdout.splitlines()
    errors = [line for line in out if line.startswith("::error ")]
    (file,) = environment.glob("lib/*/site-packages/broken/_C.so")
    assert len(errors) == 1
    assert errors[0].startswith(f"::error file={file},title=TD115 ")
    assert "to fix%3A" not in errors[0]
    assert "%0Ato fix: " in errors[0]


def hostile_report() -> Report:
    finding = Finding(
        dimension="file",
        status=REJECTED,
        code=codes.DAMAGED_FILE,
        observed="x",
        needed="y",
        why="bad\n::error::forged\x1b[31m | `x` <b>,",
        fix=fixes.in_words("rm x\r\n::set-output name=x::y"),
    )
    runtime = Runtime(system="linux", machine="x86_64", python=(3, 11, 0), target=Target())
    row = notice(finding, Path("a,b:c\n::error::z.so"), package="p|q", version="1")
    return Report(
        runtime=runtime, extensions=(row,), notices=(), other_torches=(), files=1, seconds=0.0
    )


def test_a_hostile_name_forges_no_annotation(capsys: pytest.CaptureFixture[str]) -> None:
    print_github(hostile_report())
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines if line.startswith("::")] == ["::error "]
    properties = lines[0].removeprefix("::error ").partition("::")[0]
    assert properties.count(",") == 1


def test_a_hostile_name_breaks_no_markdown_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_markdown(hostile_report())
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "TD201" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert "<b>" not in row


def test_a_fix_in_markdown_is_the_command_as_it_is_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In code, only the bar of a table has an escape; a backtick makes the fence longer."""
    command = 'pip install "a==2.*" | tee `date`_log'
    finding = Finding(
        dimension="file",
        status=REJECTED,
        code=codes.DAMAGED_FILE,
        observed="",
        needed="",
        fix=fixes.in_words(command),
    )
    report = hostile_report()._replace(notices=(notice(finding, Path("/x/y.so")),))
    print_markdown(report)
    out = capsys.readouterr().out
    assert '| `` pip install "a==2.*" \\| tee `date`_log `` |' in out


OPEN = fixes.command_alone(fixes.Kind.OPEN_FILE, "chmod a+r x.so")
APT = fixes.command_alone(fixes.Kind.INSTALL_BY_APT, "apt install libx")
OTHER = fixes.command_alone(fixes.Kind.INSTALL_RELEASE, "pip install x==2")
GUESS = fixes.advice("install another release of x", "x")


def _rows_of(*mended_by: Fix) -> tuple[Row, ...]:
    """Failures of one package, each with its own cause and fix."""
    causes = (codes.DAMAGED_FILE, codes.MUSL, codes.LIBRARY_MISSING)
    return tuple(
        notice(
            Finding(dimension="file", status=REJECTED, code=code, observed="", needed="", fix=fix),
            Path("x.so"),
            package="x",
            version="1.0",
        )
        for code, fix in zip(causes, mended_by, strict=False)
    )


@pytest.mark.parametrize(
    ("mended_by", "needed"),
    [
        ((OPEN, APT), "needed: both, in this order"),
        ((OPEN, APT, OTHER), "needed: all, in this order"),
        ((OTHER, OPEN), "needed: the first; check again after it, since the second may then"),
        ((fixes.in_words("do this"), OPEN, APT), "since the others may then be needed no more"),
    ],
)
def test_of_several_fixes_it_is_said_which_are_needed_and_in_which_order(
    mended_by: tuple[Fix, ...], needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_all(hostile_report()._replace(extensions=_rows_of(*mended_by)))
    out = " ".join(capsys.readouterr().out.split())
    assert needed in out
    assert f"to fix: {mended_by[0]} then: {mended_by[1]} " in out


def test_one_fix_is_needed_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks(hostile_report()._replace(extensions=_rows_of(OPEN)))
    assert "needed:" not in capsys.readouterr().out


@pytest.mark.parametrize(("fix", "mends"), [(GUESS, None), (OTHER, False)])
def test_what_is_not_known_to_mend_is_advice_in_each_form(
    fix: Fix, mends: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = _rows_of(fix)
    for name in ("text", "rows", "github", "markdown"):
        FORMS[name](hostile_report()._replace(extensions=(row._replace(mends=mends),), notices=()))
        out = capsys.readouterr().out
        assert "advice: " in out, name
        assert "to fix: " not in out, name
    if mends is None:
        print_json(hostile_report()._replace(extensions=(row,)))
        (told,) = json.loads(capsys.readouterr().out)["extensions"]
        assert told["cause"]["is_advice"] is True


def test_what_was_only_read_is_never_said_to_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside what was looked at, too: in each form, in the row and in the sum."""
    report = report_of_notes(files=("_C.so",))
    for is_looking in (False, True):
        for name, form in FORMS.items():
            form(report._replace(is_looking=is_looking))
            out = capsys.readouterr().out
            assert "nothing found" in out, name
            assert "works" not in out and '"state": "works"' not in out, name
            assert name == "json" or "nothing found by reading: 1, not working: 0" in out, name


def report_of_notes(*notes: Finding, files: tuple[str, ...] = ("_C.so",)) -> Report:
    """Objects that work, of which something is to be known."""
    runtime = Runtime(system="linux", machine="x86_64", python=(3, 11, 0), target=Target())
    owner = Owner(name="theirs", version="1.0", libraries={})
    binaries = (
        BinaryRecord(path=Path("/env/theirs") / file, kind="extension", name=file, owner=owner)
        for file in files
    )
    extensions = tuple(row_of_verdict(Verdict(one, notes), runtime) for one in binaries)
    return hostile_report()._replace(extensions=extensions)


ASKS_FOR_STACK = Finding(
    dimension="executable stack",
    status=NOTE,
    code=codes.EXECUTABLE_STACK,
    observed="",
    needed="",
    why="it asks for an executable stack",
    fix=fixes.command_alone(fixes.Kind.CLEAR_STACK, "patchelf --clear-execstack /env/theirs/_C.so"),
)
BY_EVIDENCE = ASKS_FOR_STACK._replace(code=codes.VOUCHED, why="its version.py vouches", fix=NO_FIX)


def test_a_note_on_an_object_that_works_is_told_with_its_code_and_its_fix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_blocks(report_of_notes(ASKS_FOR_STACK, BY_EVIDENCE))
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("note: theirs 1.0: _C.so: it asks for an executable stack (TD307)")
    assert lines[start + 1] == "      to fix: patchelf --clear-execstack /env/theirs/_C.so"
    assert not [line for line in lines if codes.VOUCHED in line]
    assert "what a code means: torch-doctor TD307" in lines[-1]


def test_every_form_tells_a_note_with_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    for name, form in FORMS.items():
        form(report_of_notes(ASKS_FOR_STACK))
        out = capsys.readouterr().out
        assert "TD307" in out, name
        assert "patchelf --clear-execstack" in out, name


def test_json_has_the_notes_of_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(report_of_notes(ASKS_FOR_STACK))
    (row,) = json.loads(capsys.readouterr().out)["extensions"]
    assert (row["state"], row["code"], row["cause"]) == ("nothing found", None, None)
    assert [note["code"] for note in row["notes"]] == ["TD307"]


def test_a_note_of_several_objects_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    no_gpu = BY_EVIDENCE._replace(code=codes.NO_DRIVER, why="no GPU can be used here; the CPU can")
    print_blocks(report_of_notes(no_gpu, files=("a.so", "b.so")))
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert notes[0].startswith("note: theirs 1.0: a.so, theirs 1.0: b.so: no GPU")


def allowed_run(environment: Path, tmp_path: Path, content: str, *options: str) -> tuple[int, str]:
    (tmp_path / "allowed").write_text(content)
    process = run_doctor(
        "--python", str(environment), "--allow", str(tmp_path / "allowed"), *options
    )
    return process.returncode, process.stdout + process.stderr


@pytest.mark.parametrize("subject", ["broken", "Broken", "broken/_C.so"])
def test_an_allowed_failure_does_not_fail(environment: Path, tmp_path: Path, subject: str) -> None:
    content = f"# until Friday\n{subject} TD115 is rebuilt on Friday  # by us\n"
    code, out = allowed_run(environment, tmp_path, content, "--json")
    assert code == 0, out
    reasons = {row["package"]: row["allowed"] for row in json.loads(out)["extensions"]}
    assert reasons == {"good": None, "broken": "is rebuilt on Friday"}


def test_an_entry_that_no_longer_occurs_fails(environment: Path, tmp_path: Path) -> None:
    content = "broken TD115 is rebuilt\ngood TD115 was bad once\n"
    code, out = allowed_run(environment, tmp_path, content)
    assert code == 1
    assert codes.STALE_ALLOWANCE in out
    assert "line 2 allows TD115 of good" in out


def test_an_entry_with_another_code_allows_nothing(environment: Path, tmp_path: Path) -> None:
    code, out = allowed_run(environment, tmp_path, "broken TD116 another cause\n", "--json")
    assert code == 1
    assert [row["allowed"] for row in json.loads(out)["extensions"]] == [None, None]


@pytest.mark.parametrize("line", ["broken TD115", "broken TD999 reason", "broken td115 reason"])
def test_a_line_that_is_no_entry_is_bad_usage(environment: Path, tmp_path: Path, line: str) -> None:
    code, out = allowed_run(environment, tmp_path, f"\n{line}\n")
    assert code == 2
    assert "line 2 of" in out


def test_an_allow_list_that_is_missing_is_bad_usage(environment: Path) -> None:
    process = run_doctor("--python", str(environment), "--allow", "/no/such/list")
    assert process.returncode == 2
    assert "allow-list" in process.stderr


def test_the_sources_alone_run_under_any_name(tmp_path: Path) -> None:
    source = Path(__file__).parents[3] / "torchship"
    for part in ("doctor", "judge"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / part, tmp_path / "any_name" / part, ignore=ignored)
    command = [sys.executable, "-S", "-m", "any_name.doctor", "--json", "--python", "/usr"]
    env = {**os.environ, "PYTHONPATH": packaging_alone()}
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert process.returncode == 2, process.stderr  # there is no torch
    assert json.loads(process.stdout)["extensions"] == []


@pytest.mark.parametrize(("names", "code"), [((), 2), (("theirs",), 1)])
def test_where_there_is_no_torch_nothing_is_said_to_work(
    tmp_path: Path, names: tuple[str, ...], code: int
) -> None:
    site = make_environment(tmp_path / "env")
    add_pip(site)
    add_package(site, "theirs", {"theirs/__init__.py": ""})
    command = [sys.executable, "-m", "torchship.doctor", "--json", *names]
    process = subprocess.run(
        [*command, "--python", tmp_path / "env"], capture_output=True, text=True, cwd=REPO
    )
    report = json.loads(process.stdout)
    assert (process.returncode, report["exit_code"]) == (code, code), process.stderr
    failing = [row["cause"] for row in report["extensions"] if row["state"] == "fails"]
    assert [cause["code"] for cause in failing] == ["TD101"] * len(names)
    assert all('pip install "torch>=' in cause["command"] for cause in failing)


def test_a_torch_that_is_not_there_is_not_said_to_be_imported(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    command = [sys.executable, "-m", "torchship.doctor", "--python", str(tmp_path / "env")]
    process = subprocess.run(command, capture_output=True, text=True, cwd=REPO)
    assert "\n0 packages imported, " in process.stdout

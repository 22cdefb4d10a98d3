"""`verify`: which environments, what is kept, when it is stored, what tables say of it."""

from __future__ import annotations

import io
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from rich.console import Console
from shared_objects import GLUE_RECORD, shared_object
from small_checkout import CHECKOUT
from small_wheels import make_wheel

from torchship.release import ReleaseError
from torchship.release.matrix import evidence, support_table
from torchship.release.matrix.evidence import Environment
from torchship.release.matrix.load import load
from torchship.release.matrix.settings import Settings, make_settings
from torchship.release.run.shell import Log
from torchship.release.run.store import digest
from torchship.release.run.tasks import Context, SkipTask
from torchship.release.steps.compile.environments import python_facts
from torchship.release.steps.verify import full as verify_full
from torchship.release.steps.verify.full import (
    Findings,
    Target,
    TryWheel,
    Verification,
    cache_of,
    targets,
)

DATE = "2026-01-02T03:04:05Z"


@pytest.fixture
def wheel(tmp_path) -> Path:
    record = {**GLUE_RECORD, "git_commit": "c" * 40}
    glue = shared_object(tmp_path / "glue-stable210.so", record=record)
    return make_wheel(tmp_path / "dist", {glue.name: glue.read_bytes()})


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def leave_free(monkeypatch: pytest.MonkeyPatch, gigabytes: int) -> None:
    """Lets each disk have this much space, whatever it has."""
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(gigabytes * 10**9))


class World:
    """verify() with environments that are only pretended; counts what was tried."""

    def __init__(self, settings: Settings, console: Console, monkeypatch) -> None:
        self.settings = settings
        self.console = console
        self.tried: list[str] = []
        self.state, self.error = "ran", None
        self.work = settings.verify_full
        self.results = settings.build / "environments.json"
        monkeypatch.setattr(verify_full, "try_wheel", self.run)
        monkeypatch.setattr(verify_full, "interpreter", lambda python: f"python{python}")
        monkeypatch.setattr(evidence, "results_of", lambda platform: self.results)
        leave_free(monkeypatch, 100)

    def run(self, log, target: Target, wheel: Path, folder: Path) -> Findings:
        self.tried.append(target.name)
        (cache_of(self.settings) / target.name).mkdir(parents=True)
        if self.error:
            raise self.error
        return Findings(state=self.state, gradcheck=True, comparisons=16)

    def verify(self, wheel: Path, targets: list[Target], **options: bool) -> int:
        verification = Verification(wheel, self.settings, self.console)
        return verify_full.verify(verification, targets, **options)


@pytest.fixture
def world(own_settings, console, monkeypatch) -> World:
    return World(own_settings, console, monkeypatch)


def select_targets(matrix, *names: str) -> list[Target]:
    """The environments of a torch (`2.4`), or one (`2.4@3.10`)."""
    all_targets = targets(matrix)
    return [t for t in all_targets if t.torch in names or f"{t.torch}@{t.python}" in names]


@pytest.mark.slow
def test_every_torch_meets_every_python_that_it_has_a_wheel_for(matrix) -> None:
    pairs = {(target.torch, target.python) for target in targets(matrix)}
    assert pairs >= {(m, p) for m, torch in matrix.torch.items() for p in torch.pythons}
    assert pairs <= {(m, p) for m, torch in matrix.torch.items() for p in torch.every_python}
    assert len(pairs) >= 46


def test_the_newest_torch_comes_first(matrix) -> None:
    assert targets(matrix)[0].torch == matrix.minors()[-1]


def test_a_missing_interpreter_is_known(matrix, monkeypatch) -> None:
    monkeypatch.setattr(verify_full, "interpreter", lambda python: None)
    all_targets = targets(matrix)
    assert {target.interpreter for target in all_targets} == {None}
    assert not any(target.python.endswith("t") for target in all_targets), (
        "files alone prove nothing"
    )


@pytest.fixture
def free_threaded(tmp_path) -> Path:
    """This interpreter, which says that it is free-threaded."""
    program = tmp_path / "free"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys, sysconfig\n"
        "ask = sysconfig.get_config_var\n"
        "sysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED' or ask(name)\n"
        "exec(sys.argv[2])\n"
    )
    program.chmod(0o755)
    return program


def test_a_free_threaded_python_has_a_name_of_its_own(free_threaded) -> None:
    minor = ".".join(map(str, sys.version_info[:2]))
    assert python_facts(sys.executable)["minor"] == minor
    assert python_facts(str(free_threaded))["minor"] == f"{minor}t"


def named(monkeypatch, python: str) -> Path:
    monkeypatch.setattr(verify_full, "python_facts", lambda path: {"minor": python})
    return Path("/a/python")


@pytest.mark.parametrize("python", ["3.14", "3.13t"])
def test_a_named_python_is_tried_alone(matrix, monkeypatch, python) -> None:
    path = named(monkeypatch, python)
    all_targets = targets(matrix, [path])
    expected = {minor for minor, torch in matrix.torch.items() if python in torch.every_python}
    assert {target.torch for target in all_targets} == expected
    assert {(target.python, target.interpreter) for target in all_targets} == {(python, str(path))}


def test_a_python_without_a_torch_is_refused(matrix, monkeypatch) -> None:
    with pytest.raises(ReleaseError, match=r"is Python 3\.9; name one of 3\.10, "):
        targets(matrix, [named(monkeypatch, "3.9")])


def test_a_python_that_does_not_run_is_refused(matrix, tmp_path) -> None:
    with pytest.raises(ReleaseError, match=r"does not run: .*; name one that does"):
        targets(matrix, [tmp_path / "none"])


def test_results_of_a_named_python_join_the_stored_ones(
    world, matrix, wheel, console, tmp_path, monkeypatch
) -> None:
    world.verify(wheel, targets(matrix))
    before = evidence.load(world.results)
    other = shutil.copy(wheel, tmp_path / wheel.name.replace("-none-", "-none-linux_"))
    named_only = targets(matrix, [named(monkeypatch, "3.14t")])
    world.state = "rejected"
    world.verify(other, named_only, join=True)
    after = evidence.load(world.results)
    assert len(after.environments) == len(before.environments)
    rows = {(row.torch, row.python): row for row in after.environments}
    changed = {key for key, row in rows.items() if row != before.of(*key)}
    assert changed == {(target.torch, "3.14t") for target in named_only}
    assert {rows[key].wheel for key in changed} == {other.name}
    assert {rows[key].commit for key in changed} == {"c" * 40}
    assert after.wheel == before.wheel
    assert f"Python 3.14t: on {rows[changed.pop()].date[:10]} with `{other.name}`" in (
        support_table.full(matrix, after, {})
    )


def test_a_python_that_is_new_gets_a_row_for_each_torch(world, matrix, wheel, monkeypatch) -> None:
    world.verify(wheel, targets(matrix))
    stored = evidence.load(world.results)
    older = [row for row in stored.environments if row.python != "3.15"]
    evidence.save(stored.model_copy(update={"environments": older}), world.results)
    world.verify(wheel, targets(matrix, [named(monkeypatch, "3.15")]), join=True)
    states = {
        row.torch: row.state for row in evidence.load(world.results).environments[len(older) :]
    }
    expected = dict.fromkeys(matrix.torch, "unsupported") | {"2.15": "ran"}
    assert states == expected


def test_what_is_no_wheel_is_refused(world, matrix, console, tmp_path) -> None:
    path = tmp_path / "tiny_client.whl"
    path.write_text("no zip")
    with pytest.raises(ReleaseError, match="cannot be read as a wheel"):
        world.verify(path, targets(matrix))


def test_a_wheel_without_build_records_is_refused(settings, tmp_path) -> None:
    results = [Environment(torch="2.4", python="3.10", state="ran", date=DATE)]
    with pytest.raises(ReleaseError, match="has no binaries, or one has no build record"):
        verify_full.gathered(Verification(make_wheel(tmp_path, {}), settings, Console()), results)


def test_a_second_run_tries_nothing_again(world, matrix, wheel, console) -> None:
    assert world.verify(wheel, select_targets(matrix, "2.4")) == 0
    assert len(world.tried) == 3
    assert world.verify(wheel, select_targets(matrix, "2.4")) == 0
    assert len(world.tried) == 3


def test_another_wheel_is_tried_anew(world, matrix, wheel, console, tmp_path) -> None:
    world.verify(wheel, select_targets(matrix, "2.4"))
    other = make_wheel(tmp_path / "other", {"glue-stable210.so": b"other"})
    world.verify(other, select_targets(matrix, "2.4"))
    assert len(world.tried) == 6


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1, "result": {}}'])
def test_a_torn_result_is_tried_again(world, matrix, wheel, console, damage) -> None:
    world.verify(wheel, select_targets(matrix, "2.4@3.10"))
    (file,) = world.work.glob("results/*.json")
    file.write_text(damage)
    world.verify(wheel, select_targets(matrix, "2.4@3.10"))
    assert len(world.tried) == 2


def test_what_could_not_be_installed_is_tried_again(world, matrix, wheel, console) -> None:
    world.error = SkipTask("no such index")
    assert world.verify(wheel, select_targets(matrix, "2.4@3.10")) == 1
    world.error = None
    assert world.verify(wheel, select_targets(matrix, "2.4@3.10")) == 0


@pytest.mark.parametrize(
    ("signal", "where", "skipped", "state"),
    [
        ("INT", "-m", "exit code -2", None),
        ("SEGV", "-c", "torch fails here without tiny_client: .* exit code -11", None),
        ("SEGV", "-m", "", "failed"),
    ],
)
def test_a_program_that_was_stopped_proves_nothing(
    own_settings, wheel, tmp_path, monkeypatch, signal, where, skipped, state
) -> None:
    """Nor does a torch that crashes alone; a crash of the checker is a failure."""
    python = tmp_path / "python"
    # A shell could not undo it where SIGINT is ignored, as in what runs in the background.
    python.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys\n"
        f"signal.signal(signal.SIG{signal}, signal.SIG_DFL)\n"
        f"if sys.argv[1] == {where!r}: os.kill(os.getpid(), signal.SIG{signal})\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(verify_full, "make_venv", lambda *_, **__: python)
    target = Target("2.10", "2.10.0", "3.12", "python3.12")
    context = Context(Log(tmp_path / "log", own_settings), own_settings)
    step = TryWheel(name="verify", target=target, wheel=wheel)
    if state is None:
        with pytest.raises(SkipTask, match=skipped):
            step.run(context)
        return
    (path,) = step.run(context)
    assert Environment.model_validate_json(path.read_text()).state == state


@pytest.mark.parametrize("state", ["failed", "rejected"])
def test_an_environment_that_does_not_work_makes_the_exit_code(world, matrix, wheel, state) -> None:
    world.state = state
    assert world.verify(wheel, select_targets(matrix, "2.4@3.10")) == 1


def test_the_cache_goes_with_its_torch_whatever_happens(world, matrix, wheel, console) -> None:
    world.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        world.verify(wheel, select_targets(matrix, "2.4@3.10"))
    assert not cache_of(world.settings).exists()
    assert not list(world.work.glob("torch-*"))


def test_too_little_space_stops_with_what_is_missing(
    world, matrix, wheel, console, monkeypatch
) -> None:
    leave_free(monkeypatch, 2)
    with pytest.raises(ReleaseError, match=r"2\.0 GB are free, 15 GB are needed"):
        world.verify(wheel, targets(matrix))
    assert world.tried == []


def test_a_python_that_is_missing_is_named_with_what_to_do(
    world, matrix, wheel, console, monkeypatch
) -> None:
    monkeypatch.setattr(verify_full, "interpreter", lambda python: None)
    assert world.verify(wheel, select_targets(matrix, "2.4@3.10")) == 1
    assert "no Python 3.10 on PATH or in pyenv; install one" in console.file.getvalue()
    assert world.tried == []


def test_only_a_whole_set_is_stored(world, matrix, wheel, console) -> None:
    world.verify(wheel, select_targets(matrix, "2.4"))
    assert not world.results.exists()
    world.verify(wheel, targets(matrix))
    stored = evidence.load(world.results)
    assert stored is not None and stored.commit == "c" * 40
    assert stored.sha256 == digest(wheel) and stored.binaries == ["glue-stable210.so"]
    assert len(stored.environments) == len(matrix.torch) * len(matrix.every_python())
    states = {(e.torch, e.python): e.state for e in stored.environments}
    assert states["2.4", "3.10"] == "ran" and states["2.4", "3.13"] == "unsupported"


def test_a_damaged_store_is_named(tmp_path) -> None:
    path = tmp_path / "environments.json"
    path.write_text('{"schema_version": 2}')
    with pytest.raises(ReleaseError, match=r"environments\.json"):
        evidence.load(path)


def make_results(matrix, wheel, **states: str):
    """The stored results of a run with these states, `ran` for all others."""
    rows = [
        Environment(torch=minor, python=python, state=state, date=DATE)
        for minor, torch in matrix.torch.items()
        for python in torch.every_python
        for state in [states.get(f"torch-{minor}-py{python}", "ran")]
    ]
    return verify_full.gathered(
        Verification(wheel, make_settings(matrix, CHECKOUT), Console()), rows
    )


def cells(table: str, minor: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {minor} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][4:-1]


def test_the_table_says_what_was_seen(matrix, wheel) -> None:
    results = make_results(matrix, wheel, **{"torch-2.9-py3.13": "failed"})
    table = support_table.full(matrix, results, {"2.4": "7 passed"})
    assert cells(table, "2.9") == [
        "ran",
        "ran",
        "ran",
        "**fails** (failed)",
        "ran",
        "no",
        *["ran"] * 2,
        "no",
    ]
    assert cells(table, "2.4") == ["ran", "ran", "ran", *["no"] * 6]
    assert table.count("| 7 passed |") == 1
    assert DATE[:10] in table and "c" * 12 in table
    assert "untried" not in table


def test_a_new_torch_is_untried_until_it_is_tried(matrix, matrix_text, wheel, tmp_path) -> None:
    releases = matrix_text[matrix_text.index("\ntorch:") :]
    entry = releases[releases.index('  "2.15":') :].replace("2.15", "2.16")
    path = tmp_path / "matrix.yaml"
    path.write_text(matrix_text + entry, encoding="utf-8")
    table = support_table.full(load(path), make_results(matrix, wheel), {})
    assert cells(table, "2.16") == ["no", *["untried"] * 5, "no", "untried", "untried"]

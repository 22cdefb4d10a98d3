"""The command line: what it means, and what is refused before anything is built."""

from __future__ import annotations

import signal

import pytest

from torchship.release import ReleaseError
from torchship.release import __main__ as command
from torchship.release.__main__ import main
from torchship.release.options import COMMANDS, command_of


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise AssertionError("it was not refused")

    for name in ("run_for_platform", "merge"):
        monkeypatch.setattr(command, name, fail)
    monkeypatch.setattr(command.generated, "write", fail)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["upload"], "TARGET"),
        (["recipe"], "VARIANT"),
        (["merge"], "DIR"),
        (["--shard"], "--shard"),
        (["--channel"], "--channel"),
        (["verify", "--python"], "--python"),
    ],
)
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_text_is_refused(words, name, value, capsys) -> None:
    """An unset variable of a script would start a full build."""
    assert main([*words, value]) == 2
    assert f"{name}: got an empty text" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_leaves_the_handlers_of_signals_as_they_were(number: signal.Signals) -> None:
    """A program that calls it in its process keeps its own; so does a run of tests."""
    before = signal.getsignal(number)
    assert main(["--project", "/nonexistent"]) == 2
    assert signal.getsignal(number) == before


def test_an_empty_selector_is_refused(capsys) -> None:
    assert main(["--dry-run", ""]) == 2
    assert "got an empty selector" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "command", "arguments"),
    [
        ("host --jobs 2", "release", "host --jobs 2"),
        ("upload pypi --dry-run", "upload", "pypi --dry-run"),
        ("host --list --json", "list", "--json host"),
        ("--upload pypi --dry-run", "upload", "pypi --dry-run"),
        ("*-aarch64 --upload pypi", "upload", "pypi *-aarch64"),
        ("--merge a --merge b c", "merge", "a b c"),
        ("--write-generated", "generate", ""),
        ("host --verify full --jobs 2", "verify", "host --jobs 2"),
    ],
)
def test_a_command_may_be_a_word_or_an_option(line: str, command: str, arguments: str) -> None:
    assert command_of(line.split()) == (command, arguments.split())


@pytest.mark.parametrize("line", ["--merge a --upload pypi", "--write-generated --list"])
def test_two_commands_in_one_are_refused(line: str) -> None:
    """One of them would be left out without a word."""
    with pytest.raises(ReleaseError, match="are commands of their own"):
        command_of(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "merge a --dry-run",
        "upload pypi --shard 1/2",
        "recipe stable210-cpu --dry-run",
        "generate --dry-run",
        "generate host",
        "list --shard 1/2",
        "--json",
        "--github",
    ],
)
def test_an_option_that_a_command_would_leave_out_is_refused(line: str, capsys) -> None:
    """With --dry-run, it would act all the same; without --list, it would build."""
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert "unrecognized arguments: " in capsys.readouterr().err


def test_the_help_of_a_release_names_the_other_commands(capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS if name != "release")

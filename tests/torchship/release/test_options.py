"""The command line: what is refused before anything is built."""

from __future__ import annotations

import signal

import pytest

from torchship.release import __main__ as command
from torchship.release.__main__ import main


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise AssertionError("it was not refused")

    for name in ("run_for_platform", "merge"):
        monkeypatch.setattr(command, name, fail)
    monkeypatch.setattr(command.generated, "write", fail)


@pytest.mark.parametrize(
    "option", ["--upload", "--recipe", "--shard", "--channel", "--merge", "--python"]
)
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_text_is_refused(option, value, capsys) -> None:
    """An unset variable of a script would start a full build."""
    assert main([option, value]) == 2
    assert f"{option}: got an empty text" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_leaves_the_handlers_of_signals_as_they_were(number: signal.Signals) -> None:
    """A program that calls it in its process keeps its own; so does a run of tests."""
    before = signal.getsignal(number)
    assert main(["--dry-run", ""]) == 2
    assert signal.getsignal(number) == before


def test_an_empty_selector_is_refused(capsys) -> None:
    assert main(["--dry-run", ""]) == 2
    assert "got an empty selector" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ["--merge", "a", "--upload", "pypi"],
        ["--merge", "a", "--recipe", "host"],
        ["--upload", "pypi", "--recipe", "host"],
        ["--write-generated", "--list"],
    ],
)
def test_two_commands_in_one_are_refused(options, capsys) -> None:
    """One of them would be left out without a word."""
    assert main(options) == 2
    assert "are commands of their own" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ["--merge", "a", "--dry-run"],
        ["--merge", "a", "--shard", "1/2"],
        ["host", "--merge", "a"],
        ["--upload", "pypi", "--shard", "1/2"],
        ["--upload", "pypi", "--verify", "full"],
        ["--recipe", "stable210-cpu", "--dry-run"],
        ["--write-generated", "--dry-run"],
        ["--write-generated", "host"],
        ["--list", "--shard", "1/2"],
    ],
)
def test_an_option_that_a_command_would_leave_out_is_refused(options, capsys) -> None:
    """With --dry-run, it would act all the same."""
    assert main(options) == 2
    assert "does nothing with" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--json", "--github"])
def test_a_format_of_the_list_starts_no_build(option, capsys) -> None:
    assert main([option]) == 2
    assert f"{option} belongs to --list" in capsys.readouterr().out

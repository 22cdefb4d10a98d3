"""The command line of torch-doctor: what is typed, and what is asked for."""

from __future__ import annotations

import pytest

from torchship.doctor import grammar
from torchship.doctor.command import main
from torchship.doctor.grammar import Build, Check, Explain, Run, Where


def read(line: str) -> grammar.Request:
    return grammar.read(line.split(), "torch-doctor")


@pytest.mark.parametrize(
    ("line", "names", "is_bare"),
    [
        ("", (), True),
        ("torchvision", ("torchvision",), True),
        ("torchvision --json run", ("torchvision", "run"), True),
        ("check", (), False),
        ("--no-import check build", ("build",), False),
        ("check run x", ("run", "x"), False),
    ],
)
def test_what_is_checked(line: str, names: tuple[str, ...], is_bare: bool) -> None:
    request = read(line)
    assert isinstance(request, Check)
    assert (request.names, request.is_bare) == (names, is_bare)


@pytest.mark.parametrize(
    ("line", "command", "where"),
    [
        ("run python -m x --json", ("python", "-m", "x", "--json"), Where()),
        ("--python run run x", ("x",), Where(python="run")),
        ("run --torch 2.9 make -j", ("make", "-j"), Where(torch="2.9")),
        ("run -- --odd", ("--odd",), Where()),
    ],
)
def test_what_stands_behind_run_is_another_programs(
    line: str, command: tuple[str, ...], where: Where
) -> None:
    request = read(line)
    assert isinstance(request, Run)
    assert (request.command, request.check.where, request.check.form) == (command, where, "text")


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("--build --json", "build --json"),
        ("--audit a.whl --json", "audit --json a.whl"),
        ("--audit=a.whl", "audit a.whl"),
        ("--json --build --torch 2.9", "build --torch 2.9 --json"),
    ],
)
def test_the_options_that_are_commands_now_mean_the_same(line: str, same: str) -> None:
    assert read(line) == read(same)


def test_options_stand_on_both_sides_of_a_command() -> None:
    request = read("--torch 2.9 explain --verbose TD110")
    assert isinstance(request, Explain)
    assert request.words == ("TD110",)
    assert (request.check.where, request.check.form) == (Where(torch="2.9"), "rows")
    assert read("--python x build") == Build(where=Where(python="x"))


@pytest.mark.parametrize("line", ["run", "audit", "choose", "build a", "audit a b", "--seconds 0"])
def test_what_cannot_be_understood_ends_with_2(line: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        read(line)


def test_a_misspelt_command_gets_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments=["chose", "dist/"]) == 2
    assert "Did you mean `choose`?" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["TD999", "td999", "explain TD000"])
def test_a_code_that_does_not_exist_is_no_file(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments=line.split()) == 2
    assert f"{line.split()[-1].upper()} is not a code of torch-doctor" in capsys.readouterr().err

"""`--try-fix` finds a release that mends an import, where no file tells which one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from looked_environment import LookedEnvironment, diagnose
from sick_environment import SickEnvironment

from torchship.doctor.fixes import trying
from torchship.doctor.report import blocks

HAS_IT = "def compare():\n    return 1\n"


@pytest.fixture(params=[pytest.param("pip", marks=pytest.mark.slow), "uv"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> SickEnvironment:
    """A package that was written for metrics 1, beside metrics 3; each fails with 2 and 3."""
    place = SickEnvironment(tmp_path, installer=request.param)
    place.publish_torch("2.13.0+cpu")
    source = {"theirs/__init__.py": "from metrics import compare\n"}
    place.publish_wheel("theirs", "1.0", source, ["torch", "metrics>=0.1"])
    for version, content in (("1.0", ""), ("1.4", HAS_IT), ("2.0", ""), ("3.0", "")):
        place.publish_wheel("metrics", version, {"metrics/__init__.py": content})
    place.install("torch", "theirs", "metrics==3.0")
    return place


#: What is tried does not depend on the installer, and uv is quicker.
by_uv = pytest.mark.parametrize("place", ["uv"], indirect=True)


def _asked(place: SickEnvironment) -> dict[str, object]:
    row = place.failing_row("--try-fix theirs")
    command = row["cause"].get("command") or ""
    return {"mends": row["mends"], "tried": row["tried"], "command": command}


def test_the_newest_older_release_that_mends_is_named(place: SickEnvironment) -> None:
    asked = _asked(place)
    assert asked["mends"] is True
    assert asked["tried"] == ["metrics 1.4"]
    assert str(asked["command"]).endswith('"metrics==1.4"')
    assert place.installed_version("metrics") == "3.0"  # it was tried elsewhere
    place.type(str(asked["command"]))
    place.type("python -c 'import theirs'")


@by_uv
def test_a_newer_release_of_the_package_that_fails_comes_first(place: SickEnvironment) -> None:
    place.publish_wheel("theirs", "2.0", {"theirs/__init__.py": "import metrics\n"}, ["torch"])
    assert str(_asked(place)["command"]).endswith('"theirs==2.0"')


@by_uv
def test_no_release_is_named_that_another_package_excludes(place: SickEnvironment) -> None:
    place.publish_wheel("other", "1.0", {"other.py": ""}, ["metrics>=2"])
    place.install("other")
    assert _asked(place) == {"mends": None, "tried": ["metrics 2.0"], "command": ""}


@by_uv
def test_a_release_that_brings_another_torch_is_not_tried(place: SickEnvironment) -> None:
    place.publish_torch("2.14.0+cpu")
    newer = {"theirs/__init__.py": "import metrics\n"}
    place.publish_wheel("theirs", "2.0", newer, ["torch>=2.14"])
    assert str(_asked(place)["command"]).endswith('"metrics==1.4"')


@pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.slow)])
def test_another_project_of_the_name_is_no_release_of_the_package(
    tmp_path: Path, installer: str
) -> None:
    place = SickEnvironment(tmp_path, installer=installer)
    place.publish_torch("2.13.0+cpu")
    source = {"theirs/__init__.py": "from metrics import compare\n"}
    place.publish_wheel("theirs", "1.0", source, ["torch", "metrics"])
    place.publish_wheel("metrics", "3.0", {"metrics/__init__.py": ""})
    place.install("torch", "theirs", "metrics==3.0")
    for version in ("0.4", "2.0"):
        place.publish_wheel("theirs", version, {"theirs/__init__.py": "import json\n"})
    assert _asked(place) == {"mends": None, "tried": [], "command": ""}


def test_without_a_trial_the_report_says_how_to_find_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = LookedEnvironment(tmp_path / "env")
    env.add("lower", "import torch\n")
    env.add("upper", "import torch\nfrom lower import gone\n", "Requires-Dist: lower>=0.1")
    report = diagnose(env, "upper")
    blocks.print_blocks(report)
    said = capsys.readouterr().out
    assert f"to try:  {report.search} upper\n" in said
    assert "--try-fix" in report.search


def test_of_a_command_only_its_options_are_kept() -> None:
    words = trying.words_of("uv pip install --python /e/python 'a>1' --index-url x b")
    assert [*trying.options_of(words)] == [
        *("uv", "pip", "install", "--python", "/e/python", "--index-url", "x")
    ]

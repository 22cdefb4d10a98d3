"""A module that hides an installed package: what Python takes is judged, the hidden is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from environments import ABSENT, SYMBOL
from looked_environment import LookedEnvironment, diagnose, row_of
from shared_objects import shared_object

from torchship.doctor.environment.installed import Reach
from torchship.doctor.report.report import Report

SOURCE = "import torch\n"


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    """An installed package whose import leaves its extension alone."""
    env = LookedEnvironment(tmp_path / "env")
    folder = env.add("audio", SOURCE)
    env.add_module(folder / "_ext.so", needs=SYMBOL)
    env.list_objects("audio")
    return env


def _write(path: Path, content: str = SOURCE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _source_folder(env: LookedEnvironment) -> Path:
    _write(env.folder / "audio" / "__init__.py")
    return env.folder / "audio"


def _file(env: LookedEnvironment) -> Path:
    _write(env.folder / "audio.py")
    return env.folder / "audio.py"


def _on_pythonpath(env: LookedEnvironment) -> Path:
    _write(env.prefix / "other" / "audio" / "__init__.py")
    return env.prefix / "other" / "audio"


def _by_pth(env: LookedEnvironment) -> Path:
    other = env.prefix / "first"
    _write(other / "audio" / "__init__.py")
    (env.site / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(other)!r})\n")
    return other / "audio"


def _by_finder(env: LookedEnvironment) -> Path:
    """As an editable that asks to be asked first."""
    source = env.prefix / "src" / "audio" / "__init__.py"
    _write(source)
    finder = (
        "import sys, importlib.util as u\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'audio':\n"
        f"            return u.spec_from_file_location(name, {str(source)!r})\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    (env.site / "_finder.py").write_text(finder)
    (env.site / "finder.pth").write_text("import _finder\n")
    return source.parent


HIDING = [_source_folder, _file, _on_pythonpath, _by_pth, _by_finder]


@pytest.fixture(params=HIDING, ids=lambda make: make.__name__.strip("_"))
def place(
    request: pytest.FixtureRequest, env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(env.prefix / "other"))
    make: Callable[[LookedEnvironment], Path] = request.param
    return make(env)


def _hidden(report: Report) -> list[str]:
    return [row.summary for row in report.rows if row.code == "TD709"]


@pytest.mark.parametrize("names", [(), ("audio",)])
def test_an_extension_behind_a_module_without_any_fails(
    env: LookedEnvironment, place: Path, names: tuple[str, ...]
) -> None:
    report = diagnose(env, *names)
    row = row_of(report, "_ext.so")
    assert (row.state, row.code) == ("fails", "TD205"), row.summary
    assert str(place) in row.summary
    assert report.exit_code == 1


def test_a_library_behind_a_module_without_any_fails(env: LookedEnvironment, place: Path) -> None:
    (env.site / "audio" / "_ext.so").unlink()
    shared_object(env.site / "audio" / "ops.so", libraries=[env.torch / "lib" / "libtorch_cpu.so"])
    record = env.site / "audio-1.0.dist-info" / "RECORD"
    record.write_text("audio/ops.so,,\naudio/__init__.py,,\n")
    row = row_of(diagnose(env), "ops.so")
    assert (row.state, row.code) == ("fails", "TD205")
    assert f"{place} hides the installed audio 1.0, and lacks its binaries" in row.summary


@pytest.mark.parametrize(("symbol", "state"), [(SYMBOL, "works"), (ABSENT, "fails")])
def test_the_objects_of_what_python_takes_are_judged(
    env: LookedEnvironment, symbol: str, state: str
) -> None:
    place = _source_folder(env)
    front = env.add_module(place / "_other.so", needs=symbol)
    report = diagnose(env)
    row = next(row for row in report.extensions if row.path == front)
    assert (row.state, row.decided_by) == (state, "look")
    assert not [row for row in report.extensions if row.path == env.site / "audio" / "_ext.so"]
    assert [str(place) in summary for summary in _hidden(report)] == [True]


def test_a_package_without_objects_that_is_hidden_is_named(
    env: LookedEnvironment, place: Path
) -> None:
    """As a pure package, whose import works, but is another's."""
    (env.site / "audio" / "_ext.so").unlink()
    record = env.site / "audio-1.0.dist-info" / "RECORD"
    record.write_text("audio/__init__.py,,\n")
    report = diagnose(env)
    assert [str(place) in summary for summary in _hidden(report)] == [True]
    assert report.exit_code == 0


def test_a_folder_without_an_init_hides_nothing(env: LookedEnvironment) -> None:
    (env.folder / "audio").mkdir()
    report = diagnose(env)
    assert (row_of(report, "_ext.so").state, report.exit_code) == ("works", 0)
    assert not _hidden(report)


def test_a_package_that_takes_its_parts_from_all_folders_hides_none(
    env: LookedEnvironment,
) -> None:
    source = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
    _write(env.folder / "audio" / "__init__.py", source)
    env.add_module(env.folder / "audio" / "_other.so", needs=SYMBOL)
    report = diagnose(env)
    assert (row_of(report, "_ext.so").state, report.exit_code) == ("works", 0)
    assert not _hidden(report)


def test_where_python_leaves_the_folder_out_it_hides_nothing(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    _source_folder(env)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    report = diagnose(env)
    assert (row_of(report, "_ext.so").state, report.exit_code) == ("works", 0)


def test_a_file_that_is_named_is_judged_whatever_hides_it(env: LookedEnvironment) -> None:
    _source_folder(env)
    report = diagnose(env, str(env.site / "audio" / "_ext.so"))
    assert row_of(report, "_ext.so").code != "TD205"


def test_reading_alone_names_what_is_hidden(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(env.prefix / "other"))
    place = _on_pythonpath(env)
    report = diagnose(env, not_looking_since="--no-import was given")
    assert not [row for row in report.extensions if row.path.name == "_ext.so"]
    assert [str(place) in summary for summary in _hidden(report)] == [True]


def test_an_environment_within_the_folder_is_not_of_the_folder(tmp_path: Path) -> None:
    """As a project whose environment lies in it."""
    place, site = tmp_path / "audio", tmp_path / ".venv" / "site-packages"
    reach = Reach([site], {"audio": (place / "__init__.py", place)})
    assert reach.hiding(site / "audio" / "_ext.so") == place


def test_a_library_with_the_name_of_a_module_is_not_hidden_by_it(tmp_path: Path) -> None:
    """As conda has libraries in folders that are on no path of Python's."""
    reach = Reach([tmp_path / "site-packages"], {"png": (tmp_path / "site-packages" / "png.py",)})
    assert reach.hiding(tmp_path / "lib" / "loaders" / "png.so") is None


def test_a_copy_in_the_users_site_behind_the_environments_own_is_named_and_not_judged(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(env.prefix / "home"))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    with (env.prefix / "pyvenv.cfg").open("a") as config:
        config.write("include-system-site-packages = true\n")
    version = env.site.parent.name
    users = env.prefix / "home" / ".local" / "lib" / version / "site-packages"
    users.mkdir(parents=True)
    own, env.site = env.site, users
    folder = env.add("audio", "import torch\nfrom . import _ext\n")
    env.add_module(folder / "_ext.so", needs=ABSENT)
    env.list_objects("audio")
    env.site = own
    report = diagnose(env)
    assert report.exit_code == 0
    assert [row.path for row in report.extensions] == [own / "audio" / "_ext.so"]
    (note,) = (row for row in report.notices if row.code == "TD709")
    assert note.path.parent == users and str(own) in note.summary

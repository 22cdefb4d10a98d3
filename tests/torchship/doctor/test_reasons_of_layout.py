"""Reasons that lie in where files are, how Python was started, and what was meant to be so."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from environments import add_package, make_environment
from looked_environment import LookedEnvironment, carry_out, diagnose, fix_of, row_of

from torchship.doctor.environment.archives import names_in
from torchship.doctor.environment.elsewhere import environment_with
from torchship.doctor.environment.pythons import ask
from torchship.doctor.examine import Request, examine
from torchship.doctor.report.report import heading
from torchship.doctor.report.rows import Row
from torchship.judge import probe_runtime
from torchship.judge.target import Target


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    return LookedEnvironment(tmp_path / "env")


def _on_path(env: LookedEnvironment, *entries: Path) -> None:
    (env.site / "entries.pth").write_text("".join(f"{entry}\n" for entry in entries))


# Where files lie.


def test_an_object_in_an_archive_is_told(env: LookedEnvironment) -> None:
    built = env.add_module(env.prefix / "built" / "_C.so")
    archive = env.prefix / "app.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(built, "zapp/_C.so")
        file.writestr("zapp/__init__.py", "import torch\nfrom . import _C\n")
    _on_path(env, archive)
    row = row_of(diagnose(env, "zapp"), "zapp")
    assert f"zapp._C lies in the archive {archive} (zapp/_C.so)" in row.summary


def test_an_archive_without_the_object_is_not_blamed(env: LookedEnvironment) -> None:
    archive = env.prefix / "app.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zapp/__init__.py", "import torch\nfrom . import _C\n")
    _on_path(env, archive)
    assert "lies in the archive" not in row_of(diagnose(env, "zapp"), "zapp").summary


@pytest.mark.parametrize("content", [b"", b"PK\5\6", b"PK\5\6" + bytes(8) + b"\xff" * 10])
def test_a_file_that_is_no_archive_has_no_names(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    assert names_in(tmp_path / "x.zip") == []
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("is_listed_so", [True, False])
def test_a_wheel_that_was_only_unpacked_is_told(env: LookedEnvironment, is_listed_so: bool) -> None:
    folder = env.add("unpacked_ops", "import torch\n")
    scheme = env.site / "unpacked_ops-1.0.data" / "purelib"
    scheme.mkdir(parents=True)
    folder.rename(scheme / "unpacked_ops")
    record = env.site / "unpacked_ops-1.0.dist-info" / "RECORD"
    if is_listed_so:
        record.write_text("unpacked_ops-1.0.data/purelib/unpacked_ops/__init__.py,,\n")
    row = row_of(diagnose(env), "unpacked_ops")
    assert row.code == "TD204" and "was unpacked and not installed" in row.summary
    assert str(scheme) in row.summary


def test_a_pth_file_that_makes_a_package_without_its_other_part_is_told(
    env: LookedEnvironment,
) -> None:
    part = env.prefix / "entry" / "spaced" / "ops"
    part.mkdir(parents=True)
    (part / "__init__.py").write_text("import torch\n")
    (env.site / "spaced").mkdir()
    making = (
        "import sys, types; m = sys.modules.setdefault('spaced', types.ModuleType('spaced')); "
        f"m.__path__ = [{str(env.site / 'spaced')!r}]\n"
    )
    (env.site / "spaced-nspkg.pth").write_text(making)
    _on_path(env, env.prefix / "entry")
    row = row_of(diagnose(env, "spaced.ops"), "spaced.ops")
    assert "spaced-nspkg.pth makes the package spaced for Python, without" in row.summary
    carry_out(env, row, "spaced.ops")


def test_a_package_with_code_that_leaves_out_a_part_is_told(env: LookedEnvironment) -> None:
    part = env.prefix / "entry" / "spaced" / "ops"
    part.mkdir(parents=True)
    (part / "__init__.py").write_text("import torch\n")
    env.add("spaced", "")
    env.add("user", "import torch\nimport spaced.ops\n")
    _on_path(env, env.prefix / "entry")
    summary = row_of(diagnose(env, "user"), "user").summary
    assert f"{env.site / 'spaced'} is the package spaced" in summary
    assert f"without {part.parent}" in summary


def test_a_library_that_python_opens_and_is_not_there_is_told(env: LookedEnvironment) -> None:
    source = "import ctypes, os, torch\nctypes.CDLL(os.path.dirname(__file__) + '/build/libx.so')\n"
    env.add("binds", source)
    row = row_of(diagnose(env, "binds"), "binds")
    assert row.code == "TD703" and "build/libx.so, which is not there" in row.summary


def test_a_folder_without_code_before_an_editable_is_told(
    env: LookedEnvironment, tmp_path: Path
) -> None:
    """As setuptools does it, the finder of an editable comes after that of the path."""
    source = tmp_path / "code" / "normed" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("import torch\n")
    finder = (
        "import importlib.util, sys\n"
        "class Finder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        if name == 'normed':\n"
        f"            return importlib.util.spec_from_file_location(name, {str(source)!r})\n"
        "sys.meta_path.append(Finder)\n"
    )
    name = "__editable___normed_1_0_finder"
    files = {f"{name}.py": finder, "normed.pth": f"import {name}\n"}
    info = add_package(env.site, "normed", files, "Requires-Dist: torch")
    origin = {"url": f"file://{source.parents[1]}", "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(origin))
    (info / "top_level.txt").write_text("normed\n")
    assert diagnose(env, "normed").exit_code == 0
    (env.folder / "normed" / "headers").mkdir(parents=True)
    row = row_of(diagnose(env, "normed"), "normed")
    assert row.code == "TD205" and row.state == "fails"
    assert f"{env.folder / 'normed'} hides the installed normed 1.0, and has no code" in row.summary


# How Python was started, and which.


def test_docstrings_that_are_left_out_are_told(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = 'import torch\ndef f():\n    """{x}"""\nf.__doc__ = f.__doc__.format(x=1)\n'
    env.add("noted", source)
    assert diagnose(env, "noted").exit_code == 0
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    row = row_of(diagnose(env, "noted"), "noted")
    assert row.code == "TD713" and fix_of(row).command == "unset PYTHONOPTIMIZE"


def test_without_docstrings_no_other_error_is_explained_by_them(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    env.add("noted", "import torch\nNone.shape\n")
    assert row_of(diagnose(env, "noted"), "noted").code == "TD906"


def test_a_module_of_another_active_environment_is_told(
    env: LookedEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    site = make_environment(other)
    add_package(site, "forge", {"forge/__init__.py": ""})
    env.add("user", "import torch\nimport forge\n")
    monkeypatch.setenv("VIRTUAL_ENV", str(other))
    assert str(other) not in row_of(diagnose(env, "user"), "user").summary
    add_package(site, "torch", {"torch/__init__.py": ""})
    row = row_of(diagnose(env, "user"), "user")
    assert f"forge is installed in {other}" in row.summary
    assert fix_of(row).command == f'export PATH={other / "bin"}:"$PATH"'


def test_the_environment_in_which_one_was_made_is_known(tmp_path: Path) -> None:
    parent, child = tmp_path / "parent", tmp_path / "child"
    add_package(make_environment(parent), "torch", {"torch/__init__.py": ""})
    python = parent / "bin" / "python"
    options = ["--system-site-packages", "--without-pip"]
    subprocess.run([python, "-m", "venv", *options, child], check=True)
    target = Target(ask(str(child / "bin" / "python")))
    found = environment_with(target, "torch")
    assert found is not None and found.prefix == parent and found.is_parent
    report = examine(Request(), probe_runtime(gpu=False, target=target))
    assert any("has torch; this one was made by its Python" in line for line in heading(report))


def test_a_process_that_dies_when_it_ends_does_not_work(env: LookedEnvironment) -> None:
    folder = env.add("ends", "import torch\nfrom . import _C\n")
    declared = "#include <stdlib.h>\n__attribute__((destructor)) static void end(void) { abort(); }"
    env.add_module(folder / "_C.so", declared=declared)
    env.list_objects("ends")
    row = row_of(diagnose(env, "ends"), "ends")
    assert row.state == "fails"
    assert f"dies of SIGABRT when it ends, in code that runs then in {folder}/_C" in row.summary


# What was meant to be so.


def test_a_module_that_the_release_lacks_is_told_with_the_nearest(env: LookedEnvironment) -> None:
    env.add("cutnets", "import torch\n")
    (env.site / "cutnets" / "pytorch").mkdir()
    (env.site / "cutnets" / "pytorch" / "__init__.py").touch()
    row = row_of(diagnose(env, "cutnets.torch"), "cutnets")
    assert "has no module cutnets.torch (it has cutnets.pytorch)" in row.summary
    assert row.finding is not None and row.finding.fix.releases_of == ("cutnets",)


def _boxes(env: LookedEnvironment, call: str) -> Row:
    add_package(env.site, "layers", {"layers/__init__.py": "def register(name):\n    pass\n"})
    env.add("boxes", f"import layers\nimport torch\n{call}\n", "Requires-Dist: layers")
    return row_of(diagnose(env, "boxes"), "boxes")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("layers.register('x', raw=True)", "takes no raw in register()"),
        (
            "from layers import register as r\nlayers.register(\n    'x', 1)",
            "takes other arguments",
        ),
    ],
)
def test_arguments_of_another_release_are_told(
    env: LookedEnvironment, call: str, words: str
) -> None:
    row = _boxes(env, call)
    assert row.code == "TD707" and words in row.summary
    assert row.finding is not None and row.finding.fix.releases_of == ("boxes", "layers")


def test_wrong_arguments_of_a_packages_own_function_are_not_explained(
    env: LookedEnvironment,
) -> None:
    assert _boxes(env, "def register(name):\n    pass\nregister('x', raw=True)").code == "TD906"


def test_a_requirement_in_the_words_of_a_package_is_told(env: LookedEnvironment) -> None:
    add_package(env.site, "tokens", {"tokens/__init__.py": ""})
    words = "tokens>=2.0,<3 is required for this module, but found tokens==1.0."
    env.add("models", f"import torch\nraise ImportError({words!r})\n")
    row = row_of(diagnose(env, "models"), "models")
    assert row.code == "TD707" and "needs tokens<3,>=2.0" in row.summary
    assert "'tokens<3,>=2.0'" in fix_of(row).command


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import frames\nframes.run(len, None)\n", "Requires-Dist: frames>=2"),
        ("raise ImportError('no backend (tried fast_ops)')\n", "Requires-Dist: fast-ops"),
    ],
)
def test_a_requirement_on_the_way_to_the_error_is_told(
    env: LookedEnvironment, source: str, lines: str
) -> None:
    content = "def run(function, argument):\n    return function(argument)\n"
    add_package(env.site, "frames", {"frames/__init__.py": content})
    env.add("front", f"import torch\n{source}", lines)
    row = row_of(diagnose(env, "front"), "front")
    assert row.code == "TD707" and lines.partition(" ")[2] in row.summary


def test_a_requirement_that_has_nothing_to_do_with_the_error_is_only_mentioned(
    env: LookedEnvironment,
) -> None:
    env.add("front", "import torch\nNone.shape\n", "Requires-Dist: frames>=2")
    row = row_of(diagnose(env, "front"), "front")
    assert row.code == "TD906" and "it may be that front requires frames>=2" in row.summary

"""Reasons that lie around a package: variables, limits, what runs first, how it was laid out."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from environments import add_pip
from looked_environment import LookedEnvironment, carry_out, diagnose, fix_of, row_of
from shared_objects import shared_object
from sick_environment import SickEnvironment, carries_out

from torchship.doctor import examine, run_command
from torchship.doctor.environment import pythons
from torchship.doctor.reasons import limits
from torchship.doctor.reasons.case import Case
from torchship.doctor.reasons.loaded_early import module_was_loaded_early
from torchship.doctor.report import blocks
from torchship.judge import fixes, probe_runtime
from torchship.judge.records import Finding
from torchship.judge.target import Target


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    env = LookedEnvironment(tmp_path / "env")
    add_pip(env.site)
    return env


# Variables.

READS = """
import os, torch
level = os.environ.get("MY_LEVEL", "1")
if not level.isdecimal():
    raise ValueError(f"\\nno such level: {level}")
"""


@carries_out(fixes.Kind.UNSET_VARIABLE)
def test_a_variable_that_a_package_refuses_is_named(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.add("levels", READS)
    monkeypatch.setenv("MY_LEVEL", "high")
    row = row_of(diagnose(env), "levels")
    assert row.code == "TD713" and "reads the variable MY_LEVEL" in row.summary
    assert "no such level: high" in row.summary
    carry_out(env, row, "levels", before="export MY_LEVEL=high")


@pytest.mark.parametrize(("value", "code"), [("12", "TD906"), ("1x", "TD713")])
def test_a_number_counts_only_in_quotes(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch, value: str, code: str
) -> None:
    source = READS.replace("not level.isdecimal()", "level")
    env.add("levels", source)
    env.add("quotes", source.replace("{level}", "{level!r}"))
    monkeypatch.setenv("MY_LEVEL", value)
    report = diagnose(env)
    assert row_of(report, "levels").code == code
    assert row_of(report, "quotes").code == "TD713"


@pytest.mark.parametrize(("name", "value"), [("OTHER", "high"), ("MY_LEVEL", "6")])
def test_a_variable_that_does_not_hold_it_or_is_not_read_is_not(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    env.add("levels", READS.replace("level = ", "level = 'high' or "))
    monkeypatch.setenv(name, value)
    assert row_of(diagnose(env), "levels").code == "TD906"


def test_a_warning_that_is_raised_as_an_error_is_told(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.add("warns", "import torch, warnings\nwarnings.warn('it is old', DeprecationWarning)\n")
    monkeypatch.setenv("PYTHONWARNINGS", "error::DeprecationWarning")
    row = row_of(diagnose(env), "warns")
    assert row.code == "TD713" and "warns when it is imported: DeprecationWarning" in row.summary
    carry_out(env, row, "warns", before="export PYTHONWARNINGS=error::DeprecationWarning")


def test_a_user_without_a_name_is_told(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import torch, getpass, os\nos.getuid = lambda: 123456\ngetpass.getuser()\n"
    env.add("asks", source)
    names = ("LOGNAME", "USER", "LNAME", "USERNAME")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    row = row_of(diagnose(env), "asks")
    assert row.code == "TD713" and "asks for the name of the user" in row.summary
    carry_out(env, row, "asks", before=f"unset {' '.join(names)}")


# Limits.


@pytest.mark.parametrize(
    ("kind", "option", "signal"),
    [(resource.RLIMIT_CPU, "-t", "SIGXCPU"), (resource.RLIMIT_FSIZE, "-f", "SIGXFSZ")],
)
def test_a_limit_by_whose_signal_a_process_dies_is_named(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch, kind: int, option: str, signal: str
) -> None:
    name = f"signal.{signal}"
    env.add("ends", f"import os, signal, torch\nos.kill(os.getpid(), {name})\n")
    (env.site / "ends" / "__init__.py").write_text(
        f"import os, signal, torch\nsignal.signal({name}, signal.SIG_DFL)\n"
        f"os.kill(os.getpid(), {name})\n"
    )
    assert row_of(diagnose(env), "ends").code == "TD906"  # without a limit
    known = resource.getrlimit
    soft = (4096, resource.RLIM_INFINITY)
    monkeypatch.setattr(
        limits.resource, "getrlimit", lambda one: soft if one == kind else known(one)
    )
    row = row_of(diagnose(env), "ends")
    assert row.code == "TD311" and f"(ulimit {option})" in row.summary
    assert fix_of(row).command == f"ulimit -S {option} unlimited"


# Names of another Python's library.


def test_a_name_that_the_standard_library_no_longer_has_is_of_another_python(
    env: LookedEnvironment,
) -> None:
    env.add("old", "import torch\nfrom collections import gone\n")
    env.add("older", "import inspect, torch\ninspect.gone\n")
    report = diagnose(env)
    for name, module in (("old", "collections"), ("older", "inspect")):
        row = row_of(report, name)
        assert row.code == "TD706" and f"{module} of Python 3." in row.summary
        assert fix_of(row).releases_of == (name,)


# What runs before a program.


@pytest.fixture
def agent(env: LookedEnvironment) -> Path:
    """A folder whose sitecustomize imports an older `lower` out of a folder of its own."""
    folder = env.prefix / "agent"
    (folder / "vendor").mkdir(parents=True)
    (folder / "vendor" / "lower.py").touch()
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(folder / 'vendor')!r})\n"
        "import lower\nsys.path.pop(0)\n"
    )
    env.add("lower", "here = 1\n")
    env.add("upper", "import torch\nfrom lower import here\n", "Requires-Dist: lower>=0.1")
    return folder


@carries_out(fixes.Kind.UNSET_VARIABLE)
def test_a_file_that_python_runs_first_and_its_own_module_are_named(
    env: LookedEnvironment, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(agent))
    row = row_of(diagnose(env, "upper"), "upper")
    assert row.code == "TD205" and f"{agent / 'sitecustomize.py'}, which PYTHONPATH" in row.summary
    carry_out(env, row, "upper", before=f"export PYTHONPATH={agent}")


def test_the_sitecustomize_of_the_standard_library_is_no_cause(tmp_path: Path) -> None:
    """Debian has one, which imports a handler of crashes."""
    files = ("site/lower.py", "vendor/lower.py", "stdlib/os.py", "stdlib/sitecustomize.py")
    for path in (tmp_path / name for name in files):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    message = f"cannot import name 'here' from 'lower' ({tmp_path / 'vendor' / 'lower.py'})"
    case = SimpleNamespace(
        errors=[SimpleNamespace(message=message)],
        folder=tmp_path / "site",
        path=[str(tmp_path / "stdlib")],
    )
    assert module_was_loaded_early(cast("Case", case)) is None


def test_a_module_from_elsewhere_is_not_taken_for_the_installed_one(
    env: LookedEnvironment,
) -> None:
    """Who brings it in is not known, and it is not the release that is installed."""
    env.add("lower", "here = 1\n")
    (env.prefix / "vendor").mkdir()
    (env.prefix / "vendor" / "lower.py").touch()
    vendor = str(env.prefix / "vendor")
    source = f"import sys, torch\nsys.path.insert(0, {vendor!r})\nfrom lower import here\n"
    env.add("upper", source, "Requires-Dist: lower>=0.1")
    assert row_of(diagnose(env, "upper"), "upper").code == "TD906"


# Another copy that fits.


@carries_out(fixes.Kind.UNSET_VARIABLE)
def test_a_copy_of_the_needed_release_that_is_not_taken_is_told(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.add("lower", "part = 1\n")
    env.add("upper", "import torch\nfrom lower import part\n", "Requires-Dist: lower<2")
    loaded = env.prefix / "module"
    (loaded / "lower-3.0.dist-info").mkdir(parents=True)
    (loaded / "lower-3.0.dist-info" / "METADATA").write_text("Name: lower\nVersion: 3.0\n\n")
    (loaded / "lower-3.0.dist-info" / "RECORD").write_text("lower/__init__.py,,\n")
    (loaded / "lower").mkdir()
    (loaded / "lower" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(loaded))
    row = row_of(diagnose(env, "upper"), "upper")
    assert row.code == "TD205" and f"Python takes 3.0 in {loaded} before it" in row.summary
    carry_out(env, row, "upper", before=f"export PYTHONPATH={loaded}")


# Metadata that are not there.


@pytest.mark.parametrize("is_there", [True, False])
def test_metadata_that_a_package_asks_for_are_told(env: LookedEnvironment, is_there: bool) -> None:
    source = "import torch\nfrom importlib.metadata import version\nversion('lower')\n"
    env.add("upper", source)
    env.add("lower", "")
    shutil.rmtree(env.site / "lower-1.0.dist-info")
    if not is_there:
        shutil.rmtree(env.site / "lower")
    row = row_of(diagnose(env, "upper"), "upper")
    assert row.code == ("TD204" if is_there else "TD707")
    assert ("without them" in row.summary) == is_there
    assert fix_of(row).command.endswith("install lower") != is_there


@pytest.mark.parametrize("marker", ['extra == "io"', 'python_version < "3.2"'])
def test_what_is_required_only_elsewhere_is_told(env: LookedEnvironment, marker: str) -> None:
    line = f"Requires-Dist: gone>=2 ; {marker}"
    env.add("upper", "import torch\nimport gone\n", line, "Requires-Dist: torch")
    row = row_of(diagnose(env, "upper"), "upper")
    assert row.code == "TD707" and f"requires it only where {marker}" in row.summary
    assert fix_of(row).command.endswith("install 'gone>=2'")


@carries_out(fixes.Kind.INSTALL_REQUIREMENT)
@pytest.mark.slow
def test_a_module_of_the_user_that_an_environment_leaves_out_is_told(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    source = {"theirs/__init__.py": "import torch\nimport lower_one\n"}
    place.publish_wheel("theirs", "1.0", source, ["torch"])
    place.publish_wheel("lower_of_it", "1.0", {"lower_one/__init__.py": ""})
    place.install("torch", "theirs")
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    user = tmp_path / ".local" / "lib" / version / "site-packages"
    place.type(f"python -m pip install --no-deps --target {user} lower-of-it")
    row = place.failing_row("theirs")
    assert "lower_one is installed for the user, in ~/.local" in row["cause"]["why"]
    place.type(row["cause"]["command"])
    place.type("python -c 'import theirs'")


# Editable installs that build.


@carries_out(fixes.Kind.NO_ISOLATION)
@pytest.mark.slow
def test_an_editable_that_builds_itself_with_tools_that_are_gone_is_told(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0+cpu")
    code = tmp_path / "code"
    (code / "loops").mkdir(parents=True)
    (code / "loops" / "__init__.py").write_text("import torch\n")
    (code / "pyproject.toml").write_text(
        '[build-system]\nrequires = [\n  "setuptools",\n  "lower>=1"\n]\n'
        'build-backend = "setuptools.build_meta"\n[project]\nname = "loops"\nversion = "1.0"\n'
        'dependencies = ["torch"]\n[tool.setuptools]\npackages = ["loops"]\n'
    )
    place.publish_wheel("lower", "1.0", {"lower/__init__.py": ""})
    place.install("torch")
    place.type(f"python -m pip install --no-build-isolation --no-deps -e {code}")
    (finder,) = [*place.site.glob("__editable__*loops*.p*")][:1]
    finder.unlink()
    loader = place.site / "_loops_editable_loader.py"
    tool = tmp_path / "pip-build-env-x" / "overlay" / "bin" / "ninja"
    loader.write_text(
        "import subprocess, sys\nclass Finder:\n    def find_spec(self, name, *rest):\n"
        f"        if name == 'loops':\n            subprocess.run([{str(tool)!r}])\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    (place.site / "loops-editable.pth").write_text("import _loops_editable_loader\n")
    record = place.site / "loops-1.0.dist-info" / "RECORD"
    kept = [line for line in record.read_text().splitlines() if not line.startswith("__editable__")]
    kept += ["_loops_editable_loader.py,,", "loops-editable.pth,,"]
    record.write_text("\n".join(kept) + "\n")
    row = place.failing_row("loops")
    assert "with ninja of the isolated environment" in row["cause"]["why"]
    place.type(row["cause"]["command"])
    place.type("python -c 'import loops'")
    assert place.installed_version("lower") == "1.0"


# What the linker and the compiler want.


def test_libraries_of_two_glibcs_are_told(env: LookedEnvironment) -> None:
    libc = shared_object(
        env.prefix / "stub" / "libc.so.6",
        soname="libc.so.6",
        defined=["__tunables_of_later"],
        versions="GLIBC_PRIVATE { global: __tunables_of_later; };",
        flags=["-nostdlib"],
    )
    store = env.prefix / "store" / "lib"
    library = shared_object(
        store / "libnew.so.2",
        soname="libnew.so.2",
        undefined=["__tunables_of_later"],
        libraries=[libc],
        flags=["-nostdlib"],
    )
    folder = env.add("meshes", "import torch\nfrom . import _C\n")
    code = "extern int test_object; void *use = &test_object;"
    module = env.add_module(folder / "_C.so", declared=code, libraries=(library,))
    subprocess.run(["patchelf", "--set-rpath", str(store), module], check=True)
    env.list_objects("meshes")
    row = row_of(diagnose(env, "meshes"), "meshes")
    assert "of another glibc than the one of this process" in row.summary, row
    assert "_C.so brings in" in row.summary and not fix_of(row).command


@carries_out(fixes.Kind.SET_VARIABLE)
def test_a_sanitizer_that_is_not_loaded_first_is_told(env: LookedEnvironment) -> None:
    name = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
    if not os.path.isabs(name):  # noqa: PTH117
        pytest.skip("this gcc has no AddressSanitizer")
    folder = env.add("checked", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", libraries=(Path(os.path.realpath(name)),))
    env.list_objects("checked")
    row = row_of(diagnose(env, "checked"), "checked")
    assert "_C.so was built with the sanitizer ASan" in row.summary
    carry_out(env, row, "checked")


def test_what_ends_the_process_is_not_put_down_to_what_it_does_without(
    env: LookedEnvironment,
) -> None:
    code = 'dlsym(dlopen("libm.so.6", 2), "nobody_has_it"); _exit(3);'
    declared = "#include <dlfcn.h>\n#include <unistd.h>"
    folder = env.add("ends", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", declared=declared, code=code)
    env.list_objects("ends")
    assert row_of(diagnose(env, "ends"), "ends").code == "TD906"


# Programs.


def _reason(env: LookedEnvironment, output: str, folder: Path) -> Finding | None:
    before = Path.cwd()
    os.chdir(folder)
    target = Target(pythons.ask(str(env.python)))
    try:
        return examine.reason_of_pasted(output, probe_runtime(gpu=False, target=target))
    finally:
        os.chdir(before)


def _output_of(env: LookedEnvironment, script: Path) -> str:
    told = subprocess.run([env.python, script], capture_output=True, text=True, cwd=script.parent)
    return told.stderr


@carries_out(fixes.Kind.MAKE_PACKAGE)
def test_a_folder_of_the_project_that_an_installed_package_hides_is_told(
    env: LookedEnvironment,
) -> None:
    env.add("models", "")
    project = env.prefix / "project"
    (project / "models").mkdir(parents=True)
    (project / "models" / "common.py").touch()
    script = project / "detect.py"
    script.write_text("import torch\nimport models.common\n")
    output = _output_of(env, script)
    assert "No module named 'models.common'" in output
    reason = _reason(env, output, env.folder)
    assert reason is not None and reason.code == "TD205"
    assert f"{env.site / 'models'} is the package models for Python" in reason.why
    subprocess.run(["bash", "-c", reason.fix.command], check=True)
    assert _output_of(env, script) == ""


@carries_out(fixes.Kind.SET_VARIABLE)
@pytest.mark.parametrize("above", ["project", "."])
def test_a_module_of_the_project_beside_the_path_is_told(
    env: LookedEnvironment, above: str
) -> None:
    project = env.prefix / "project"
    (project / above / "zoo").mkdir(parents=True)
    (project / above / "zoo" / "common.py").touch()
    script = project / "project" / "scripts" / "detect.py"
    script.parent.mkdir(parents=True)
    script.write_text("import torch\nimport zoo.common\n")
    output = _output_of(env, script)
    assert "No module named 'zoo'" in output
    reason = _reason(env, output, env.folder)
    assert reason is not None and f"zoo lies in {(project / above).resolve()}, which" in reason.why
    shell = f"{reason.fix.command}; {env.python} {script}"
    subprocess.run(["bash", "-c", shell], check=True, cwd=env.folder)


def test_a_module_that_is_nowhere_near_is_not_sought_further(env: LookedEnvironment) -> None:
    script = env.folder / "detect.py"
    script.write_text("import torch\nimport zoo.common\n")
    assert _reason(env, _output_of(env, script), env.folder) is None


@pytest.mark.parametrize(
    "last",
    [
        "pkg_resources.DistributionNotFound: The 'lower<2' distribution was not found and is "
        "required by pages",
        "pkg_resources.ContextualVersionConflict: (lower 3.0 (/e/site-packages), "
        "Requirement.parse('lower<2'), {'pages'})",
    ],
)
def test_what_a_script_has_checked_when_it_starts_is_told(
    env: LookedEnvironment, last: str
) -> None:
    env.add("lower", "")
    info = env.site / "lower-1.0.dist-info" / "METADATA"
    info.write_text("Name: lower\nVersion: 3.0\n\n")
    place = env.add("pkg_resources", "")
    output = (
        "Traceback (most recent call last):\n"
        f'  File "{place}/__init__.py", line 1, in <module>\n    raise\n{last}\n'
    )
    ended = run_command.EndedCommand(exit_code=1, output=output)
    assert ended.is_of_import
    reason = _reason(env, output, env.folder)
    assert reason is not None and reason.code == "TD707"
    assert "pages requires lower<2, and lower 3.0 is installed" in reason.why
    assert reason.fix.command.endswith("install 'lower<2'")


def test_an_error_whose_first_line_is_empty_is_shown_with_the_next(
    env: LookedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    env.add("levels", READS.replace("not level.isdecimal()", "level"))
    blocks.print_blocks(diagnose(env, "levels"))
    assert "seen:    import levels: ValueError: no such level: 1\n" in capsys.readouterr().out


def test_a_working_folder_that_was_removed_is_no_obstacle(env: LookedEnvironment) -> None:
    env.add("upper", "import torch\nimport gone\n", "Requires-Dist: gone>=2")
    output = (
        "Traceback (most recent call last):\n"
        f'  File "{env.site}/upper/__init__.py", line 2, in <module>\n'
        "    import gone\nModuleNotFoundError: No module named 'gone'\n"
    )
    target = Target(pythons.ask(str(env.python)))
    before = Path.cwd()
    folder = env.prefix / "removed"
    folder.mkdir()
    os.chdir(folder)
    try:
        folder.rmdir()
        reason = examine.reason_of_pasted(output, probe_runtime(gpu=False, target=target))
    finally:
        os.chdir(before)
    assert reason is not None and "upper 1.0 requires gone>=2" in reason.why


def test_a_pointer_of_git_lfs_is_to_be_fetched(env: LookedEnvironment) -> None:
    folder = env.add("voxels", "import torch\nfrom . import _C\n")
    (folder / "_C.so").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    env.list_objects("voxels")
    row = row_of(diagnose(env, "voxels"), "voxels")
    assert "a git-lfs pointer" in row.summary and "git lfs pull" in fix_of(row).text

"""Native modules whose C code imports a module that the judged Python lacks."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from environments import add_extension, add_torch, make_environment, run_doctor
from shared_objects import shared_object

from torchship.doctor import python_probe, pythons
from torchship.doctor.native_imports import absent_imports
from torchship.judge import fixes, interpreter, system_packages
from torchship.judge.binary import read_binary

SOURCE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C"};
PyMODINIT_FUNC PyInit__C(void) {
  PyObject *imported = PyImport_ImportModule("MODULE");
  return imported ? PyModule_Create(&module) : NULL;
}
"""


def make_module(folder: Path, module: str, *, source: str = SOURCE) -> Path:
    """A module for Python that imports another one when it is loaded."""
    file = folder / "module.c"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(source.replace("MODULE", module))
    include = sysconfig.get_path("include")
    return shared_object(folder / "_C.so", flags=[f"-I{include}", str(file)])


def take_away(site: Path, *modules: str) -> None:
    """Let the Python of an environment lack modules, as a build without their library does."""
    lines = [f"import sys; sys.modules[{module!r}] = None" for module in modules]
    (site / "lacks.pth").write_text("\n".join(lines))


def state_of(prefix: Path, module: Path) -> tuple[str, str | None, str]:
    process = run_doctor("--json", "--python", str(prefix), str(module))
    (row,) = json.loads(process.stdout)["extensions"]
    cause = row["cause"] or {}
    return row["state"], row["code"], cause.get("why", "")


def loads(prefix: Path, module: Path) -> bool:
    code = f"import sys; sys.path.insert(0, {str(module.parent)!r}); import _C"
    python = prefix / "bin" / "python"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("module", "part"), [("sqlite3", "_sqlite3"), ("_ssl", "_ssl"), ("ctypes.util", "_ctypes")]
)
def test_a_module_that_imports_what_its_python_lacks_is_not_said_to_work(
    tmp_path: Path, module: str, part: str
) -> None:
    site = make_environment(tmp_path / "env")
    add_torch(site)
    path = make_module(tmp_path / "theirs", module)
    assert loads(tmp_path / "env", path)
    assert state_of(tmp_path / "env", path)[0] == "works"
    take_away(site, part)
    assert not loads(tmp_path / "env", path)
    state, code, why = state_of(tmp_path / "env", path)
    assert (state, code) == ("unknown", "TD213")
    assert f"seems to import {module.partition('.')[0]}, a module of the standard library" in why


def test_a_helper_of_its_package_that_imports_what_is_missing_counts(tmp_path: Path) -> None:
    """As `PIL/_imagingtk` imports `PIL._tkinter_finder`, which imports `tkinter`."""
    site = make_environment(tmp_path / "env")
    add_torch(site)
    path = make_module(site / "theirs", "theirs._finder")
    (site / "theirs" / "__init__.py").touch()
    (site / "theirs" / "_finder.py").write_text("import sys\nimport lzma\n")
    assert state_of(tmp_path / "env", path)[0] == "works"
    take_away(site, "_lzma")
    assert state_of(tmp_path / "env", path)[:2] == ("unknown", "TD213")
    (site / "theirs" / "_finder.py").write_text("def late():\n    import lzma\n")
    assert state_of(tmp_path / "env", path)[0] == "works"


@pytest.mark.parametrize(
    "constant", ["sqlite3.c", "lib/sqlite3", "mysqlite3", "sqlite3 is not here", "_C"]
)
def test_a_text_that_only_holds_the_name_is_no_import(
    tmp_path: Path, constant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "missing_modules", lambda: ("sqlite3", "_C"))
    path = make_module(tmp_path, constant)
    assert absent_imports(read_binary(path), None) == ()


def test_a_module_that_imports_nothing_needs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "missing_modules", lambda: ("sqlite3",))
    source = SOURCE.replace("PyImport_ImportModule", "PyUnicode_FromString")
    path = make_module(tmp_path, "sqlite3", source=source)
    assert absent_imports(read_binary(path), None) == ()


def test_a_name_that_is_the_end_of_another_text_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linker keeps one text for both."""
    monkeypatch.setattr(pythons, "missing_modules", lambda: ("sqlite3",))
    path = make_module(tmp_path, "this needs sqlite3")
    assert absent_imports(read_binary(path), None) == ("import sqlite3",)


@pytest.mark.parametrize("module", ["_bz2", "_ctypes", "_lzma", "_sqlite3", "_ssl", "zlib"])
def test_the_probe_tells_the_modules_that_a_build_lacks(tmp_path: Path, module: str) -> None:
    site = make_environment(tmp_path / "env")
    before = pythons.ask(str(tmp_path / "env")).missing_modules
    take_away(site, module)
    after = pythons.ask(str(tmp_path / "env")).missing_modules
    users = {name for name, part in python_probe.OPTIONAL_MODULES.items() if part == module}
    assert {*after} - {*before} == {module, *users}


def test_a_module_that_the_version_never_has_is_not_missing() -> None:
    of_version = {*sys.stdlib_module_names}
    assert {name.partition(".")[0] for name in python_probe.missing_modules()} <= of_version


@pytest.mark.parametrize(
    ("base", "executable", "package"),
    [
        ("/usr", "/usr/bin/python3", "python3-tk"),
        ("/usr", "/usr/bin/python3.99", "python3.99-tk"),
        ("/opt/python", "/opt/python/bin/python3", ""),
    ],
)
def test_the_fix_names_the_package_of_the_distribution_or_another_python(
    base: str, executable: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "prefixes", lambda: (base, base))
    monkeypatch.setattr(interpreter, "executable", lambda: executable)
    monkeypatch.setattr(system_packages, "is_file", lambda _: True)
    cure = fixes.python_with("_tkinter")
    assert "another Python that has _tkinter" in cure
    assert cure.command == (f"apt-get update && apt-get install -y {package}" if package else "")


def test_a_torch_extension_that_imports_what_is_missing_is_not_said_to_work(
    tmp_path: Path,
) -> None:
    site = make_environment(tmp_path / "env")
    add_torch(site)
    extension = add_extension(site, "theirs", pin="2.9.1")
    torch_libraries = [site / "torch" / "lib" / "libtorch_cpu.so"]
    source = tmp_path / "module.c"
    source.write_text(SOURCE.replace("MODULE", "sqlite3"))
    flags = [f"-I{sysconfig.get_path('include')}", str(source)]
    shared_object(extension, libraries=torch_libraries, flags=flags)
    take_away(site, "_sqlite3")
    process = run_doctor("--json", "--python", str(tmp_path / "env"))
    rows = json.loads(process.stdout)["extensions"]
    assert [(row["state"], row["code"]) for row in rows] == [("unknown", "TD213")]

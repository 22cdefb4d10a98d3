"""Makes environments whose torch can be imported, quickly, and packages to look at in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environments import SYMBOL, add_package, make_environment
from shared_objects import fake_torch, shared_object

from torchship.doctor.environment import pythons
from torchship.doctor.examine import Request, examine
from torchship.doctor.looking.look import Extension, Subject, look
from torchship.doctor.looking.processes import Python
from torchship.doctor.looking.seen import Looked
from torchship.doctor.report.report import Report
from torchship.doctor.report.rows import Row
from torchship.judge import probe_runtime
from torchship.judge.records import Fix
from torchship.judge.target import Target

#: A module that Python makes out of C, with a name to be filled in.
MODULE = """
#include <Python.h>
%s
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "%s"};
PyMODINIT_FUNC PyInit_%s(void) { %s return PyModule_Create(&module); }
"""

_TORCH = """
import ctypes, os
from .version import __version__
_lib = os.path.join(os.path.dirname(__file__), "lib")
for _name in ("libc10.so", "libtorch_cpu.so"):
    ctypes.CDLL(os.path.join(_lib, _name))
class ops:
    @staticmethod
    def load_library(path):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            raise OSError(f"Could not load this library: {path}") from error
"""


class LookedEnvironment:
    """A virtual environment with a small torch, which loads its libraries as the real one does."""

    def __init__(self, prefix: Path, python: str = sys.executable) -> None:
        self.prefix = prefix
        self.site = make_environment(prefix, python)
        self.python = prefix / "bin" / "python"
        self.torch = fake_torch(self.site, exports=[SYMBOL])
        (self.torch / "__init__.py").write_text(_TORCH)
        self.folder = prefix / "here"
        self.folder.mkdir()

    def add(self, name: str, source: str, *lines: str, **files: str) -> Path:
        """A package with this source, and with lines for its METADATA; returns its folder."""
        contents = {f"{name}/__init__.py": source}
        contents.update({f"{name}/{file}.py": text for file, text in files.items()})
        of_torch = () if any("torch" in line for line in lines) else ("Requires-Dist: torch",)
        add_package(self.site, name, contents, *of_torch, *lines)
        return self.site / name

    def list_objects(self, name: str) -> None:
        """Enter the objects that lie in a package into its RECORD, as an installer does."""
        record = self.site / f"{name}-1.0.dist-info" / "RECORD"
        objects = sorted((self.site / name).rglob("*.so*"))
        with record.open("a") as file:
            for path in objects:
                size = path.stat().st_size
                file.write(f"{path.relative_to(self.site)},sha256=x,{size}\n")

    def add_module(
        self,
        place: Path,
        *,
        needs: str = "",
        code: str = "",
        declared: str = "",
        libraries: tuple[Path, ...] = (),
    ) -> Path:
        """A module in C at a path such as `pkg/_C.so`, which needs a symbol of torch or another."""
        import sysconfig

        stem = place.name.partition(".")[0]
        if needs:
            declared = f'extern char needed __asm__("{needs}"); void *use = &needed;'
        source = place.with_suffix(".module.c")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(MODULE % (declared, stem, stem, code))
        flags = [str(source), f"-I{sysconfig.get_path('include')}"]
        if needs:
            libraries = (*libraries, self.torch / "lib" / "libtorch_cpu.so")
        return shared_object(place, flags=flags, libraries=libraries)

    def look(
        self, *subjects: Subject | str, seconds: float = 20.0, jobs: int = 2, **variables: str
    ) -> Looked:
        """Look at packages, from a folder that is empty unless a test fills it."""
        named = [Subject(module=one) if isinstance(one, str) else one for one in subjects]
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self.prefix), **variables}
        python = Python(
            executable=str(self.python),
            seconds=seconds,
            jobs=jobs,
            folder=self.folder,
            environ=environ,
        )
        return look(named, python)


def subject(name: str, *extensions: Path, kind: str = "module") -> Subject:
    """A package with these extensions."""
    of_kind = [Extension(path, kind) for path in extensions]  # type: ignore[arg-type]
    return Subject(module=name, extensions=tuple(of_kind))


def diagnose(
    env: LookedEnvironment, *names: str, seconds: float = 20.0, not_looking_since: str = ""
) -> Report:
    """The report of the doctor on packages, looked at from the environment's empty folder."""
    before = Path.cwd()
    os.chdir(env.folder)
    target = Target(pythons.ask(str(env.python)))
    try:
        request = Request(names=names, seconds=seconds, not_looking_since=not_looking_since)
        return examine(request, probe_runtime(gpu=False, target=target))
    finally:
        os.chdir(before)


def _is_import(row: Row) -> bool:
    return row.seen is not None and ".so" not in row.path.name


def carry_out(env: LookedEnvironment, row: Row, module: str, *, before: str = "true") -> None:
    """Run the command of a row's fix in a shell, after another, and there import a module. Raises
    CalledProcessError if it cannot be imported."""
    shell = f"{before}; {fix_of(row).command}; {env.python} -c 'import {module}'"
    subprocess.run(["bash", "-c", shell], check=True, cwd=env.folder)


def fix_of(row: Row) -> Fix:
    """The fix of a row that has a cause."""
    assert row.finding is not None
    return row.finding.fix


def row_of(report: Report, name: str) -> Row:
    """The row on a package's import, or on a file of this name."""
    of_import = [row for row in report.rows if row.package == name and _is_import(row)]
    of_file = [row for row in report.rows if row.path.name == name]
    return [*of_import, *of_file][0]

"""The release tool: builds, audits, packs, installs and runs the cells of build_matrix.yaml."""

import os
import platform
import re
import sys
from importlib import import_module
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
NATIVE = f"linux-{platform.machine()}"
# The platform of this run. Files for a platform other than this machine's have their own folders.
PLATFORM = os.environ.get("RELEASE_PLATFORM") or NATIVE
MACHINE = PLATFORM.removeprefix("linux-")
FOREIGN = "" if PLATFORM == NATIVE else PLATFORM
# Conda's names of this run's platform and of this machine's.
SUBDIR, NATIVE_SUBDIR = (n.replace("linux-x86_64", "linux-64") for n in (PLATFORM, NATIVE))
BUILD = REPO / "build" / FOREIGN
DIST = REPO / "dist" / FOREIGN
MATRIX_FILE = REPO / "build_matrix.yaml"
WRITE = "scripts/build_all.sh --write-generated"
ORIGIN = f"Generated from build_matrix.yaml by `{WRITE}`; do not edit."


def of_project(name: str) -> str:
    """A value of the block `project:` as text, before the module `matrix` can check the file."""
    line = rf"^project:\n(?:(?:  .*)?\n)*?  {name}: *\"?([^\"\n]*)"
    found = re.search(line, MATRIX_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"{MATRIX_FILE}: `project.{name}` is missing; add it")
    return found[1]


def project_record() -> str:
    package, definition = of_project("package"), of_project("definition")
    text = MATRIX_FILE.read_text(encoding="utf-8")
    devices = dict.fromkeys(re.findall(r"^  (cpu|cuda)\d*:", text, re.MULTILINE))
    return f'''# {ORIGIN}
"""The record of the project, for the engine."""

from pathlib import Path

from ._version import __version__
from .engine.doctor.project import Project

PROJECT = Project(
    distribution="{of_project("distribution")}",
    package="{package}",
    namespace="{of_project("namespace")}",
    prefix="{of_project("prefix")}",
    operator="{of_project("operator")}",
    version=__version__,
    folder=Path(__file__).parent,
    kernels=({", ".join(f'"{device}"' for device in devices)}{"," * (len(devices) == 1)}),
    definition="{f"{package}.{definition}" if definition else ""}",
)
'''


_package = of_project("package")
PACKAGE = REPO / _package
PROJECT_RECORD = PACKAGE / "_project.py"
# The imports below fail without a record that fits the engine.
if not PROJECT_RECORD.exists() or "--write-generated" in sys.argv:
    PROJECT_RECORD.write_text(project_record(), encoding="utf-8")
# The tool needs only the checker and the builder, so the package must not load its binaries.
os.environ.setdefault(f"{of_project('prefix')}_LOAD", "0")

PROJECT = import_module(f"{_package}._project").PROJECT
SMOKE = REPO / of_project("smoke")
EXAMPLE = REPO / of_project("example")


class ReleaseError(Exception):
    """A failure; its text names the cause and usually a remedy. It is shown without a traceback."""

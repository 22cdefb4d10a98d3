"""The Pythons of this machine, and what each of them is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from release import ReleaseError

# Describes the base interpreter.
_CODE = """
import json, os, sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print(json.dumps({
    "exe": os.path.realpath(sys._base_executable),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "minor": "%d.%d" % sys.version_info[:2] + free,
    "prefix": sys.base_prefix,
    "stdlib": sysconfig.get_path("stdlib"),
    "include": sysconfig.get_path("include"),
}))
"""


def python_facts(python: str, modules: str = "ensurepip, venv") -> dict[str, str]:
    """Path, version and folders of an interpreter, as it reports them itself.

    Raises ReleaseError if it does not run, or lacks one of `modules`: by default, those with which
    it makes environments.
    """
    code = f"import {modules}{_CODE}"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", error)).strip()
        raise ReleaseError(f"{python} does not run: {said}; name one that does") from error
    facts: dict[str, str] = json.loads(done.stdout)
    return facts


def interpreters(minor: str) -> Iterator[str]:
    """Working interpreters of a Python minor (`3.12`, `3.14t`): on PATH, then those of pyenv."""
    candidates = [shutil.which(f"python{minor}"), sys.executable]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(str(path) for path in pyenv.glob(f"{minor.rstrip('t')}.*/bin/python3"))
    for candidate in filter(None, candidates):
        try:
            facts = python_facts(candidate)
        except ReleaseError:
            continue
        if facts["minor"] == minor:
            yield facts["exe"]

"""The Pythons of this machine, and what each of them is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from release import ReleaseError

# Describes the base interpreter; fails where it cannot make environments.
_CODE = """
import ensurepip, json, os, sys, sysconfig, venv
print(json.dumps({
    "exe": os.path.realpath(sys._base_executable),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "minor": "%d.%d" % sys.version_info[:2],
    "prefix": sys.base_prefix,
    "stdlib": sysconfig.get_path("stdlib"),
    "include": sysconfig.get_path("include"),
}))
"""


def python_facts(python: str) -> dict[str, str]:
    """Path, version and folders of an interpreter, as it reports them itself.

    Raises ReleaseError if it does not run, or cannot make environments.
    """
    done = subprocess.run([python, "-c", _CODE], capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"{python} does not run: {done.stderr.strip()}; set PYTHON to one")
    facts: dict[str, str] = json.loads(done.stdout)
    return facts


def interpreters(minor: str) -> Iterator[str]:
    """Working interpreters of a Python minor (`3.12`): on PATH, then those of pyenv."""
    candidates = [shutil.which(f"python{minor}"), sys.executable]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(str(path) for path in pyenv.glob(f"{minor}.*/bin/python3"))
    for candidate in filter(None, candidates):
        try:
            facts = python_facts(candidate)
        except ReleaseError:
            continue
        if facts["minor"] == minor:
            yield facts["exe"]

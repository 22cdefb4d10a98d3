"""What scripts/test.sh asks of pytest by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from release_places import REPO

# Seconds. The run takes three, and now and then xdist waits ten more for each process to end.
LIMIT = 300


@pytest.fixture
def options() -> list[str]:
    """The options of pytest where the caller names none, on a machine with two processors."""
    script = (REPO / "scripts" / "test.sh").read_text(encoding="utf-8")
    (command,) = re.findall(r"^  (set -- -n .*(?:(?<=\\)\n.*)*)$", script, re.MULTILINE)
    words = ["bash", "-c", f'cores=2\n{command}\nprintf "%s\\n" "$@"']
    return subprocess.check_output(words, text=True).splitlines()


@pytest.mark.slow
def test_a_test_process_that_crashes_ends_the_run_and_is_named(
    options: list[str], tmp_path: Path
) -> None:
    """A replacement would leave the other tests of its file out, and the run would never end."""
    for name in "abcdef":
        tests = "".join(f"def test_{number}(): pass\n" for number in range(30))
        (tmp_path / f"test_{name}.py").write_text(tests)
    crash = "import os, signal\ndef test_5(): os.kill(os.getpid(), signal.SIGKILL)\n"
    with (tmp_path / "test_c.py").open("a") as file:
        file.write(crash)
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert process.returncode == 1, process.stdout
    assert "crashed while running 'test_c.py::test_5'" in process.stdout

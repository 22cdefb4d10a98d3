"""A small run of the release tool's engine, to be killed: conduct_program.py FOLDER [SECONDS].

Eight tasks, of which each writes its file slowly and through `publish`, beside a child process that
outlives a killed parent. FOLDER/runs.txt gets a line at the begin and at the end of every task.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from steps import Silent, Step

from torchship.release.matrix.load import load_settings
from torchship.release.paths import fresh, publish
from torchship.release.run import processes
from torchship.release.run import release as run
from torchship.release.run.tasks import Context, run_tasks

FOLDER = Path(sys.argv[1])
PAUSE = float(sys.argv[2]) if len(sys.argv) > 2 else 0.05
SIZE = 300_000
LATE = """
import os, time
for _ in range(3000):
    if os.path.exists({go!r}):
        open({late!r}, "w").close()
    time.sleep(0.02)
"""


def note(line: str) -> None:
    with (FOLDER / "runs.txt").open("a") as file:
        file.write(line + "\n")


def content(name: str) -> bytes:
    return (name.encode() * SIZE)[:SIZE]


def make(name: str, _: Context) -> list[Path]:
    work = fresh(FOLDER / "tmp" / name)
    # As a compiler that is not killed with the tool: once FOLDER/go is there, it writes.
    late = LATE.format(go=str(FOLDER / "go"), late=str(work / "late"))
    subprocess.Popen([sys.executable, "-c", late], close_fds=False)
    note(f"begin {name}")
    data = content(name)
    with (work / "part").open("wb") as file:
        for start in range(0, SIZE, SIZE // 5):
            file.write(data[start : start + SIZE // 5])
            file.flush()
            time.sleep(PAUSE)
    out = publish(work / "part", FOLDER / "out" / name)
    note(f"end {name}")
    return [out]


def tasks() -> list[Step]:
    first_tasks = [Step(name=f"a{i}", act=partial(make, f"a{i}")) for i in range(4)]
    return first_tasks + [
        Step(name=f"b{i}", act=partial(make, f"b{i}"), after=(first_tasks[i],)) for i in range(4)
    ]


if __name__ == "__main__":
    settings = replace(load_settings(), build=FOLDER)
    with (FOLDER / "said.txt").open("a") as file, run.only_run(settings, Console(file=file)):
        outcomes = run_tasks(tasks(), FOLDER, Silent(), settings=settings, jobs=2)
        for name, outcome in outcomes.items():
            note(f"{outcome.status.value} {name}")
        processes.end_children()
        file.flush()
        os._exit(0)

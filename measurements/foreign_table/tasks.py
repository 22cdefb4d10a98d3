"""What one process asks another to load, and what it answers; each is JSON on one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

PROGRAM = Path(__file__).with_name("load_objects.py")


@dataclass(frozen=True)
class Task:
    """An object to load beside a torch."""

    root: str
    """The folder of the object's package, for sys.path."""
    object: str
    """The object's path inside root."""
    load: str = "file"
    """`file` loads the object alone; `import` imports it as a module of its package."""
    preloads: list[str] = field(default_factory=list)
    """Paths inside root of the objects to load first."""
    beside: list[str] = field(default_factory=list)
    """More folders for sys.path."""
    call: str | None = None
    """An expression that must be true; the outcome stores its value if that is a string."""
    claimed: list[str] = field(default_factory=list)
    """The libraries that the verdict calls missing."""

    @property
    def path(self) -> Path:
        return Path(self.root) / self.object

    def with_claims(self, libraries: Sequence[str]) -> Task:
        return replace(self, claimed=list(libraries))


@dataclass(frozen=True)
class Outcome:
    """What happened when an object was loaded."""

    outcome: str
    """`works`, `load error`, `call error`, `wrong result`, `crash at load` or `crash at call`."""
    error: str = ""
    called: bool = False
    absent: list[str] = field(default_factory=list)
    """The claimed libraries that the loader cannot open either."""

    @property
    def works(self) -> bool:
        return self.outcome == "works"


def run_tasks(torch_folder: Path, tasks: Sequence[Task]) -> list[Outcome]:
    """The outcomes of tasks that load objects beside the torch in the folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(torch_folder), "OMP_NUM_THREADS": "1"}
    answers = subprocess.check_output(
        [sys.executable, "-S", str(PROGRAM)],  # -S hides the packages of this environment
        input="".join(json.dumps(asdict(task)) + "\n" for task in tasks),
        text=True,
        env=environment,
        cwd=torch_folder,
    )
    return [Outcome(**json.loads(line)) for line in answers.splitlines()]

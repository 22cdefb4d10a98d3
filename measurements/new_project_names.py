"""Runs both commands of new projects whose names have 2, 7 and 24 letters.

    python -m measurements.new_project_names [--out RESULT.json]

A formatter breaks a line where a name is long, and a short name may be another word's part. So
`torchship new` makes a project of each name from torchship's wheel alone, with either template, and
its two commands run: the first builds, packs and installs this machine's variant, the second runs
its linters and its tests. The result holds the seconds and the outcome of each step.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from torchship.project.archive import make_archive

from . import storage
from .new_project import Trial, clean_variables, make_project, run_both_commands

RESULT = storage.RESULTS / "new_project_names.json"
#: The projects by their names, with the template of each.
PROJECTS = {"ab": "rms_norm", "my-norm": "aten", "operators-with-long-name": "rms_norm"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULT, help="where to store the result")
    options = parser.parse_args()
    projects = []
    has_failed = False
    for name, template in PROJECTS.items():
        with tempfile.TemporaryDirectory(prefix="new-project-") as temporary:
            folder = Path(temporary).resolve()
            trial = Trial(folder, clean_variables(folder), name=name)
            make_project(trial, make_archive(folder), template)
            run_both_commands(trial)
        has_failed |= not all(step.passed for step in trial.steps)
        steps = [dataclasses.asdict(step) for step in trial.steps]
        projects.append({"name": name, "template": template, "steps": steps})
    storage.save({"processors": os.cpu_count(), "projects": projects}, options.out)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())

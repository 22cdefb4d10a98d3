"""Makes the reported environments, and stores the facts that the doctor's verdicts rest on.

    python -m measurements.environments.make_headers [NAME ...] [--folder DIR]

Nothing is loaded, and no fix is carried out: make_environments.py does that. Of each environment
whose stored verdict is one on an extension, the facts of this extension are stored, as far as the
verdict rests on them alone; of one that works, those of one extension. CI judges by them again
(tests/torchship/doctor/test_reported_headers.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from measurements import storage
from measurements.environments import outcomes
from measurements.environments.cases import Case, read
from measurements.environments.environment import SECONDS_TO_LOAD, Environment
from measurements.environments.headers import PATH, decode
from measurements.environments.make_environments import (
    FOLDER,
    TORCHES,
    hide,
    make_base,
)
from measurements.environments.outcomes import Outcome
from torchship.judge import judge

REPO = Path(__file__).resolve().parents[2]

PROGRAM = Path(__file__).with_name("record_headers.py")
COMMAND = "python -m measurements.environments.make_headers"


def record(case: Case, base: Path, folder: Path, stored: Outcome) -> dict[str, object] | None:
    """The facts of the extension that the stored verdict is about; None if there is none."""
    environment = Environment(base, folder / "case", case)
    try:
        environment.make()
        facts = environment.home / "facts"
        arguments = f'"{sys.executable}" -I -S "{PROGRAM}" "{REPO}" "{facts}" --json --python'
        environment.run(f'exec {arguments} "$(command -v python)"', SECONDS_TO_LOAD)
        lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
        rows = [json.loads(hide_all(line, environment)) for line in lines]
    finally:
        environment.remove()
    for row in rows:
        is_verdict = (row["state"], row["code"]) == (stored.state, stored.code)
        if is_verdict and is_judged_alike(row):
            return {"case": case.name, **row}
    return None


def hide_all(line: str, environment: Environment) -> str:
    """A line of facts without the folders of this machine."""
    pieces = line.split('"')
    return '"'.join(hide(piece, environment) if "/" in piece else piece for piece in pieces)


def is_judged_alike(row: dict[str, object]) -> bool:
    """Whether the facts alone lead to the verdict."""
    verdict = judge(decode(row["binary"]), decode(row["runtime"]))  # type: ignore[arg-type]
    code = str((verdict.cause and verdict.cause.code) or "")
    return verdict.accepted == (row["state"] == "works") and code == row["code"]


def save(rows: Iterable[dict[str, object]]) -> None:
    storage.save({"command": COMMAND, "headers": list(rows)}, PATH)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these cases")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where environments are made")
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    stored = {outcome.name: outcome for outcome in outcomes.load().outcomes}
    rows: dict[str, dict[str, object]] = {}
    if PATH.exists():
        document = storage.load(PATH)
        assert isinstance(document, dict)
        rows = {str(row["case"]): row for row in document["headers"]}
    for key in TORCHES:
        chosen = [
            case
            for case in read()
            if case.torch == key and case.name in stored and case.name not in rows
        ]
        chosen = [case for case in chosen if not options.names or case.name in options.names]
        if not chosen:
            continue
        base = make_base(key, folder)
        for case in chosen:
            row = record(case, base, folder, stored[case.name])
            print(
                f"{case.name}: {row['file'] if row else 'no verdict on an extension'}", flush=True
            )
            if row:
                rows[case.name] = row
                save(rows.values())
        shutil.rmtree(base)


if __name__ == "__main__":
    main()

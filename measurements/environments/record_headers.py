"""Runs the doctor, and writes the facts that it judges by into the file `$FACTS`.

    python -I -S record_headers.py REPOSITORY FACTS [ARGUMENTS OF THE DOCTOR ...]

Each line is a JSON object: the last judgement of one file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(sys.argv[1])

from measurements.environments.headers import encode
from torchship.doctor.checks import judging
from torchship.doctor.command import main
from torchship.judge.records import BinaryRecord, Runtime, Verdict

_judge = judging.judge
_last: dict[str, dict[str, object]] = {}


def judge(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """The judgement, which is written down."""
    verdict = _judge(binary, runtime)
    path = str(binary.path)
    own = runtime._replace(
        missing_symbols={path: runtime.missing_symbols.get(path, ())},
        missing_libraries={path: runtime.missing_libraries.get(path, ())},
        openings={path: runtime.openings[path]} if path in runtime.openings else {},
    )
    state = "works" if verdict.accepted else "fails" if verdict.rejection else "unknown"
    _last[path] = {
        "file": binary.path.name,
        "state": state,
        "code": str((verdict.cause and verdict.cause.code) or ""),
        "binary": encode(binary),
        "runtime": encode(own),
    }
    return verdict


if __name__ == "__main__":
    judging.judge = judge
    facts = Path(sys.argv[2])
    del sys.argv[1:3]
    status = main()
    with facts.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in _last.values())
    sys.exit(status)

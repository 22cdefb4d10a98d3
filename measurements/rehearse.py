"""Rehearses the GitHub workflows on this machine.

    python measurements/rehearse.py                        every workflow, on every occasion
    python measurements/rehearse.py --stand-ins            lists what is not the real thing
    python measurements/rehearse.py --prove 10 --seed 48   also faults and changes, and stores all

Every `run:` step is executed unchanged under `bash -e`, job by job, with artefacts handed on;
`measurements/rehearsal` says what stands for the rest. Needs bash, git, jq, gcc and twine.

`--prove N` lets each kind of fault strike a release, which must be refused, and draws N changes
of a single token in the workflows, which must be found. Results:
measurements/results/rehearsal.json.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO))  # behind the installed package

from measurements import storage  # noqa: E402
from measurements.rehearsal import actions, stand_ins  # noqa: E402
from measurements.rehearsal.faults import KINDS, inject  # noqa: E402
from measurements.rehearsal.mutations import Mutator, Verdict  # noqa: E402
from measurements.rehearsal.rehearsal import Theatre, read_workflows  # noqa: E402

RESULTS = storage.RESULTS / "rehearsal.json"

Record = Mapping[str, object]


def show_stand_ins() -> None:
    print("programs:")
    for entry in stand_ins.registered():
        print(f"  {entry.usage}\n      {entry.purpose}")
    print("actions:")
    for action in actions.ACTIONS.values():
        print(f"  {action.name} ({', '.join(sorted(action.inputs))})\n      {action.purpose}")


def rehearse_all(theatre: Theatre) -> list[Record]:
    """Rehearses every workflow on every occasion; returns a record of each."""
    workflows = read_workflows()
    records: list[Record] = []
    for occasion in theatre.occasions:
        begin = time.monotonic()
        rehearsed = theatre.rehearse(workflows[occasion.file], occasion)
        records.append(
            {
                "file": occasion.file,
                "occasion": occasion.title,
                "event": occasion.event,
                "failing": sorted(occasion.failing),
                "steps": len(rehearsed.report.steps),
                "seconds": time.monotonic() - begin,
                "results": rehearsed.report.results,
                "wrong": list(rehearsed.wrong),
            }
        )
        show(f"{occasion.file}, {occasion.title}", rehearsed.wrong)
    return records


def strike(theatre: Theatre, seed: int) -> list[Record]:
    """Lets every kind of fault strike; returns a record of each."""
    workflows = read_workflows()
    records: list[Record] = []
    for kind in KINDS:
        outcome = inject(kind, seed, theatre, workflows)
        records.append(
            {
                "fault": kind.name,
                "seed": outcome.seed,
                "before": kind.before,
                "refused_by": kind.refused_by,
                "sentence": outcome.sentence,
                "wrong": outcome.wrong,
            }
        )
        show(f"{kind.name}: {outcome.sentence}", [outcome.wrong] if outcome.wrong else [])
    return records


def change(theatre: Theatre, count: int, seed: int) -> list[Record]:
    """Draws changes of a token; returns a record of each."""
    records: list[Record] = []
    for verdict in itertools.islice(Mutator(theatre).draw(seed), count):
        records.append(record_of(verdict))
        place = f"{verdict.change.file}: {verdict.change.place}"
        edit = f"{verdict.change.old!r} -> {verdict.change.new!r}"
        problems = [] if verdict.is_found else ["nobody noticed"]
        show(f"{place}: {edit}: {verdict.sentence}", problems)
    return records


def record_of(verdict: Verdict) -> Record:
    return {
        "file": verdict.change.file,
        "place": verdict.change.place,
        "path": list(verdict.change.path),
        "start": verdict.change.start,
        "old": verdict.change.old,
        "new": verdict.change.new,
        "found": verdict.is_found,
        "occasion": verdict.occasion,
        "sentence": verdict.sentence,
    }


def show(title: str, problems: Sequence[str]) -> None:
    print(f"{'WRONG' if problems else 'right'}  {title}", flush=True)
    for problem in problems:
        print(f"       {problem}", flush=True)


def prove(theatre: Theatre, count: int, seed: int) -> bool:
    """Stores what was rehearsed, refused and found; returns whether all of it was right."""
    begin = time.monotonic()
    occasions = rehearse_all(theatre)
    faults = strike(theatre, seed)
    changes = change(theatre, count, seed)
    missed = [record for record in changes if not record["found"]]
    document = {
        "command_line": f"python measurements/rehearse.py --prove {count} --seed {seed}",
        "seed": seed,
        "seconds": time.monotonic() - begin,
        "wrong": sum(bool(record["wrong"]) for record in (*occasions, *faults)),
        "missed": len(missed),
        "occasions": occasions,
        "faults": faults,
        "changes": changes,
    }
    storage.save(document, RESULTS)
    print(f"{count - len(missed)} of {count} changes were found: {RESULTS}")
    return not (document["wrong"] or missed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stand-ins", action="store_true", help="list the stand-ins, and stop")
    parser.add_argument("--prove", type=int, metavar="N", help="also faults and N changes")
    parser.add_argument("--seed", type=int, default=48)
    options = parser.parse_args()
    if options.stand_ins:
        show_stand_ins()
        return
    with TemporaryDirectory(prefix="rehearsal-") as folder:
        theatre = Theatre(Path(folder))
        if options.prove:
            is_right = prove(theatre, options.prove, options.seed)
        else:
            is_right = not any(record["wrong"] for record in rehearse_all(theatre))
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()

"""Rehearses the GitHub workflows on this machine.

    python measurements/rehearse.py                    every workflow, on every occasion
    python measurements/rehearse.py --stand-ins        lists what is not the real thing
    python measurements/rehearse.py --mutate 20        twenty single-token changes: which are found

Every `run:` step is executed unchanged under `bash -e`, job by job, with artefacts handed on;
`measurements/rehearsal` says what stands for the rest. Needs bash, git, jq, gcc and twine. The
results of `--mutate` are stored in measurements/results/rehearsal.json.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO))  # behind the installed package

from measurements import storage  # noqa: E402
from measurements.rehearsal import actions, stand_ins  # noqa: E402
from measurements.rehearsal.mutations import Mutator, Verdict  # noqa: E402
from measurements.rehearsal.rehearsal import Theatre, read_workflows  # noqa: E402

RESULTS = storage.RESULTS / "rehearsal.json"


def show_stand_ins() -> None:
    print("programs:")
    for entry in stand_ins.registered():
        print(f"  {entry.usage}\n      {entry.purpose}")
    print("actions:")
    for action in actions.ACTIONS.values():
        print(f"  {action.name} ({', '.join(sorted(action.inputs))})\n      {action.purpose}")


def rehearse_all() -> int:
    """Rehearses everything; returns how many occasions went wrong."""
    wrong = 0
    with TemporaryDirectory(prefix="rehearsal-") as folder:
        theatre = Theatre(Path(folder))
        workflows = read_workflows()
        for occasion in theatre.occasions:
            rehearsed = theatre.rehearse(workflows[occasion.file], occasion)
            state = "WRONG" if rehearsed.wrong else "right"
            steps = len(rehearsed.report.steps)
            print(f"{state}  {occasion.file}, {occasion.title}: {steps} steps")
            for sentence in rehearsed.wrong:
                print(f"       {sentence}")
            wrong += bool(rehearsed.wrong)
    return wrong


def mutate(count: int, seed: int) -> int:
    """Draws changes and stores what became of them; returns how many were missed."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="rehearsal-") as folder:
        mutator = Mutator(Theatre(Path(folder)))
        verdicts = []
        for verdict in itertools.islice(mutator.draw(seed), count):
            verdicts.append(verdict)
            print(f"{'found ' if verdict.is_found else 'MISSED'}  {describe(verdict)}", flush=True)
    missed = sum(not verdict.is_found for verdict in verdicts)
    changes = [
        {
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
        for verdict in verdicts
    ]
    summary = {"command_line": f"python measurements/rehearse.py --mutate {count} --seed {seed}"}
    seconds = time.monotonic() - begin
    storage.save(
        {**summary, "seed": seed, "missed": missed, "seconds": seconds, "changes": changes}, RESULTS
    )
    print(f"{count - missed} of {count} changes were found: {RESULTS}")
    return missed


def describe(verdict: Verdict) -> str:
    change = verdict.change
    where = f"{change.file}: {change.place}: {change.old!r} -> {change.new!r}"
    return f"{where}: {verdict.sentence}" if verdict.is_found else where


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stand-ins", action="store_true", help="list the stand-ins, and stop")
    parser.add_argument("--mutate", type=int, metavar="N", help="draw N changes of a token")
    parser.add_argument("--seed", type=int, default=48)
    options = parser.parse_args()
    if options.stand_ins:
        show_stand_ins()
    elif options.mutate:
        sys.exit(1 if mutate(options.mutate, options.seed) else 0)
    else:
        sys.exit(1 if rehearse_all() else 0)


if __name__ == "__main__":
    main()

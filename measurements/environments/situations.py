"""Situations out of public threads: whole environments, the user's command, its true cause and fix.

    python -m measurements.environments.situations verify|measure [NAME ...] [--half N]

`verify` makes each, runs its command and its true fix, and asks no doctor. `measure` makes each,
runs its command, asks the doctor as its user would, and carries out the commands that it prints;
where it prints one that tries other releases, that one first.
It prints a finding a line.
The program needs what make_environments.py needs. Whether a cause is right is judged by a reader:
`texts` in the folder holds what the doctor said.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ruamel.yaml import YAML

from measurements.environments.cases import Case
from measurements.environments.environment import Environment, Run
from measurements.environments.make_environments import FOLDER, hide, make_base

PATH = Path(__file__).with_name("situations.yaml")
SECONDS = 300
#: A command, also behind words and a colon.
_COMMAND = re.compile(
    r"(?<!\S)(?:\S*python\S* -m pip|pip|mv|rm|unset|export|ulimit|touch|conda|apt|apt-get|ln|chmod"
    r"|mount|cd) .+$"
)
#: Whose fixes are carried out.
TRIED = ("pypi", "shell", "build")


@dataclass(frozen=True)
class Situation(Case):
    """One situation. Its Python is the `python` that its command finds."""

    shell: str = ""
    """What the user typed before, in the same shell: limits, variables, a folder."""
    command: str = ""
    """The user's command, which works or fails."""
    ask: str = ""
    """What the user adds to `torch-doctor`: a package, or `run` and the command."""
    python: str = "$(command -v python)"
    cause: str = ""
    """The true cause, in a sentence; an answer that says so is right."""
    fix: str = ""
    """The true fix, typed into the same shell; "" where there is none to type."""
    reach: str = ""
    """Who can bring it: `pypi`, `pypi-large` (a torch of several GB), the `shell`, the `machine`,
    a `build`, `elsewhere` (another index) or `none`."""
    half: int = 0
    """1: measured and then mended for; 2 to 5: measured as it came, 3 to 5 after the doctor was
    changed for those before; 0: held back until then."""


@dataclass(frozen=True)
class Finding:
    """What came out of one situation."""

    name: str
    half: int
    works: bool
    error: str
    exit: int
    says: str
    """The doctor's first line."""
    command: str
    mended: str
    """`mends`, `mends nothing`, or "" where no command was printed or carried out."""
    seconds: float
    is_found_by_trying: bool = False
    """Whether the report named no command, but one that tries other releases (`--try-fix`)."""
    cause: str = ""
    """`right`, `wrong` or `not known`, by a reader."""


def read(path: Path = PATH) -> list[Situation]:
    """Read the situations. Raises ValueError if one has an unknown field, or a name twice."""
    known = {item.name for item in fields(Situation)}
    situations: dict[str, Situation] = {}
    for entry in YAML(typ="safe").load(path.read_text(encoding="utf-8")):
        unknown = entry.keys() - known
        if unknown or entry["name"] in situations:
            raise ValueError(f"{path}: {entry['name']}: {unknown or 'a second one so named'}")
        given = {"thread": "", "report": "", "load": "", "works": False, **entry}
        situations[entry["name"]] = Situation(**given)
    return list(situations.values())


class Place(Environment):
    """The environment of a situation."""

    case: Situation

    def load(self) -> Run:
        return self.type(self.case.command)

    def type(self, *lines: str, seconds: int = SECONDS) -> Run:
        """Type lines into the user's shell. The last one's status counts."""
        return self.run("\n".join([self.case.shell, *lines]), seconds)

    def ask(self, options: str = "") -> Run:
        """Ask the doctor. Its status is the last line of the output."""
        where = f'--python "{self.case.python}"'
        asked, command = self.case.ask, ""
        if asked.startswith("run "):
            asked, command, where = "", asked, ""
        doctor = f'"{sys.executable}" -I -c "$DOCTOR" "{Path(__file__).resolve().parents[2]}"'
        return self.type(f"{doctor} {command} {options} {where} {asked}", 'echo "STATUS $?"')


def commands(report: str) -> list[str]:
    """The commands that the doctor prints as fixes, in its order."""
    fixes = (line.partition("to fix:")[2] for line in report.splitlines())
    found = (_COMMAND.search(fix) for fix in fixes)
    return list(dict.fromkeys(match[0] for match in found if match))


def verify(situation: Situation, base: Path, folder: Path) -> str:
    """Whether the command does what the situation says, and the true fix mends it."""
    place = Place(base, folder, situation)
    try:
        place.make()
        before = place.load()
        says = f"{'works' if before.succeeds else 'fails'}: {hide(before.error, place)}"
        if before.succeeds == situation.works and situation.fix and situation.reach in TRIED:
            after = place.type(situation.fix, situation.command)
            says += f"\n    fix: {'mends' if after.succeeds else hide(after.error, place)}"
        return f"{' ' if before.succeeds == situation.works else '!'} {situation.name} {says}"
    finally:
        place.remove()


def measure(situation: Situation, base: Path, folder: Path, texts: Path) -> Finding:
    """Ask the doctor, and carry out its first command."""
    place = Place(base, folder, situation)
    try:
        place.make()
        before = place.load()
        start = time.monotonic()
        asked = place.ask()
        seconds = time.monotonic() - start
        text, _, status = asked.output.rpartition("STATUS ")
        printed = commands(text)
        is_found_by_trying = not printed and "to try:" in text
        if is_found_by_trying:
            again = place.ask("--try-fix").output
            text = f"{text}\n---- --try-fix\n{again}"
            printed = commands(again)
        mended = ""
        tried = []
        for command in printed[:3]:
            tried.append(command)
            run = place.type(command, situation.command, seconds=600)
            mended = "mends" if run.succeeds else "mends nothing"
            tried.append(f"-> {mended} {run.error}")
            if run.succeeds:
                break
        texts.mkdir(parents=True, exist_ok=True)
        (texts / f"{situation.name}.txt").write_text(
            f"{situation.cause}\nFIX {situation.fix} ({situation.reach})\nERROR {before.error}\n"
            f"----\n{text}\n---- status {status}\n" + "\n".join(tried) + "\n"
        )
        return Finding(
            name=situation.name,
            half=situation.half,
            works=before.succeeds,
            error=hide(before.error, place),
            exit=int(status.strip() or -1),
            says=hide(text.strip().split("\n")[0], place),
            command=hide(printed[0] if printed else "", place),
            mended=mended,
            seconds=round(seconds, 1),
            is_found_by_trying=is_found_by_trying,
        )
    finally:
        place.remove()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("verify", "measure"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--half", type=int)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--place", default="case", help="a name for each process beside others")
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    for situation in read():
        if options.names and situation.name not in options.names:
            continue
        if options.half and situation.half != options.half:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        base, case = make_base(situation.torch, folder), folder / options.place
        try:
            if options.what == "verify":
                print(verify(situation, base, case), flush=True)
            else:
                finding = measure(situation, base, case, folder / "texts")
                print(json.dumps(asdict(finding)), flush=True)
        except RuntimeError as error:
            print(f"! {situation.name}: {error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

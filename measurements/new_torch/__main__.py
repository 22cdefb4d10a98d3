"""Measures a release of torch, writes it into every table, builds, and runs the op's tests.

    scripts/new_torch.sh VERSION [--index URL] [--take-out]
    python -m measurements.new_torch --draw

The script makes an environment with this torch and starts the program in it. The program works on
a clone of the last commit, and changes nothing else. In build/new_torch/VERSION it leaves

- `tables.patch`, what the torch changes: `git apply` puts it into the checkout;
- `report.json`, how long each step took, and what differs in which table;
- `log.txt`, and `tests.xml`.

`--take-out` first takes the torch out of the clone's tables, as if nobody knew it yet, and compares
what the program then writes with the last commit. Its report is stored in
measurements/results/new_torch.json, which docs/ship/new-torch.md shows; `--draw` only draws.

A nightly's version ends in `.devDATE`; its tables are those of the release that it comes before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from measurements import storage
from measurements.new_torch import facts as measuring
from measurements.new_torch import report, tables
from measurements.new_torch.facts import PYPI, Facts
from measurements.new_torch.report import FileDifference, Report, Step
from measurements.torches import MARKERS, count_outcomes
from torchship.judge.reading.layouts import FIELDS, LAYOUTS
from torchship.release.matrix.load import load_settings
from torchship.release.paths import fresh

ROOT = Path(__file__).resolve().parents[2]
MATRIX = Path("build_matrix.yaml")
LAYOUT_TABLE = Path("torchship/judge/reading/layouts.py")
SYMBOL_TABLE = Path("torchship/judge/reading/symbols.json")
#: What follows from the tables: each program writes its files.
GENERATORS = (
    ("-m", "torchship.release", "generate"),
    ("-m", "docs._ext.page_tables"),
)
TESTS = "tests/op"


@dataclass
class Trial:
    """A clone in which a torch is tried, and the steps that were made."""

    version: str
    folder: Path
    steps: list[Step] = field(default_factory=list)

    @property
    def clone(self) -> Path:
        """Not in the folder of the results, which a workflow keeps whole."""
        return ROOT / "build" / "new_torch_clones" / self.version

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Says what is done, and remembers how long it takes."""
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        yield
        self.steps.append(Step(step=name, seconds=round(time.monotonic() - begin, 1)))

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=new-torch", "-c", "user.email=new-torch@example.org"]
        process = subprocess.run(
            [*command, *arguments], cwd=self.clone, check=True, stdout=subprocess.PIPE, text=True
        )
        return process.stdout

    def python(self, *arguments: str, cwd: Path | None = None) -> None:
        """Runs this Python, whose output goes into the log of the trial."""
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with (self.folder / "log.txt").open("a") as log:
            subprocess.run(
                [sys.executable, *arguments],
                cwd=cwd or self.clone,
                env={"FORCE_CUDA": "0"} | env,
                check=True,
                stdout=log,
                stderr=log,
            )

    def rewrite(self) -> None:
        """Writes what follows from the tables of the clone."""
        for command in GENERATORS:
            self.python(*command)

    def commit(self, subject: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--no-verify", "-m", subject)
        return self.git("rev-parse", "HEAD").strip()


def edit(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def take_out(trial: Trial, minor: tables.Minor) -> None:
    """Removes a torch from the tables of the clone, and commits that."""
    matrix, layouts, symbols = (trial.clone / p for p in (MATRIX, LAYOUT_TABLE, SYMBOL_TABLE))
    edit(matrix, tables.take_out_entry(matrix.read_text(), minor))
    edit(layouts, tables.take_out_layout(layouts.read_text(), minor))
    edit(symbols, tables.take_out_symbols(symbols.read_text(), list(LAYOUTS)))
    trial.rewrite()
    trial.commit(f"Take out torch {tables.dotted(minor)}")


def put_in(trial: Trial, facts: Facts) -> None:
    """Writes a torch into the tables of the clone; one that is there gets what was measured."""
    matrix, layouts, symbols = (trial.clone / p for p in (MATRIX, LAYOUT_TABLE, SYMBOL_TABLE))
    if tables.has_entry(matrix.read_text(), facts.minor):
        raise ValueError(
            f"{MATRIX} has an entry of torch {tables.dotted(facts.minor)}; remove it, or try "
            "with --take-out"
        )
    edit(matrix, tables.add_entry(matrix.read_text(), facts))
    edit(layouts, tables.add_layout(layouts.read_text(), facts.minor, facts.layout))
    edit(symbols, tables.add_symbols(symbols.read_text(), facts.minor, facts.exported))
    trial.rewrite()


def compare(trial: Trial, old: str, new: str) -> list[FileDifference]:
    """The files that differ between two commits of the clone, with their lines."""
    differences = []
    for line in trial.git("diff", "--numstat", old, new).splitlines():
        added, removed, name = line.split("\t")
        lines = [
            text
            for text in trial.git("diff", "-U0", old, new, "--", name).splitlines()
            if text[:1] in "+-" and not text.startswith(("+++", "---"))
        ]
        differences.append(
            FileDifference(
                file=name,
                added=int(added),
                removed=int(removed),
                lines=[text[: report.LONGEST] for text in lines[: report.MOST_LINES]],
            )
        )
    return differences


def layout_changes(facts: Facts, layouts: str) -> list[str]:
    """The numbers of the layout that differ from those of the minor before."""
    old = tables.read_layout_before(layouts, facts.minor)
    return [
        f"{name}: {before} -> {now}"
        for name, before, now in zip(FIELDS, old, facts.layout, strict=True)
        if before != now
    ]


def build_and_run(trial: Trial) -> report.Tests:
    """Compiles the package with this torch, loads it, and runs the tests of the op."""
    with trial.step("compile and install the package"):
        install = ("-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps")
        trial.python(*install, "--force-reinstall", ".")
    with trial.step("load it, with all verdicts"):
        trial.python("-m", load_settings().project.package, cwd=trial.folder)
    results = trial.folder / "tests.xml"
    with trial.step(f"run {TESTS}"):
        pytest = ["-m", "pytest", TESTS, "-m", MARKERS, "-n", "2", "-q", f"--junitxml={results}"]
        try:
            # The folder of the sources would hide the installed package.
            trial.python("-P" if sys.version_info >= (3, 11) else "-I", *pytest)
        except subprocess.CalledProcessError as error:
            if error.returncode != 1 or not results.exists():
                raise
    counts = count_outcomes(results)
    return report.Tests(
        passed=counts.passed,
        failed=counts.failed,
        skipped=counts.skipped,
        failures=counts.failures,
    )


def try_torch(version: str, index: str, *, without: bool) -> Report:
    """Does everything for one torch; `without` takes it out of the clone first."""
    trial = Trial(version, fresh(ROOT / "build" / "new_torch" / version))
    started = time.time()
    subprocess.run(["git", "clone", "-q", "--shared", ROOT, fresh(trial.clone)], check=True)
    head = trial.git("rev-parse", "HEAD").strip()
    served = load_settings().matrix.package.pythons
    with trial.step("measure layouts and symbols"):
        pythons = measuring.list_pythons(version, index, served)
        facts = measuring.measure(version, pythons)
    if without:
        with trial.step("take the torch out of the clone"):
            take_out(trial, facts.minor)
    base = trial.git("rev-parse", "HEAD").strip()
    changes = layout_changes(facts, (trial.clone / LAYOUT_TABLE).read_text())
    lost = tables.lost_symbols((trial.clone / SYMBOL_TABLE).read_text(), facts.exported)
    with trial.step("write it into every table"):
        put_in(trial, facts)
        new = trial.commit(f"Support torch {tables.dotted(facts.minor)}")
    (trial.folder / "tables.patch").write_text(trial.git("diff", base, new))
    tests = build_and_run(trial)
    return Report(
        torch=version,
        cuda=facts.cuda,
        python=sys.version.split()[0],
        date=time.strftime("%Y-%m-%d", time.gmtime(started)),
        commit=head,
        was_taken_out=without,
        steps=trial.steps,
        layout_changes=changes,
        symbols_lost=lost,
        tables=compare(trial, base, new),
        unlike_commit=compare(trial, head, new) if without else [],
        tests=tests,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="scripts/new_torch.sh", description=__doc__, formatter_class=form
    )
    parser.add_argument("version", nargs="?", metavar="VERSION", help="as 2.16.0")
    parser.add_argument("--index", default=PYPI, metavar="URL", help="a package index with torch")
    parser.add_argument("--take-out", action="store_true", help="as if nobody knew this torch yet")
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--draw", action="store_true", help="only draw what is stored")
    options = parser.parse_args(arguments)
    if options.draw:
        report.draw()
        return 0
    if options.version is None:
        parser.error("VERSION is missing")
    try:
        result = try_torch(options.version, options.index, without=options.take_out)
    except subprocess.CalledProcessError as error:
        log = ROOT / "build" / "new_torch" / options.version / "log.txt"
        print(f"error: {error}; read {log}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    result.steps.insert(0, Step(step="download and install torch", seconds=options.seconds))
    path = ROOT / "build" / "new_torch" / options.version / "report.json"
    storage.save(asdict(result), path)
    print(report.to_markdown(result))
    if options.take_out:
        shutil.copy(path, report.PATH)
        report.draw()
    return 1 if result.tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())

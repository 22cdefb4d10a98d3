"""dist/manifest.json: the artefacts of a run, their sources, the tools, and the test runs.

dist/report.html shows the same on one page, which needs no other files.

Users of an artefact trust the hashes in it. An incomplete manifest is set aside, never repaired or
used in part.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field, ValidationError

from engine.compat.records import VariantName
from release import ReleaseError
from release.paths import write_atomically
from release.schema import Strict
from release.store import digest

State = Literal["done", "partial", "failed", "skipped"]
Kind = Literal["fat", "thin", "sdist", "conda"]
TEMPLATE = "report.html.j2"
LONGEST = 200_000  # characters of a log in the page; the log file is complete


class Artefact(Strict):
    """A file for users; `path` is relative to the manifest's folder."""

    path: str
    kind: Kind
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int
    cells: list[str] = Field(default_factory=list)


class Binary(Strict):
    """A shared object, with its build record and the newest symbol versions that it needs."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int
    record: dict[str, Any]
    needed: list[str]
    versions: dict[str, str]


class Run(Strict):
    """An artefact that was installed and run, or the reason why it was not.

    Attributes:
        kind: `venv` (the thin wheel), `fat` (the fat wheel), `conda` (the package).
        facts: the smoke test's findings; for a conda package also the `pytorch` package beside it.
    """

    kind: str
    ran: bool
    why_not: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)


class CellEntry(Strict):
    """One variant of the matrix.

    Attributes:
        state: `partial` means built, but without a step that this machine cannot do; `reason` says
            which.
        binaries: names of its shared objects, keys of `Manifest.binaries`.
        steps: seconds of every step that serves it, also of steps that an earlier run did.
        host: the key in `Manifest.hosts` of the machine that built it.
    """

    state: State
    reason: str = ""
    torch: str
    binaries: list[str] = Field(default_factory=list)
    wheel: str | None = None
    conda: str | None = None
    runs: list[Run] = Field(default_factory=list)
    steps: dict[str, float] = Field(default_factory=dict)
    log: str | None = None
    host: str = ""

    @property
    def packed(self) -> bool:
        """Whether its binaries belong in the fat wheel: it was packed, and nothing failed."""
        return self.wheel is not None and self.state in ("done", "partial")


class HostFacts(Strict):
    """The machine and the tools of a run; `image` names its container, if the caller gave it."""

    system: str
    image: str = ""
    python: str
    compiler: str
    processors: int
    gpus: list[str]
    tools: dict[str, str]


class Manifest(Strict):
    """The whole file.

    Attributes:
        changed: what changed in the checkout during the run; `artefacts` is empty then, because
            their sources are not known.
        sources: a hash over the commit and every file in a distribution.
        base_channel: the URL of the base conda packages; None: the bootstrap channel.
        missing: the cells of the matrix that the fat wheel lacks, and why.
        optional: the cells of the matrix without which the fat wheel is whole.
    """

    schema_: Literal[1] = Field(1, alias="schema")
    package: str
    version: str
    commit: str
    clean: bool
    changed: str = ""
    sources: str
    source_date: str
    base_channel: str | None
    shard: str | None = None
    made: str
    seconds: float
    total: int
    missing: dict[str, str]
    optional: list[str] = Field(default_factory=list)
    cells: dict[str, CellEntry]
    binaries: dict[str, Binary]
    artefacts: list[Artefact]
    hosts: dict[str, HostFacts]

    @property
    def fat(self) -> Artefact | None:
        return next((a for a in self.artefacts if a.kind == "fat"), None)

    @property
    def partial(self) -> bool:
        """Whether the fat wheel lacks variants that are not optional."""
        return not self.missing.keys() <= {*self.optional}

    @property
    def lacks(self) -> str:
        """The missing variants as the end of a sentence; empty if the fat wheel has all of them."""
        names = [name + " (optional)" * (name in self.optional) for name in self.missing]
        return f", which lacks {', '.join(names)}" if names else ""

    def text(self) -> str:
        return self.model_dump_json(by_alias=True, indent=1) + "\n"


class ManifestError(ReleaseError):
    """A manifest that is missing, damaged, of another schema, or does not fit its files."""


def parse(path: Path) -> Manifest:
    """The manifest at `path`; raises ManifestError."""
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"{path}: cannot be read ({error.strerror})"
        raise ManifestError(f"{text}; run scripts/build_all.sh first") from error
    except (ValidationError, UnicodeDecodeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"msg": str(error)}
        where = ".".join(map(str, first.get("loc", ())))
        text = f"{path}: is no whole manifest ({where + ': ' if where else ''}{first['msg']})"
        raise ManifestError(f"{text}; delete it and build again") from error


def read_or_set_aside(path: Path, tell: Callable[[str], None]) -> Manifest | None:
    """The manifest of an earlier run; None if it does not exist or cannot be trusted."""
    if not path.exists():
        return None
    try:
        return parse(path)
    except ManifestError as error:
        number = 1
        while (aside := path.with_name(f"{path.name}.set-aside-{number}")).exists():
            number += 1
        path.replace(aside)
        tell(f"{str(error).rpartition(';')[0]}; it was set aside as {aside.name} and is not used")
        return None


def write(manifest: Manifest, path: Path) -> None:
    write_atomically(path, manifest.text())
    write_atomically(path.with_suffix(".schema.json"), json_schema())


def wrong_files(artefacts: Iterable[Artefact], folder: Path) -> list[str]:
    found = []
    for artefact in artefacts:
        path = folder / artefact.path
        if not path.is_file():
            found.append(f"{artefact.path} is missing")
        elif digest(path) != artefact.sha256:
            found.append(f"{artefact.path} is not the file that was made (its hash differs)")
    return found


def carried(previous: Manifest | None, sources: str, folder: Path) -> dict[str, CellEntry]:
    """The cells of an earlier run with the same sources and intact wheels."""
    if previous is None or previous.sources != sources:
        return {}
    intact = {a.path for a in previous.artefacts if not wrong_files([a], folder)}
    return {n: cell for n, cell in previous.cells.items() if cell.packed and cell.wheel in intact}


def json_schema() -> str:
    return json.dumps(Manifest.model_json_schema(by_alias=True), indent=1) + "\n"


def write_report(manifest: Manifest, path: Path) -> None:
    write_atomically(path, render(manifest, path.parent))


def render(manifest: Manifest, dist: Path) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["megabytes"] = lambda size: f"{size / 1e6:.2f} MB"
    environment.filters["seconds"] = lambda value: f"{value:.1f} s"
    # A step that serves several cells counts in the first of them.
    counted: dict[str, str] = {}
    for name, cell in manifest.cells.items():
        for step in cell.steps:
            counted.setdefault(step, name)

    def own_seconds(name: str) -> str:
        steps = manifest.cells[name].steps.items()
        return f"{sum(took for step, took in steps if counted[step] == name):.1f} s"

    environment.filters["own_seconds"] = own_seconds
    rows, columns = grid(manifest)
    return environment.get_template(TEMPLATE).render(
        m=manifest,
        rows=rows,
        columns=columns,
        logs={name: _log(cell, dist) for name, cell in manifest.cells.items()},
        totals=Counter(cell.state for cell in manifest.cells.values()),
        counted=counted,
    )


def grid(manifest: Manifest) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Every cell of the matrix by glue and device, and the devices in order."""
    rows: dict[str, dict[str, str]] = {}
    for name in {**manifest.cells, **manifest.missing}:
        # The last part of the name may be the platform.
        glue, device = re.fullmatch(r"(.+)-(cpu|cu\d+)(?:-\w+)?", name).groups()  # type: ignore
        rows.setdefault(glue, {})[device] = name

    def age(glue: str) -> tuple[bool, tuple[int, int], str]:
        parsed = VariantName.parse(f"{glue}-cpu").glue
        return parsed.lane != "stable", parsed.torch, glue

    columns = sorted({device for row in rows.values() for device in row})
    return {glue: rows[glue] for glue in sorted(rows, key=age)}, columns


def _log(cell: CellEntry, dist: Path) -> str:
    try:
        text = (dist / str(cell.log)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    if len(text) <= LONGEST:
        return text
    return f"... ({len(text) - LONGEST} characters before this: {cell.log})\n{text[-LONGEST:]}"

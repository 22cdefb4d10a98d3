"""Reads and writes dist/manifest.json (artefacts, tools, test runs); writes dist/report.html.

Users of an artefact trust the hashes in the manifest. So a run sets a damaged manifest
aside and uses no part of it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from pydantic import AfterValidator, Field, ValidationError

from ...judge.records import GlueName
from .. import ReleaseError
from ..matrix.schema import Strict
from ..paths import write_atomically
from .store import digest


def _inside(path: str) -> str:
    """The path, if it leads to a file inside the manifest's folder."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r} does not lie in the manifest's folder")
    if not path.isprintable():
        raise ValueError(f"{path!r} has characters that no path of the release tool has")
    return path


InnerPath = Annotated[str, AfterValidator(_inside)]
State = Literal["done", "partial", "failed", "skipped"]
#: A target of `upload`: PyPI and its like, anaconda.org, and a folder for a web server.
Target = Literal["pypi", "anaconda", "folder"]


class Artefact(Strict):
    """A file for users; `path` is relative to the manifest's folder.

    What made it says its `kind`, which targets of `upload` take it, and which cells are in it: no
    user gets it if one of these failed.
    """

    path: InnerPath
    kind: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int
    goes_to: list[Target]
    cells: list[str] = Field(default_factory=list)


class Binary(Strict):
    """A shared object, its build record, and the newest symbol versions that it needs."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int
    record: dict[str, Any]
    needed: list[str]
    versions: dict[str, str]


class Run(Strict):
    """The run of a thin wheel (`venv`), a fat wheel or a conda package, or why it did not run.

    An entry of the kind `gpu` says that no run used the CUDA kernels. `facts` are the smoke
    test's findings; for a conda package also the `pytorch` package beside it.
    """

    kind: str
    ran: bool
    why_not: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)


class CellEntry(Strict):
    """One variant of the matrix, and the reason why it is not `done`.

    In the state `partial`, the wheel was packed, but another step was skipped. `steps` has
    the seconds of each finished step, also if an earlier run did it. `binaries` has keys of
    `Manifest.binaries`; `host` is a key of `Manifest.hosts`: who built or skipped the cell. `facts`
    has what only a step knows, by the step's name.
    """

    state: State
    reason: str = ""
    torch: str
    binaries: list[str] = Field(default_factory=list)
    wheel: InnerPath | None = None
    conda: InnerPath | None = None
    runs: list[Run] = Field(default_factory=list)
    steps: dict[str, float] = Field(default_factory=dict)
    log: InnerPath | None = None
    host: str = ""
    facts: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def packed(self) -> bool:
        """Whether users may get what the cell packed: it was packed, and none of its steps failed.

        The fat wheel of a merge has these cells, and that of a run those of which no step before
        it has failed.
        """
        return self.wheel is not None and self.state in ("done", "partial")


class ToolEntry(Strict):
    """A pure Python distribution, its files, and the reason why it is not `done`.

    It is `partial` if its wheel was made, but another step was skipped. `steps`, `log`,
    `host` and `facts` are as in a cell's entry.
    """

    state: State
    reason: str = ""
    files: list[InnerPath] = Field(default_factory=list)
    steps: dict[str, float] = Field(default_factory=dict)
    log: InnerPath | None = None
    host: str = ""
    facts: dict[str, dict[str, Any]] = Field(default_factory=dict)


class HostFacts(Strict):
    """The machine and the tools of a run.

    `image` is the container's name in RELEASE_IMAGE.
    """

    system: str
    image: str = ""
    python: str
    compiler: str
    processors: int
    gpus: list[str]
    tools: dict[str, str]


class Manifest(Strict):
    """The whole file.

    `changed` is the change of the checkout during the run, or "": after a change, the
    sources of the artefacts are not known, so `artefacts` is empty. `sources` is a hash of
    the commit and the files. `base_channel` is a URL (several after some merges); None for
    bootstrap. `missing` says why the fat wheel lacks cells; a whole one may lack those in
    `optional`. `tools` has the tools that were made with the cells. `facts` has what steps know
    that serve no single cell or tool, by their names.
    """

    schema_: Literal[2] = Field(default=2, alias="schema")
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
    tools: dict[str, ToolEntry] = Field(default_factory=dict)
    binaries: dict[str, Binary]
    artefacts: list[Artefact]
    facts: dict[str, dict[str, Any]] = Field(default_factory=dict)
    hosts: dict[str, HostFacts]

    @property
    def fat(self) -> Artefact | None:
        return next((a for a in self.artefacts if a.kind == "fat"), None)

    @property
    def left_behind(self) -> list[Artefact]:
        """The artefacts that no user may get: what a cell packed before it failed."""
        usable = {name for name, cell in self.cells.items() if cell.packed}
        return [artefact for artefact in self.artefacts if not {*artefact.cells} <= usable]

    def of_cell(self, name: str) -> list[Artefact]:
        """The artefacts of this cell alone."""
        return [a for a in self.artefacts if a.cells == [name] and a.kind != "fat"]

    @property
    def partial(self) -> bool:
        """Whether the fat wheel lacks a cell that is not optional."""
        return not self.missing.keys() <= {*self.optional}

    @property
    def failed(self) -> list[str]:
        """The failed tools, and the failed cells that the fat wheel holds, or must hold.

        An optional cell that is left out stops no release.
        """
        held = self.fat.cells if self.fat else []
        states = {name: cell.state for name, cell in self.cells.items()}
        states |= {name: tool.state for name, tool in self.tools.items()}
        return [
            name
            for name, state in states.items()
            if state == "failed" and (name in held or name not in self.optional)
        ]

    @property
    def lacks(self) -> str:
        """The missing cells as the end of a sentence; "" if the fat wheel has all cells."""
        names = [name + " (optional)" * (name in self.optional) for name in self.missing]
        return f", which lacks {', '.join(names)}" if names else ""


def parse(path: Path) -> Manifest:
    """The manifest at `path`; raises ReleaseError if it is missing or damaged."""
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReleaseError(
            f"{path}: cannot be read ({error.strerror}); run scripts/build_all.sh first"
        ) from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise ReleaseError(
            f"{path}: the manifest is not whole ({_first_problem(error)}); delete it, and build "
            "again"
        ) from error


def _first_problem(error: ValidationError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def of_shards(folders: Iterable[Path]) -> dict[Path, Manifest]:
    """The manifests in the `dist` folders of shards.

    Raises ReleaseError if a file is missing or damaged, if a checkout changed during the
    run of its shard, or if the shards' packages, versions, sources or numbers of cells
    differ.
    """
    shards = {folder: parse(folder / "manifest.json") for folder in folders}
    first_folder, first = next(iter(shards.items()))
    for folder, manifest in shards.items():
        if manifest.changed:
            raise ReleaseError(f"{folder}: {manifest.changed}; build the shard again")
        if wrong := wrong_files(manifest.artefacts, folder):
            raise ReleaseError(
                f"{folder}: {wrong[0]}; copy the whole folder again, or build the shard again"
            )
        for name in ("package", "version", "commit", "sources", "total"):
            value = getattr(manifest, name)
            expected = getattr(first, name)
            if value != expected:
                raise ReleaseError(
                    f"{folder}: {name} is {value}, {first_folder} has {expected}; "
                    "build every shard from the same commit"
                )
    return shards


def read_or_set_aside(path: Path, warn: Callable[[str], None]) -> Manifest | None:
    """The manifest of an earlier run.

    None if there is none, or if it is damaged and set aside.
    """
    if not path.exists():
        return None
    try:
        return parse(path)
    except ReleaseError as error:
        number = 1
        while (aside := path.with_name(f"{path.name}.set-aside-{number}")).exists():
            number += 1
        path.replace(aside)
        warn(f"{str(error).rpartition(';')[0]}; it was set aside as {aside.name} and is not used")
        return None


def write(manifest: Manifest, path: Path) -> None:
    """Writes the manifest, and beside it the JSON schema of manifests and the report page."""
    write_atomically(path, manifest.model_dump_json(by_alias=True, indent=1) + "\n")
    write_atomically(path.with_suffix(".schema.json"), json_schema())
    write_atomically(path.with_name("report.html"), render(manifest, path.parent))


def wrong_files(artefacts: Iterable[Artefact], folder: Path) -> list[str]:
    """A text for each artefact that is not in the folder as it was made."""
    problems = []
    for artefact in artefacts:
        path = folder / artefact.path
        if not path.is_file():
            problems.append(f"{artefact.path} is missing")
        elif leads_out(path, folder):
            problems.append(f"{artefact.path} is a link to a file outside of {folder}")
        elif digest(path) != artefact.sha256:
            problems.append(f"{artefact.path} is not the file that was made (its hash differs)")
    return problems


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path below a folder leads out of it by a link."""
    return not path.resolve().is_relative_to(folder.resolve())


def cells_to_keep(previous: Manifest | None, sources: str, folder: Path) -> dict[str, CellEntry]:
    """The cells that the `previous` run packed from these `sources`, if their wheels are intact."""
    if previous is None or previous.sources != sources:
        return {}
    intact = {a.path for a in previous.artefacts if not wrong_files([a], folder)}
    return {n: cell for n, cell in previous.cells.items() if cell.packed and cell.wheel in intact}


def tools_to_keep(previous: Manifest | None, sources: str, folder: Path) -> dict[str, ToolEntry]:
    """The tools that the `previous` run made from these `sources`, if their files are intact."""
    if previous is None or previous.sources != sources:
        return {}
    intact = {a.path for a in previous.artefacts if not wrong_files([a], folder)}
    return {
        name: tool
        for name, tool in previous.tools.items()
        if tool.state in ("done", "partial") and intact.issuperset(tool.files)
    }


@cache
def json_schema() -> str:
    return json.dumps(Manifest.model_json_schema(by_alias=True), indent=1) + "\n"


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["megabytes"] = lambda size: f"{size / 1e6:.2f} MB"
    environment.filters["seconds"] = lambda value: f"{value:.1f} s"
    return environment.get_template("report.html.j2")


def render(manifest: Manifest, dist: Path) -> str:
    """The page dist/report.html, which needs no other files."""
    # The time of a step that serves several cells is added to the first of those cells.
    counted: dict[str, str] = {}
    own_seconds = dict.fromkeys(manifest.cells, 0.0)
    for name, cell in manifest.cells.items():
        for step, seconds in cell.steps.items():
            if counted.setdefault(step, name) == name:
                own_seconds[name] += seconds
    rows, columns = grid(manifest)
    return _template().render(
        m=manifest,
        rows=rows,
        columns=columns,
        logs=_logs(manifest, dist),
        totals=Counter(cell.state for cell in manifest.cells.values()),
        counted=counted,
        own=own_seconds,
    )


def _logs(manifest: Manifest, dist: Path) -> dict[str, str]:
    """The logs of the cells that have one, by the cells' names."""
    logs = {}
    for name, cell in manifest.cells.items():
        if cell.log and (dist / cell.log).is_file():
            logs[name] = (dist / cell.log).read_text(encoding="utf-8", errors="replace")
    return logs


def grid(manifest: Manifest) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The name of every cell by glue and device, and the devices in order."""
    rows: dict[GlueName, dict[str, str]] = {}
    for name in {**manifest.cells, **manifest.missing}:
        # The last part of the name may be the platform.
        glue, device = re.fullmatch(r"(.+)-(cpu|cu\d+)(?:-\w+)?", name).groups()  # type: ignore
        rows.setdefault(GlueName.parse(glue), {})[device] = name
    order = sorted(rows, key=lambda glue: (glue.lane != "stable", glue.torch, str(glue)))
    columns = sorted({device for row in rows.values() for device in row})
    return {str(glue): rows[glue] for glue in order}, columns

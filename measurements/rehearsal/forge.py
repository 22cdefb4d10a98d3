"""What lies outside of a job's machine: GitHub's artefacts, releases and attestations, the package
index, the registry of images, and the facts of this project that they are checked against."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchship.release import cibuildwheel
from torchship.release.cells import Cell, all_cells
from torchship.release.schema import FIRST
from torchship.release.settings import Settings

DIGEST = "sha256:" + "1" * 64
TOKEN = "ghs_of-this-run"
OWNER = "owner"
REPOSITORY = f"{OWNER}/op"
RUN = "4711"
SIGNER = f"{REPOSITORY}/.github/workflows/release.yml"
#: The images that jobs run in: the Python and the CUDA toolkit of each.
ARM_IMAGE = "quay.io/pypa/manylinux_2_28_aarch64"
CUDA_HOME = "/usr/local/cuda"


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Occasion:
    """Why a workflow runs, and what goes wrong in it."""

    title: str
    file: str
    event: str
    ref: str
    #: The cells, and the platforms, whose build fails.
    failing: frozenset[str] = frozenset()

    @property
    def ref_name(self) -> str:
        return self.ref.split("/", 2)[2]

    @property
    def ref_type(self) -> str:
        return "tag" if self.ref.startswith("refs/tags/") else "branch"

    @property
    def tag(self) -> str:
        return self.ref_name if self.ref_type == "tag" else ""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """An attestation: who signed, at which ref, for which files by name and hash."""

    signer: str
    ref: str
    subjects: frozenset[tuple[str, str]]

    def to_json(self) -> str:
        return json.dumps(
            {"signer": self.signer, "ref": self.ref, "subjects": sorted(self.subjects)}
        )


@dataclass(kw_only=True)
class Release:
    """A release on GitHub."""

    tag: str
    title: str
    notes: str
    is_draft: bool
    assets: dict[str, Path]


#: What a trial of a new torch leaves.
NIGHTLY_FILES = ("log.txt", "report.json", "tables.patch", "tests.xml")


@dataclass(kw_only=True)
class Forge:
    """The state of the world; the stand-ins read and change it."""

    folder: Path
    settings: dict[str, Settings]
    version: str
    commit: str
    #: Its origin, of the branch gh-pages, is a bare repository here.
    server: Path
    #: The address of an index that what is published goes to, too; "" for none.
    index_url: str = ""
    newest_torch: str = "2.16.0"
    nightly_torch: str = "2.17.0.dev20270101+cpu"
    #: Where torch's nightlies are.
    nightly_index: str = "https://download.pytorch.org/whl/nightly/cpu"
    artefacts: dict[str, Path] = field(default_factory=dict)
    kept_days: dict[str, int] = field(default_factory=dict)
    attestations: list[Statement] = field(default_factory=list)
    releases: dict[str, Release] = field(default_factory=dict)
    index: dict[str, Path] = field(default_factory=dict)

    @property
    def first(self) -> Settings:
        """The settings of the platform that is built in shards."""
        return self.settings[FIRST]

    @property
    def cells(self) -> list[Cell]:
        return all_cells(self.first.matrix)

    @property
    def optional(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.optional]

    @property
    def python(self) -> str:
        """The Python that builds: the newest that every torch has a wheel for."""
        return cibuildwheel.python(self.first.matrix)

    @property
    def python_of_images(self) -> str:
        tag = "cp" + self.python.replace(".", "")
        return f"/opt/python/{tag}-{tag}/bin/python"

    @property
    def image(self) -> str:
        return cibuildwheel.image(self.first.matrix)

    @property
    def pinned_image(self) -> str:
        return f"{self.image}@{DIGEST}"

    def statements_on(self, path: Path) -> Iterator[Statement]:
        sha256 = digest_of(path)
        for statement in self.attestations:
            if any(subject_hash == sha256 for _, subject_hash in statement.subjects):
                yield statement

    def cells_named(self, names: Sequence[str], platform: str) -> list[Cell]:
        cells = all_cells(self.settings[platform].matrix)
        return [cell for cell in cells if cell.name in names]

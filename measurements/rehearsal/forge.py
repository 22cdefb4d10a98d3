"""What GitHub and PyPI know, in a folder: the stand-ins read and change it.

FOLDER/artefacts/NAME   what a job of this run keeps for later jobs
FOLDER/releases/TAG     the files of a release, with its title and notes in TAG.json
FOLDER/signed.json      the hashes that were signed, each with the refs for which it was
FOLDER/index            the files on PyPI
FOLDER/server           the repositories, as `GITHUB_SERVER_URL` names them
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = "owner/project"
RUN_ID = "1"
TOKEN = "token-of-the-rehearsal"


class Refused(Exception):
    """A stand-in was called in a way that the real thing would refuse."""


@dataclass(frozen=True)
class Forge:
    """The folder, and the ref for which a workflow runs."""

    folder: Path
    ref: str

    @property
    def artefacts(self) -> Path:
        return self.folder / "artefacts"

    @property
    def index(self) -> Path:
        return self.folder / "index"

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def release(self, tag: str) -> Path:
        return self.folder / "releases" / tag

    def about(self, tag: str) -> Path:
        """The file with the title and the notes of a release."""
        return self.folder / "releases" / f"{tag}.json"

    def make(self) -> None:
        """Makes the folder, with an empty repository for what a workflow pushes."""
        for path in (self.artefacts, self.index, self.folder / "releases"):
            path.mkdir(parents=True)
        repository = str(self.server / REPOSITORY)
        subprocess.run(["git", "init", "--quiet", "--bare", repository], check=True)

    def sign(self, sha256: str) -> None:
        signed = self._signed()
        signed.setdefault(sha256, []).append(self.ref)
        (self.folder / "signed.json").write_text(json.dumps(signed))

    def is_signed(self, path: Path, ref: str) -> bool:
        return ref in self._signed().get(digest_of(path), [])

    def _signed(self) -> dict[str, list[str]]:
        path = self.folder / "signed.json"
        signed: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
        return signed


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def need(permissions: dict[str, str], scope: str, level: str, what: str) -> None:
    """Raises Refused if the job's token may not do this."""
    if permissions.get(scope) not in (level, "write"):
        raise Refused(f"{what}: the job has no permission `{scope}: {level}`")

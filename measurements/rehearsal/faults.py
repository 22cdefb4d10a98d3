"""Faults that strike between the jobs of a release, drawn by seed; each must be refused.

A release that is not as it was made must stop at the next job that reads what was changed, with a
sentence that names the thing. `measurements/release_accidents.py` draws more of them, for the
release tool alone.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from measurements.release_accidents import list_again, read_json
from torchship.release.wheels import read_wheel

from .forge import Forge, Occasion, digest_of
from .prebuilt import COMMIT, EPOCH
from .rehearsal import Rehearsed, Theatre
from .runner import FAILED
from .stand_ins import Fault
from .workflow import Workflow


@dataclass(frozen=True)
class Kind:
    """A kind of fault: before which job it strikes, which one must refuse it, and what it does.

    `strike` returns a word that the refusal must say.
    """

    file: str
    before: str
    refused_by: str
    strike: Callable[[Forge, random.Random], str]

    @property
    def name(self) -> str:
        return self.strike.__name__.replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a fault; `wrong` says what was not as it must be."""

    kind: Kind
    seed: int
    sentence: str
    wrong: str = ""


def _draw_shard(forge: Forge, rng: random.Random) -> Path:
    names = [name for name in forge.artefacts if name.startswith("shard-")]
    shard = forge.artefacts[rng.choice(sorted(names))]
    return shard if read_json(shard / "manifest.json")["cells"] else _draw_shard(forge, rng)


def a_wheel_of_another_commit(forge: Forge, rng: random.Random) -> str:
    """Its binaries are of another commit; the manifest has their hashes, as of a mixed-up job."""
    shard = _draw_shard(forge, rng)
    path = rng.choice(sorted(shard.glob("simple/lltm/*.whl")))
    wheel = read_wheel(path)
    files = {name: data.replace(COMMIT.encode(), b"d" * 40) for name, data in wheel.files.items()}
    wheel._replace(files=files).write(path.parent, epoch=EPOCH)
    list_again(shard, path.relative_to(shard).as_posix())
    return "git_commit"


def a_wrong_hash(forge: Forge, rng: random.Random) -> str:
    """A file of a shard is not the one that its manifest lists."""
    shard = _draw_shard(forge, rng)
    name = rng.choice(read_json(shard / "manifest.json")["artefacts"])["path"]
    with (shard / name).open("ab") as file:
        file.write(b"x")
    return Path(name).name


def a_missing_cell(forge: Forge, rng: random.Random) -> str:
    """A shard with required cells gets lost."""
    numbers = [name for name in forge.artefacts if name.removeprefix("shard-").isdigit()]
    del forge.artefacts[rng.choice(sorted(numbers))]
    return "whole wheel for x86_64"


def a_package_of_an_older_version(forge: Forge, rng: random.Random) -> str:
    """A shard's channel lists a package that the release before had."""
    shard = _draw_shard(forge, rng)
    old = rng.choice(sorted(shard.glob("channel/linux-64/*.conda")))
    new = old.with_name(old.name.replace(forge.version, "0.0.9"))
    old.rename(new)
    text = (shard / "manifest.json").read_text()
    (shard / "manifest.json").write_text(text.replace(old.name, new.name))
    return new.name


def a_changed_file_of_the_release(forge: Forge, rng: random.Random) -> str:
    """A gathered file changes before it is signed and drafted."""
    files = [
        path
        for path in sorted(forge.artefacts["release"].iterdir())
        if path.name not in ("SHA256SUMS", "NOTES.md")
    ]
    path = rng.choice(files)
    path.write_bytes(path.read_bytes() + b"x")
    return path.name


def a_replaced_asset(forge: Forge, rng: random.Random) -> str:
    """Somebody puts another wheel into the draft, and its hash into the list."""
    (release,) = forge.releases.values()
    wheels = [name for name in release.assets if name.endswith("any.whl") or "manylinux" in name]
    name = rng.choice(sorted(name for name in wheels if "+" not in name))
    sums = release.assets["SHA256SUMS"]
    before = digest_of(release.assets[name])
    release.assets[name].write_bytes(b"evil")
    sums.write_text(sums.read_text().replace(before, digest_of(release.assets[name])))
    return name


def a_half_upload_that_runs_again(forge: Forge, rng: random.Random) -> str:
    """The index has one of the files already."""
    dist = forge.artefacts["pypi"]
    path = rng.choice(sorted(dist.iterdir()))
    forge.index[path.name] = path
    return path.name


KINDS = (
    Kind("release.yml", "merge", "merge", a_wheel_of_another_commit),
    Kind("release.yml", "merge", "merge", a_wrong_hash),
    Kind("release.yml", "merge", "merge", a_package_of_an_older_version),
    Kind("release.yml", "merge", "fetch", a_missing_cell),
    Kind("release.yml", "attest", "fetch", a_changed_file_of_the_release),
    Kind("publish.yml", "fetch", "fetch", a_replaced_asset),
    Kind("publish.yml", "pypi", "pypi", a_half_upload_that_runs_again),
)


def inject(kind: Kind, seed: int, theatre: Theatre, workflows: dict[str, Workflow]) -> Outcome:
    """Makes a release, lets a fault strike, and publishes what came of it."""
    rng = random.Random(seed)
    forge = theatre.make_forge()
    words: list[str] = []
    fault = Fault(kind.before, lambda: words.append(kind.strike(forge, rng)))
    refused: dict[str, str] = {}
    for occasion in _occasions(theatre.tag):
        own = fault if occasion.file == kind.file else None
        rehearsed = theatre.play(workflows[occasion.file], occasion, forge, own)
        refused |= dict(_refusals(rehearsed))
        if refused:
            break
    shutil.rmtree(forge.folder)
    sentence = refused.get(kind.refused_by, "").replace(str(forge.folder), "WORLD")
    wrong = ""
    if [*refused] != [kind.refused_by]:
        wrong = f"refused by {', '.join(refused) or 'no job'}, expected {kind.refused_by}"
    elif not any(word in sentence for word in words):
        wrong = f"the refusal names none of {words}"
    return Outcome(kind=kind, seed=seed, sentence=sentence, wrong=wrong)


def _occasions(tag: str) -> Iterator[Occasion]:
    ref = f"refs/tags/{tag}"
    yield Occasion(title="a release", file="release.yml", event="push", ref=ref)
    yield Occasion(title="the draft is published", file="publish.yml", event="release", ref=ref)


def _refusals(rehearsed: Rehearsed) -> Iterator[tuple[str, str]]:
    """The jobs that failed, and what was said."""
    report = rehearsed.report
    for job, result in report.results.items():
        if result == FAILED:
            lines = [*report.problems, *report.output.get(job, [])]
            # Of sha256sum, what is as it was made is not of interest.
            yield job, "\n".join(line for line in lines if not line.endswith(": OK"))

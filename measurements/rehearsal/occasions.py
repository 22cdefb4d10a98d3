"""When a workflow runs, and what must have come of it.

`OCCASIONS` has every event that starts a workflow, and what may go wrong meanwhile: a cell that
does not compile. `look_at` compares the state of the world afterwards with what users, maintainers
and the next workflow count on.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchship.release.manifest import Manifest, parse

from .forge import NIGHTLY_FILES, OWNER, REPOSITORY, Forge, Occasion, digest_of
from .runner import FAILED, SKIPPED, SUCCEEDED, Report

MAIN = "refs/heads/main"
#: GitHub's limit of the notes of a release.
NOTES_LIMIT = 125_000
BUILD = ("shards", "build", "optional", "arm", "merge")
SIGN = ("attest", "draft")


def occasions(tag: str) -> list[Occasion]:
    """Every occasion of every workflow, in an order in which each finds what it needs."""
    ref = f"refs/tags/{tag}"

    def occasion(
        title: str, file: str, event: str, at: str, *, failing: Sequence[str] = ()
    ) -> Occasion:
        return Occasion(title=title, file=file, event=event, ref=at, failing=frozenset(failing))

    return [
        occasion("a pull request", "pull-request.yml", "pull_request", MAIN),
        occasion(
            "a pull request that breaks a cell",
            "pull-request.yml",
            "pull_request",
            MAIN,
            failing=("stable210-cpu", "linux-aarch64"),
        ),
        occasion("a week", "weekly.yml", "schedule", MAIN),
        occasion("a push to main: its pages", "docs.yml", "push", MAIN),
        occasion("a tag: its pages", "docs.yml", "push", ref),
        occasion("a try of a release", "release.yml", "workflow_dispatch", MAIN),
        occasion(
            "a release, and a cell fails", "release.yml", "push", ref, failing=["stable210-cu13"]
        ),
        occasion("a release, and Arm fails", "release.yml", "push", ref, failing=["linux-aarch64"]),
        occasion(
            "a release, and an optional cell fails",
            "release.yml",
            "push",
            ref,
            failing=["aten25-abi1-cu12"],
        ),
        occasion("a release", "release.yml", "push", ref),
        occasion("the draft is published", "publish.yml", "release", ref),
    ]


def look_at(occasion: Occasion, report: Report, forge: Forge) -> list[str]:
    """What is wrong after an occasion, a sentence each: problems that were seen, then results."""
    wrong = [*report.problems]
    for job, expected in expected_results(occasion).items():
        if report.results.get(job) != expected:
            wrong.append(f"{job}: {report.results.get(job)}, expected {expected}")
    if unknown := report.results.keys() - expected_results(occasion).keys():
        wrong.append(f"nobody said what should become of {', '.join(sorted(unknown))}")
    checks = {
        "docs.yml": _look_at_site,
        "publish.yml": _look_at_index,
        "pull-request.yml": _look_at_reports,
        "release.yml": _look_at_release,
        "weekly.yml": _look_at_wheels,
    }
    if not wrong:
        try:
            wrong += checks[occasion.file](occasion, forge)
        except (OSError, KeyError, ValueError, subprocess.CalledProcessError) as error:
            wrong.append(f"{occasion.title}: {type(error).__name__}: {error}")
    return wrong


def expected_results(occasion: Occasion) -> Mapping[str, str]:
    """What each job should come to."""
    jobs = {
        "docs.yml": ("site", "pages"),
        "publish.yml": ("fetch", "pypi"),
        "pull-request.yml": ("tests", "arm", "cells", "cell"),
        "release.yml": (*BUILD, *SIGN),
        "weekly.yml": ("newest-torch", "nightly-torch", "fat-wheel"),
    }
    results = dict.fromkeys(jobs[occasion.file], SUCCEEDED)
    if occasion.file == "pull-request.yml" and occasion.failing:
        results |= {"arm": FAILED, "cell": FAILED}
    if occasion.file == "release.yml":
        stopped = {
            "stable210-cu13": "build",
            "linux-aarch64": "arm",
            "aten25-abi1-cu12": "optional",
        }
        for name in occasion.failing:
            results[stopped[name]] = FAILED
        if {"build", "arm"} & {stopped[name] for name in occasion.failing}:
            results |= dict.fromkeys(("merge", *SIGN), SKIPPED)
        elif not occasion.tag:
            results |= dict.fromkeys(SIGN, SKIPPED)
    return results


def expect(condition: object, sentence: str) -> Iterator[str]:
    """The sentence, if what it denies is so."""
    if not condition:
        yield sentence


def _files(folder: Path) -> dict[str, Path]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


# Pull requests and the week.


def _look_at_reports(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """Each cell, and Arm, leaves a report, above all if it failed."""
    minors = forge.first.matrix.minors()
    aten = [minor for minor in minors if forge.first.matrix.torch[minor].aten]
    newest_and_oldest = {forge.first.matrix.torch[minor].release for minor in (aten[0], aten[-1])}
    cells = [
        cell.name
        for cell in forge.cells
        if not cell.optional and (cell.stable or cell.torch.release in newest_and_oldest)
    ]
    names = {*(f"report-{cell}" for cell in cells), "report-arm"}
    yield from expect(
        forge.artefacts.keys() == names,
        f"there are reports of {sorted(forge.artefacts)}, expected {sorted(names)}",
    )
    for name in names & forge.artefacts.keys():
        files = _files(forge.artefacts[name])
        logs = {file for file in files if file.startswith("build/logs/")}
        rest = files.keys() - logs
        yield from expect(
            rest == {"dist/manifest.json", "dist/report.html"} and logs,
            f"{name} holds {sorted(files)}, expected manifest, report and logs",
        )
        yield from expect(
            forge.kept_days[name] == 7, f"{name} is kept for {forge.kept_days[name]} days, not 7"
        )
        cell = name.removeprefix("report-")
        if cell != "arm" and "dist/manifest.json" in files:
            made = [*parse(files["dist/manifest.json"]).cells]
            yield from expect(made == [cell], f"{name} is of {made}")


def _look_at_wheels(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """A fat wheel of each platform, from the machine of its own, and the report on the nightly."""
    machines = {"ubuntu-24.04": "_x86_64.whl", "ubuntu-24.04-arm": "_aarch64.whl"}
    names = {*(f"fat-wheel-{machine}" for machine in machines), "nightly-torch"}
    yield from expect(
        forge.artefacts.keys() == names,
        f"there are {sorted(forge.artefacts)}, expected {sorted(names)}",
    )
    for machine, ending in machines.items():
        name = f"fat-wheel-{machine}"
        wheels = [*_files(forge.artefacts[name])]
        yield from expect(len(wheels) == 1 and wheels[0].endswith(ending), f"{name} holds {wheels}")
        yield from expect(
            forge.kept_days[name] == 7, f"{name} is kept for {forge.kept_days[name]} days, not 7"
        )
    reports = {Path(name).name for name in _files(forge.artefacts["nightly-torch"])}
    yield from expect(reports == {*NIGHTLY_FILES}, f"nightly-torch holds {sorted(reports)}")
    days = forge.kept_days["nightly-torch"]
    yield from expect(days == 7, f"nightly-torch is kept for {days} days, not 7")


# The site.


def _look_at_site(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """Every version keeps its folder; the first page leads to the newest final one."""
    version = occasion.tag.removeprefix("v") or "dev"
    versions = sorted({version, *SHOWN_BEFORE}, reverse=True)
    git = ["git", f"--git-dir={forge.server / REPOSITORY}"]

    def show(name: str) -> str:
        return subprocess.run(
            [*git, "show", f"gh-pages:{name}"], capture_output=True, text=True, check=True
        ).stdout

    project = REPOSITORY.partition("/")[2]
    home = f"https://{OWNER}.github.io/{project}"
    listed = json.loads(show("versions.json"))
    expected = [{"version": name, "url": f"{home}/{name}/"} for name in versions]
    yield from expect(
        sorted(listed, key=str) == sorted(expected, key=str), f"versions.json is {listed}"
    )
    final = [name for name in versions if name != "dev"]
    newest = max(final, key=lambda name: [int(part) for part in name.split(".")])
    page = show("index.html")
    yield from expect(
        page == f"<meta http-equiv=refresh content='0; url={newest}/'>\n", f"first page: {page}"
    )
    for name in ("index.html", "start/index.html"):
        yield from expect(
            show(f"{version}/{name}") == f"{name} of {version}", f"{name} is not of {version}"
        )
        for old in {*SHOWN_BEFORE} - {version}:
            yield from expect(show(f"{old}/{name}") == f"{name} of {old}", f"{old}/{name} is lost")
    listing = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", "gh-pages"], capture_output=True, text=True
    ).stdout.split()
    pages = {f"{name}/{page}" for name in versions for page in ("index.html", "start/index.html")}
    expected_files = {*pages, ".nojekyll", "index.html", "versions.json"}
    yield from expect({*listing} == expected_files, f"the branch holds {listing}")
    subject = subprocess.run(
        [*git, "log", "-1", "--format=%s", "gh-pages"], capture_output=True, text=True
    ).stdout.strip()
    yield from expect(
        subject == f"Publish the site of {forge.commit[:12]}", f"the commit is called {subject!r}"
    )


#: The versions that gh-pages has before an occasion.
SHOWN_BEFORE = ("0.0.9", "dev")


# Releases.


def _look_at_release(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """What was built arrives whole, is signed, and lies in a draft; or nothing does."""
    yield from _look_at_shards(occasion, forge)
    results = expected_results(occasion)
    if results["merge"] == SKIPPED:
        yield from expect(
            not {"dist", "release"} & forge.artefacts.keys(), "a release was made of less"
        )
    else:
        yield from _look_at_merged(occasion, forge)
    if results["draft"] == SKIPPED:
        yield from expect(
            not (forge.releases or forge.attestations), "something was signed or drafted"
        )
    else:
        yield from _look_at_draft(occasion, forge)


def _look_at_shards(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """Each job's `dist` is kept, of failed optional cells under another name."""
    failed = {cell.torch.release for cell in forge.cells if cell.name in occasion.failing}
    torches = {cell.torch.release for cell in forge.optional}
    required = len([cell for cell in forge.cells if not cell.optional])
    names = {f"shard-{number}" for number in range(1, (required + 2) // 3 + 1)}
    names |= {"dist-linux-aarch64"}
    for torch in torches:
        is_failed = torch in failed and occasion.failing <= {c.name for c in forge.optional}
        names.add(f"failed-torch-{torch}" if is_failed else f"shard-torch-{torch}")
    there = {name for name in forge.artefacts if name not in ("dist", "release", "signature")}
    yield from expect(there == names, f"there are {sorted(there)}, expected {sorted(names)}")
    for name in there:
        kept = _files(forge.artefacts[name])
        manifest = "dist/manifest.json" if name.startswith("failed-") else "manifest.json"
        yield from expect(manifest in kept, f"{name} lacks {manifest}")
        if name.startswith("failed-"):
            yield from expect(
                any(file.startswith("build/logs/") for file in kept), f"{name} lacks logs"
            )


def _look_at_merged(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """The fat wheel is whole, and lacks no optional cell but one that failed."""
    dist = forge.artefacts["dist"]
    manifest = parse(dist / "manifest.json")
    failed = {cell.torch.release for cell in forge.cells if cell.name in occasion.failing}
    expected = {cell.name for cell in forge.optional if cell.torch.release in failed}
    yield from expect(
        manifest.missing.keys() == expected,
        f"the merged wheel lacks {sorted(manifest.missing)}, expected {sorted(expected)}",
    )
    images = {host.image for host in manifest.hosts.values()}
    yield from expect(images == {forge.pinned_image}, f"it was built in {images}")
    yield from expect(
        {*manifest.tools} == {tool.name for tool in forge.first.matrix.tools},
        f"it has the tools {sorted(manifest.tools)}",
    )
    arm = parse(forge.artefacts["dist-linux-aarch64"] / "manifest.json")
    release = _files(forge.artefacts["release"])
    expected_files = {
        "NOTES.md",
        *_asset_names("linux-x86_64", manifest),
        *_asset_names("linux-aarch64", arm),
        *COMMON_ASSETS,
    }
    yield from expect(
        release.keys() == expected_files,
        f"the release differs by {sorted(release.keys() ^ expected_files)}",
    )
    yield from _look_at_sums(release)
    yield from _look_at_components(release)


COMMON_ASSETS = ("SHA256SUMS", "sbom-installed.cdx.json", "sbom-tools.cdx.json")


def _asset_names(platform: str, manifest: Manifest) -> set[str]:
    subdir = {"linux-x86_64": "linux-64"}.get(platform, platform)
    names = {f"manifest-{platform}.json", f"report-{platform}.html", f"conda-{subdir}.tar"}
    return names | {
        Path(artefact.path).name for artefact in manifest.artefacts if artefact.kind != "conda"
    }


def _look_at_sums(release: Mapping[str, Path]) -> Iterator[str]:
    """SHA256SUMS has every file, and the conda packages, which are in archives."""
    lines = [line.split(maxsplit=1) for line in release["SHA256SUMS"].read_text().splitlines()]
    sums = {name: sha256 for sha256, name in lines}
    files = release.keys() - {"SHA256SUMS", "NOTES.md"}
    packages = {name for name in sums if name.endswith(".conda")}
    yield from expect(
        sums.keys() - packages == files, f"SHA256SUMS differs by {sorted(sums.keys() ^ files)}"
    )
    for name in files & sums.keys():
        yield from expect(sums[name] == digest_of(release[name]), f"SHA256SUMS: {name} differs")


def _look_at_components(release: Mapping[str, Path]) -> Iterator[str]:
    """The SBOMs: of what was installed with the wheel, and of what packed it."""
    parts = {"installed": "lltm", "tools": "rich"}
    for name, part in parts.items():
        document = json.loads(release[f"sbom-{name}.cdx.json"].read_text())
        names = {component["name"] for component in document["components"]}
        yield from expect(part in names, f"sbom-{name}.cdx.json names {sorted(names)}")
        if name == "installed":
            yield from expect("pip" not in names, "sbom-installed.cdx.json names pip itself")


def _look_at_draft(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """The draft has what was gathered, byte by byte, each of it signed, and the signature."""
    yield from expect(
        forge.releases.keys() == {occasion.tag}, f"there are releases {sorted(forge.releases)}"
    )
    release = forge.releases[occasion.tag]
    gathered = _files(forge.artefacts["release"])
    project = REPOSITORY.partition("/")[2]
    yield from expect(release.is_draft, "it is no draft")
    yield from expect(
        release.title == f"{project} {occasion.tag}", f"its title is {release.title!r}"
    )
    notes = gathered.pop("NOTES.md").read_text(encoding="utf-8")
    changelog = (forge.first.repo / "CHANGELOG.md").read_text(encoding="utf-8")
    yield from expect(
        release.notes == notes == changelog and len(notes) <= NOTES_LIMIT,
        f"its notes are not the changelog, or are longer than GitHub's {NOTES_LIMIT} characters",
    )
    expected = {*gathered, "SHA256SUMS.sigstore.json"}
    yield from expect(
        release.assets.keys() == expected,
        f"its files differ by {sorted(release.assets.keys() ^ expected)}",
    )
    for name, path in gathered.items():
        asset = release.assets[name]
        yield from expect(digest_of(asset) == digest_of(path), f"{name} has other bytes")
        yield from expect([*forge.statements_on(asset)], f"{name} is not signed")
    signature = json.loads(release.assets["SHA256SUMS.sigstore.json"].read_text())
    subjects = [["SHA256SUMS", digest_of(release.assets["SHA256SUMS"])]]
    yield from expect(signature["subjects"] == subjects, "the signature is not that of SHA256SUMS")


def _look_at_index(occasion: Occasion, forge: Forge) -> Iterator[str]:
    """The index has what it should of the release, byte by byte, and nothing else."""
    assets = forge.releases[occasion.tag].assets
    expected = {name for name in assets if "+" not in name and name.endswith((".whl", ".tar.gz"))}
    wheels = [name for name in expected if name.startswith("lltm-") and name.endswith(".whl")]
    yield from expect(len(wheels) == 2, f"the fat wheels are {wheels}")
    yield from expect(
        forge.index.keys() == expected,
        f"the index differs by {sorted(forge.index.keys() ^ expected)}",
    )
    for name, path in forge.index.items():
        yield from expect(digest_of(path) == digest_of(assets[name]), f"{name} has other bytes")

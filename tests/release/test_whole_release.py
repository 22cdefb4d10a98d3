"""A whole release, from a version that is raised to users who install, upgrade and remove it.

The workflows make it, by measurements/rehearsal; an index and a channel on this machine serve it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkout import SETTINGS
from package_indexes import account, serve_index
from release_commands import run
from release_places import REPO

for name in ("pypiserver", "rattler", "twine"):
    pytest.importorskip(name)

import rattler  # noqa: E402

from measurements.rehearsal.rehearsal import Rehearsed, Theatre  # noqa: E402
from measurements.rehearsal.source import IDENTITY, Source  # noqa: E402

pytestmark = pytest.mark.rehearsal

OLD = "0.1.9"  # made for the rehearsal
NEW = "0.2.0"
#: The files that say the version, and the line of each.
VERSION_FILES = {
    "lltm_conda/_version.py": '__version__ = "{}"',
    "torchship/doctor/_version.py": '__version__ = "{}"',
    "recipe/recipe.yaml": '  version: "{}"',
    "CITATION.cff": "version: {}",
}
#: The section of the changelog that is not released yet.
IN_DEVELOPMENT = r"^## \[.+\] - in development$"


def tag_version(source: Source, version: str, date: str) -> None:
    """Raises the version, cuts the changelog, commits and tags, as docs/ship/publish.md has it."""
    for file, line in VERSION_FILES.items():
        path = source.root / file
        pattern = re.escape(line.format("VERSION")).replace("VERSION", r"[0-9.]+")
        new = line.format(version)
        text, count = re.subn(rf"^{pattern}", new, path.read_text(), flags=re.MULTILINE)
        assert count == 1, f"{file}: has {count} lines like {line!r}"
        path.write_text(text)
    changelog = source.root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    section = f"## [{version}] - {date}"
    text, count = re.subn(IN_DEVELOPMENT, section, text, count=1, flags=re.MULTILINE)
    if not count:
        text = text.replace("## [", f"{section}\n\n- A fix.\n\n## [", 1)
    changelog.write_text(text, encoding="utf-8")
    source.run("scripts/build_all.sh", "generate")
    source.commit(f"Release {version}")
    source.git(*IDENTITY, "tag", f"v{version}")


@dataclass(frozen=True, kw_only=True)
class Released:
    """Two versions that are out, the second by the workflows, and where users find them."""

    theatre: Theatre
    rehearsals: list[Rehearsed]
    index: str
    public: Path

    @property
    def channel(self) -> str:
        return (self.public / "channel").as_uri()


@pytest.fixture(scope="module")
def base_channel() -> str:
    if not SETTINGS.bootstrap_channel.is_dir():
        pytest.skip("no bootstrap channel: run scripts/build_all.sh host first")
    return SETTINGS.bootstrap_channel.as_uri()


@pytest.fixture(scope="module")
def released(tmp_path_factory, base_channel: str) -> Iterator[Released]:
    folder = tmp_path_factory.mktemp("release")
    source = Source.clone(REPO, folder / "lltm")
    source.keep_cells()
    theatre = Theatre(source, folder / "theatre")
    with serve_index(folder / "index") as index:
        tag_version(source, OLD, "2026-11-01")
        machine = Source.clone(source.root, folder / "machine")
        hand_out(machine, folder / "public", base_channel)
        uploaded = account(index)
        run("scripts/build_all.sh", "upload", "pypi", cwd=machine.root, **uploaded)
        tag_version(source, NEW, "2026-12-01")
        rehearsals = list(theatre.play_all(["release.yml", "docs.yml", "publish.yml"]))
        files = sorted(theatre.forge("").index.iterdir())
        twine = [sys.executable, "-m", "twine", "upload", "--non-interactive"]
        run(*twine, *files, cwd=folder, **uploaded)
        machine.git("fetch", "--quiet", "--tags", "origin")
        machine.git("checkout", "--quiet", f"v{NEW}")
        hand_out(machine, folder / "public", base_channel)
        yield Released(
            theatre=theatre, rehearsals=rehearsals, index=index, public=folder / "public"
        )


def hand_out(machine: Source, public: Path, base_channel: str) -> None:
    """Builds on one machine, and fills a folder for a web server."""
    run("scripts/build_all.sh", "--channel", base_channel, cwd=machine.root)
    run("scripts/build_all.sh", "upload", public, cwd=machine.root)


def test_the_workflows_make_the_release(released: Released) -> None:
    assert [problem for r in released.rehearsals for problem in r.report.problems] == []
    about = released.theatre.forge("").about(f"v{NEW}")
    assert f"## [{NEW}] - 2026-12-01" in json.loads(about.read_text())["notes"]


def test_every_file_of_the_release_is_in_its_list_of_hashes(released: Released) -> None:
    folder = released.theatre.forge("").release(f"v{NEW}")
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {line.split(maxsplit=1)[1] for line in lines}
    names = {path.name for path in folder.iterdir()}
    assert names - listed == {"SHA256SUMS", "SHA256SUMS.sigstore.json", "NOTES.md"} & names
    run("sha256sum", "--check", "--ignore-missing", "--strict", "SHA256SUMS", cwd=folder)


def test_the_components_are_listed_by_cyclonedx(released: Released) -> None:
    folder = released.theatre.forge("").release(f"v{NEW}")
    document = json.loads((folder / "sbom-installed.cdx.json").read_text())
    components = {component["name"]: component for component in document["components"]}
    assert components["lltm"]["version"] == NEW
    assert document["metadata"]["tools"]


def test_the_version_is_raised_wherever_it_stands(released: Released) -> None:
    """Each file that said the version before, and says no other thing by that number."""
    names = ["recipe", "feedstock", "CITATION.cff", "*_version.py", "*.toml"]
    grep = ["git", "grep", "-h", "-i", r"^ *_*version_* *[:=]", "--", *names]
    lines = released.theatre.source.run(*grep, ":!torchship/templates", ":!tests").splitlines()
    versions = {word for line in lines for word in re.findall(r"\d+\.\d+\.\d+", line)}
    assert versions == {NEW}


# What users see who install by name, on a fresh machine.


def judged_version(python: Path, cwd: Path) -> str:
    """The version of lltm, of which its own doctor says that nothing is to mend."""
    report = json.loads(run(python, "-m", "lltm_conda", "doctor", "--json", cwd=cwd))
    rows = [row for row in report["extensions"] if row["package"] == "lltm"]
    assert {row["state"] for row in rows} <= {"works", "note"}
    assert "lltm works here" in run(python, "-m", "lltm_conda", cwd=cwd)
    (version,) = {row["version"] for row in rows}
    return str(version)


def names_judged(python: Path, cwd: Path) -> set[str]:
    """The packages of an environment that torch-doctor judges."""
    report = json.loads(run(python, "-m", "torch_doctor", "--json", cwd=cwd))
    return {row["package"] for row in report["extensions"]}


@pytest.fixture
def python(tmp_path) -> Path:
    """The Python of a new environment with torch, by links, and nothing of ours."""
    links = tmp_path / "torch"
    links.mkdir()
    for path in Path(pytest.__file__).parents[1].iterdir():
        if not path.name.startswith(("__editable__", "lltm", "torchship", "torch_doctor")):
            (links / path.name).symlink_to(path)
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(f"{links}\n")
    return tmp_path / "env" / "bin" / "python"


def test_pip_installs_upgrades_downgrades_and_removes_by_name(
    released: Released, python: Path, tmp_path: Path
) -> None:
    pip = [python, "-m", "pip"]
    options = ["--quiet", "--no-cache-dir", "--index-url", f"{released.index}/simple/"]
    run(*pip, "install", *options, f"lltm=={OLD}", "torch-doctor", cwd=tmp_path)
    assert judged_version(python, tmp_path) == OLD
    run(*pip, "install", *options, "--upgrade", "lltm", cwd=tmp_path)
    assert judged_version(python, tmp_path) == NEW
    run(*pip, "install", *options, f"lltm=={OLD}", cwd=tmp_path)
    assert judged_version(python, tmp_path) == OLD
    assert "lltm" in names_judged(python, tmp_path)
    run(*pip, "uninstall", "--yes", "--quiet", "lltm", cwd=tmp_path)
    assert "lltm" not in names_judged(python, tmp_path)


def change_prefix(prefix: Path, channels: list[str], *specs: str) -> dict[str, str]:
    """Solves and installs into a prefix, as `conda install` does; returns versions by name."""

    async def change() -> dict[str, str]:
        detected = rattler.VirtualPackage.detect()
        records = await rattler.solve(
            sources=[rattler.Channel(channel) for channel in channels],
            specs=list(specs),
            gateway=rattler.Gateway(cache_dir=prefix.parent / "cache"),
            platforms=["linux-64", "noarch"],
            virtual_packages=[package.into_generic() for package in detected],
        )
        await rattler.install(
            records=records,
            target_prefix=str(prefix),
            cache_dir=prefix.parent / "packages",
            show_progress=False,
        )
        return {record.name.normalized: str(record.version) for record in records}

    return asyncio.run(change())


def test_conda_installs_upgrades_downgrades_and_removes_by_name(
    released: Released, base_channel: str, tmp_path: Path
) -> None:
    prefix = tmp_path / "prefix"
    python = prefix / "bin" / "python"
    channels = [released.channel, base_channel]
    for spec, version in ((f"lltm ={OLD}", OLD), ("lltm", NEW), (f"lltm ={OLD}", OLD)):
        assert change_prefix(prefix, channels, spec, "torch-doctor")["lltm"] == version
        assert judged_version(python, tmp_path) == version
    change_prefix(prefix, channels, "python", "pytorch", "torch-doctor")
    assert list(prefix.glob("lib/python*/site-packages/lltm*")) == []
    assert "lltm" not in names_judged(python, tmp_path)


def test_a_yanked_release_reaches_nobody_who_installs_by_name(
    released: Released, base_channel: str, tmp_path: Path
) -> None:
    yank = ["yank", NEW, "--folder", released.public, "--reason", "a rehearsal"]
    run("scripts/build_all.sh", *yank, cwd=released.theatre.source.root)
    channels = [released.channel, base_channel]
    assert change_prefix(tmp_path / "prefix", channels, "lltm")["lltm"] == OLD
    page = (released.public / "simple" / "lltm" / "index.html").read_text()
    assert page.count('data-yanked="a rehearsal"') == page.count(f"lltm-{NEW}%2B") > 0

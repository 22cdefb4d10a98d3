"""A whole release, from a version that is raised to users who install, upgrade and remove it.

The workflows make it, by measurements/rehearsal; an index and a channel on this machine serve it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from checkout import SETTINGS
from rich.console import Console

import lltm_conda

for name in ("pypiserver", "rattler", "twine"):
    pytest.importorskip(name)

import pypiserver  # noqa: E402
import rattler  # noqa: E402

from measurements.rehearsal import actions  # noqa: E402
from measurements.rehearsal.forge import Forge, Occasion  # noqa: E402
from measurements.rehearsal.prebuilt import Order, load_platforms  # noqa: E402
from measurements.rehearsal.rehearsal import Rehearsed, Theatre, read_workflows  # noqa: E402
from measurements.rehearsal.source import Source  # noqa: E402
from measurements.rehearsal.true_files import TrueFiles  # noqa: E402
from torchship.release import take_back, upload  # noqa: E402
from torchship.release.cells import all_cells  # noqa: E402
from torchship.release.schema import FIRST  # noqa: E402

pytestmark = pytest.mark.rehearsal

OLD = "0.1.9"  # made for the rehearsal
NEW = "0.2.0"
LIBRARY = Path(lltm_conda.__file__).parent / "lib"


class QuietIndex(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


class QuietChannel(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        del self.headers["If-Modified-Since"]  # rattler takes no "304 Not Modified" for shards
        super().do_GET()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serve_index(folder: Path) -> Iterator[str]:
    """An empty package index that takes uploads."""
    folder.mkdir()
    app = pypiserver.app(roots=[folder], authenticate=[], password_file=".", disable_fallback=True)
    with make_server("127.0.0.1", 0, app, handler_class=QuietIndex) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    folder.mkdir()
    handler = partial(QuietChannel, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@dataclass(frozen=True, kw_only=True)
class Released:
    """Two versions that are out, the second by the workflows, and where users find them."""

    folder: Path
    forge: Forge
    files: TrueFiles
    rehearsals: list[Rehearsed]
    index: str
    public: Path
    channel: str


@pytest.fixture(scope="module")
def base_channel() -> str:
    if not SETTINGS.bootstrap_channel.is_dir():
        pytest.skip("no bootstrap channel: run scripts/build_all.sh host first")
    return SETTINGS.bootstrap_channel.as_uri()


@pytest.fixture(scope="module")
def cyclonedx(tmp_path_factory) -> Path | None:
    """The program that lists components, as release.yml installs it; None without an index."""
    folder = tmp_path_factory.mktemp("sbom")
    python = folder / "env" / "bin" / "python"
    requirements = SETTINGS.repo / "torchship" / "release" / "requirements" / "sbom.txt"
    run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
    install = [python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", requirements]
    index = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    result = subprocess.run([*map(str, install)], env=environment(**index), capture_output=True)
    return None if result.returncode else python.with_name("cyclonedx-py")


@pytest.fixture(scope="module")
def released(tmp_path_factory, base_channel: str, cyclonedx: Path | None) -> Iterator[Released]:
    if not (LIBRARY / "glue-stable210.so").is_file():
        pytest.skip("the installed package has no stable glue: install it beside torch >= 2.10")
    folder = tmp_path_factory.mktemp("release")
    with (
        serve_index(folder / "index") as index,
        serve_folder(folder / "public") as public,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(upload, "find_placeholders", lambda root: ())
        source = Source.clone(folder / "lltm", aten="2.4")
        release_by_hand(source, folder, index, base_channel)
        commit = source.release(NEW, "2026-12-01")
        theatre = make_theatre(source, folder / "new", commit, base_channel)
        theatre.cyclonedx = cyclonedx
        forge = theatre.make_forge()
        forge.index_url = f"{index}/"
        rehearsals = [
            theatre.play(read_workflows()[file], occasion, forge)
            for file, occasion in release_occasions(forge)
        ]
        files = theatre.prebuilt
        assert isinstance(files, TrueFiles)
        if all(not rehearsed.wrong for rehearsed in rehearsals):
            hand_out(files, forge.artefacts["dist"], folder / "public")
        yield Released(
            folder=folder,
            forge=forge,
            files=files,
            rehearsals=rehearsals,
            index=index,
            public=folder / "public",
            channel=f"{public}/channel",
        )


def release_occasions(forge: Forge) -> list[tuple[str, Occasion]]:
    """The tag is pushed; the site follows; a person publishes the draft."""
    ref = f"refs/tags/v{NEW}"
    return [
        (file, Occasion(title=file, file=file, event=event, ref=ref))
        for file, event in (
            ("release.yml", "push"),
            ("docs.yml", "push"),
            ("publish.yml", "release"),
        )
    ]


def make_theatre(source: Source, folder: Path, commit: str, base_channel: str) -> Theatre:
    theatre = Theatre(folder, source.root)
    settings = load_platforms(source.root)
    theatre.prebuilt = TrueFiles(
        folder / "prebuilt",
        settings,
        commit,
        source=source,
        binaries=LIBRARY,
        base_channel=base_channel,
    )
    return theatre


def release_by_hand(source: Source, folder: Path, index: str, base_channel: str) -> None:
    """An older version, on one machine: built, joined, uploaded."""
    commit = source.release(OLD, "2026-11-01")
    files = make_theatre(source, folder / "old", commit, base_channel).prebuilt
    assert isinstance(files, TrueFiles)
    cells = tuple(c.name for c in all_cells(files.settings[FIRST].matrix) if not c.optional)
    root = folder / "old" / "machine"
    files.deliver(Order(platform=FIRST, cells=cells, has_tools=True, image=""), root / "shard")
    files.join([root / "shard"], FIRST, root)
    wheels = [*(root / "dist").glob("*.whl"), *(root / "dist").glob("simple/torch*/*.whl")]
    actions.upload(wheels, f"{index}/")
    hand_out(files, root / "dist", folder / "public")


def hand_out(files: TrueFiles, dist: Path, public: Path) -> None:
    """Step 7 of docs/ship/publish.md: `--upload ./public`."""
    settings = files.settings_for(dist)
    assert upload.upload(str(public), settings, Console(quiet=True), dry_run=False) == 0


def test_the_workflows_make_the_release(released: Released) -> None:
    assert [sentence for r in released.rehearsals for sentence in r.wrong] == []
    release = released.forge.releases[f"v{NEW}"]
    assert f"## [{NEW}] - 2026-12-01" in release.notes


def test_the_components_are_listed_by_cyclonedx(released: Released, cyclonedx: Path | None) -> None:
    if cyclonedx is None:
        pytest.skip("no package index is in reach, from which cyclonedx-py could be installed")
    assets = released.forge.releases[f"v{NEW}"].assets
    document = json.loads(assets["sbom-installed.cdx.json"].read_text())
    components = {component["name"]: component for component in document["components"]}
    assert components["lltm"]["version"] == NEW
    assert document["metadata"]["tools"]


def test_the_version_is_raised_wherever_it_stands(released: Released) -> None:
    """Each file that said the version before, and says no other thing by that number."""
    names = ["recipe", "feedstock", "CITATION.cff", "*_version.py", "*.toml"]
    grep = ["git", "grep", "-h", "-i", r"^ *_*version_* *[:=]", "--", *names]
    lines = released.files.source.run(*grep, ":!torchship/templates", ":!tests").splitlines()
    versions = {word for line in lines for word in re.findall(r"\d+\.\d+\.\d+", line)}
    assert versions == {NEW}


# What users see who install by name, on a fresh machine.


def environment(**more: str) -> dict[str, str]:
    dropped = ("LLTM_", "PYTHON", "PIP_", "UV_")
    return {k: v for k, v in os.environ.items() if not k.startswith(dropped)} | more


def run(*command: object, cwd: Path) -> str:
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


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
        assert change_prefix(prefix, channels, spec)["lltm"] == version
        assert judged_version(python, tmp_path) == version
    change_prefix(prefix, channels, "python", "pytorch")
    assert list(prefix.glob("lib/python*/site-packages/lltm*")) == []
    doctor = [sys.executable, "-m", "lltm_conda", "doctor", "--python", python, "--json"]
    report = json.loads(run(*doctor, cwd=tmp_path))
    assert "lltm" not in {row["package"] for row in report["extensions"]}


def test_a_yanked_release_reaches_nobody_who_installs_by_name(
    released: Released, base_channel: str, tmp_path: Path
) -> None:
    settings = released.files.settings_for(released.public)
    take_back.yank(NEW, released.public, settings, Console(quiet=True), reason="a rehearsal")
    channels = [released.channel, base_channel]
    assert change_prefix(tmp_path / "prefix", channels, "lltm")["lltm"] == OLD
    page = (released.public / "simple" / "lltm" / "index.html").read_text()
    assert page.count('data-yanked="a rehearsal"') == page.count(f"lltm-{NEW}%2B") > 0

"""A release that went wrong is taken back: yanked; no file changes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from machines import machine
from rich.console import Console
from small_wheels import make_wheel

pytest.importorskip("rattler")

from torchship.release import ReleaseError
from torchship.release.__main__ import main
from torchship.release.matrix.schema import Tool
from torchship.release.publishing import take_back, upload
from torchship.release.publishing.take_back import yank
from torchship.release.publishing.taken_back import NAME
from torchship.release.run.store import digest
from torchship.release.steps.conda import commands as conda_commands
from torchship.release.steps.conda.archives import write_package
from torchship.release.steps.pack.distributions import write_index

if TYPE_CHECKING:
    import rattler

OLD = "0.1.0"
NEW = "0.2.0"


def make_package(channel: Path, name: str, version: str, depends: list[str]) -> Path:
    """A conda package without files."""
    package = channel / "linux-64" / f"{name}-{version}-cpu_0.conda"
    root = channel.parent / "unpacked" / package.stem
    (root / "info").mkdir(parents=True)
    index = {"name": name, "version": version, "build": "cpu_0", "build_number": 0}
    index |= {"subdir": "linux-64", "depends": depends}
    (root / "info" / "index.json").write_text(json.dumps(index))
    (root / "info" / "paths.json").write_text('{"paths": [], "paths_version": 1}')
    package.parent.mkdir(parents=True, exist_ok=True)
    write_package(package, root, epoch=0)
    return package


@pytest.fixture(scope="module")
def uploaded(tmp_path_factory, conda_worker) -> Path:
    """A folder with two versions, as two uploads leave it."""
    folder = tmp_path_factory.mktemp("uploaded") / "public"
    make_package(folder / "channel", "pytorch", "2.13.0", [])
    make_package(folder / "channel", "pytorch", "2.15.0", [])
    for version in (OLD, NEW):
        make_package(folder / "channel", "tiny-client", version, ["pytorch >=2.10"])
        make_wheel(folder / "simple" / "tiny-client", {}, version=version, tag="py3-none-any")
    write_index(folder / "simple")
    conda_worker(conda_commands.index(folder / "channel", []))
    return folder


@pytest.fixture
def public(uploaded, tmp_path, monkeypatch, conda_worker) -> Path:
    """A copy of that folder."""
    monkeypatch.setattr(take_back, "run_worker", lambda log, command: conda_worker(command))
    return Path(shutil.copytree(uploaded, tmp_path / "public"))


@pytest.fixture(scope="module")
def yanked_once(uploaded, settings, tmp_path_factory, conda_worker) -> Path:
    folder = Path(shutil.copytree(uploaded, tmp_path_factory.mktemp("yanked") / "public"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(take_back, "run_worker", lambda log, command: conda_worker(command))
        yank(NEW, folder, settings, Console(quiet=True), reason='wrong "gradients"')
    return folder


@pytest.fixture
def yanked(yanked_once, tmp_path) -> Path:
    """A copy of the folder from which the newer version is yanked."""
    return Path(shutil.copytree(yanked_once, tmp_path / "yanked" / "public"))


def solve_records(public: Path, *specs: str) -> list[rattler.RepoDataRecord]:
    """The packages that a solver takes."""
    import rattler

    return asyncio.run(
        rattler.solve(
            sources=[rattler.Channel((public / "channel").as_uri())],
            specs=list(specs),
            gateway=rattler.Gateway(cache_dir=public.parent / "cache"),
            platforms=["linux-64", "noarch"],
            virtual_packages=machine(),
        )
    )


def solve(public: Path, *specs: str) -> dict[str, str]:
    """The versions that a solver takes, by name."""
    records = solve_records(public, *specs)
    return {record.name.normalized: str(record.version) for record in records}


def pip_download(public: Path, requirement: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
    places = ["--index-url", (public / "simple").as_uri(), "--dest", str(public.parent / "got")]
    return subprocess.run([*command, *places, requirement], capture_output=True, text=True)


@pytest.mark.slow
def test_solvers_pass_over_a_yanked_version(public, yanked) -> None:
    assert solve(public, "tiny-client")["tiny-client"] == NEW
    assert solve(yanked, "tiny-client")["tiny-client"] == OLD


def test_a_yanked_package_still_installs_by_its_address(public, yanked, tmp_path) -> None:
    """As from a lock file."""
    import rattler

    record = next(r for r in solve_records(public, "tiny-client") if str(r.version) == NEW)
    shutil.rmtree(public)
    yanked.rename(public)
    prefix = tmp_path / "prefix"
    asyncio.run(
        rattler.install(
            records=[record],
            target_prefix=str(prefix),
            cache_dir=tmp_path / "packages",
            show_progress=False,
        )
    )
    (installed,) = prefix.glob("conda-meta/*.json")
    assert json.loads(installed.read_text())["version"] == NEW


def test_pip_passes_over_a_yanked_version_unless_it_is_pinned(yanked) -> None:
    assert "tiny_client-0.1.0" in pip_download(yanked, "tiny-client").stdout
    pinned = pip_download(yanked, f"tiny-client=={NEW}")
    assert pinned.returncode == 0
    assert 'wrong "gradients"' in pinned.stderr


def test_a_yank_changes_no_file_that_somebody_pinned(public, yanked) -> None:
    def files(folder: Path) -> dict[Path, str]:
        paths = [*folder.glob("*/*/*.conda"), *folder.glob("*/*/*.whl")]
        return {path.relative_to(folder): digest(path) for path in paths}

    assert files(public).items() <= files(yanked).items()


def test_a_yank_says_what_is_left_to_do_by_hand(public, settings, console) -> None:
    tools = [Tool(distribution=name, folder=name, run=[name]) for name in ("a-tool", "b-tool")]
    matrix = settings.matrix.model_copy(update={"tools": tools})
    yank(NEW, public, replace(settings, matrix=matrix), console, reason="wrong gradients")
    output = console.export_text()
    assert "2 files" in output
    for name in ("tiny-client", "a-tool", "b-tool"):
        assert f"https://pypi.org/manage/project/{name}/releases/" in output
    assert "--to-label broken OWNER/tiny-client/0.2.0" in output


def test_a_version_that_is_not_there_is_not_yanked(public, settings, console) -> None:
    with pytest.raises(ReleaseError, match=r"nothing of version 0\.3\.0; it has 0\.1\.0, 0\.2\.0"):
        yank("0.3.0", public, settings, console, reason="typo")
    assert not (public / NAME).exists()


def test_a_later_upload_keeps_what_was_taken_back(yanked, conda_worker) -> None:
    conda_worker(conda_commands.index(yanked / "channel", []))
    assert solve(yanked, "tiny-client")["tiny-client"] == OLD


def test_an_upload_after_a_yank_finds_the_index_whole(yanked) -> None:
    upload._refuse_old_index(yanked, "0.3.0")
    make_package(yanked / "channel", "tiny-client", "0.2.5", [])
    with pytest.raises(ReleaseError, match=r"lacks tiny-client-0\.2\.5"):
        upload._refuse_old_index(yanked, "0.3.0")


def test_an_upload_takes_back_what_is_deleted_from_the_list(yanked, conda_worker) -> None:
    (yanked / NAME).unlink()
    conda_worker(conda_commands.index(yanked / "channel", []))
    assert solve(yanked, "tiny-client")["tiny-client"] == NEW


def test_a_list_that_cannot_be_read_stops_the_command(public, settings, console) -> None:
    (public / NAME).write_text("{")
    with pytest.raises(ReleaseError, match="says nothing that can be applied"):
        yank(NEW, public, settings, console, reason="wrong gradients")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--folder", ".", "--reason", " "], "--reason: got an empty text"),
        (["--folder", "nowhere", "--reason", "r"], "nowhere is not a folder"),
    ],
)
def test_half_a_command_is_refused(options, sentence, capsys) -> None:
    assert main(["yank", NEW, *options]) == 2
    assert sentence in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--folder", "."], ["--reason", "r"]])
def test_a_yank_wants_a_folder_and_a_reason(options, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["yank", NEW, *options])
    assert "the following arguments are required: --" in capsys.readouterr().err

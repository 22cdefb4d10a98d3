"""Uploads: what may not be handed out is refused, a dry run changes nothing, the rest arrives."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from package_indexes import account, pip_install, serve_index
from rich.console import Console
from small_releases import MANYLINUX, describe_artefact, make_release, small_objects
from small_wheels import SMALL, make_sdist, make_wheel

from torchship.project.placeholders import find_placeholders
from torchship.release import ReleaseError
from torchship.release.paths import publish
from torchship.release.publishing import upload as uploading
from torchship.release.publishing.upload import upload
from torchship.release.run.manifest import CellEntry, Manifest, parse, write
from torchship.release.run.store import digest
from torchship.release.steps.pack.wheels import read_wheel

pytest.importorskip("twine")

SDIST = "tiny_client-0.1.0.tar.gz"

pytestmark = pytest.mark.usefixtures("no_placeholders")


@pytest.fixture
def dist(own_settings) -> Path:
    return own_settings.dist


class Repository(BaseHTTPRequestHandler):
    """Takes uploads as PyPI does."""

    def __init__(self, uploads: list[str], *arguments) -> None:
        self.uploads = uploads
        super().__init__(*arguments)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.uploads += [name.decode() for name in re.findall(rb'filename="([^"]+)"', body)]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def repository(monkeypatch):
    """The names of what was uploaded to it; twine finds it through its own variables."""
    uploads: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Repository, uploads))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/legacy/"
    for name, value in (("REPOSITORY_URL", url), ("USERNAME", "me"), ("PASSWORD", "secret")):
        monkeypatch.setenv(f"TWINE_{name}", value)
    yield uploads
    server.shutdown()


def console() -> Console:
    return Console(record=True, width=300, force_terminal=False)


def test_a_whole_wheel_reaches_the_repository(dist, repository, own_settings) -> None:
    manifest = make_release(dist)
    assert upload("pypi", own_settings, console(), dry_run=False) == 0
    assert repository == [manifest.fat.path, SDIST]


@pytest.mark.slow
def test_pip_installs_by_name_what_was_uploaded(dist, tmp_path, monkeypatch, own_settings) -> None:
    pytest.importorskip("pypiserver")
    make_release(dist)
    with serve_index(tmp_path / "index") as index:
        for name, value in account(index).items():
            monkeypatch.setenv(name, value)
        assert upload("pypi", own_settings, console(), dry_run=False) == 0
        pip_install("tiny-client", index, tmp_path / "site")
    installed = tmp_path / "site" / "tiny_client" / "lib" / "kernels-cpu.so"
    assert installed.read_bytes() == small_objects()["kernels-cpu.so"]


@pytest.mark.slow
def test_what_no_torch_on_pypi_loads_stops_no_upload(dist, repository, own_settings) -> None:
    optional = {"missing": {"aten24-abi1-cpu": "no such torch"}, "optional": ["aten24-abi1-cpu"]}
    manifest = make_release(dist, **optional)
    assert upload("pypi", own_settings, console(), dry_run=False) == 0
    assert repository == [manifest.fat.path, SDIST]


def test_a_dry_run_checks_and_uploads_nothing(dist, repository, own_settings) -> None:
    manifest = make_release(dist)
    out = console()
    assert upload("pypi", own_settings, out, dry_run=True) == 0
    assert repository == []
    output = out.export_text()
    assert f"would upload {manifest.fat.path}" in output and "nothing was uploaded" in output
    assert "secret" not in output


@pytest.mark.slow
def test_a_dry_run_fails_where_twine_finds_fault(dist, repository, own_settings) -> None:
    metadata = "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    make_release(dist, shape=replace(SMALL, metadata=metadata))
    with pytest.raises(ReleaseError, match="exit code 1"):
        upload("pypi", own_settings, console(), dry_run=True)


REFUSED = {
    "partial": ({"missing": {"aten24-abi1-cpu": "no such torch"}}, "which lacks aten24-abi1-cpu"),
    "unclean": ({"clean": False}, "changes that are not committed"),
    "unknown commit": ({"commit": "unknown"}, "not known from which commit"),
    "shard": ({"shard": "1/2"}, "join all shards with `merge`"),
    "failed": (
        {"cells": {"stable210-cpu": CellEntry(state="failed", torch="2.13.0")}},
        "stable210-cpu failed",
    ),
    "local version": ({"fat_version": "0.1.0+partial.1of2"}, "takes no local version"),
    "no manylinux tag": ({"tag": "py3-none-linux_x86_64"}, "with a plain linux tag"),
    "nothing": ({"artefacts": []}, "there is nothing to upload"),
}


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("what", REFUSED)
def test_pypi_is_refused(what, dry_run, dist, repository, own_settings) -> None:
    changes, message = REFUSED[what]
    make_release(dist, **changes)
    with pytest.raises(ReleaseError, match=re.escape(message)):
        upload("pypi", own_settings, console(), dry_run=dry_run)
    assert repository == []


@pytest.mark.parametrize("target", ["pypi", "testpypi", "anaconda:me"])
def test_placeholders_of_an_author_reach_no_public_index(
    target: str, dist, tmp_path, monkeypatch, own_settings
) -> None:
    monkeypatch.setattr(uploading, "find_placeholders", find_placeholders)
    (tmp_path / "LICENSE").write_text("BSD\n\nCopyright (c) 2026 YOUR NAME\n")
    (tmp_path / "build_matrix.yaml").write_text("project:\n  url: https://example.org/my-op\n")
    make_release(dist)
    settings = replace(own_settings, repo=tmp_path)
    with pytest.raises(ReleaseError) as error:
        upload(target, settings, console(), dry_run=True)
    assert "LICENSE, line 3: YOUR NAME stands for yours; write it" in str(error.value)
    assert "build_matrix.yaml, line 2: ://example.org stands for yours" in str(error.value)


@pytest.mark.parametrize("target", ["./public", "pypi"])
def test_the_name_of_no_author_reaches_no_folder_and_no_index_of_ones_own(
    target: str, dist, tmp_path, monkeypatch, own_settings
) -> None:
    monkeypatch.setattr(uploading, "find_placeholders", find_placeholders)
    monkeypatch.setenv("TWINE_REPOSITORY_URL", "http://127.0.0.1:9/")
    (tmp_path / "LICENSE").write_text("Copyright (c) 2026 YOUR NAME\n")
    (tmp_path / "build_matrix.yaml").write_text("project:\n  url: https://example.org/my-op\n")
    make_release(dist)
    with pytest.raises(ReleaseError) as error:
        upload(target, replace(own_settings, repo=tmp_path), console(), dry_run=True)
    assert "LICENSE, line 1: YOUR NAME stands for yours; write it" in str(error.value)
    assert "example.org" not in str(error.value)


@pytest.mark.slow
def test_a_partial_wheel_reaches_an_index_of_ones_own_if_asked(
    dist, repository, own_settings
) -> None:
    make_release(dist, fat_version="0.1.0+partial.1of2")
    with pytest.raises(ReleaseError, match="takes no local version"):
        upload("pypi", own_settings, console(), dry_run=True)
    assert upload("pypi", own_settings, console(), dry_run=True, allow_partial=True) == 0


def test_a_partial_wheel_reaches_no_public_index(dist, own_settings) -> None:
    make_release(dist, fat_version="0.1.0+partial.1of2")
    with pytest.raises(ReleaseError, match="is for an index of your own"):
        upload("pypi", own_settings, console(), dry_run=True, allow_partial=True)


def test_an_artefact_that_was_changed_since_is_refused(dist, repository, own_settings) -> None:
    manifest = make_release(dist)
    (dist / manifest.fat.path).write_bytes(b"other")
    with pytest.raises(ReleaseError, match="its hash differs"):
        upload("pypi", own_settings, console(), dry_run=False)
    assert repository == []


def test_a_torn_manifest_is_refused(dist, own_settings) -> None:
    dist.mkdir()
    (dist / "manifest.json").write_text("{")
    with pytest.raises(ReleaseError, match="manifest is not whole"):
        upload("pypi", own_settings, console(), dry_run=True)


def test_an_unknown_target_is_refused(dist, own_settings) -> None:
    make_release(dist)
    with pytest.raises(ReleaseError, match="needs one of pypi, testpypi"):
        upload("pypy", own_settings, console(), dry_run=True)


UNSET = ["anaconda", "anaconda:", "anaconda: ", "pypi:", "testpypi:me", "folder", "/", "./", "."]


@pytest.mark.parametrize("target", UNSET)
def test_what_an_unset_variable_leaves_of_a_target_is_refused(
    target, dist, own_settings, monkeypatch
) -> None:
    """`anaconda:$OWNER` would go to whoever is logged in, and `$PUBLIC/` to the root folder."""
    make_release(dist)
    monkeypatch.chdir(own_settings.repo)
    with pytest.raises(ReleaseError, match="upload: "):
        upload(target, own_settings, console(), dry_run=True)


def test_dist_is_no_folder_to_upload_to(dist, own_settings) -> None:
    make_release(dist)
    with pytest.raises(ReleaseError, match="name a folder for this alone"):
        upload(f"{dist}/", own_settings, console(), dry_run=True)


def test_a_variable_leads_no_upload_to_an_index_that_was_not_asked(
    dist, tmp_path, monkeypatch, own_settings
) -> None:
    """twine reads TWINE_REPOSITORY, and takes an empty TWINE_REPOSITORY_URL for none."""
    manifest = make_release(dist)
    monkeypatch.setenv("TWINE_REPOSITORY", "internal")
    serve_hashes(monkeypatch, {manifest.fat.path: "0" * 64}, tmp_path)
    monkeypatch.setenv("TWINE_REPOSITORY_URL", "")
    with pytest.raises(ReleaseError, match="with other bytes"):
        upload("pypi", own_settings, console(), dry_run=True)
    serve_hashes(monkeypatch, {}, tmp_path)
    out = console()
    assert upload("pypi", own_settings, out, dry_run=True) == 0
    assert "--repository pypi --skip-existing" in out.export_text()


def with_sdist(dist: Path, files: dict[str, bytes]) -> None:
    """Replaces the source distribution of a release; the manifest has its hash."""
    manifest = parse(dist / "manifest.json")
    make_sdist(dist / SDIST, files)
    others = [artefact for artefact in manifest.artefacts if artefact.kind != "sdist"]
    artefacts = [*others, describe_artefact(dist, SDIST, "sdist")]
    write(manifest.model_copy(update={"artefacts": artefacts}), dist / "manifest.json")


def test_a_source_distribution_of_another_commit_is_refused(dist, repository, own_settings) -> None:
    make_release(dist)
    with_sdist(dist, {"tiny_client/source.json": b'{"commit": "d"}'})
    with pytest.raises(ReleaseError, match=r"source\.json that does not name the commit"):
        upload("pypi", own_settings, console(), dry_run=False)
    assert repository == []


def test_a_fat_wheel_of_other_sources_is_refused(dist, repository, own_settings) -> None:
    manifest = make_release(dist)
    wheel = read_wheel(dist / manifest.fat.path)
    forge_fat_wheel(dist, manifest, {**wheel.files, "tiny_client/evil.py": b""})
    with_sdist(dist, {})
    with pytest.raises(ReleaseError, match=r"holds tiny_client/evil\.py, which the source"):
        upload("pypi", own_settings, console(), dry_run=False)
    assert repository == []


@pytest.mark.parametrize("target", ["folder", "anaconda:me"])
def test_what_an_optional_cell_packed_before_it_failed_is_left_out(
    target, dist, tmp_path, monkeypatch, own_settings
) -> None:
    calls = fake_anaconda(tmp_path / "bin", monkeypatch)
    manifest = make_release(dist)
    name = "aten24-abi1-cpu"
    wheel = make_wheel(dist / "simple" / "tiny-client", {}, version="0.1.0+failed", tag=MANYLINUX)
    package = dist / "channel" / "linux-64" / "tiny-client-0.1.0-failed_0.conda"
    package.write_bytes(b"failed")
    failed = [
        describe_artefact(dist, path.relative_to(dist).as_posix(), kind, [name])
        for kind, path in (("thin", wheel), ("conda", package))
    ]
    entry = CellEntry(state="failed", torch="2.4.1", wheel=failed[0].path, conda=failed[1].path)
    changes = {
        "cells": {**manifest.cells, name: entry},
        "optional": [name],
        "artefacts": [*manifest.artefacts, *failed],
    }
    write(manifest.model_copy(update=changes), dist / "manifest.json")
    monkeypatch.setattr(
        uploading, "index_package", lambda log, path, channel: publish(path, channel / path.name)
    )
    out = console()
    public = tmp_path / "public"
    place = str(public) if target == "folder" else target
    assert upload(place, own_settings, out, dry_run=False) == 0
    assert f"left out: {failed[1].path}, since {name} failed" in out.export_text()
    sent = calls.read_text() if target == "anaconda:me" else str(sorted(public.rglob("*")))
    assert "cpu_0.conda" in sent
    assert "failed" not in sent


def test_a_fat_wheel_that_holds_a_failed_optional_cell_is_refused(
    dist, repository, own_settings
) -> None:
    manifest = make_release(dist)
    name = "aten24-abi1-cpu"
    held = [*manifest.fat.cells, name]
    changes = {
        "artefacts": [
            a.model_copy(update={"cells": held}) if a.kind == "fat" else a
            for a in manifest.artefacts
        ],
        "cells": {**manifest.cells, name: CellEntry(state="failed", torch="2.4.1", wheel="x")},
        "optional": [name],
    }
    write(manifest.model_copy(update=changes), dist / "manifest.json")
    with pytest.raises(ReleaseError, match=f"{name} failed; repair and build again"):
        upload("pypi", own_settings, console(), dry_run=False)
    assert repository == []


def serve_hashes(monkeypatch, files: dict[str, str], tmp_path) -> None:
    """Stands for an index that tells the hashes of the files that it has."""
    monkeypatch.delenv("TWINE_REPOSITORY_URL", raising=False)
    urls = [{"filename": name, "digests": {"sha256": sha}} for name, sha in files.items()]
    answer = tmp_path / "index.json"
    answer.write_text(json.dumps({"urls": urls}))
    monkeypatch.setitem(uploading.RELEASES, "pypi", answer.as_uri())


def test_a_file_that_the_index_has_with_other_bytes_is_refused(
    dist, tmp_path, monkeypatch, own_settings
) -> None:
    """PyPI would keep its file, and twine would skip ours without a word."""
    manifest = make_release(dist)
    serve_hashes(monkeypatch, {manifest.fat.path: "0" * 64}, tmp_path)
    with pytest.raises(ReleaseError, match="with other bytes"):
        upload("pypi", own_settings, console(), dry_run=True)
    serve_hashes(monkeypatch, {manifest.fat.path: manifest.fat.sha256}, tmp_path)
    assert upload("pypi", own_settings, console(), dry_run=True) == 0


@pytest.mark.slow
def test_a_failed_optional_cell_stops_no_upload(dist, repository, own_settings) -> None:
    manifest = make_release(dist)
    failed = CellEntry(state="failed", torch="2.4.1")
    cells = {**manifest.cells, "aten24-abi1-cpu": failed}
    optional = ["aten24-abi1-cpu"]
    write(
        manifest.model_copy(update={"cells": cells, "optional": optional}), dist / "manifest.json"
    )
    assert upload("pypi", own_settings, console(), dry_run=False) == 0
    assert repository == [manifest.fat.path, SDIST]


# Anaconda.


def fake_anaconda(folder: Path, monkeypatch) -> Path:
    """A program `anaconda` that writes down its arguments; anaconda.org has nothing yet."""
    nothing = folder.with_name("nothing.json")
    nothing.write_text('{"distributions": []}')
    monkeypatch.setattr(uploading, "ANACONDA", nothing.as_uri())
    folder.mkdir()
    script = folder / "anaconda"
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder / "calls"}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "calls"


def test_anaconda_gets_the_conda_packages_of_its_owner(
    dist, tmp_path, monkeypatch, own_settings
) -> None:
    calls = fake_anaconda(tmp_path / "bin", monkeypatch)
    make_release(dist, missing={"aten24-abi1-cpu": "no such torch"})
    assert upload("anaconda:me", own_settings, console(), dry_run=True) == 0
    assert not calls.exists()
    assert upload("anaconda:me", own_settings, console(), dry_run=False) == 0
    command = calls.read_text().split()
    assert command[:3] == ["upload", "--user", "me"]
    assert [Path(word).name for word in command[3:]] == ["tiny-client-0.1.0-cpu_0.conda"]


def serve_packages(
    monkeypatch, tmp_path, sha256: str | None, *, name: str = "tiny-client-0.1.0-cpu_0.conda"
) -> None:
    """Stands for anaconda.org, which has a package, that of `make_release`, with this hash."""
    file = {"basename": f"linux-64/{name}", "sha256": sha256}
    answer = tmp_path / "anaconda.json"
    answer.write_text(json.dumps({"distributions": [file]}))
    monkeypatch.setattr(uploading, "ANACONDA", answer.as_uri())


@pytest.mark.parametrize(
    ("sha256", "reason"), [("0" * 64, "with other bytes"), (None, "tells no sha256")]
)
def test_a_package_that_anaconda_has_with_other_bytes_is_refused(
    sha256, reason, dist, tmp_path, monkeypatch, own_settings
) -> None:
    """`anaconda upload --skip-existing` would pass over ours without a word."""
    calls = fake_anaconda(tmp_path / "bin", monkeypatch)
    make_release(dist)
    serve_packages(monkeypatch, tmp_path, sha256)
    with pytest.raises(ReleaseError, match=reason):
        upload("anaconda:me", own_settings, console(), dry_run=False)
    assert not calls.exists()


def test_a_package_that_anaconda_has_is_not_sent_again(
    dist, tmp_path, monkeypatch, own_settings
) -> None:
    calls = fake_anaconda(tmp_path / "bin", monkeypatch)
    manifest = make_release(dist)
    (package,) = (a for a in manifest.artefacts if a.kind == "conda")
    serve_packages(monkeypatch, tmp_path, package.sha256)
    assert upload("anaconda:me", own_settings, console(), dry_run=False) == 0
    assert not calls.exists()


def test_a_package_of_another_name_on_anaconda_stops_no_upload(
    dist, tmp_path, monkeypatch, own_settings
) -> None:
    """Whether anaconda.org tells its hash does not matter."""
    calls = fake_anaconda(tmp_path / "bin", monkeypatch)
    make_release(dist)
    serve_packages(monkeypatch, tmp_path, None, name="tiny-client-0.1.0-cuda_0.conda")
    assert upload("anaconda:me", own_settings, console(), dry_run=False) == 0
    assert "tiny-client-0.1.0-cpu_0.conda" in calls.read_text()


def forge_fat_wheel(dist: Path, manifest: Manifest, files: dict[str, bytes]) -> None:
    """Packs other files into the fat wheel, and lists its new hash."""
    path = dist / manifest.fat.path
    wheel = read_wheel(path)
    wheel._replace(files=files).write(dist, epoch=1_700_000_000)
    changed = manifest.fat.model_copy(update={"sha256": digest(path)})
    artefacts = [changed if a.kind == "fat" else a for a in manifest.artefacts]
    write(manifest.model_copy(update={"artefacts": artefacts}), dist / "manifest.json")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("kernels-cpu.so", None, "lacks tiny_client/lib/kernels-cpu.so"),
        ("kernels-evil.so", "kernels-cpu.so", "no cell of the manifest made"),
        ("kernels-cpu.so", "kernels-cuda12.so", "a tiny_client/lib/kernels-cpu.so that is not"),
    ],
)
def test_a_fat_wheel_with_other_binaries_than_its_manifest_is_refused(
    name, data, reason, dist, repository, own_settings
) -> None:
    manifest = make_release(dist)
    files = dict(read_wheel(dist / manifest.fat.path).files)
    files.pop(f"tiny_client/lib/{name}", None)
    if data:
        files[f"tiny_client/lib/{name}"] = small_objects()[data]
    forge_fat_wheel(dist, manifest, files)
    with pytest.raises(ReleaseError, match=reason):
        upload("pypi", own_settings, console(), dry_run=True)


def test_packages_from_a_bootstrap_channel_are_refused(
    dist, tmp_path, monkeypatch, own_settings
) -> None:
    calls = fake_anaconda(tmp_path / "bin", monkeypatch)
    make_release(dist, base_channel=None)
    with pytest.raises(ReleaseError, match="bootstrap channel, which is for tests only"):
        upload("anaconda:me", own_settings, console(), dry_run=False)
    assert not calls.exists()


def test_a_missing_anaconda_is_named(dist, monkeypatch, own_settings) -> None:
    make_release(dist)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ReleaseError, match="pip install anaconda-client"):
        upload("anaconda:me", own_settings, console(), dry_run=True)


# A folder.


def test_a_folder_gets_an_index_of_the_thin_wheels(dist, tmp_path, own_settings) -> None:
    make_release(dist, base_channel=None)
    out = console()
    assert upload(f"{tmp_path}/public", own_settings, out, dry_run=False) == 0
    (wheel,) = (tmp_path / "public" / "simple" / "tiny-client").glob("*.whl")
    page = (tmp_path / "public" / "simple" / "tiny-client" / "index.html").read_text()
    assert f"#sha256={digest(wheel)}" in page
    assert "left out: conda packages" in out.export_text()
    assert not (tmp_path / "public" / "channel").exists()


def test_a_folder_gets_a_kind_of_file_that_nobody_knows(dist, tmp_path, own_settings) -> None:
    manifest = make_release(dist, base_channel=None)
    (dist / "simple" / "tiny-client" / "x.whl.asc").write_text("signed")
    signature = describe_artefact(
        dist, "simple/tiny-client/x.whl.asc", "signature", ["stable210-cpu"]
    )
    changed = manifest.model_copy(update={"artefacts": [*manifest.artefacts, signature]})
    write(changed, dist / "manifest.json")
    assert upload(f"{tmp_path}/public", own_settings, console(), dry_run=False) == 0
    assert (tmp_path / "public" / signature.path).read_text() == "signed"


def test_a_file_in_the_folder_with_other_bytes_is_not_replaced(
    dist, tmp_path, own_settings
) -> None:
    make_release(dist, base_channel=None)
    target = f"{tmp_path}/public"
    assert upload(target, own_settings, console(), dry_run=False) == 0
    assert upload(target, own_settings, console(), dry_run=False) == 0, "the same bytes may stay"
    (wheel,) = (tmp_path / "public" / "simple" / "tiny-client").glob("*.whl")
    wheel.write_bytes(b"the file that users have")
    with pytest.raises(ReleaseError, match="with other bytes"):
        upload(target, own_settings, console(), dry_run=False)
    assert wheel.read_bytes() == b"the file that users have"


def test_a_dry_run_makes_no_folder(dist, tmp_path, own_settings) -> None:
    make_release(dist)
    assert upload(f"{tmp_path}/public", own_settings, console(), dry_run=True) == 0
    assert not (tmp_path / "public").exists()


def test_a_folder_gets_the_conda_packages_of_a_true_channel(dist, tmp_path, own_settings) -> None:
    manifest = make_release(dist)
    out = console()
    assert upload(f"{tmp_path}/public", own_settings, out, dry_run=True) == 0
    lines = [line for line in out.export_text().splitlines() if line.startswith("would upload ")]
    expected = [a.path for a in manifest.artefacts if a.kind in ("thin", "conda")]
    assert lines == [f"would upload {path}" for path in expected]


@pytest.mark.parametrize(("version", "is_refused"), [("0.0.9", True), ("0.1.0", False)])
def test_an_index_that_is_older_than_its_packages_is_refused(
    dist, tmp_path, own_settings, monkeypatch, version, is_refused
) -> None:
    """Somebody else writes there; of this version, an upload that was killed has left packages."""
    monkeypatch.setattr(
        uploading, "index_package", lambda log, path, channel: publish(path, channel / path.name)
    )
    make_release(dist)
    subdir = tmp_path / "public" / "channel" / "linux-64"
    subdir.mkdir(parents=True)
    (subdir / f"tiny-client-{version}-cuda_0.conda").write_bytes(b"conda")
    (subdir / "repodata.json").write_text('{"packages.conda": {}}')
    try:
        upload(str(tmp_path / "public"), own_settings, console(), dry_run=False)
    except ReleaseError as error:
        assert is_refused
        assert f"it lacks tiny-client-{version}-cuda_0.conda" in str(error)
    else:
        assert not is_refused

"""A release is rehearsed: uploaded to an index and a channel on this machine, installed by name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from checkout import SETTINGS
from release_places import REPO
from rich.console import Console
from ruamel.yaml import YAML
from test_upload import make_binaries, make_release

from torchship.release import conda_commands
from torchship.release.manifest import parse
from torchship.release.upload import upload

pypiserver = pytest.importorskip("pypiserver")


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def index(tmp_path) -> Iterator[str]:
    """The address of an empty package index that takes uploads."""
    folder = tmp_path / "index"
    folder.mkdir()
    app = pypiserver.app(roots=[folder], authenticate=[], password_file=".", disable_fallback=True)
    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def environment(**more: str) -> dict[str, str]:
    dropped = ("LLTM_", "PYTHON", "PIP_", "UV_", "TWINE_")
    return {k: v for k, v in os.environ.items() if not k.startswith(dropped)} | more


def account(index: str) -> dict[str, str]:
    facts = {"REPOSITORY_URL": f"{index}/", "USERNAME": "me", "PASSWORD": "secret"}
    return {f"TWINE_{name}": value for name, value in facts.items()}


def run(*arguments: object, cwd: Path, **env: str) -> str:
    command = [str(word) for word in arguments]
    process = subprocess.run(
        command, cwd=cwd, env=environment(**env), capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def pip_install(index: str, site: Path, cwd: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir"]
    places = ["--index-url", f"{index}/simple/", "--target", site]
    run(*pip, *places, "lltm", cwd=cwd)


def test_pip_installs_by_name_what_was_uploaded(index, tmp_path, monkeypatch, own_settings) -> None:
    for name, value in account(index).items():
        monkeypatch.setenv(name, value)
    make_release(tmp_path / "dist")
    assert upload("pypi", own_settings, Console(quiet=True), dry_run=False) == 0
    pip_install(index, tmp_path / "site", tmp_path)
    installed = tmp_path / "site" / "lltm_conda" / "lib" / "kernels-cpu.so"
    assert installed.read_bytes() == make_binaries()["kernels-cpu.so"]


def small_checkout(root: Path) -> Path:
    """A clone whose matrix has one cell, so that a run of every cell is whole and short."""
    run("git", "clone", "--quiet", REPO, root, cwd=REPO)
    yaml = YAML()
    path = root / "build_matrix.yaml"
    tree = yaml.load(path)
    tree["stable"]["devices"] = ["cpu"]
    for minor in [minor for minor, torch in tree["torch"].items() if "aten" in torch]:
        del tree["torch"][minor]
        for platform in tree["platforms"].values():
            platform.get("differs", {}).get("torch", {}).pop(minor, None)
    with path.open("w") as file:
        yaml.dump(tree, file)
    run(root / "scripts" / "build_all.sh", "--write-generated", cwd=root)
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    commit = ["commit", "--quiet", "--all", "-m", "A matrix of one cell"]
    run("git", *identity, *commit, cwd=root)
    return root


@pytest.mark.slow
def test_a_release_is_installed_by_name_from_an_index_and_a_channel(
    index, tmp_path, conda_worker
) -> None:
    """The commands of docs/ship/publish.md, in their order, from a commit to both installations."""
    if not SETTINGS.bootstrap_channel.is_dir():
        pytest.skip("no bootstrap channel: run scripts/build_all.sh host first")
    root = small_checkout(tmp_path / "lltm")
    tool = root / "scripts" / "build_all.sh"
    base = SETTINGS.bootstrap_channel.as_uri()
    run(tool, "--channel", base, cwd=root)
    manifest = parse(root / "dist" / "manifest.json")
    assert not manifest.partial and "+" not in manifest.fat.path and manifest.clean

    run(tool, "--upload", "pypi", "--dry-run", cwd=root, **account(index))
    run(tool, "--upload", "pypi", cwd=root, **account(index))
    uploaded = {path.name for path in (tmp_path / "index").iterdir()}
    assert Path(manifest.fat.path).name in uploaded
    distributions = {name.partition("-")[0] for name in uploaded if "-" in name}
    assert distributions == {"lltm", "torchship", "torch_doctor"}
    site = tmp_path / "site"
    pip_install(index, site, tmp_path)
    assert "stable210-cpu" in run(
        sys.executable, "-m", "lltm_conda", cwd=tmp_path, PYTHONPATH=str(site)
    )
    smoke = (SETTINGS.smoke, "lltm_conda")
    assert "0 failed" in run(sys.executable, *smoke, cwd=tmp_path, PYTHONPATH=str(site))

    public = tmp_path / "public"
    run(tool, "--upload", public, cwd=root)
    prefix = tmp_path / "prefix"
    channels = [(public / "channel").as_uri(), base]
    conda_worker(conda_commands.install(prefix, ["lltm"], channels=channels))
    python = prefix / "bin" / "python"
    assert "stable210-cpu" in run(python, "-m", "lltm_conda", cwd=tmp_path)
    out = run(python, *smoke, "--outside", REPO / "lltm_conda", cwd=tmp_path)
    assert "0 failed" in out

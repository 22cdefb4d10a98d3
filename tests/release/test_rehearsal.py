"""A release is rehearsed: uploaded to an index and a channel on this machine, installed by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from checkout import SETTINGS
from package_indexes import account, pip_install, serve_index
from release_commands import run
from release_places import REPO
from ruamel.yaml import YAML

from torchship.release.run.manifest import parse
from torchship.release.steps.conda import commands as conda_commands

pytest.importorskip("pypiserver")


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
    run(root / "scripts" / "build_all.sh", "generate", cwd=root)
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    commit = ["commit", "--quiet", "--all", "-m", "A matrix of one cell"]
    run("git", *identity, *commit, cwd=root)
    return root


@pytest.mark.rehearsal
def test_a_release_is_installed_by_name_from_an_index_and_a_channel(tmp_path, conda_worker) -> None:
    """The commands of docs/ship/publish.md, in their order, from a commit to both installations."""
    if not SETTINGS.bootstrap_channel.is_dir():
        pytest.skip("no bootstrap channel: run scripts/build_all.sh host first")
    root = small_checkout(tmp_path / "lltm")
    tool = root / "scripts" / "build_all.sh"
    base = SETTINGS.bootstrap_channel.as_uri()
    run(tool, "--channel", base, cwd=root)
    manifest = parse(root / "dist" / "manifest.json")
    assert not manifest.partial and "+" not in manifest.fat.path and manifest.clean

    site = tmp_path / "site"
    with serve_index(tmp_path / "index") as index:
        run(tool, "upload", "pypi", "--dry-run", cwd=root, **account(index))
        run(tool, "upload", "pypi", cwd=root, **account(index))
        uploaded = {path.name for path in (tmp_path / "index").iterdir()}
        assert Path(manifest.fat.path).name in uploaded
        distributions = {name.partition("-")[0] for name in uploaded if "-" in name}
        assert distributions == {"lltm", "torchship", "torch_doctor"}
        pip_install("lltm", index, site)
    assert "stable210-cpu" in run(
        sys.executable, "-m", "lltm_conda", cwd=tmp_path, PYTHONPATH=str(site)
    )
    smoke = (SETTINGS.smoke, "lltm_conda")
    assert "0 failed" in run(sys.executable, *smoke, cwd=tmp_path, PYTHONPATH=str(site))

    public = tmp_path / "public"
    run(tool, "upload", public, cwd=root)
    prefix = tmp_path / "prefix"
    channels = [(public / "channel").as_uri(), base]
    conda_worker(conda_commands.install(prefix, ["lltm"], channels=channels))
    python = prefix / "bin" / "python"
    assert "stable210-cpu" in run(python, "-m", "lltm_conda", cwd=tmp_path)
    out = run(python, *smoke, "--outside", REPO / "lltm_conda", cwd=tmp_path)
    assert "0 failed" in out

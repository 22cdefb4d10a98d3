"""The recipe as conda-build reads it: compiled in a host environment with pytorch, then packed."""

from __future__ import annotations

import sys

import pytest
from checkout import SETTINGS

from torchship.judge.reading.binary import read_binary
from torchship.judge.records import dotted
from torchship.release.matrix.cells import all_cells, render, select
from torchship.release.steps.conda import commands as conda_commands
from torchship.release.steps.conda.stubs import link_torch

pytestmark = pytest.mark.rehearsal


def test_a_package_compiled_beside_a_pytorch_does_not_take_its_pin(
    matrix, tmp_path, conda_worker
) -> None:
    """That pytorch exports the pin of its minor to what is built with it, as conda-forge's does."""
    rattler_build = pytest.importorskip("rattler_build")
    streaming = pytest.importorskip("rattler.package_streaming")
    torch = matrix.torch[matrix.stable.built_with].release
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    env = SETTINGS.envs / f"torch-{torch}-py{python}"
    if not SETTINGS.bootstrap_channel.is_dir() or not env.is_dir():
        pytest.skip("no bootstrap channel: run scripts/build_all.sh stable210-cpu first")
    linked = link_torch(tmp_path / "linked", env, python)
    (cell,) = select(all_cells(matrix), ["stable210-cpu"])
    variants = tmp_path / "variants.yaml"
    variants.write_text(render([cell], matrix), encoding="utf-8")
    channels = [linked.as_uri(), SETTINGS.bootstrap_channel.as_uri()]
    out = tmp_path / "out"
    conda_worker(conda_commands.build(variants, out, channels=channels))
    (package,) = out.glob("linux-64/lltm-*.conda")
    streaming.extract(package, tmp_path / "package")
    floors = [read_binary(path).floors["GLIBC"] for path in (tmp_path / "package").rglob("*.so")]
    needs = {"python >=3.10", "pytorch >=2.10.0 *_py*", f"__glibc >={dotted(max(floors))}"}
    assert {*rattler_build.Package.from_file(str(package)).depends} == needs
    conda_worker(conda_commands.test(package, channels=[out.as_uri(), *channels]))

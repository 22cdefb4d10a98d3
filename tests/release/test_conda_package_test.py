"""The test inside a package passes only where the package's own variant is chosen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from checkout import SETTINGS
from own_facts import KERNELS_RECORD
from shared_objects import shared_object

import lltm_conda
from torchship.release.matrix.cells import all_cells, render, select
from torchship.release.steps.conda import commands as conda_commands
from torchship.release.steps.conda.stubs import link_torch

pytest.importorskip("rattler_build")

PACKAGE = Path(lltm_conda.__file__).parent


@pytest.fixture(scope="module")
def scripts(matrix_built, tmp_path_factory) -> dict[str, list[str]]:
    """The commands of each package's own test, by build string."""
    import rattler.package_streaming

    folder = tmp_path_factory.mktemp("scripts")
    commands_by_build = {}
    for path in (matrix_built / "channel").rglob("*.conda"):
        out = folder / path.stem
        rattler.package_streaming.extract(path, out)
        build = json.loads((out / "info" / "index.json").read_text())["build"]
        content = (out / "info" / "tests" / "tests.yaml").read_text(encoding="utf-8")
        commands_by_build[build] = commands(content)
    return commands_by_build


def commands(content: str) -> list[str]:
    from ruamel.yaml import YAML

    tests = YAML(typ="safe").load(content)
    (script,) = [test["script"] for test in tests if "script" in test]
    lines = script["content"] if isinstance(script, dict) else script
    return [lines] if isinstance(lines, str) else list(lines)


def run(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A package's test, where `folder` is before the installed packages."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLTM_")}
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "PYTHONPATH": str(folder)}
    every_line = [line for script in lines for line in script.splitlines()]
    runnable = [line for line in every_line if "pip check" not in line]
    command = ["bash", "-ec", "\n".join(runnable)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def cuda_torch(site: Path) -> None:
    """Makes a torch in `site` that calls itself a build for CUDA 13."""
    (site / "torch").mkdir(parents=True)
    for path in Path(torch.__file__).parent.iterdir():
        if path.name not in ("version.py", "__pycache__"):
            (site / "torch" / path.name).symlink_to(path)
    version = f"__version__ = '{torch.__version__.split('+')[0]}+cu130'"
    rest = "cuda = '13.0'\nhip = xpu = rocm = git_version = None\ndebug = False\n"
    (site / "torch" / "version.py").write_text(f"{version}\n{rest}")


def with_cuda_kernels(lib: Path, **record: object) -> None:
    """Puts kernels for CUDA 13 into a package's folder of binaries."""
    facts = {"name": "cuda13", "device": "cuda", "cuda": "13.0"}
    shared_object(lib / "kernels-cuda13.so", record=KERNELS_RECORD | facts | record)
    for path in lib.glob("kernels-cuda13.c"):
        path.unlink()


def cuda_environment(site: Path, **record: object) -> None:
    """Makes a `site` with such a torch and a package with such kernels."""
    cuda_torch(site)
    shutil.copytree(PACKAGE, site / "lltm_conda")
    with_cuda_kernels(site / "lltm_conda" / "lib", **record)


def test_every_package_asks_for_its_own_variant(scripts) -> None:
    assert len(scripts) >= 15
    for build, lines in scripts.items():
        device, glue = build.rsplit("_", 1)[0].split("_", 1)
        variant = glue.replace("_", "-") + ("-cu" + device[4:6] if device != "cpu" else "-cpu")
        assert f'"chosen: {variant}"' in "\n".join(lines)
        assert f"--explain {variant}" in "\n".join(lines)


@pytest.mark.slow
def test_it_passes_where_that_variant_is_chosen(scripts, tmp_path) -> None:
    process = run(scripts["cpu_stable210_100"], tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.slow
def test_without_a_gpu_it_passes_where_the_cuda_kernels_are_accepted(scripts, tmp_path) -> None:
    cuda_environment(tmp_path)
    process = run(scripts["cuda130_stable210_300"], tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "kernels-cuda13.so" in process.stdout


REFUSED = {"kernel_abi": 99}


@pytest.mark.slow
def test_it_fails_where_they_are_refused(scripts, tmp_path) -> None:
    """The CPU's kernels still compute, so the report alone would say that the package works."""
    cuda_environment(tmp_path, **REFUSED)
    assert run(["python -m lltm_conda"], tmp_path).returncode == 0
    process = run(scripts["cuda130_stable210_300"], tmp_path)
    assert process.returncode != 0 and "kernels-cuda13.so" in process.stdout


@pytest.mark.slow
def test_the_last_line_alone_tells_another_variant(scripts, tmp_path) -> None:
    lines = [x for script in scripts["cuda130_stable210_300"] for x in script.splitlines()]
    process = run([line for line in lines if "--explain" not in line], tmp_path)
    assert process.returncode == 1
    assert "chosen: stable210-cpu" in process.stdout


def test_a_package_that_does_not_work_fails_though_its_report_is_piped(scripts, tmp_path) -> None:
    (tmp_path / "lltm_conda").mkdir()
    (tmp_path / "lltm_conda" / "__init__.py").touch()
    (tmp_path / "lltm_conda" / "__main__.py").write_text("raise SystemExit(3)")
    assert run(scripts["cpu_stable210_100"], tmp_path).returncode == 3


@pytest.mark.rehearsal
@pytest.mark.parametrize(("record", "passes"), [({}, True), (REFUSED, False)])
def test_a_built_package_is_tested_so(matrix, tmp_path, conda_worker, record, passes) -> None:
    """The package as it is installed, beside a pytorch that calls itself a CUDA build."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    site = f"lib/python{python}/site-packages"
    env = SETTINGS.envs / f"torch-{matrix.torch[matrix.stable.built_with].release}-py{python}"
    if not SETTINGS.bootstrap_channel.is_dir() or not env.is_dir():
        pytest.skip("no bootstrap channel: run scripts/build_all.sh stable210-cpu first")
    cuda_torch(tmp_path / "env" / site)
    for path in (env / site).iterdir():
        if path.name != "torch":
            (tmp_path / "env" / site / path.name).symlink_to(path)
    linked = link_torch(tmp_path / "linked", tmp_path / "env", python).as_uri()
    prebuilt = shutil.copytree(PACKAGE / "lib", tmp_path / "prebuilt")
    with_cuda_kernels(prebuilt, **record)
    variants = tmp_path / "variants.yaml"
    out = tmp_path / "out"
    variants.write_text(render(select(all_cells(matrix), ["stable210-cu13"]), matrix))
    channels = [linked, SETTINGS.bootstrap_channel.as_uri()]
    driver = {"CONDA_OVERRIDE_CUDA": "13.0"}
    env = {**driver, "LLTM_CONDA_PREBUILT": str(prebuilt)}
    conda_worker(conda_commands.build(variants, out, channels=channels), env)
    (package,) = out.glob("linux-64/lltm-*.conda")
    command = conda_commands.test(package, channels=[out.as_uri(), *channels])
    test = partial(conda_worker, command, driver)
    if passes:
        assert "2 package test(s) passed" in test()
    else:
        with pytest.raises(AssertionError, match=r"cuda13.so is refused[\s\S]*its test 0 failed"):
            test()

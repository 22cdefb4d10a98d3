"""One stable package, built on one Python, runs on another: really installed, really run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import SETTINGS
from release_places import REPO

from torchship.release.paths import tool
from torchship.release.steps.compile.downloads import uv_settings
from torchship.release.steps.compile.environments import interpreter, python_facts
from torchship.release.steps.conda import commands as conda_commands
from torchship.release.steps.conda.bootstrap import stage_python
from torchship.release.steps.conda.stubs import stubs, write_channel

pytestmark = [pytest.mark.slow, pytest.mark.network]

SMOKE = REPO / "scripts" / "engine_smoke.py"


@pytest.fixture
def package() -> Path:
    packages = sorted(SETTINGS.channel.glob("linux-64/lltm-*-cpu_stable*.conda"))
    if not packages:
        pytest.skip("no stable package in dist/channel: run scripts/build_all.sh host first")
    return packages[-1]


def other_python(matrix) -> tuple[str, str]:
    """A Python that has a torch and is not the one whose environment packs conda packages."""
    host = f"{sys.version_info[0]}.{sys.version_info[1]}"
    built_with = matrix.torch[matrix.stable.built_with].pythons
    for minor in ("3.12", "3.10", "3.13"):
        path = interpreter(minor)
        if path and minor != host and minor in built_with:
            return minor, path
    pytest.skip("there is one Python here; install another (uv python install, pyenv install)")


def run(*command: object, cwd: Path, **extra: str) -> str:
    dropped = ("PYTHONPATH", "LLTM_CONDA_LOAD", "LLTM_CONDA_PREBUILT", "PYTHONDONTWRITEBYTECODE")
    env = {key: value for key, value in os.environ.items() if key not in dropped} | extra
    process = subprocess.run(
        [str(w) for w in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_a_package_built_on_one_python_runs_on_another(
    matrix, package, tmp_path, conda_worker
) -> None:
    rattler_build = pytest.importorskip("rattler_build")
    minor, interpreter = other_python(matrix)
    # A conda Python of that minor, with conda-forge's build string, out of this machine's.
    facts = python_facts(interpreter)
    pythons = tmp_path / "pythons"
    (pythons / "linux-64").mkdir(parents=True)
    (tmp_path / "stage").mkdir()
    stage_python(tmp_path / "stage", facts)
    rattler_build.assemble_package(
        "python",
        facts["version"],
        "linux-64",
        f"h0_0_cp{minor.replace('.', '')}",
        pythons / "linux-64",
        files_dir=tmp_path / "stage",
        compression_level=1,
        detect_prefix=False,
    )
    # conda-forge's pytorch in name only: its content comes from PyPI below.
    pytorch = write_channel(tmp_path / "stubs", stubs(matrix))
    prefix = tmp_path / "prefix"
    torch = matrix.torch[matrix.stable.built_with].release
    _, version, build = package.name.removesuffix(".conda").rsplit("-", 2)
    (python_package,) = pythons.glob("linux-64/*.conda")
    conda_worker(conda_commands.index(tmp_path / "base", [python_package]))
    channels = [channel.as_uri() for channel in (SETTINGS.channel, tmp_path / "base", pytorch)]
    specs = [f"lltm =={version} {build}", f"python {minor}.*", f"pytorch =={torch}"]
    conda_worker(conda_commands.install(prefix, specs, channels=channels))
    python = prefix / "bin" / "python"
    settings = uv_settings(find_links=False) | {"UV_CACHE_DIR": str(tmp_path / "uv")}
    requirements = [f"torch=={torch}", "numpy"]
    uv = [tool("uv"), "pip", "install", "--python", python, "--break-system-packages"]
    run(*uv, *requirements, cwd=tmp_path, **settings)
    site = prefix / "lib" / f"python{minor}" / "site-packages" / "lltm_conda"
    assert (site / "lib" / "glue-stable210.so").is_file()
    assert "stable210-cpu" in run(python, "-m", "lltm_conda", cwd=tmp_path)
    report = tmp_path / "smoke.json"
    options = ["--outside", REPO / "lltm_conda", "--json", report]
    run(python, SMOKE, *options, cwd=tmp_path)
    report_facts = json.loads(report.read_text())
    assert report_facts["failed"] == 0 and report_facts["gradcheck"]
    assert report_facts["python"].startswith(f"{minor}.") and str(prefix) in report_facts["package"]


@pytest.mark.skipif(not Path("/usr/lib/python3/dist-packages").is_dir(), reason="Debian's Python")
def test_the_bootstrap_python_installs_as_condas_does(tmp_path) -> None:
    """Debian's own installs below `local`, and forbids pip to do it."""
    stage_python(tmp_path, python_facts("/usr/bin/python3", "sysconfig"))
    code = "import sysconfig as s; print(s.get_path('purelib', s.get_default_scheme()))"
    folder = Path(run(tmp_path / "bin" / "python3", "-c", code, cwd=tmp_path).strip())
    assert folder.parts[-1] == "site-packages"
    assert folder.parents[2] == tmp_path
    assert not list(tmp_path.rglob("EXTERNALLY-MANAGED"))

"""`recipe VARIANT`: conda-build where it is, py-rattler-build else, a driver or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from ruamel.yaml import YAML
from small_releases import COMMIT

from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells, for_conda
from torchship.release.steps.conda import packages as conda_steps
from torchship.release.steps.conda.packages import build_recipe, driver
from torchship.release.steps.conda.stubs import stubs, write_channel

CHANNEL = "https://conda.example.org/forge"
CONDA = """#!/bin/sh
[ "$2" = --version ] && exit $BUILDS
exec >>"$SAID"
echo "$@"
echo "cuda=$CONDA_OVERRIDE_CUDA commit=$TINY_CLIENT_GIT_COMMIT prebuilt=$TINY_CLIENT_PREBUILT"
exit $FAILS
"""


@pytest.fixture
def conda(tmp_path, monkeypatch) -> Path:
    """What a conda on PATH was asked; BUILDS and FAILS are its exit codes."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "conda"
    program.write_text(CONDA)
    program.chmod(0o755)
    variables = {"SAID": str(tmp_path / "said"), "BUILDS": "0", "FAILS": "0"}
    for name, value in {**variables, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "said"


def build(name: str, settings, channel: str | None = CHANNEL) -> str:
    console = Console(record=True, width=300, force_terminal=False)
    build_recipe(name, channel, console, settings)
    return console.export_text()


@pytest.mark.parametrize("name", ["stable210-cpu", "stable210-cu13", "aten24-abi1-cu12"])
def test_conda_builds_the_one_variant_with_a_driver_if_it_needs_one(
    name, matrix, conda, tmp_path, monkeypatch, own_settings
) -> None:
    monkeypatch.setenv("TINY_CLIENT_PREBUILT", "/elsewhere")
    monkeypatch.setattr(conda_steps, "commit", lambda settings: COMMIT)
    build(name, own_settings)
    command, environment = conda.read_text().splitlines()
    out = tmp_path / "build" / "recipe" / name
    variants = out / "variants.yaml"
    expected = f"build recipe -m {variants} -c {CHANNEL} --override-channels --output-folder {out}"
    assert command == expected
    (cell,) = [cell for cell in all_cells(matrix) if cell.name == name]
    cuda = driver(cell).get("CONDA_OVERRIDE_CUDA", "")
    assert environment == f"cuda={cuda} commit={COMMIT} prebuilt="
    assert YAML(typ="safe").load(variants)["variant_glue"] == [cell.glue]
    assert "[" not in variants.read_text(), "conda-build takes a list in brackets for a selector"


def test_a_machine_without_a_gpu_pretends_to_have_a_driver(matrix, monkeypatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _path: False)
    drivers = {c.device: driver(c).get("CONDA_OVERRIDE_CUDA") for c in all_cells(matrix)}
    assert drivers == {"cpu": "", "cu12": "12.0", "cu13": "13.0"}


def test_a_pattern_builds_every_package_that_it_names(matrix, conda, own_settings) -> None:
    build("aten2[45]*", own_settings)
    cells = [c for c in all_cells(matrix) if for_conda(c) and c.torch_minor in ("2.4", "2.5")]
    assert conda.read_text().count("build recipe") == len(cells) == 4


def test_a_failure_names_the_variant_and_the_channel(
    matrix, conda, monkeypatch, own_settings
) -> None:
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(ReleaseError, match=f"stable210-cu13: not built beside {CHANNEL}"):
        build("stable210-cu13", own_settings)


@pytest.mark.parametrize("name", ["aten24-abi0-cpu", "stable210"])
def test_what_conda_cannot_have_is_refused(name, matrix, conda, own_settings) -> None:
    with pytest.raises(ReleaseError, match=f"no cell or command is named '{name}'"):
        build(name, own_settings)
    assert not conda.exists()


def test_without_conda_build_it_is_rattler_build(
    matrix, conda, tmp_path, monkeypatch, capfd, own_settings
) -> None:
    """Up to the script, which cannot compile against a pytorch without content."""
    pytest.importorskip("rattler_build")
    monkeypatch.setenv("BUILDS", "1")
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "rattler"))
    channel = write_channel(tmp_path / "stubs", stubs(matrix)).as_uri()
    with pytest.raises(ReleaseError, match="stable210-cu13: not built"):
        build("stable210-cu13", own_settings, channel)
    output = capfd.readouterr()
    assert "build.sh" in output.out + output.err or "Script failed" in output.out + output.err
    assert not conda.exists()

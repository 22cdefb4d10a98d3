"""The folder feedstock is what a pull request to conda-forge's staged-recipes holds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from release_places import REPO
from ruamel.yaml import YAML

from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.feedstock import FOLDER, NO_HASH, _filled, feedstock_files

if TYPE_CHECKING:
    from rattler_build import RenderedVariant

#: What conda-forge-pinning says of the variables that the recipe uses, on 2026-08-20.
PINS = {
    "python": ["3.10.* *_cpython"],
    "python_min": ["3.10"],
    "is_python_min": [True],
    "c_stdlib": ["sysroot"],
    "c_stdlib_version": ["2.17"],
    "cxx_compiler": ["gxx"],
    "cxx_compiler_version": ["15"],
    "cuda_compiler": ["cuda-nvcc"],
}


@pytest.fixture
def render(tmp_path):
    """Renders the recipe for one CUDA and one pin of pytorch, as conda-forge does."""
    rb = pytest.importorskip("rattler_build")

    def rendered(cuda: str, pytorch: str = "2.12", platform: str = "linux-64") -> RenderedVariant:
        path = tmp_path / "variants.yaml"
        pins = {**PINS, "cuda_compiler_version": [cuda], "pytorch": [pytorch]}
        with path.open("w") as file:
            YAML().dump(pins, file)
        recipe = rb.Stage0Recipe.from_file(str(REPO / FOLDER / "recipe.yaml"))
        config = rb.RenderConfig(platform=rb.PlatformConfig(target_platform=platform))
        [variant] = recipe.render(rb.VariantConfig.from_file(str(path)), config)
        return variant

    return rendered


def requirements(variant: RenderedVariant) -> dict[str, list[str]]:
    return variant.recipe.to_dict()["requirements"]


@pytest.mark.parametrize(
    ("cuda", "host", "run", "number"),
    [
        ("None", "pytorch 2.13.* cpu*", ["pytorch >=2.10 *_py*"], 0),
        (
            "12.9",
            "pytorch 2.13.* cuda*",
            ["pytorch >=2.10 *cuda*_py*", "cuda-version >=12,<13", "__cuda >=12"],
            200,
        ),
        (
            "13.0",
            "pytorch 2.13.* cuda*",
            ["pytorch >=2.10 *cuda*_py*", "cuda-version >=13,<14", "__cuda >=13"],
            200,
        ),
    ],
)
def test_each_cuda_of_conda_forge_makes_one_package(
    render, cuda: str, host: str, run: list[str], number: int
) -> None:
    variant = render(cuda)
    assert host in requirements(variant)["host"]
    assert requirements(variant)["run"] == ["python >=3.10", *run]
    assert variant.recipe.to_dict()["build"]["number"] == number


@pytest.mark.parametrize(
    ("cuda", "name"),
    [("None", "stable210-cpu"), ("12.9", "stable210-cu12"), ("13.0", "stable210-cu13")],
)
def test_the_package_is_tested_for_its_own_variant(render, cuda: str, name: str, matrix) -> None:
    recipe = render(cuda).recipe.to_dict()
    assert recipe["context"]["variant"] == name
    assert name in [cell.name for cell in all_cells(matrix)]


def test_the_architectures_are_those_of_the_matrix(render) -> None:
    environment = render("13.0").recipe.to_dict()["build"]["script"]["env"]
    assert environment["TORCH_CUDA_ARCH_LIST"] == "7.5;8.0;9.0;10.0;12.0+PTX"
    assert environment["FORCE_CUDA"] == "1"


@pytest.mark.parametrize("cuda", ["None", "12.9", "13.0"])
def test_a_migration_of_pytorch_changes_nothing(render, cuda: str) -> None:
    """The recipe does not read conda-forge's pin of pytorch: a rebuild gives the same package."""
    before = render(cuda, pytorch="2.12")
    after = render(cuda, pytorch="2.13")
    assert requirements(before) == requirements(after)
    assert before.hash_info.hash == after.hash_info.hash
    assert "pytorch" not in before.variant


def test_the_recipe_is_for_every_platform_of_the_matrix(render, matrix) -> None:
    subdirs = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64"}
    for name in matrix.platforms:
        variant = render("None", platform=subdirs[name])
        assert f"gxx_{subdirs[name]} 15.*" in requirements(variant)["build"]


def test_nobody_is_named_and_nothing_is_hashed_before_a_release(matrix) -> None:
    files = feedstock_files(matrix, "1.2.3", "build script")
    recipe = YAML(typ="safe").load(files[FOLDER / "recipe.yaml"])
    assert recipe["source"]["sha256"] == NO_HASH
    assert recipe["extra"]["recipe-maintainers"] == matrix.project.maintainers
    assert recipe["context"]["version"] == "1.2.3"
    assert files[FOLDER / "build.sh"] == "build script"


def test_a_field_that_nothing_fills_in_is_an_error() -> None:
    with pytest.raises(ReleaseError, match=r"has the fields .*SHA256.*; add them there"):
        _filled("feedstock_recipe.yaml.in", {})


@pytest.mark.network
def test_conda_smithy_finds_nothing_to_say(tmp_path: Path) -> None:
    program = shutil.which("conda-smithy")
    if program is None:
        pytest.skip("conda-smithy is on no package index but conda-forge's channel")
    shutil.copytree(REPO / FOLDER, tmp_path / "recipe")
    run = subprocess.run(
        [program, "recipe-lint", str(tmp_path / "recipe")],
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "in fine form" in run.stdout

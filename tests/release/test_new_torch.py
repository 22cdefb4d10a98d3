"""One entry in build_matrix.yaml is all that a new torch needs: everything else follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from release_places import REPO
from ruamel.yaml import YAML

from torchship.builder import HostCompiler
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.generated import PYPROJECT, SUPPORT_PAGE, expected
from torchship.release.matrix.load import load
from torchship.release.matrix.settings import make_settings
from torchship.release.plan.machine import Compilers, Host
from torchship.release.run.listing import github, json_list

ENTRY = """
  "2.16":
    release: "2.16.0"
    pythons: ["3.11", "3.12", "3.13", "3.14"]
    cuda: {version: "13.2", archs: [75, 80, 86, 90, 100, 120]}
    abi: {pypi: 1, conda: 1}
    gcc: [11, 15]
    aten: [cpu, cu13]
"""
NEW = {"aten216-abi1-cpu", "aten216-abi1-cu13"}
GXX = HostCompiler(("g++",), "g++", "12.2.0")
HOST = Host("python3", "3.11", None, GXX, Compilers(debian=frozenset({"clang-19"})))


@pytest.fixture
def grown(matrix_text, tmp_path):
    """The matrix with a torch that nobody has made yet."""
    path = tmp_path / "build_matrix.yaml"
    path.write_text(matrix_text.rstrip("\n") + ENTRY, encoding="utf-8")
    return load(path)


def added(matrix, grown, path) -> str:
    """The lines that a generated file gains."""
    before = expected(make_settings(matrix, REPO))[path].splitlines()
    after = expected(make_settings(grown, REPO))[path].splitlines()
    return "\n".join(line for line in after if line not in before)


def test_it_has_cells(matrix, grown) -> None:
    old, new = ({cell.name for cell in all_cells(m)} for m in (matrix, grown))
    assert new - old == NEW


def test_the_list_shows_it_for_people_and_programs(grown) -> None:
    listed = json.loads(json_list(all_cells(grown), HOST, make_settings(grown, REPO)))["cells"]
    new_cells = {cell["cell"]: cell for cell in listed if cell["cell"] in NEW}
    assert {*new_cells} == NEW and all(cell["buildable"] for cell in new_cells.values())
    assert new_cells["aten216-abi1-cu13"]["torch"] == "2.16.0"


def test_github_builds_it(grown) -> None:
    include = json.loads(github(all_cells(grown), HOST, make_settings(grown, REPO)))["include"]
    assert {entry["cell"] for entry in include} >= NEW


def test_conda_has_variants_of_it(matrix, grown) -> None:
    data = YAML(typ="safe").load(expected(make_settings(grown, REPO))[Path("recipe/variants.yaml")])
    rows = [
        (glue, cuda, pin)
        for glue, cuda, pin in zip(
            data["variant_glue"], data["variant_cuda"], data["variant_pytorch_run"], strict=True
        )
        if glue == "aten216-abi1"
    ]
    pin = ">=2.16.0,<2.17.0a0"
    assert rows == [("aten216-abi1", "", pin), ("aten216-abi1", "13.0", pin)]


def test_the_installed_package_knows_it(grown) -> None:
    facts = json.loads(expected(make_settings(grown, REPO))[Path("lltm_conda/support.json")])
    assert facts["torch_max"] == "2.16" and {*facts["variants"]} >= NEW


def test_the_support_table_shows_it(matrix, grown) -> None:
    line = added(matrix, grown, SUPPORT_PAGE)
    assert line.startswith("| 2.16 | 13.2 |") and "aten216-abi1" in line


def test_the_wheel_in_the_container_is_tested_with_it_as_the_default(
    matrix, matrix_text, tmp_path
) -> None:
    content = matrix_text.replace('default_torch: "2.13"', 'default_torch: "2.16"')
    content = content.replace('built_with: "2.13"', 'built_with: "2.16"')
    path = tmp_path / "build_matrix.yaml"
    path.write_text(content.rstrip("\n") + ENTRY, encoding="utf-8")
    assert "torch==2.16.0" in added(matrix, load(path), PYPROJECT)

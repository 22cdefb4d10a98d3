"""The recipe uses nothing that conda-build's path for v1 recipes ignores or needs a flag for.

`conda build recipe -m recipe/variants.yaml -c CHANNEL` hands the recipe to py-rattler-build: one
variants file, read without comment selectors; no experimental features; no variables beyond it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from release_places import REPO
from ruamel.yaml import YAML

from torchship.release.matrix.cells import STDLIB, all_cells, for_conda, render

FOLDER = REPO / "recipe"
RECIPE = FOLDER / "recipe.yaml"
VARIANTS = FOLDER / "variants.yaml"
# The v1 format, as conda's CEPs 13 and 14 have it.
SECTIONS = {
    "schema_version": None,
    "context": None,
    "package": {"name", "version"},
    "source": {"path"},
    "build": {"number", "string", "script", "python", "dynamic_linking"},
    "requirements": {
        "build",
        "host",
        "run",
        "run_constraints",
        "run_exports",
        "ignore_run_exports",
    },
    "tests": None,
    "about": {
        "summary",
        "license",
        "license_file",
        "homepage",
        "repository",
        "documentation",
        "description",
    },
    "extra": None,
}
FUNCTIONS = {"compiler", "stdlib", "env.get", "replace", "split", "int"}


def problems(content: str) -> list[str]:
    """What in a recipe would be dropped silently, or refused, by conda-build."""
    tree: dict[str, Any] = YAML(typ="safe", pure=True).load(content)
    mistakes = [f"unknown section {name}" for name in tree if name not in SECTIONS]
    for name, allowed in SECTIONS.items():
        if allowed is not None and isinstance(tree.get(name), dict):
            mistakes += [f"unknown key {name}.{key}" for key in tree[name] if key not in allowed]
    for test in tree.get("tests", []):
        # `files: recipe` with a path above the recipe is dropped without a word.
        mistakes += [f"test files of the recipe: {test['files']}"] if "files" in test else []
    for line in content.splitlines():
        if re.search(r"#\s*\[[^\]]+\]\s*$", line):
            mistakes.append(f"a comment selector is ignored: {line.strip()}")
    for expression in re.findall(r"\$\{\{(.*?)\}\}", content):
        calls = re.findall(r"([a-z_][\w.]*)\s*\(|\|\s*([a-z_]+)", expression)
        for call, filtered in calls:
            if (call or filtered) not in FUNCTIONS:
                mistakes.append(f"{call or filtered} needs more than the released format")
    return mistakes


def test_the_recipe_uses_what_is_released() -> None:
    assert problems(RECIPE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  path: ..", "  path: ..  # [linux]", "comment selector"),
        ("tests:\n", "cache:\n  build: {}\ntests:\n", "cache"),
        ("tests:\n", "tests:\n  - script: [x]\n    files: {recipe: [../x]}\n", "test files"),
        ("  name: lltm", "  name: ${{ load_from_file('x') }}", "load_from_file"),
        ("  number: ${{ build_number }}", "  noarch: python", "build.noarch"),
    ],
)
def test_what_is_not_would_be_found(old, new, message) -> None:
    recipe = RECIPE.read_text(encoding="utf-8")
    assert old in recipe
    assert any(message in problem for problem in problems(recipe.replace(old, new, 1)))


def test_a_package_is_checked_by_pip() -> None:
    tests = YAML(typ="safe", pure=True).load(RECIPE.read_text(encoding="utf-8"))["tests"]
    (script,) = [test for test in tests if "script" in test]
    assert "pip" in script["requirements"]["run"]
    assert script["script"][0] == "python -m pip check"


def test_there_is_one_variants_file() -> None:
    """With several, conda-build takes the last and forgets the others."""
    assert sorted(path.name for path in FOLDER.iterdir()) == [
        "build.sh",
        "recipe.yaml",
        "variants.yaml",
    ]


def test_the_variants_are_quoted_text_without_conditions() -> None:
    for line in VARIANTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("  - ") and line != "  -":
            assert re.fullmatch(r'  - "[^"]*"', line), line
        assert not re.search(r"#\s*\[", line), line


def test_every_variable_of_the_recipe_is_in_the_variants() -> None:
    used = set(re.findall(r"\bvariant_\w+", RECIPE.read_text(encoding="utf-8")))
    variables = set(YAML(typ="safe", pure=True).load(VARIANTS.read_text(encoding="utf-8")))
    assert used == {name for name in variables if name.startswith("variant_")}
    assert set(STDLIB) <= variables


def rendered(recipe: Path, variants: Path) -> list[Any]:
    """As conda-build renders: three platforms, nothing experimental, no context of its own."""
    rb = pytest.importorskip("rattler_build")
    platform = rb.PlatformConfig(
        target_platform="linux-64",
        build_platform="linux-64",
        host_platform="linux-64",
        experimental=False,
    )
    config = rb.VariantConfig.from_file(str(variants))
    stage = rb.Stage0Recipe.from_file(str(recipe))
    return stage.render(config, rb.RenderConfig(platform=platform, extra_context={}))


def test_it_renders_as_conda_build_renders_it(matrix) -> None:
    packages = rendered(RECIPE, VARIANTS)
    assert len(packages) == len([c for c in all_cells(matrix) if for_conda(c)])
    strings = [variant.recipe.build.string for variant in packages]
    assert len(set(map(str, strings))) == len(packages)


def test_two_runs_give_the_same_names(matrix, tmp_path) -> None:
    variants = tmp_path / "variants.yaml"
    variants.write_text(render([c for c in all_cells(matrix) if for_conda(c)], matrix))
    names = [
        [str(v.recipe.build.string) for v in rendered(RECIPE, f)] for f in (VARIANTS, variants)
    ]
    assert names[0] == names[1]

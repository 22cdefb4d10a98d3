"""What is written twice agrees: generated files, the recipe, environment.yml."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from lock_files import lock_problems
from release_places import REPO
from ruamel.yaml import YAML

from lltm_conda._version import __version__
from torchship.release.matrix.cells import KEYS, all_cells, for_conda, row
from torchship.release.matrix.generated import drifted, named

RECIPE = REPO / "recipe" / "recipe.yaml"


def read(path):
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def test_generated_files_are_what_the_matrix_says(settings) -> None:
    assert list(drifted(settings)) == [], "run scripts/build_all.sh generate"


NAMING = ["recipe/recipe.yaml", "environment.yml", "pyproject.toml"]


def test_whoever_the_project_is_no_name_is_written_by_hand(matrix) -> None:
    other = {key: f"other-{key}" for key in ("distribution", "package", "prefix", "url", "summary")}
    project = matrix.project.model_copy(update={**other, "maintainers": ["somebody"]})
    renamed_matrix = matrix.model_copy(update={"project": project})
    for name in NAMING:
        content = (REPO / name).read_text(encoding="utf-8").partition("# cibuildwheel:begin")[0]
        renamed = named(content, renamed_matrix, __version__)
        assert "lltm" not in renamed.lower(), name
        assert "other-" in renamed, name


def test_a_shell_and_a_regular_expression_read_the_same_names(matrix) -> None:
    """As the scripts and recipe/build.sh do, and as setup.py, CMake and the smoke test do."""
    content = (REPO / "project.env").read_text(encoding="utf-8")
    pairs = dict(re.findall(r'^(PROJECT_\w+)="(.*)"$', content, re.MULTILINE))
    assert pairs["PROJECT_PACKAGE"] == matrix.project.package
    assert pairs["PROJECT_DEFAULT_TORCH"] == matrix.torch[matrix.package.default_torch].release
    script = ". ./project.env && set | grep ^PROJECT_"
    result = subprocess.run(
        ["sh", "-c", script], cwd=REPO, env={"PATH": os.environ["PATH"]}, capture_output=True
    )
    lines = result.stdout.decode().replace("'", "").splitlines()
    assert sorted(lines) == sorted(f"{name}={value}" for name, value in pairs.items())


READERS = ["CMakeLists.txt", "recipe/build.sh", "scripts/engine_smoke.py", "setup.py"]
READERS += [f"scripts/{path.name}" for path in (REPO / "scripts").glob("*.sh")]


def test_no_program_searches_the_matrix_for_names() -> None:
    """A regular expression would read a comment, or the value of another block."""
    searching = [
        f"{name}: {line}"
        for name in READERS
        for line in (REPO / name).read_text(encoding="utf-8").splitlines()
        if "build_matrix.yaml" in line and not line.lstrip().startswith("#")
    ]
    assert searching == []


def test_the_variants_hold_every_cell_that_conda_can_have(matrix) -> None:
    data = read(REPO / "recipe" / "variants.yaml")
    rows = list(zip(*(data[key] for key in KEYS), strict=True))
    assert rows == [row(c, matrix) for c in all_cells(matrix) if for_conda(c)]
    assert data["zip_keys"] == [list(KEYS)]
    assert all(isinstance(value, str) for values in rows for value in values)


def test_the_recipe_has_the_version_of_the_package() -> None:
    assert read(RECIPE)["context"]["version"] == __version__


def test_the_recipe_renders_one_package_for_each_variant(matrix) -> None:
    import pytest

    rb = pytest.importorskip("rattler_build")
    variants = rb.VariantConfig.from_file(str(REPO / "recipe" / "variants.yaml"))
    platform = rb.PlatformConfig(target_platform="linux-64")
    recipe = rb.Stage0Recipe.from_file(str(RECIPE))
    rendered = recipe.render(variants, rb.RenderConfig(platform=platform))
    assert len(rendered) == len([c for c in all_cells(matrix) if for_conda(c)])


def test_the_recipe_names_the_project(matrix) -> None:
    recipe = read(RECIPE)
    metadata = recipe["about"]
    assert recipe["context"]["url"] == matrix.project.url
    assert metadata["homepage"] == metadata["repository"] == "${{ url }}"
    assert metadata["documentation"].startswith("${{ url }}/")
    assert recipe["extra"]["recipe-maintainers"] == matrix.project.maintainers


def test_pyproject_names_the_project(matrix) -> None:
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    urls = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls.pop("Repository") == matrix.project.url
    assert urls and all(page.startswith(f"{matrix.project.url}/") for page in urls.values())
    paths = [page.removeprefix(matrix.project.url).split("/", 3)[3] for page in urls.values()]
    assert [path for path in paths if not (REPO / path).exists()] == []


def test_environment_yml_has_the_default_torch(matrix) -> None:
    lines = read(REPO / "environment.yml")["dependencies"]
    packages = [line for line in lines if isinstance(line, str)]
    assert f"pytorch {matrix.package.default_torch}.*" in packages


def test_environment_yml_has_the_pythons_of_the_matrix(matrix) -> None:
    lines = [x for x in read(REPO / "environment.yml")["dependencies"] if isinstance(x, str)]
    (python,) = [line for line in lines if line.startswith("python ")]
    pythons = matrix.package.pythons
    after_last = f"3.{int(pythons[-1].split('.')[1]) + 1}"
    assert python == f"python >={pythons[0]},<{after_last}"


def test_environment_yml_lists_what_the_build_needs() -> None:
    lines = [x for x in read(REPO / "environment.yml")["dependencies"] if isinstance(x, str)]
    names = {line.split()[0] for line in lines}
    required = {"pytorch", "setuptools", "ninja", "conda-build", "cibuildwheel", "pytest"}
    assert required <= names


def test_environment_yml_lists_every_tool_of_the_tests() -> None:
    lines = read(REPO / "environment.yml")["dependencies"]
    (pip,) = [line["pip"] for line in lines if isinstance(line, dict)]
    packages = [*(line for line in lines if isinstance(line, str)), *pip]
    installed = {re.split(r"[ <>=]", package)[0] for package in packages} | {
        "build"
    }  # conda: python-build
    requirements = (REPO / "requirements" / "dev.in").read_text(encoding="utf-8")
    names = {
        re.split(r"[ <>=;]", line)[0] for line in requirements.splitlines() if line[:1] not in "# "
    }
    assert names - installed == set()
    # conda's own build tools, and what pip finds without a name here.
    more = {"python", "pytorch", "pip", "conda-build", "cxx-compiler", "python-build", "build"}
    assert installed - names == more


def test_environment_yml_takes_from_pip_only_what_conda_forge_lacks() -> None:
    """pip knows nothing of conda's packages, and would replace them by its own."""
    (pip,) = [
        x["pip"] for x in read(REPO / "environment.yml")["dependencies"] if isinstance(x, dict)
    ]
    names = {re.split(r"[<>=]", package)[0] for package in pip}
    assert names == {
        "axe-playwright-python",
        "kubernetes-validate",
        "playwright",
        "torch-abi-audit",
    }


RELEASE_LOCKS = REPO / "torchship" / "release" / "requirements"


def test_the_release_tool_has_what_its_tests_have() -> None:
    """The tool runs in an environment of its own; the tests import it into theirs."""
    own = (RELEASE_LOCKS / "release.in").read_text(encoding="utf-8")
    dev = (REPO / "requirements" / "dev.txt").read_text(encoding="utf-8")
    names = {re.split(r"[ <>=;\[]", line)[0] for line in own.splitlines() if line[:1] not in "# "}
    assert {name for name in names if not re.search(rf"^{name}==", dev, re.MULTILINE)} == set()


@pytest.mark.parametrize("name", ["dev", "docs"])
def test_every_requirement_is_locked_with_hashes(name) -> None:
    assert list(lock_problems(REPO / "requirements" / f"{name}.txt")) == []


def test_what_is_locked_is_installed_with_its_hashes() -> None:
    """In every script and workflow that installs from a lock."""
    folders = [*REPO.glob("scripts/*.sh"), *REPO.glob(".github/workflows/*.yml")]
    commands = [
        command
        for path in folders
        for command in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        if " -r " in command and re.search(r"\binstall\b.* -r [\"<rt]", command)
    ]
    assert len(commands) >= 5
    assert [command for command in commands if "--require-hashes" not in command] == []


def test_setuptools_has_one_lower_bound(matrix) -> None:
    bound = "setuptools >=77"
    lines = [x for x in read(REPO / "environment.yml")["dependencies"] if isinstance(x, str)]
    assert bound in lines
    assert bound in read(RECIPE)["requirements"]["host"]
    assert "setuptools>=77" in (REPO / "pyproject.toml").read_text(encoding="utf-8")

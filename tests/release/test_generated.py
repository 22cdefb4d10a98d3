"""What is written twice agrees: generated files, the recipe, environment.yml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
from release_places import REPO
from ruamel.yaml import YAML

from lltm_conda._version import __version__
from torchship.release import ReleaseError
from torchship.release.cells import KEYS, all_cells, for_conda, row
from torchship.release.generated import drifted, named, project_record, project_variables
from torchship.release.settings import make_project

RECIPE = REPO / "recipe" / "recipe.yaml"


def read(path):
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def test_generated_files_are_what_the_matrix_says(settings) -> None:
    assert list(drifted(settings)) == [], "run scripts/build_all.sh --write-generated"


NAMING = ["recipe/recipe.yaml", "environment.yml", "pyproject.toml"]


@pytest.mark.parametrize("name", NAMING)
def test_whoever_the_project_is_no_name_is_written_by_hand(matrix, name: str) -> None:
    content = (REPO / name).read_text(encoding="utf-8").partition("# cibuildwheel:begin")[0]
    other = {key: f"other-{key}" for key in ("distribution", "package", "prefix", "url", "summary")}
    project = matrix.project.model_copy(update={**other, "maintainers": ["somebody"]})
    renamed = named(content, matrix.model_copy(update={"project": project}), __version__)
    assert "lltm" not in renamed.lower()
    assert "other-" in renamed


@pytest.fixture
def small_checkout(tmp_path):
    """The folder of the package, the engine and the generated files, without anything built."""
    for folder in ("lltm_conda", "torchship"):
        ignored = shutil.ignore_patterns("lib", "__pycache__", "*.so")
        shutil.copytree(REPO / folder, tmp_path / folder, ignore=ignored, symlinks=True)
    names = ["build_matrix.yaml", "pyproject.toml", "environment.yml", "csrc/project.h"]
    names += ["project.env", "recipe/recipe.yaml", "recipe/variants.yaml"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    return tmp_path


def release_tool(folder, *options: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "LLTM_CONDA_LOAD"}
    env["PYTHONPATH"] = str(folder)
    command = [sys.executable, "-m", "torchship.release", *options]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)


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


@pytest.mark.parametrize("name", ["a b", "$HOME", 'a"b', "a;b", "a`b`"])
def test_a_name_that_a_shell_would_change_is_refused(matrix, name: str) -> None:
    project = matrix.project.model_copy(update={"distribution": name})
    with pytest.raises(ReleaseError, match=r"distribution is .*; choose another name"):
        project_variables(matrix.model_copy(update={"project": project}))


READERS = ["CMakeLists.txt", "recipe/build.sh", "scripts/engine_smoke.py", "setup.py"]
READERS += [f"scripts/{path.name}" for path in (REPO / "scripts").glob("*.sh")]


@pytest.mark.parametrize("name", READERS)
def test_no_program_searches_the_matrix_for_names(name: str) -> None:
    """A regular expression would read a comment, or the value of another block."""
    lines = (REPO / name).read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if not line.lstrip().startswith("#")]
    assert [line for line in code if "build_matrix.yaml" in line] == []


OLD_RECORD = "from .engine.doctor.project import Project\nProject(old=1)\n"


@pytest.mark.parametrize("record", [None, OLD_RECORD])
def test_a_record_that_does_not_fit_the_engine_is_written_again(small_checkout, record) -> None:
    path = small_checkout / "lltm_conda" / "_project.py"
    right = path.read_text(encoding="utf-8")
    path.unlink() if record is None else path.write_text(record)
    refused = release_tool(small_checkout, "--list")
    assert refused.returncode == 2
    assert "lltm_conda/_project.py: not what build_matrix.yaml says" in refused.stdout
    written = release_tool(small_checkout, "--write-generated")
    assert written.returncode == 0, written.stdout + written.stderr
    assert path.read_text(encoding="utf-8") == right


IMPORT_ALL = """
import importlib, os, pkgutil, sys
variables, hooks, path = dict(os.environ), list(sys.meta_path), list(sys.path)
import torchship.release
for module in pkgutil.iter_modules(torchship.release.__path__):
    if module.name != "fatbinary":
        importlib.import_module(f"torchship.release.{module.name}")
assert dict(os.environ) == variables, "a variable was set"
assert (sys.meta_path, sys.path) == (hooks, path), "an import hook or a folder was added"
assert "lltm_conda" not in sys.modules, "the package was imported"
"""


def test_an_import_of_the_tool_has_no_effect(small_checkout) -> None:
    """Not even where the matrix and the generated files are missing."""
    (small_checkout / "build_matrix.yaml").unlink()
    (small_checkout / "lltm_conda" / "_project.py").unlink()
    files = sorted(small_checkout.rglob("*"))
    env = {k: v for k, v in os.environ.items() if k != "LLTM_CONDA_LOAD"}
    env |= {"PYTHONPATH": str(small_checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", IMPORT_ALL]
    process = subprocess.run(command, env=env, cwd=small_checkout, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert sorted(small_checkout.rglob("*")) == files


def test_the_record_in_the_package_is_that_of_the_tool(matrix) -> None:
    namespace: dict[str, object] = {}
    record = project_record(matrix).replace("from ._version import __version__", "")
    record = record.replace("from .engine.doctor", "from torchship.doctor")
    exec(record, namespace | {"__version__": __version__, "__file__": "x"}, namespace)
    tools = make_project(matrix, REPO)
    assert namespace["PROJECT"]._replace(folder=tools.folder) == tools


def test_the_variants_hold_every_cell_that_conda_can_have(matrix) -> None:
    data = read(REPO / "recipe" / "variants.yaml")
    rows = list(zip(*(data[key] for key in KEYS), strict=True))
    assert rows == [row(c, matrix) for c in all_cells(matrix) if for_conda(c)]
    assert data["zip_keys"] == [list(KEYS)]
    assert all(isinstance(value, str) for values in rows for value in values)


def test_no_conda_variant_is_for_an_abi_that_conda_forge_never_had(matrix) -> None:
    assert not [c.name for c in all_cells(matrix) if for_conda(c) and c.name.find("abi0") > 0]


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
        "variantlib",
    }


RELEASE_LOCKS = REPO / "torchship" / "release" / "requirements"


def test_the_release_tool_has_what_its_tests_have() -> None:
    """The tool runs in an environment of its own; the tests import it into theirs."""
    own = (RELEASE_LOCKS / "release.in").read_text(encoding="utf-8")
    dev = (REPO / "requirements" / "dev.txt").read_text(encoding="utf-8")
    names = {re.split(r"[ <>=;\[]", line)[0] for line in own.splitlines() if line[:1] not in "# "}
    assert {name for name in names if not re.search(rf"^{name}==", dev, re.MULTILINE)} == set()


LOCKS = [
    *(REPO / "requirements" / f"{name}.txt" for name in ("dev", "docs")),
    *(RELEASE_LOCKS / f"{name}.txt" for name in ("release", "cibuildwheel", "sbom")),
]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.parent.name + "/" + path.name)
def test_every_requirement_is_locked_with_hashes(lock) -> None:
    content = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in content.splitlines() if line[:1] not in ("#", "")]
    assert len(lines) > 5
    for line in lines:
        assert re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line[:80]
    requirements = lock.with_suffix(".in").read_text(encoding="utf-8")
    for line in requirements.splitlines():
        name = re.split(r"[ <>=;]", line)[0]
        assert line[:1] == "#" or re.search(rf"^{name}==", content, re.MULTILINE), line


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

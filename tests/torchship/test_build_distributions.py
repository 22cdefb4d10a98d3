"""What `build:` of the matrix means for the distributions of a project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from io import StringIO
from pathlib import Path

import pytest
from new_projects import make
from rich.console import Console
from ruamel.yaml import YAML
from small_projects import write

from torchship.builder.torch_range import torch_requirement
from torchship.release.matrix import generated
from torchship.release.matrix.build_schema import Build
from torchship.release.matrix.load import load, load_settings

REPO = Path(__file__).resolve().parents[2]

BUILD = """\
build:
  glue:
    sources: [csrc/ops, native/more.cc]
    include: [third_party/numbers-1.2/include]
    defines: {SCALE: 2}
  data: [tables/*.bin]
  requires: ["einops>=0.7"]

"""
MORE = """\
#include <numbers/numbers.hpp>
extern "C" __attribute__((visibility("default"))) int more() { return kNine * SCALE; }
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project with such a `build:`, and the files that follow from it."""
    root = make(tmp_path_factory.mktemp("projects"), "with-parts", "--template", "aten")
    write(
        root,
        {
            "native/more.cc": MORE,
            "third_party/numbers-1.2/include/numbers/numbers.hpp": "constexpr int kNine = 9;",
            "with_parts/tables/one.bin": "1",
        },
    )
    matrix = root / "build_matrix.yaml"
    content = matrix.read_text(encoding="utf-8")
    matrix.write_text(content.replace("# The glue that every", BUILD + "# The glue that every", 1))
    generated.write(load_settings(repo=root), Console(file=StringIO()))
    return root


def build(project: Path, kind: str, out: Path) -> Path:
    command = [sys.executable, "-m", "build", "-n", kind, "--outdir", str(out), str(project)]
    environment = {**os.environ, "DEBUG": "1"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    (archive,) = out.iterdir()
    return archive


def test_wheel_and_conda_package_require_the_same(project: Path) -> None:
    support = json.loads((project / "with_parts" / "support.json").read_text(encoding="utf-8"))
    oldest = load(project / "build_matrix.yaml").minors()[0]
    assert support["requires"] == [f"torch>={oldest}", "einops>=0.7"]
    recipe = YAML(typ="safe").load(project / "recipe" / "recipe.yaml")
    run = recipe["requirements"]["run"]
    assert {"if": "linux", "then": ["einops >=0.7"]} in run


def test_a_change_of_requirements_that_is_not_written_is_found(project: Path) -> None:
    support = project / "with_parts" / "support.json"
    before = support.read_text(encoding="utf-8")
    support.write_text(before.replace('"einops>=0.7"', '"einops"'), encoding="utf-8")
    stale = generated.drifted(load_settings(repo=project))
    support.write_text(before, encoding="utf-8")
    assert list(stale) == ["with_parts/support.json"]


def test_a_project_that_names_its_requirements_in_pyproject_keeps_them_right(
    project: Path,
) -> None:
    """Those that torchship made before the build gave the list."""
    pyproject = project / "pyproject.toml"
    before = pyproject.read_text(encoding="utf-8")
    line = "dependencies = []  #= {requirements}"
    pyproject.write_text(f"{before}\n[project.old]\n{line}\n", encoding="utf-8")
    stale = generated.drifted(load_settings(repo=project))
    pyproject.write_text(before, encoding="utf-8")
    oldest = load(project / "build_matrix.yaml").minors()[0]
    line = f'dependencies = ["torch>={oldest}", "einops>=0.7"]'
    assert line in stale["pyproject.toml"]


@pytest.mark.slow
def test_a_source_distribution_builds_the_wheel_with_all_that_the_matrix_names(
    project: Path, tmp_path: Path
) -> None:
    archive = build(project, "--sdist", tmp_path / "sdist")
    shutil.unpack_archive(archive, tmp_path / "source")
    (source,) = (tmp_path / "source").iterdir()
    wheel = build(source, "--wheel", tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as packed_wheel:
        names = packed_wheel.namelist()
        assert "with_parts/tables/one.bin" in names
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        requirements = message_from_bytes(packed_wheel.read(metadata)).get_all("Requires-Dist")
        (glue,) = [name for name in names if "/lib/glue-" in name]
        assert b"\0more\0" in packed_wheel.read(glue)
    assert requirements == [torch_requirement([Path(glue).name]), "einops>=0.7"]


def test_rendered_packages_require_what_the_wheels_do_and_their_cuda_libraries(
    tmp_path: Path,
) -> None:
    rb = pytest.importorskip("rattler_build")
    build = Build.model_validate({"requires": ["einops>=0.7"], "cuda": {"libraries": ["cublas"]}})
    matrix = load(REPO / "build_matrix.yaml").model_copy(update={"build": build})
    recipe = tmp_path / "recipe" / "recipe.yaml"
    recipe.parent.mkdir()
    content = (REPO / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    recipe.write_text(generated.named(content, matrix, "1.0"), encoding="utf-8")
    config = rb.VariantConfig.from_file(str(REPO / "recipe" / "variants.yaml"))
    platform = rb.PlatformConfig(target_platform="linux-64", experimental=False)
    stage = rb.Stage0Recipe.from_file(str(recipe))
    for variant in stage.render(config, rb.RenderConfig(platform=platform)):
        requirements = variant.recipe.requirements
        run = [str(need) for need in requirements.run]
        host = [str(need) for need in requirements.host]
        is_cuda = str(variant.recipe.build.string).startswith("cuda")
        assert [need for need in run if "einops" in need] == ["einops >=0.7"]
        assert ("libcublas" in run) == is_cuda
        assert ("libcublas-dev" in host) == is_cuda

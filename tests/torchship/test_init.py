"""`torchship init`: a repository with an extension gets a matrix for what it holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from new_projects import files, torchship
from ruamel.yaml import YAML
from small_projects import write

from torchship.project.errors import ProjectError
from torchship.project.finish import finish
from torchship.project.init import init as write_description
from torchship.project.survey import survey
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.generated import project_record
from torchship.release.matrix.load import load

SETUP = """\
import os
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "segment"
setup(
    name=f"{NAME}-ops",
    version="1.2.3",
    packages=[NAME],
    install_requires=["torch>=2.1", "einops>=0.6"],
    ext_modules=[
        CUDAExtension(
            f"{NAME}._C",
            sources=[os.path.join("csrc", "op.cpp"), "csrc/cuda/op.cu"],
            include_dirs=[os.path.join(HERE, "third_party", "headers")],
            define_macros=[("WITH_CUDA", None), ("LIMIT", "64"), ("WITH_PYTHON", None)],
            extra_compile_args={
                "cxx": ["-O3", "-Wno-sign-compare"],
                "nvcc": ["-O3", "--use_fast_math", "-gencode=arch=compute_80,code=sm_80"],
            },
            libraries=["cusparse"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
ATEN = """\
#ifdef WITH_PYTHON
#include <Python.h>
#endif
#include <torch/extension.h>
at::Tensor twice(at::Tensor x) { return x * 2; }
#ifdef WITH_CUDA
at::Tensor twice_cuda(at::Tensor x);
#endif
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice, "doubles"); }
"""
REPOSITORY = {
    "setup.py": SETUP,
    "segment/__init__.py": "from . import _C\n",
    "csrc/op.cpp": ATEN,
    "csrc/cuda/op.cu": "#include <ATen/ATen.h>\n",
    "third_party/headers/sum.hpp": "",
    "third_party/headers/example.cpp": "int main() {}",
    "tests/test_op.cpp": "int main() {}",
}
STABLE = """\
#include <torch/csrc/stable/library.h>
STABLE_TORCH_LIBRARY(fast, m) { m.def("twice(Tensor x) -> Tensor"); }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write(tmp_path, REPOSITORY)
    return tmp_path


def init(root: Path, name: str | None = None) -> str:
    """What the command prints."""
    return "\n".join(write_description(root, name))


def matrix_of(root: Path) -> dict[str, object]:
    content: dict[str, object] = YAML(typ="safe").load(root / "build_matrix.yaml")
    return content


def test_the_matrix_says_what_setup_py_says(repository: Path) -> None:
    init(repository)
    assert matrix_of(repository)["build"] == {
        "glue": {
            "sources": ["csrc/op.cpp"],
            "include": ["third_party/headers"],
            "flags": ["-Wno-sign-compare"],
            "defines": {"LIMIT": "64"},
            "cuda": {
                "sources": ["csrc/cuda/op.cu"],
                "defines": {"WITH_CUDA": None},
                "flags": ["--use_fast_math"],
                "libraries": ["cusparse"],
            },
        },
        "requires": ["einops>=0.6"],
    }


def test_each_torch_gets_glue_for_the_cuda_of_its_wheels(repository: Path) -> None:
    init(repository)
    matrix = load(repository / "build_matrix.yaml")
    cells = {str(cell): cell for cell in all_cells(matrix)}
    assert {"aten24-abi0-cu12", "aten213-abi1-cu13", "aten215-abi1-cpu"} <= cells.keys()
    assert cells["aten213-abi1-cu13"].files == ["glue-aten213-abi1-cu13.so"]
    assert not [cell for cell in cells.values() if cell.stable]


def test_names_and_operators_are_those_of_the_repository(repository: Path) -> None:
    init(repository)
    project = load(repository / "build_matrix.yaml").project
    assert (project.distribution, project.package) == ("segment-ops", "segment")
    assert (project.namespace, project.operator) == ("segment", "twice")


def test_pyproject_requires_what_setup_py_requires(repository: Path) -> None:
    init(repository)
    content = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dependencies = ["torch>=2.4", "einops>=0.6"]  #= {requirements}' in content
    assert 'version = "1.2.3"' in content
    assert 'build-backend = "torchship.backend"' in content


def test_two_files_are_written_and_none_is_changed(repository: Path) -> None:
    before = files(repository)
    init(repository)
    after = files(repository)
    assert after.keys() - before.keys() == {"build_matrix.yaml", "pyproject.toml"}
    assert before.items() <= after.items()


def test_a_matrix_that_is_there_is_not_overwritten(repository: Path) -> None:
    (repository / "build_matrix.yaml").write_text("mine")
    before = files(repository)
    result = torchship("init", cwd=repository)
    assert result.returncode == 2
    assert "build_matrix.yaml is there already, and init overwrites nothing" in result.stderr
    assert files(repository) == before


def test_a_pyproject_that_is_there_is_left_and_what_it_needs_is_said(repository: Path) -> None:
    (repository / "pyproject.toml").write_text("[build-system]\nrequires = ['torch']\n")
    output = init(repository)
    assert "pyproject.toml is there already and was left as it is; it must say:" in output
    assert 'build-backend = "torchship.backend"' in output
    content = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert content == "[build-system]\nrequires = ['torch']\n"


def test_what_is_left_to_do_is_said(repository: Path) -> None:
    output = init(repository)
    assert "found: twice (bound by pybind11, which become operators)" in output
    assert "remove setup.py, once pyproject.toml says what they said" in output
    assert "in segment/__init__.py, in place of what loads the extension:" in output
    assert "torchship init --finish" in output


def test_a_source_that_needs_python_is_named(repository: Path) -> None:
    assert "remove Python.h" not in init(repository)
    (repository / "build_matrix.yaml").unlink()
    write(repository, {"csrc/module.cpp": "#include <Python.h>\n"})
    assert "remove Python.h and PyInit_ from csrc/module.cpp" in init(repository)


def test_an_operator_that_two_sources_bind_is_named(repository: Path) -> None:
    binds = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }\n'
    write(repository, {"csrc/a.cpp": binds, "csrc/cuda/b.cu": binds})
    assert "csrc/a.cpp and csrc/cuda/b.cu both register the operator twice: " in init(repository)


def test_what_setup_py_computes_is_said(repository: Path) -> None:
    content = SETUP.replace('libraries=["cusparse"]', "libraries=find_libraries()")
    (repository / "setup.py").write_text(content)
    assert "compare `build:` with setup.py: its CUDAExtension computes libraries" in init(
        repository
    )


def test_nothing_of_the_repository_is_run(repository: Path) -> None:
    (repository / "setup.py").write_text("open('ran', 'w')\n")
    init(repository)
    assert not (repository / "ran").exists()


def test_without_setup_py_the_sources_are_found(repository: Path) -> None:
    (repository / "setup.py").unlink()
    facts = survey(repository)
    assert facts.sources == ("csrc/op.cpp",)
    assert facts.cuda_sources == ("csrc/cuda/op.cu",)
    init(repository, "segment")
    build = matrix_of(repository)["build"]
    assert build == {
        "glue": {
            "sources": ["csrc/*.cpp"],
            "cuda": {"sources": ["csrc/cuda/*.cu"], "defines": {"WITH_CUDA": None}},
        }
    }


def test_code_of_the_stable_abi_gets_the_stable_glue_alone(tmp_path: Path) -> None:
    write(tmp_path, {"fast/__init__.py": "", "csrc/op.cpp": STABLE})
    init(tmp_path, "fast")
    matrix = load(tmp_path / "build_matrix.yaml")
    assert [str(cell) for cell in all_cells(matrix)] == ["stable210-cpu"]
    assert matrix.minors()[0] == "2.10"
    assert matrix.project.namespace == "fast"


def test_a_repository_without_sources_is_refused(tmp_path: Path) -> None:
    result = torchship("init", cwd=tmp_path)
    assert result.returncode == 2
    assert "has no C++ or CUDA source" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose author has done all that was left to do."""
    root = tmp_path_factory.mktemp("finished")
    write(root, {"fast/__init__.py": "value = 1\n", "csrc/op.cpp": STABLE})
    init(root, "fast")
    (root / "fast" / "__init__.py").write_text(
        "from .loader import LOADER\nfrom ._version import __version__\nLOADER.at_import()\n"
    )
    finish(root)
    return root


def test_the_second_step_adds_what_follows(finished: Path) -> None:
    names = files(finished)
    assert {"csrc/project.h", "fast/_project.py", "fast/loader.py", "recipe/recipe.yaml"} <= {
        *names
    }
    assert (finished / "fast" / "_version.py").read_text() == '__version__ = "0.1.0"\n'


def test_the_second_step_changes_no_file_of_the_author(finished: Path) -> None:
    own = finished / "fast" / "loader.py"
    before = own.read_text(encoding="utf-8")
    own.write_text(f"{before}# mine\n", encoding="utf-8")
    finish(finished)
    assert own.read_text(encoding="utf-8").endswith("# mine\n")
    own.write_text(before, encoding="utf-8")


def test_a_mistake_in_the_matrix_is_named_by_the_second_step(repository: Path) -> None:
    init(repository)
    matrix = repository / "build_matrix.yaml"
    content = matrix.read_text(encoding="utf-8")
    matrix.write_text(content.replace("  target:", "  tarmac:"), encoding="utf-8")
    with pytest.raises(ProjectError, match=r"unknown key `stable.tarmac`"):
        finish(repository)


@pytest.mark.slow
def test_what_init_describes_builds(finished: Path, tmp_path: Path) -> None:

    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.run(
        [*command, str(finished), "-w", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert [path.name for path in tmp_path.glob("*.whl")] == [
        "fast-0.1.0-py3-none-linux_x86_64.whl"
    ]


HEADERS = {
    **REPOSITORY,
    "setup.py": SETUP.replace('"--use_fast_math",', '"-I" + os.path.join(HERE, "glm"), "-DTILE=8",')
    .replace('"-Wno-sign-compare"', '"-I", "own/headers"')
    .replace('("WITH_CUDA", None), ', ""),
    "csrc/op.cpp": ATEN.replace("WITH_CUDA", "OTHER"),
}


def test_folders_and_macros_among_the_compilers_flags_get_their_own_keys(tmp_path: Path) -> None:
    write(tmp_path, HEADERS)
    init(tmp_path)
    assert matrix_of(tmp_path)["build"] == {
        "glue": {
            "sources": ["csrc/op.cpp"],
            "include": ["third_party/headers", "own/headers", "glm"],
            "defines": {"LIMIT": "64", "TILE": "8"},
            "cuda": {"sources": ["csrc/cuda/op.cu"], "libraries": ["cusparse"]},
        },
        "requires": ["einops>=0.6"],
    }


def test_an_extension_that_setup_py_builds_only_with_cuda_has_no_glue_for_the_cpu(
    tmp_path: Path,
) -> None:
    write(tmp_path, HEADERS)
    assert "found: code for CUDA alone" in init(tmp_path)
    matrix = load(tmp_path / "build_matrix.yaml")
    assert {cell.device for cell in all_cells(matrix)} == {"cu12", "cu13"}
    assert "    has_cpu_glue=False,\n" in project_record(matrix)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("setup.py", "CUDAExtension(\n", "(CUDAExtension if HAS_CUDA else CppExtension)(\n"),
        ("setup.py", "setup(", "Kind = CUDAExtension if HAS_CUDA else CppExtension\nsetup("),
        ("csrc/op.cpp", "return x * 2", "AT_ASSERT(x.is_cpu()); return x * 2"),
        ("csrc/op.cpp", "OTHER", "WITH_CUDA"),
    ],
)
def test_an_extension_that_also_has_code_for_the_cpu_has_glue_for_both(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    content = HEADERS[file].replace(old, new)
    if "Kind =" in content:
        content = content.replace("CUDAExtension(\n", "Kind(\n")
    write(tmp_path, {**HEADERS, file: content})
    init(tmp_path)
    matrix = load(tmp_path / "build_matrix.yaml")
    assert {cell.device for cell in all_cells(matrix)} == {"cpu", "cu12", "cu13"}
    assert "has_cpu_glue" not in project_record(matrix)


def test_the_version_is_that_of_the_package_if_setup_py_computes_it(repository: Path) -> None:
    (repository / "setup.py").write_text(SETUP.replace('"1.2.3"', "read_version()"))
    (repository / "segment" / "__init__.py").write_text('__version__ = "4.5.6"\n')
    init(repository)
    assert 'version = "4.5.6"' in (repository / "pyproject.toml").read_text(encoding="utf-8")

"""ATen glue for every torch minor, with CUDA code of its own: the matrix, and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from small_projects import make_project

from torchship.builder import BuildError, BuildRequest, CudaToolkit, Step, glue_for, plan
from torchship.judge.machine.torch_probe import find_torch
from torchship.judge.project import Project
from torchship.judge.records import TorchInstall
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.generated import cuda_headers, project_record
from torchship.release.matrix.load import load
from torchship.release.matrix.schema import Matrix
from torchship.release.matrix.settings import device_types

REPO = Path(__file__).resolve().parents[2]


class KnownToolkit(CudaToolkit):
    """A toolkit that is planned with, and never runs."""

    include_dirs = ("/cuda/include",)
    link_dirs = ("/cuda/lib",)

    def architectures(self) -> frozenset[str]:
        return frozenset({"80", "90"})


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """Our matrix without a stable lane, whose CUDA code is in the glue."""
    content = (REPO / "build_matrix.yaml").read_text(encoding="utf-8")
    content = content.replace("  devices: [cpu, cu12, cu13]", "  devices: []")
    content = content.replace('    toolkit: "13.0"\n', '    toolkit: "13.0"\n    code_in: glue\n')
    content = content.replace('    toolkit: "12.8"\n', '    toolkit: "12.8"\n    code_in: both\n')
    content = content.replace("    gcc: [11, 15]", "    gcc: [11, 15]\n    aten: [cpu, cu13]")
    path = tmp_path_factory.mktemp("matrix") / "build_matrix.yaml"
    path.write_text(content, encoding="utf-8")
    return load(path)


def test_each_torch_minor_has_cells_and_none_is_stable(matrix: Matrix) -> None:
    cells = all_cells(matrix)
    assert not [cell for cell in cells if cell.stable]
    assert {"aten29-abi1-cu12", "aten214-abi1-cu13", "aten215-abi1-cpu"} <= {*map(str, cells)}


@pytest.mark.parametrize(
    ("cell", "files"),
    [
        ("aten215-abi1-cpu", ["glue-aten215-abi1.so", "kernels-cpu.so"]),
        ("aten215-abi1-cu13", ["glue-aten215-abi1-cu13.so", "kernels-cpu.so"]),
        (
            "aten29-abi1-cu12",
            ["glue-aten29-abi1-cu12.so", "kernels-cpu.so", "kernels-cuda12.so"],
        ),
    ],
)
def test_a_cell_has_the_objects_in_which_its_code_is(
    matrix: Matrix, cell: str, files: Sequence[str]
) -> None:
    (found,) = [one for one in all_cells(matrix) if str(one) == cell]
    assert found.files == files


def test_the_record_of_the_project_says_where_its_code_is(matrix: Matrix) -> None:
    assert device_types(matrix) == ("cpu", "cuda")
    assert "    has_cuda_glue=True,\n    is_stable=False,\n)" in project_record(matrix)


def test_the_recipe_has_the_headers_that_atens_include(matrix: Matrix) -> None:
    assert cuda_headers(matrix) == ["libcublas-dev", "libcusolver-dev", "libcusparse-dev"]


def with_aten_glue(root: Path, files: dict[str, str]) -> Project:
    build: dict[str, object] = {
        "glue": {
            "flags": ["-fno-math-errno"],
            "cuda": {"defines": {"WITH_CUDA": None}, "flags": ["-lineinfo"]},
        }
    }
    project = make_project(root, files, build)
    return project._replace(kernels=(), has_cuda_glue=True, is_stable=False)


SOURCES = {"csrc/ops/op.cpp": "", "csrc/ops/deep/op.cu": ""}


def torch_with(cuda: str | None) -> TorchInstall:
    return find_torch()._replace(cuda=cuda)


def steps_of(project: Project, out: Path, glue: str, torch: TorchInstall) -> list[Step]:
    toolkit = KnownToolkit(nvcc="/cuda/bin/nvcc", version=(13, 0), library_dirs=("/cuda/lib",))
    request = BuildRequest(
        out_dir=out,
        project=project,
        glue=glue,
        torch=torch,
        kernels=(),
        env={},
        cuda=toolkit,
        architectures="9.0",
    )
    return plan(request)


def glue_here(project: Project) -> str:
    return glue_for(find_torch(), project)


def test_a_project_without_the_stable_lane_has_a_glue_for_each_minor(tmp_path: Path) -> None:
    torch = find_torch()
    major, minor = torch.version_tuple
    name = glue_here(with_aten_glue(tmp_path, {}))
    assert name == f"aten{major}{minor}-abi{torch.cxx11_abi}"


def test_cuda_sources_of_the_glue_are_compiled_by_nvcc_with_torchs_headers(tmp_path: Path) -> None:
    project = with_aten_glue(tmp_path, SOURCES)
    steps = steps_of(project, tmp_path, f"{glue_here(project)}-cu13", torch_with("13.0"))
    (device,) = [step.command for step in steps if step.name.startswith("compile op.cu")]
    assert device[0] == "/cuda/bin/nvcc"
    assert {"-DWITH_CUDA", "-lineinfo", "-D__CUDA_NO_HALF_OPERATORS__"} <= {*device}
    assert str(find_torch().include_dir) in device
    assert "-fno-math-errno" not in device
    (host,) = [step.command for step in steps if step.name.startswith("compile op.cpp")]
    assert {"-DWITH_CUDA", "/cuda/include", "-fno-math-errno"} <= {*host}
    assert "-lineinfo" not in host
    assert {"-lc10_cuda", "-ltorch_cuda", "-lcudart_static"} <= {*steps[-1].command}


def test_a_cpp_file_of_cuda_is_compiled_and_finds_the_headers_of_its_section_first(
    tmp_path: Path,
) -> None:
    build = {
        "glue": {
            "sources": ["cpu/op.cpp"],
            "include": ["cpu"],
            "cuda": {"sources": ["gpu/bind.cpp", "gpu/op.cu"], "include": ["gpu"]},
        }
    }
    files = {"cpu/op.cpp": "", "gpu/bind.cpp": "", "gpu/op.cu": ""}
    project = make_project(tmp_path, files, build)
    project = project._replace(kernels=(), has_cuda_glue=True, is_stable=False)

    def order(device: str, torch: TorchInstall) -> dict[str, list[str]]:
        steps = steps_of(project, tmp_path, f"{glue_here(project)}{device}", torch)
        folders = {f"-I{tmp_path}/{name}": name for name in ("cpu", "gpu")}
        return {
            source: [folders[word] for word in s.command if word in folders]
            for source in ("op.cpp", "bind.cpp", "op.cu")
            for s in steps
            if s.name.startswith(f"compile {source} ")
        }

    assert order("-cu13", torch_with("13.0")) == {
        "op.cpp": ["cpu", "gpu"],
        "bind.cpp": ["gpu", "cpu"],
        "op.cu": ["gpu", "cpu"],
    }
    assert [*order("", torch_with(None))] == ["op.cpp"]


def test_the_glue_for_the_cpu_knows_no_cuda(tmp_path: Path) -> None:
    project = with_aten_glue(tmp_path, SOURCES)
    steps = steps_of(project, tmp_path, glue_here(project), torch_with(None))
    assert not [step for step in steps if step.name.startswith("compile op.cu")]
    words = {word for step in steps for word in step.command}
    assert not {"-DWITH_CUDA", "-lc10_cuda", "-ltorch_cuda"} & words


def test_a_cpu_build_of_torch_cannot_compile_atens_cuda_headers(tmp_path: Path) -> None:
    project = with_aten_glue(tmp_path, SOURCES)
    with pytest.raises(BuildError, match=r"needs a CUDA build of torch to compile against"):
        steps_of(project, tmp_path, f"{glue_here(project)}-cu13", torch_with(None))


def test_a_glue_for_cuda_without_cuda_sources_is_refused(tmp_path: Path) -> None:
    project = with_aten_glue(tmp_path, {"csrc/ops/op.cpp": ""})
    with pytest.raises(BuildError, match=r"no sources: looked for \.cu in"):
        steps_of(project, tmp_path, f"{glue_here(project)}-cu13", torch_with("13.0"))

"""Cells: which there are, how they are selected, which fits a machine."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version
from rich.console import Console

from torchship.builder import HostCompiler
from torchship.judge.records import TorchInstall, VariantName
from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells, required, select
from torchship.release.matrix.settings import make_settings
from torchship.release.plan.host import host_cell, obstacle
from torchship.release.plan.machine import Compilers, Host
from torchship.release.plan.plan import Plan
from torchship.release.plan.planner import fill
from torchship.release.run.listing import list_cells

GXX = HostCompiler(("g++",), "g++", "12.2.0")
CLANG = Compilers(debian=frozenset({"clang-19"}))
HOST = Host("python3", "3.11", None, GXX, CLANG)


def torch(version: str, cuda: str | None = None, abi: int = 1) -> TorchInstall:
    major, minor = version.split(".")[:2]
    return TorchInstall(
        version=version,
        version_tuple=(int(major), int(minor)),
        cuda=cuda,
        hip=None,
        cxx11_abi=abi,
        root=Path("/nowhere"),
        lib_dir=Path("/nowhere"),
        include_dir=Path("/nowhere"),
    )


def cell(matrix, name):
    return next(c for c in all_cells(matrix) if c.name == name)


def test_names_are_unique_and_read_back(matrix) -> None:
    cells = all_cells(matrix)
    assert len({c.name for c in cells}) == len(cells)
    assert all(VariantName.parse(c.name) == c.variant for c in cells)


def test_local_versions_are_unique_and_valid(matrix) -> None:
    versions = [Version(f"0.1.0+{c.local_version}") for c in all_cells(matrix)]
    assert len(set(versions)) == len(versions)


def test_every_torch_is_served(matrix) -> None:
    aten = {c.torch_minor for c in all_cells(matrix) if not c.stable}
    assert aten == {m for m in matrix.minors() if Version(m) < Version(matrix.stable.target)}


def test_both_abi_flavours_exist_up_to_2_6(matrix) -> None:
    flavours = {c.glue for c in all_cells(matrix) if not c.stable}
    assert {"aten24-abi0", "aten24-abi1", "aten26-abi0", "aten26-abi1", "aten27-abi1"} <= flavours
    assert "aten27-abi0" not in flavours


def test_optional_is_what_no_torch_on_pypi_loads(matrix) -> None:
    flavours = {(minor, torch.abi.pypi) for minor, torch in matrix.torch.items()}
    optional = [c for c in all_cells(matrix) if c.optional]
    assert [c.name for c in optional] == [
        f"aten2{minor}-abi1-{device}" for minor in (4, 5, 6) for device in ("cpu", "cu12")
    ]
    assert not flavours & {(c.torch_minor, c.cxx11_abi) for c in optional}
    assert len(required(matrix)) == len(all_cells(matrix)) - len(optional) == 15


@pytest.mark.parametrize("selector", ["newest", "oldest"])
def test_without_aten_cells_the_newest_and_the_oldest_are_the_stable_ones(matrix, selector) -> None:
    stable = [c for c in all_cells(matrix) if c.stable]
    assert select(stable, [selector]) == stable


def test_a_pattern_selects_in_the_matrix_order(matrix) -> None:
    names = [c.name for c in select(all_cells(matrix), ["aten29*", "stable210-cpu"])]
    assert names == ["stable210-cpu", "aten29-abi1-cpu", "aten29-abi1-cu12"]


def test_an_unknown_selector_lists_near_matches(matrix) -> None:
    with pytest.raises(ReleaseError, match="stable210-cpu"):
        select(all_cells(matrix), ["stable21-cpu"])


def test_without_torch_the_host_gets_the_stable_cpu_cell(matrix, settings) -> None:
    assert host_cell(HOST, settings).name == "stable210-cpu"


def test_without_torch_a_project_without_stable_glue_gets_that_of_its_default_torch(
    settings,
) -> None:
    values = settings.matrix.model_dump(by_alias=True)
    values["stable"]["devices"] = []
    for torch in values["torch"].values():
        torch["aten"] = ["cpu"]
    values["package"]["default_torch"] = "2.12"
    own = make_settings(type(settings.matrix).model_validate(values), settings.repo)
    assert host_cell(HOST, own).name == "aten212-abi1-cpu"


@pytest.mark.parametrize(
    ("installed", "name"),
    [
        (torch("2.13.0+cpu"), "stable210-cpu"),
        (torch("2.10.0", "12.8"), "stable210-cu12"),
        (torch("2.14.1", "13.0"), "stable210-cu13"),
        (torch("2.4.1+cpu", abi=0), "aten24-abi0-cpu"),
        (torch("2.9.1", "12.8"), "aten29-abi1-cu12"),
    ],
)
def test_the_host_cell_fits_the_torch_that_is_there(matrix, installed, name, settings) -> None:
    assert host_cell(replace(HOST, torch=installed), settings).name == name


def cuda_alone(settings):
    """The settings of a project whose kernels are for CUDA alone."""
    values = settings.matrix.model_dump(by_alias=True)
    del values["kernels"]["cpu"]
    values["platforms"] = {"linux-x86_64": {"debian": "amd64"}}
    for owner in (values["stable"], *values["torch"].values()):
        key = "devices" if "devices" in owner else "aten"
        owner[key] = [device for device in owner[key] if device != "cpu"]
    return make_settings(type(settings.matrix).model_validate(values), settings.repo)


@pytest.mark.parametrize(
    ("installed", "name"),
    [
        (None, "stable210-cu13"),
        (torch("2.13.0+cpu"), "stable210-cu13"),
        (torch("2.10.0", "12.8"), "stable210-cu12"),
        (torch("2.9.1+cpu"), "aten29-abi1-cu12"),
    ],
)
def test_kernels_for_cuda_alone_have_a_host_cell_everywhere(installed, name, settings) -> None:
    own = cuda_alone(settings)
    assert own.project.kernels == ("cuda",)
    assert host_cell(replace(HOST, torch=installed), own).name == name
    assert {"cpu"}.isdisjoint(kernel for c in all_cells(own.matrix) for kernel in c.kernels)


def test_a_glue_without_a_cell_is_refused_with_what_there_is(settings) -> None:
    values = settings.matrix.model_dump(by_alias=True)
    values["torch"]["2.9"]["aten"] = []
    own = make_settings(type(settings.matrix).model_validate(values), settings.repo)
    with pytest.raises(
        ReleaseError, match=r"torch 2\.9\.1 needs the glue aten29-abi1, .* stable210"
    ):
        host_cell(replace(HOST, torch=torch("2.9.1")), own)


def test_a_torch_that_nothing_serves_is_refused(matrix, settings) -> None:
    with pytest.raises(ReleaseError, match="or newer"):
        host_cell(replace(HOST, torch=torch("2.1.0")), settings)


def test_a_missing_compiler_is_an_obstacle_with_a_remedy(matrix, settings) -> None:
    reason = obstacle(cell(matrix, "stable210-cpu"), replace(HOST, compiler=None), settings)
    assert reason is not None and "apt-get install g++" in reason


def test_a_compiler_outside_the_bounds_is_an_obstacle(matrix, settings) -> None:
    old = replace(HOST, compiler=HostCompiler(("g++",), "g++", "8.3.0"))
    reason = obstacle(cell(matrix, "stable210-cpu"), old, settings)
    assert reason is not None and "8.3.0" in reason and "10 to 15" in reason


def test_the_abi_that_pypi_lacks_is_an_obstacle(matrix, settings) -> None:
    reason = obstacle(cell(matrix, "aten24-abi1-cpu"), HOST, settings)
    assert reason is not None and "C++ ABI 1" in reason
    assert obstacle(cell(matrix, "aten24-abi0-cpu"), HOST, settings) is None


def test_without_nvcc_12_and_clang_a_cuda_12_cell_is_not_buildable(matrix, settings) -> None:
    bare = replace(HOST, cuda=Compilers())
    reason = obstacle(cell(matrix, "stable210-cu12"), bare, settings)
    assert reason is not None and "no nvcc 12.x" in reason and "apt-get install clang-19" in reason
    assert obstacle(cell(matrix, "stable210-cu13"), bare, settings) is None
    assert obstacle(cell(matrix, "stable210-cu12"), HOST, settings) is None


def test_a_python_without_a_wheel_of_torch_is_an_obstacle(matrix, settings) -> None:
    new = replace(HOST, python_minor="3.13")
    reason = obstacle(cell(matrix, "aten24-abi0-cpu"), new, settings)
    assert reason is not None and "no wheel for Python 3.13" in reason and "3.12" in reason
    assert obstacle(cell(matrix, "aten25-abi0-cpu"), new, settings) is None


def test_the_list_of_cells_has_a_line_each_on_80_columns(matrix, settings) -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    cells = all_cells(matrix)
    list_cells(cells, HOST, settings, console)
    lines = console.export_text().splitlines()
    rows = [line.split()[1] for line in lines if line.endswith(("yes  │", "no   │"))]
    assert rows == [cell.name for cell in cells]
    assert max(map(len, lines)) <= 80
    reasons = " ".join(" ".join(lines).split())
    for cell in cells:
        reason = obstacle(cell, HOST, settings)
        assert reason is None or reason in reasons


def test_a_torch_of_the_other_abi_at_hand_is_built_against(matrix, settings) -> None:
    target = cell(matrix, "aten24-abi1-cpu")
    at_hand = replace(HOST, torch=torch("2.4.1", abi=1))
    assert obstacle(target, at_hand, settings) is None
    tasks = fill(Plan(settings, at_hand, [target])).tasks
    env = tasks["env/torch-2.4.1-abi1"]
    assert env.env.borrowed == Path("/nowhere")
    assert env in tasks["glue/aten24-abi1"].needs
    for other in (torch("2.5.1", abi=1), torch("2.4.1", abi=0), torch("2.4.0a0+git1", abi=1)):
        assert obstacle(target, replace(HOST, torch=other), settings) is not None


def test_glue_with_cuda_code_of_aten_needs_a_torch_for_that_cuda(matrix, settings) -> None:
    target = cell(matrix, "aten24-abi1-cu12")
    own_code = replace(target, cuda=target.cuda.model_copy(update={"code_in": "glue"}))
    for_cpu = replace(HOST, torch=torch("2.4.1", abi=1))
    assert obstacle(target, for_cpu, settings) is None
    reason = obstacle(own_code, for_cpu, settings)
    assert reason is not None and "torch for CUDA 12" in reason and "for the CPU" in reason
    assert obstacle(own_code, replace(HOST, torch=torch("2.4.1", "12.4", 1)), settings) is None

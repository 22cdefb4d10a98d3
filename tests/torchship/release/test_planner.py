"""The plan: what cells share is done once, and what is large does not stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_checkout import CHECKOUT
from small_releases import GOES_TO

from torchship.builder import CudaToolkit, HostCompiler
from torchship.release.matrix.cells import all_cells, for_conda, select
from torchship.release.matrix.load import load
from torchship.release.matrix.schema import Tool
from torchship.release.matrix.settings import make_settings
from torchship.release.plan.host import chosen_cells, obstacle
from torchship.release.plan.machine import Compilers, Host
from torchship.release.plan.plan import Plan
from torchship.release.plan.planner import fill
from torchship.release.run.tasks import SkipTask
from torchship.release.steps.compile import emulation
from torchship.release.steps.compile.environments import (
    CPU_TORCH,
    CUDA_TORCH,
    ROOM,
    MakeTorchEnv,
    TorchEnv,
)
from torchship.release.steps.pack.distributions import FatWheel

CLANG = Compilers(debian=frozenset({"clang-19"}))
HOST = Host("python3", "3.11", None, HostCompiler(("g++",), "g++", "12.2.0"), CLANG)


class Everywhere(CudaToolkit):
    """An nvcc that compiles for whatever it is asked for."""

    def architectures(self) -> frozenset[str]:
        return frozenset(map(str, range(200)))


def plan_of(matrix, host=HOST):
    settings = make_settings(matrix, CHECKOUT)
    cells = [cell for cell in all_cells(matrix) if obstacle(cell, host, settings) is None]
    return cells, fill(Plan(settings, host, cells))


@pytest.fixture(scope="module")
def tasks(matrix):
    return plan_of(matrix)[1].tasks


def named(tasks, kind: str) -> set[str]:
    return {name.split("/")[1] for name in tasks if name.startswith(f"{kind}/")}


def names(tasks) -> set[str]:
    return {task.name for task in tasks}


def test_every_task_comes_after_what_it_needs_and_serves_its_cells(matrix, tasks) -> None:
    order = list(tasks.values())
    for place, task in enumerate(order):
        assert {*task.needs} <= {*order[:place]}
        for need in task.needs:
            assert {*task.cells} <= {*need.cells} or need.name.startswith("fat-")
    assert {*tasks["kernels/cpu"].cells} == {cell.name for cell in plan_of(matrix)[0]}


def test_a_stable_cuda_package_without_a_torch_for_it_says_so(matrix) -> None:
    old = matrix.torch["2.10"].model_copy(update={"pythons": ["3.12"]})
    other = matrix.model_copy(update={"torch": {**matrix.torch, "2.10": old}})
    (cell,) = select(all_cells(other), ["stable210-cu12"])
    tasks = fill(Plan(make_settings(other, CHECKOUT), HOST, [cell])).tasks
    none = tasks["env/none-cu12-py3.11"]
    assert none in tasks["prefix/stable210-cu12"].needs
    with pytest.raises(SkipTask, match="no torch with CUDA 12"):
        none.run(None)


def test_kernels_are_compiled_once_per_cuda_major(tasks) -> None:
    assert named(tasks, "kernels") == {"cpu", "cuda12", "cuda13"}


def test_glue_is_compiled_once_per_abi(matrix, tasks) -> None:
    cells, _ = plan_of(matrix)
    assert named(tasks, "glue") == {cell.glue for cell in cells}
    assert len(cells) > 2 * len(named(tasks, "glue"))


def test_the_stable_glue_is_compiled_with_the_headers_that_the_matrix_names(matrix, tasks) -> None:
    release = matrix.torch[matrix.stable.headers].release
    assert tasks["glue/stable210"].torch_env is tasks[f"headers/torch-{release}"]
    assert named(tasks, "headers") == {f"torch-{release}"}
    built_with = matrix.torch[matrix.stable.built_with].release
    assert tasks["venv/stable210-cpu"].env.release == built_with
    assert tasks["glue/aten29-abi1"].torch_env.name.startswith("env/torch-2.9.")


def test_without_other_headers_the_stable_glue_takes_those_of_its_environment(
    matrix_text, tmp_path
) -> None:
    path = tmp_path / "build_matrix.yaml"
    path.write_text(matrix_text.replace('  headers: "2.15"\n', ""), encoding="utf-8")
    matrix = load(path)
    tasks = plan_of(matrix)[1].tasks
    assert tasks["glue/stable210"].torch_env is tasks["env/torch-2.13.0-py3.11"]
    assert not named(tasks, "headers")


def test_a_compiler_too_old_for_the_headers_is_said(matrix) -> None:
    (cell,) = select(all_cells(matrix), ["stable210-cpu"])
    old = replace(HOST, compiler=HostCompiler(("g++",), "g++", "10.2.0"))
    reason = obstacle(cell, old, make_settings(matrix, CHECKOUT))
    assert reason is not None and reason.startswith("torch 2.15.0 takes g++ 11 to 15, got g++ 10")
    assert obstacle(replace(cell, headers=None), old, make_settings(matrix, CHECKOUT)) is None


def test_the_cell_of_an_old_host_takes_the_headers_of_its_own_torch(matrix) -> None:
    settings = make_settings(matrix, CHECKOUT)
    old = replace(HOST, compiler=HostCompiler(("g++",), "g++", "10.2.0"))
    (cell,) = chosen_cells(["host"], old, settings)
    assert (cell.name, cell.headers) == ("stable210-cpu", None)
    assert obstacle(cell, old, settings) is None
    (named_cell,) = chosen_cells(["stable210-cpu"], old, settings)
    assert named_cell.headers is not None


def test_cuda_code_in_the_stable_glue_is_compiled_beside_the_libraries_of_cuda(matrix) -> None:
    in_glue = matrix.kernels["cuda13"].model_copy(update={"code_in": "glue"})
    other = matrix.model_copy(update={"kernels": {**matrix.kernels, "cuda13": in_glue}})
    cells = {cell.device: cell for cell in select(all_cells(other), ["stable*"])}
    assert cells["cu13"].headers is None
    assert cells["cpu"].headers is matrix.torch[matrix.stable.headers]


def test_every_cell_is_audited_packed_and_run(matrix, tasks) -> None:
    names = {cell.name for cell in plan_of(matrix)[0]}
    for kind in ("audit", "wheel", "venv"):
        assert named(tasks, kind) == names


def test_a_cuda_cell_trains_where_that_differs_from_its_twin_for_the_cpu(matrix, tasks) -> None:
    assert named(tasks, "example") == {c.name for c in plan_of(matrix)[0] if c.device == "cpu"}
    with_gpu = plan_of(matrix, replace(HOST, driver=True))[1].tasks
    assert named(with_gpu, "example") == named(with_gpu, "venv")
    alone = select(all_cells(matrix), ["stable210-cu13"])
    assert (
        "example/stable210-cu13" in fill(Plan(make_settings(matrix, CHECKOUT), HOST, alone)).tasks
    )


def test_a_cuda_torch_goes_when_its_cells_have_run(tasks) -> None:
    for name, task in tasks.items():
        if name.startswith("env/"):
            large = name != "env/torch-2.13.0-py3.11"
            assert bool(task.temporary) == large and (task.disk == CUDA_TORCH) == large
    assert tasks["venv/aten29-abi1-cpu"].temporary
    assert not tasks["venv/stable210-cpu"].temporary


def test_the_fat_wheel_keeps_no_torch_on_the_disk(tasks) -> None:
    venv = tasks["venv/aten29-abi1-cpu"]
    readers = {name for name, task in tasks.items() if venv in task.needs and not task.anyway}
    assert readers == {"example/aten29-abi1-cpu"}
    assert venv in tasks["fat-wheel"].needs


def test_every_step_of_a_cell_decides_whether_the_fat_wheel_holds_it(tasks) -> None:
    """As in a merge, which knows only that a cell failed."""
    after = {name for name in tasks if name.startswith(("fat-wheel", "fat-run/"))}
    for cell in tasks["fat-wheel"].packed:
        of_cell = {name for name, task in tasks.items() if cell.name in task.cells}
        assert names(cell.tasks) == of_cell - after


def test_each_step_says_where_its_file_goes(matrix, tmp_path) -> None:
    settings = make_settings(matrix, CHECKOUT)
    tool = Tool(distribution="my-tool", folder="tool", run=["my-tool"], zipapp=True)
    plan = fill(Plan(settings, HOST, select(all_cells(matrix), ["stable210-cpu"]), tools=[tool]))
    cells = tmp_path / "cells.json"
    cells.write_text('["stable210-cpu"]')
    path = tmp_path / "x"
    made = {
        "sdist": path,
        "wheel/stable210-cpu": path,
        "conda/stable210-cpu": path,
        "fat-wheel": FatWheel(path, cells),
        "pure/my-tool": path,
        "zipapp/my-tool": path,
        "noarch/my-tool": (path,),
    }
    files = [
        file
        for name, output in made.items()
        for file in plan.tasks[name].part(output, settings).files
    ]
    assert {file.kind: list(file.goes_to) for file in files} == GOES_TO
    of_cell = {file.kind for file in files if file.cells == ("stable210-cpu",)}
    assert of_cell == {"thin", "conda", "fat"}


def test_the_plan_says_why_a_cell_lacks_a_step(matrix) -> None:
    absent = plan_of(matrix)[1].absent
    assert absent["example/stable210-cu12"] == "without a GPU, it is that of stable210-cpu"
    assert "have different C++ ABIs" in absent["conda/aten24-abi0-cpu"]
    assert "`verify`" in absent["fat-run/aten24-abi0-cpu"]
    assert absent["fat-run/stable210-cu13"] == "stable210-cpu runs it beside the same torch"
    arm = make_settings(matrix.on("linux-aarch64"), CHECKOUT)
    foreign = fill(Plan(replace(arm, native="linux-x86_64"), HOST, all_cells(arm.matrix)))
    assert foreign.absent["prefix/aten29-abi1-cpu-aarch64"] == emulation.SLOW


def test_a_cell_has_each_step_or_a_reason(matrix) -> None:
    cells, plan = plan_of(matrix)
    planned = {*plan.tasks, *plan.absent}
    for cell in cells:
        has_package = f"conda/{cell}" in plan.tasks
        kinds = ["audit", "wheel", "venv", "example", "conda", "fat-run"]
        kinds += ["conda-test", "prefix"] if has_package else []
        served = {
            name for name in planned if name in plan.absent or cell.name in plan.tasks[name].cells
        }
        for kind in kinds:
            assert {f"{kind}/{cell}", f"{kind}/{cell.glue}"} & served, f"{kind} of {cell}"


def test_room_is_for_two_of_them() -> None:
    assert 2 * CUDA_TORCH <= ROOM < 3 * CUDA_TORCH < 25e9


def test_a_torch_without_cuda_needs_less_room(matrix) -> None:
    arm = matrix.on("linux-aarch64")
    plan = fill(Plan(make_settings(arm, CHECKOUT), HOST, select(all_cells(arm), ["aten*"])))
    assert {task.disk for task in plan.tasks.values()} == {0, CPU_TORCH}


def test_missing_toolkits_are_made_each_by_itself(tasks) -> None:
    assert named(tasks, "toolkit") == {"cuda-13.0", "clang-cuda-12.8"}
    assert not tasks["toolkit/clang-cuda-12.8"].needs
    assert "toolkit/clang-cuda-12.8" in names(tasks["kernels/cuda12"].needs)


def test_an_installed_nvcc_needs_no_toolkit(matrix) -> None:
    nvccs = (Everywhere("/cuda-12.8/bin/nvcc", (12, 8)), Everywhere("/13/bin/nvcc", (13, 0)))
    _, plan = plan_of(matrix, replace(HOST, cuda=Compilers(nvccs)))
    assert named(plan.tasks, "toolkit") == set()
    assert plan.tasks["kernels/cuda12"].needs == ()


def test_both_lanes_of_one_torch_share_its_environment(matrix) -> None:
    minor = matrix.stable.built_with
    both = matrix.torch[minor].model_copy(update={"aten": ["cpu"]})
    _, plan = plan_of(matrix.model_copy(update={"torch": {**matrix.torch, minor: both}}))
    env = plan.tasks[f"env/torch-{both.release}-py3.11"]
    assert {"stable210-cpu", f"aten{minor.replace('.', '')}-abi1-cpu"} <= {*env.cells}
    assert env.temporary == ()


def test_conda_packages_meet_a_torch_of_their_own(matrix, tasks) -> None:
    """All but the stable CPU package, which has that of the bootstrap channel."""
    for cell in (cell for cell in plan_of(matrix)[0] if for_conda(cell)):
        needs = names(tasks[f"prefix/{cell.name}"].needs)
        linked = {name for name in needs if name.startswith("linked/")}
        assert linked <= names(tasks[f"conda-test/{cell.name}"].needs)
        if cell.name == "stable210-cpu":
            assert not linked
            assert "env/torch-2.13.0-py3.11" in names(tasks["bootstrap-channel"].needs)
            continue
        (name,) = (n.split("/")[1] for n in linked)
        release, _, flavour = name.removeprefix("torch-").rpartition("-py")[0].partition("-")
        torch = next(torch for torch in matrix.torch.values() if torch.release == release)
        if cell.stable:
            assert torch.cuda_major == cell.cuda_major and flavour == cell.device
        else:
            assert torch is cell.torch
        # It lies there for as long as the link is used.
        assert {f"env/{name}", f"linked/{name}"} <= needs


def test_a_torch_for_a_stable_package_is_fetched_once_there_is_one(tasks) -> None:
    assert names(tasks["env/torch-2.10.0-cu12-py3.11"].needs) == {"conda/stable210-cu12"}
    assert names(tasks["env/torch-2.15.0-cu13-py3.11"].needs) == {"conda/stable210-cu13"}


def test_a_base_channel_of_ones_own_needs_no_linked_torch(matrix) -> None:
    settings = make_settings(matrix, CHECKOUT)
    cells = [c for c in all_cells(matrix) if obstacle(c, HOST, settings) is None]
    plan = fill(Plan(settings, HOST, cells, "https://example.org/conda"))
    assert not named(plan.tasks, "linked") and "env/torch-2.10.0-cu12-py3.11" not in plan.tasks


def test_two_tasks_of_one_name_must_be_the_same(matrix) -> None:
    """The second would be dropped, and with it what its cell asked for."""
    settings = make_settings(matrix, CHECKOUT)
    plan = Plan(settings, HOST)
    env = MakeTorchEnv(name="env/x", env=TorchEnv(settings.envs / "x", "python3", "2.13.0"))
    assert plan.add(env) is plan.add(replace(env))
    with pytest.raises(ValueError, match="env/x: is in the plan with another disk, env"):
        plan.add(replace(env, env=env.env._replace(release="2.14.0"), disk=1))
    with pytest.raises(ValueError, match=r"env/x: got .*CompileGlue.*MakeTorchEnv"):
        plan.add(replace(plan_of(matrix)[1].tasks["glue/stable210"], name="env/x"))


@pytest.mark.parametrize(
    ("platform", "channel"),
    [("linux-x86_64", None), ("linux-x86_64", "file:///channel"), ("linux-aarch64", None)],
)
def test_every_plan_asks_for_the_same_task_whoever_asks(matrix, platform, channel) -> None:
    """A tool comes to the steps of a channel after the cells, or first; `add` refuses two."""
    tool = Tool(distribution="my-tool", folder="t", run=["x"], zipapp=True, extras={"all": ["x"]})
    settings = make_settings(matrix.on(platform), CHECKOUT)
    settings = replace(settings, native="linux-x86_64")
    both = fill(Plan(settings, HOST, all_cells(settings.matrix), channel, tools=[tool]))
    alone = fill(Plan(settings, HOST, channel=channel, tools=[tool]))
    assert {*alone.tasks} <= {*both.tasks}
    assert ("root" in alone.tasks) == settings.is_foreign

"""Kernels for CUDA alone, for the CPU alone, or none: names and reports follow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchship.judge.machine.runtime_probe import probe_runtime
from torchship.judge.project import NOBODY, Project
from torchship.judge.records import variant_of
from torchship.runtime.live_run import served_devices
from torchship.runtime.report import explain_variant, report

BOTH = NOBODY._replace(
    distribution="own-op", package="own_op", namespace="own_op", prefix="OWN_OP", operator="op"
)._replace(kernels=("cpu", "cuda"))
CPU_ALONE = BOTH._replace(kernels=("cpu",))
CUDA_ALONE = BOTH._replace(kernels=("cuda",))
WITHOUT = BOTH._replace(kernels=())
CUDA_GLUE_ALONE = WITHOUT._replace(has_cuda_glue=True, has_cpu_glue=False, is_stable=False)


@pytest.mark.parametrize(
    ("project", "cuda", "name"),
    [
        (BOTH, "cuda13", "stable210-cu13"),
        (BOTH, None, "stable210-cpu"),
        (CPU_ALONE, None, "stable210-cpu"),
        (WITHOUT, None, "stable210-cpu"),
        (CUDA_ALONE, "cuda12", "stable210-cu12"),
        (CUDA_ALONE, None, "stable210"),
        (CUDA_GLUE_ALONE, None, "stable210"),
    ],
)
def test_a_variant_is_named_after_what_it_has(project: Project, cuda, name) -> None:
    assert variant_of("stable210", cuda, project) == name


@pytest.mark.parametrize(
    ("project", "variant", "files"),
    [
        (BOTH, "stable210-cpu", "glue-stable210.so, kernels-cpu.so"),
        (BOTH, "stable210-cu13", "glue-stable210.so, kernels-cpu.so, kernels-cuda13.so"),
        (CUDA_ALONE, "stable210-cu13", "glue-stable210.so, kernels-cuda13.so"),
        (CPU_ALONE, "stable210-cpu", "glue-stable210.so, kernels-cpu.so"),
        (WITHOUT, "stable210-cpu", "glue-stable210.so"),
        (CUDA_GLUE_ALONE, "aten211-abi1-cu13", "glue-aten211-abi1-cu13.so"),
    ],
)
def test_a_variant_is_explained_by_its_own_files(
    project: Project, variant: str, files: str, tmp_path: Path, capsys
) -> None:
    runtime = probe_runtime(project=project._replace(folder=tmp_path), gpu=False)
    assert explain_variant(runtime, variant, as_json=False) == 1
    absent = capsys.readouterr().out.split("not installed: ")[1].split(" (")[0]
    assert sorted(absent.split(", ")) == files.split(", ")


@pytest.mark.parametrize(
    ("project", "variant", "reason"),
    [
        (CUDA_ALONE, "stable210-cpu", "has kernels for cuda alone"),
        (CPU_ALONE, "stable210-cu13", "has kernels for cpu alone"),
        (WITHOUT, "stable210-cu13", "has no kernels"),
        (CUDA_GLUE_ALONE, "aten211-abi1-cpu", "has code for cuda alone"),
    ],
)
def test_a_variant_of_another_device_is_refused_in_a_sentence(
    project: Project, variant: str, reason: str, tmp_path: Path, capsys
) -> None:
    runtime = probe_runtime(project=project._replace(folder=tmp_path), gpu=False)
    assert explain_variant(runtime, variant, as_json=False) == 2
    assert capsys.readouterr().err == f"own-op {reason}: no variant is {variant}\n"


@pytest.mark.parametrize(
    ("project", "devices"),
    [(BOTH, ["cpu", "cuda"]), (CUDA_ALONE, ["cuda"]), (CUDA_GLUE_ALONE, ["cuda"])],
)
def test_an_operator_of_no_device_serves_those_of_the_projects_code(
    project: Project, devices: list[str]
) -> None:
    # One bound by PYBIND11_MODULE is registered for every device.
    assert served_devices(project) == devices


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([], "can be loaded here, but has no device to compute on"),
        ([{"device": "cpu", "ok": True, "error": None, "differences": {}}], "works here"),
    ],
)
def test_the_report_does_not_call_a_loaded_op_working(
    devices: list[dict[str, object]], words: str, monkeypatch, capsys
) -> None:
    from torchship.runtime import report as module

    live = {"variant": "stable210", "error": None, "devices": devices}
    runtime = probe_runtime(project=CUDA_ALONE, gpu=False)
    selection = module.select([], runtime, lambda path, runtime: pytest.fail("nothing to judge"))
    monkeypatch.setattr(
        module,
        "_examine",
        lambda *_, **__: module.Report(
            runtime=runtime,
            selection=selection,
            paths=[],
            cause=None,
            distrusted=None,
            live=live,
            problems=(),
            copies=[],
        ),
    )
    assert report(runtime, run_op=True, as_json=False) == 0
    assert capsys.readouterr().out.endswith(f"\n\nown-op {words}\n")
    assert report(runtime, run_op=True, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["smoke"] == live

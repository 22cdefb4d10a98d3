"""What only a GPU machine can show: a missing architecture, and a CPU-only binary."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lltm_conda import loader
from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import find_cuda_toolkit
from lltm_conda.engine.judge import probe_runtime, read_binary
from lltm_conda.engine.judge.machine import driver_probe
from lltm_conda.engine.judge.reading import fatbin
from lltm_conda.engine.judge.reading.elf import Elf
from lltm_conda.engine.judge.words import faults, messages

pytestmark = pytest.mark.cuda

Run = Callable[..., subprocess.CompletedProcess[str]]
Copy = Callable[..., Path]

FIRST_CUDA_CALL = textwrap.dedent(
    """
    import json, torch, lltm_conda
    from lltm_conda import loader
    tensors = [torch.randn(*s, device="cuda") for s in ((4, 3), (15, 8), (15,), (4, 5), (4, 5))]
    loaded = loader.loaded()
    try:
        lltm_conda.lltm(*tensors)
        print(json.dumps({"fault": None, "variant": loaded.variant}))
    except RuntimeError as error:
        finding = getattr(error, "finding", None)
        print(json.dumps({
            "fault": finding and finding.fault, "text": str(error), "variant": loaded.variant
        }))
    """
)


def first_call(process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert process.returncode == 0, process.stderr
    result: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return result


def carry_out(message: str, package: Path, tmp_path: Path) -> None:
    """Type the command of an error into a shell."""
    if find_cuda_toolkit(dict(os.environ)) is None:
        pytest.skip("the fix is a build, and there is no nvcc")
    fix = message.partition("to fix:")[2].partition("\n")[0]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLTM_", "PYTHON"))}
    env |= {"PYTHONPATH": str(package.parent), "LLTM_CONDA_CACHE": str(tmp_path / "cache")}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    subprocess.run(["bash", "-c", fix], env=env, cwd=tmp_path, check=True)


def test_the_gpu_is_known_without_a_cuda_context() -> None:
    import torch

    devices = driver_probe.probe_devices()
    assert [device.capability for device in devices] == [
        torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())
    ]
    driver = driver_probe.probe_driver()
    assert driver is not None
    assert driver.cuda is not None
    assert probe_runtime().devices == devices


def test_the_record_and_the_gpu_code_of_the_kernels_agree() -> None:
    cuda = loader.load().cuda
    assert cuda is not None
    whole = read_binary(cuda.path)
    assert whole.problems == ()
    assert whole.cuda_archs == cuda.cuda_archs != ()
    with Elf(cuda.path) as elf:
        assert set(fatbin.architectures(elf)) >= set(cuda.cuda_archs)


def test_cuda_tensors_work_with_the_whole_package(package_copy: Copy, run_python: Run) -> None:
    result = first_call(run_python(package_copy(), "-c", FIRST_CUDA_CALL))
    assert result["fault"] is None
    assert "-cu" in result["variant"]


def test_7_a_cpu_only_package_on_cuda_tensors(
    package_copy: Copy, run_python: Run, tmp_path: Path
) -> None:
    package = package_copy()
    for path in (package / "lib").glob("kernels-cuda*.so"):
        path.unlink()
    result = first_call(run_python(package, "-c", FIRST_CUDA_CALL))
    assert result["variant"].endswith("-cpu")
    assert result["fault"] == faults.CPU_ONLY_BINARY
    assert "python -m lltm_conda build" in result["text"]
    carry_out(result["text"], package, tmp_path)
    assert first_call(run_python(package, "-c", FIRST_CUDA_CALL))["fault"] is None


def test_4_kernels_without_this_architecture(
    package_copy: Copy, run_python: Run, tmp_path: Path
) -> None:
    """Kernels compiled for another GPU generation alone, in the place of the package's."""
    import torch

    from lltm_conda.engine.builder import BuildRequest, execute, plan

    toolkit = find_cuda_toolkit(dict(os.environ))
    if toolkit is None:
        pytest.skip("there is no nvcc")
    other = "12.0" if torch.cuda.get_device_capability()[0] < 12 else "8.0"
    name = f"cuda{toolkit.version[0]}"
    env = {key: value for key, value in os.environ.items() if key != "TORCH_CUDA_ARCH_LIST"}
    request = BuildRequest(
        project=PROJECT,
        out_dir=tmp_path / "out",
        kernels=(name,),
        env=env,
        cuda=toolkit,
        architectures=other,
    )
    execute(plan(request), tmp_path / "work", jobs=2)
    package = package_copy()
    for path in (package / "lib").glob("kernels-cuda*.so"):
        path.unlink()
    shutil.copy2(tmp_path / "out" / f"kernels-{name}.so", package / "lib")
    result = first_call(run_python(package, "-c", FIRST_CUDA_CALL))
    assert result["fault"] == faults.GPU_ARCHITECTURE
    assert "holds no code for the" in result["text"]
    assert "TORCH_CUDA_ARCH_LIST=" in result["text"]
    skipped = run_python(package, "-c", FIRST_CUDA_CALL, env={"LLTM_CONDA_SKIP_CHECK": "1"})
    classified = messages.classify(first_call(skipped)["text"])
    assert classified is not None
    assert classified == faults.GPU_ARCHITECTURE
    report = run_python(package, "-m", "lltm_conda")
    assert report.returncode == 1
    assert "holds no code for the" in report.stdout
    carry_out(result["text"], package, tmp_path)
    assert first_call(run_python(package, "-c", FIRST_CUDA_CALL))["fault"] is None

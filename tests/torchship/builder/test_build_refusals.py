"""A build that cannot be done says why and what to do, before it compiles anything."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from processes import clean_environment as environment
from rendered_client import PROJECT

from torchship.builder import (
    BuildError,
    BuildRequest,
    cuda_toolkit,
    execute,
    fitting_request,
    plan,
)
from torchship.builder.cuda_toolkit import parse_architectures
from torchship.judge import TorchInstall


def a_torch(root: Path, version: str = "2.13.0", cuda: str | None = None) -> TorchInstall:
    major, minor = version.split(".")[:2]
    folder = root / "torch"
    return TorchInstall(
        version=version,
        version_tuple=(int(major), int(minor)),
        cuda=cuda,
        hip=None,
        cxx11_abi=1,
        root=folder,
        lib_dir=folder / "lib",
        include_dir=folder / "include",
    )


def a_toolkit(root: Path, version: str, compiles: str = "75 80 90") -> Path:
    """A folder with an nvcc that says what version it is, and what it compiles for."""
    nvcc = root / f"cuda-{version}" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    listed = " ".join(f"compute_{number}" for number in compiles.split())
    nvcc.write_text(
        f'#!/bin/sh\necho "Cuda compilation tools, release {version}, V{version}.1 {listed}"\n'
    )
    nvcc.chmod(0o755)
    return nvcc.parents[1]


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """An environment in which no nvcc is found."""
    monkeypatch.setattr(cuda_toolkit, "SYSTEM_HOMES", ())
    return environment(PATH=str(tmp_path))


def fit(torch: TorchInstall, env: dict[str, str]) -> tuple[BuildRequest, list[str]]:
    log: list[str] = []
    return fitting_request(PROJECT, torch, Path("out"), env, log=log.append), log


def test_torch_too_old_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"needs torch 2\.4 or newer, got 2\.3\.1"):
        fit(a_torch(tmp_path, "2.3.1"), {})


def test_force_cuda_without_nvcc_names_what_to_install(
    no_nvcc: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=r"FORCE_CUDA=1 asks .* no nvcc.*cuda-toolkit\[nvcc"):
        fit(a_torch(tmp_path, cuda="13.0"), {**no_nvcc, "FORCE_CUDA": "1"})


def test_cuda_torch_without_nvcc_builds_for_the_cpu_and_says_so(
    no_nvcc: dict[str, str], tmp_path: Path
) -> None:
    request, log = fit(a_torch(tmp_path, cuda="13.0"), no_nvcc)
    assert request.kernels == ("cpu",)
    assert "no nvcc was found" in log[0]
    assert "CUDA_HOME" in log[0]


def test_nvcc_of_torchs_major_is_taken_without_a_gpu(
    no_nvcc: dict[str, str], tmp_path: Path
) -> None:
    home = a_toolkit(tmp_path, "12.8")
    request, log = fit(a_torch(tmp_path, cuda="12.6"), {**no_nvcc, "CUDA_HOME": str(home)})
    assert request.kernels == ("cpu", "cuda12")
    assert log == []


CUDA_ALONE = PROJECT._replace(kernels=("cuda",))


def test_kernels_for_cuda_alone_without_nvcc_are_refused_in_a_sentence(
    no_nvcc: dict[str, str], tmp_path: Path
) -> None:
    for torch in (a_torch(tmp_path), a_torch(tmp_path, cuda="13.0")):
        with pytest.raises(
            BuildError, match=r"^tiny-client has kernels for CUDA alone, but no nvcc was"
        ):
            fitting_request(CUDA_ALONE, torch, tmp_path, no_nvcc)


CUDA_GLUE_ALONE = PROJECT._replace(
    kernels=(), has_cuda_glue=True, has_cpu_glue=False, is_stable=False
)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, r"^tiny-client has code for CUDA alone, but no nvcc was found: (?!.*FORCE_CUDA)"),
        (
            {"FORCE_CUDA": "0"},
            r"^tiny-client has code for CUDA alone, and FORCE_CUDA=0 leaves it out",
        ),
    ],
)
def test_glue_for_cuda_alone_without_its_code_is_refused_in_a_sentence(
    no_nvcc: dict[str, str], tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        fitting_request(CUDA_GLUE_ALONE, a_torch(tmp_path), tmp_path, no_nvcc | variables)


def test_kernels_for_cuda_alone_are_built_for_a_torch_without_cuda_too(
    no_nvcc: dict[str, str], tmp_path: Path
) -> None:
    env = {**no_nvcc, "CUDA_HOME": str(a_toolkit(tmp_path, "13.0"))}
    request = fitting_request(CUDA_ALONE, a_torch(tmp_path), tmp_path, env)
    assert request.kernels == ("cuda13",)


def test_operators_for_cuda_alone_can_be_built_without_kernels(
    no_nvcc: dict[str, str], tmp_path: Path
) -> None:
    log: list[str] = []
    env = {**no_nvcc, "FORCE_CUDA": "0"}
    request = fitting_request(CUDA_ALONE, a_torch(tmp_path), tmp_path, env, log=log.append)
    assert (request.kernels, request.glue) == ((), "stable210")
    assert "operators without kernels" in log[0]


@pytest.mark.parametrize(("force", "kernels"), [(None, ("cpu",)), ("1", ("cpu", "cuda13"))])
def test_nvcc_newer_than_torchs_cuda_needs_force(
    no_nvcc: dict[str, str], tmp_path: Path, force: str | None, kernels: tuple[str, ...]
) -> None:
    env = {**no_nvcc, "CUDA_HOME": str(a_toolkit(tmp_path, "13.0"))}
    request, log = fit(
        a_torch(tmp_path, cuda="12.6"), env if force is None else {**env, "FORCE_CUDA": force}
    )
    assert request.kernels == kernels
    assert "newer than the CUDA 12.6 of torch" in log[0]


def test_force_cuda_0_forbids_cuda(no_nvcc: dict[str, str], tmp_path: Path) -> None:
    env = {**no_nvcc, "CUDA_HOME": str(a_toolkit(tmp_path, "13.0")), "FORCE_CUDA": "0"}
    request, _ = fit(a_torch(tmp_path, cuda="13.0"), env)
    assert request.kernels == ("cpu",)


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_wrong_cuda_home_is_named(tmp_path: Path, variable: str) -> None:
    env = environment(**{variable: str(tmp_path / "nothing")})
    with pytest.raises(BuildError, match=rf"{variable}=.*nothing holds no bin/nvcc; set it"):
        fit(a_torch(tmp_path, cuda="13.0"), env)


def test_nvcc_that_does_not_run_is_named(tmp_path: Path) -> None:
    home = a_toolkit(tmp_path, "13.0")
    (home / "bin" / "nvcc").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(BuildError, match=r"bin/nvcc does not run.*CUDA_HOME"):
        fit(a_torch(tmp_path, cuda="13.0"), environment(CUDA_HOME=str(home)))


@pytest.mark.parametrize("entry", ["Pentium", "3.5", "90", "9.0+PTXX", "7.0"])
def test_unknown_architecture_is_named(entry: str) -> None:
    with pytest.raises(BuildError) as caught:
        parse_architectures(f"9.0;{entry}", ["75", "80", "90"])
    assert repr(entry) in str(caught.value)
    assert "it compiles 75, 80, 90" in str(caught.value)


def planned(toolkit: Path, env: dict[str, str], out: Path) -> list[str]:
    """What the nvcc of `toolkit` is told to compile for."""
    env = {**env, "CUDA_HOME": str(toolkit), "PATH": os.environ["PATH"]}
    major = toolkit.name.removeprefix("cuda-").partition(".")[0]
    command = plan(BuildRequest(out, PROJECT, kernels=(f"cuda{major}",), env=env))[0].command
    return sorted({word for word in command if word.startswith("arch=")})


def test_an_early_nvcc_of_a_major_compiles_what_it_knows(
    no_nvcc: dict[str, str], tmp_path: Path
) -> None:
    home = a_toolkit(tmp_path, "12.6", "50 52 60 61 70 72 75 80 86 87 89 90")
    assert planned(home, no_nvcc, tmp_path) == [
        "arch=compute_70,code=sm_70",
        "arch=compute_80,code=sm_80",
        "arch=compute_90,code=compute_90",
        "arch=compute_90,code=sm_90",
    ]


def test_a_later_cuda_needs_no_change_here(no_nvcc: dict[str, str], tmp_path: Path) -> None:
    home = a_toolkit(tmp_path, "14.1", "90 100 103 120 121 140")
    request, log = fit(a_torch(tmp_path, cuda="14.0"), {**no_nvcc, "CUDA_HOME": str(home)})
    assert (request.kernels, log) == (("cpu", "cuda14"), [])
    architectures = [word.rpartition("=")[2] for word in planned(home, no_nvcc, tmp_path)]
    assert architectures == ["sm_100", "sm_120", "compute_140", "sm_140", "sm_90"]


@pytest.mark.parametrize(("version", "compiles"), [("11.8", "70 80 90"), ("12.1", "50 52 61")])
def test_a_cuda_of_old_gpus_falls_back_to_the_cpu_and_says_so(
    no_nvcc: dict[str, str], tmp_path: Path, version: str, compiles: str
) -> None:
    torch = a_torch(tmp_path, cuda=version)
    home = a_toolkit(tmp_path, version, compiles)
    env = {**no_nvcc, "CUDA_HOME": str(home)}
    request, log = fit(torch, env)
    assert request.kernels == ("cpu",)
    assert f"CUDA {version}" in log[0] and "TORCH_CUDA_ARCH_LIST" in log[0]
    message = rf"CUDA {version} compiles for .* CUDA 12 or newer, .* 7\.0 or newer.*CUDA_HOME"
    with pytest.raises(BuildError, match=message):
        fit(torch, {**env, "FORCE_CUDA": "1"})
    request, _ = fit(torch, {**env, "TORCH_CUDA_ARCH_LIST": "6.1"})
    assert request.kernels == ("cpu", f"cuda{version[:2]}")


@pytest.mark.parametrize(("machine", "conda"), [("x86_64", "64"), ("aarch64", "aarch64")])
def test_missing_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, conda: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    request = BuildRequest(tmp_path, PROJECT, env=environment(CXX="no-such-compiler"))
    message = rf"no C\+\+ compiler.*CXX='no-such-compiler'.*gxx_linux-{conda}\).*set CXX"
    with pytest.raises(BuildError, match=message):
        plan(request)


def test_no_compiler_at_all_names_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"g\+\+, c\+\+ and clang\+\+ on PATH.*apt-get install"):
        plan(BuildRequest(tmp_path, PROJECT, env=environment(PATH=str(tmp_path))))


@pytest.mark.parametrize("jobs", ["many", "0", "-2", "1.5"])
def test_max_jobs_must_be_a_number(
    jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", jobs)
    with pytest.raises(BuildError, match=r"MAX_JOBS must be the number .* got "):
        execute([], tmp_path)


def test_an_architecture_that_nvcc_lacks_is_refused(tmp_path: Path) -> None:
    home = a_toolkit(tmp_path, "13.0")
    env = environment(CUDA_HOME=str(home), TORCH_CUDA_ARCH_LIST="1.0")
    with pytest.raises(BuildError, match=r"'1\.0' is not a CUDA architecture that this compiler"):
        plan(BuildRequest(tmp_path, PROJECT, kernels=("cuda13",), env=env))

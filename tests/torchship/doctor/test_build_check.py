"""`doctor build`: what would break the build of an extension, and the fix carried out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from made_facts import make_runtime, make_torch
from sick_environment import SickEnvironment, carries_out

from torchship.doctor.checks import build_check
from torchship.doctor.checks.build_check import Machine, check_build
from torchship.doctor.command import main
from torchship.judge import Runtime, fixes
from torchship.judge.records import NOTE, OK, REJECTED, Device, Finding, Fix
from torchship.judge.words import codes

GUARD = """
#if defined(__cplusplus) && __cplusplus < 202002L
#error C++20 or later compatible compiler is required to use ATen.
#endif
"""


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def make_toolkit(home: Path, release: str, newest_gcc: int = 99) -> Path:
    """A toolkit whose nvcc compiles for 8.0 and 9.0, and accepts GCC up to `newest_gcc`."""
    write_program(
        home / "bin" / "nvcc",
        'if [ "$1" = --list-gpu-arch ]; then echo compute_80; echo compute_90; exit; fi\n'
        f"echo 'Cuda compilation tools, release {release}, V{release}.1'",
    )
    header = home / "include" / "crt" / "host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#if __GNUC__ > {newest_gcc}\n#error unsupported GNU version!\n#endif\n")
    return home


def make_gcc(path: Path, version: str, standard: int = 20) -> Path:
    """A g++ that tells this version, and compiles this standard and no newer one."""
    return write_program(
        path,
        f'case "$*" in *--version*) echo "g++ (Debian) {version}"; exit;; esac\n'
        f'case "$*" in *c++20*) [ {standard} -ge 20 ]; exit;; esac',
    )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with nothing but what a test puts on its PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   67108864 kB\n")
    write_program(tmp_path / "bin" / "ninja", "echo 1.13.0")
    make_gcc(tmp_path / "bin" / "g++", "12.2.0")
    return Machine(
        env={"PATH": str(tmp_path / "bin")},
        folder=tmp_path / "project",
        processors=4,
        meminfo=tmp_path / "meminfo",
        cgroup=tmp_path / "cgroup",
        system_home=tmp_path / "usr" / "cuda",
    )


def runtime_of(cuda: str | None, capability: tuple[int, int] | None = (9, 0)) -> Runtime:
    devices = (Device(0, "a GPU", capability),) if capability else ()
    return make_runtime(make_torch("2.13.0", cuda=cuda), devices=devices)


def find(machine: Machine, runtime: Runtime, dimension: str) -> Finding:
    (finding,) = [f for f in check_build(runtime, machine) if f.dimension == dimension]
    return finding


def in_shell_after(fix: Fix, machine: Machine) -> Machine:
    """The machine as a shell sees it after the command."""
    command = ["/bin/bash", "-c", f"{fix.command}\n'{sys.executable}' -c "
               "'import json, os; print(json.dumps(dict(os.environ)))'"]  # fmt: skip
    output = subprocess.check_output(command, env=dict(machine.env), cwd=machine.folder)
    return machine._replace(env=json.loads(output))


def test_a_machine_with_what_torch_needs_is_ready(machine: Machine, tmp_path: Path) -> None:
    make_toolkit(tmp_path / "usr" / "cuda", "13.0")
    findings = check_build(runtime_of("13.0"), machine)
    assert {finding.status for finding in findings} == {OK}, findings


def test_an_nvcc_of_another_major_is_refused_and_of_another_minor_noted(
    machine: Machine, tmp_path: Path
) -> None:
    make_toolkit(tmp_path / "usr" / "cuda", "12.8")
    for cuda, status in (("13.0", REJECTED), ("12.6", NOTE), ("12.8", OK)):
        assert find(machine, runtime_of(cuda), "nvcc").status == status


@carries_out(fixes.Kind.SET_VARIABLE)
def test_cuda_home_names_the_toolkit_of_torchs_cuda(machine: Machine, tmp_path: Path) -> None:
    make_toolkit(tmp_path / "usr" / "cuda", "12.8")
    make_toolkit(tmp_path / "usr" / "cuda-13.0", "13.0")
    before = find(machine, runtime_of("13.0"), "nvcc")
    assert before.code == codes.NVCC_MISMATCH
    mended = in_shell_after(before.fix, machine)
    assert find(mended, runtime_of("13.0"), "nvcc").status == OK


def test_without_nvcc_only_a_cuda_build_of_torch_is_refused(machine: Machine) -> None:
    assert find(machine, runtime_of("13.0"), "nvcc").code == codes.NO_TOOLKIT
    assert not any(f.dimension == "nvcc" for f in check_build(runtime_of(None), machine))


@carries_out(fixes.Kind.SET_VARIABLE)
@pytest.mark.parametrize("version", ["14.1.0", "7.5.0"])
def test_a_compiler_that_nvcc_or_torch_refuses_is_replaced_by_one_that_is_here(
    machine: Machine, tmp_path: Path, version: str
) -> None:
    make_toolkit(tmp_path / "usr" / "cuda", "13.0", newest_gcc=13)
    make_gcc(tmp_path / "bin" / "g++", version)
    make_gcc(tmp_path / "bin" / "g++-13", "13.2.0")
    make_gcc(tmp_path / "bin" / "g++-15", "15.1.0")
    before = find(machine, runtime_of("13.0"), "host compiler")
    assert before.code == codes.HOST_COMPILER
    assert before.fix.text == "export CC=gcc-13 CXX=g++-13"
    mended = in_shell_after(before.fix, machine)
    assert find(mended, runtime_of("13.0"), "host compiler").status == OK


def test_a_compiler_that_does_not_read_does_not_end_the_process(machine: Machine) -> None:
    """A program that lets SIGPIPE end it, as many command lines do, may call the doctor."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            for _ in range(20):  # the compiler must have ended before the doctor writes
                check_build(runtime_of(None), machine)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_bound_of_nvcc_does_not_count_for_a_cpu_build(machine: Machine, tmp_path: Path) -> None:
    make_toolkit(tmp_path / "usr" / "cuda", "13.0", newest_gcc=9)
    assert find(machine, runtime_of(None), "host compiler").status == OK


def with_headers(tmp_path: Path) -> Runtime:
    header = tmp_path / "include" / "ATen" / "ATen.h"
    header.parent.mkdir(parents=True)
    header.write_text(GUARD)
    return make_runtime(make_torch("2.13.0", include_dir=tmp_path / "include"))


@carries_out(fixes.Kind.SET_VARIABLE)
def test_a_compiler_without_the_standard_of_torchs_headers_is_replaced(
    machine: Machine, tmp_path: Path
) -> None:
    runtime = with_headers(tmp_path)
    make_gcc(tmp_path / "bin" / "g++", "9.4.0", standard=17)
    make_gcc(tmp_path / "bin" / "g++-12", "12.2.0")
    before = find(machine, runtime, "C++ standard")
    assert before.code == codes.CXX_STANDARD
    mended = in_shell_after(before.fix, machine)
    assert find(mended, runtime, "C++ standard").status == OK


@carries_out(fixes.Kind.RAISE_STANDARD)
def test_a_project_that_asks_for_an_older_standard_is_raised_and_compiles(
    machine: Machine, tmp_path: Path
) -> None:
    """With the real compiler of this machine, and the guard of torch's headers."""
    runtime = with_headers(tmp_path)
    machine = machine._replace(env={"PATH": "/usr/bin:/bin"})
    options = f"-std=c++17 -I{tmp_path / 'include'} -fsyntax-only -x c++ -"
    script = f"import os; os.system('echo \"#include <ATen/ATen.h>\" | g++ {options} 2>&1')\n"
    (machine.folder / "setup.py").write_text(script)

    def build() -> str:
        command = [sys.executable, "setup.py"]
        return subprocess.check_output(command, cwd=machine.folder, text=True)

    assert "#error C++20 or later" in build()
    before = find(machine, runtime, "C++ standard")
    assert before.code == codes.CXX_STANDARD
    mended = in_shell_after(before.fix, machine)
    assert build() == ""
    assert find(mended, runtime, "C++ standard").status == OK


@carries_out(fixes.Kind.INSTALL_REQUIREMENT)
def test_a_missing_ninja_is_installed(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path / "place")
    script = "#!/bin/sh\necho 1.13.0\n"
    files = {"ninja-1.13.0.data/scripts/ninja": script}
    place.publish_wheel("ninja", "1.13.0", files)
    machine = Machine(
        env={"PATH": str(place.folder / "env" / "bin")}, folder=tmp_path, processors=1
    )
    before = find(machine, runtime_of(None), "ninja")
    assert before.code == codes.NO_NINJA
    place.type(before.fix.command)
    assert find(machine, runtime_of(None), "ninja").status == OK


@carries_out(fixes.Kind.SET_VARIABLE)
@pytest.mark.parametrize("limit", ["the machine's", "the container's"])
def test_fewer_jobs_run_where_memory_is_short(machine: Machine, tmp_path: Path, limit: str) -> None:
    if limit == "the machine's":
        machine.meminfo.write_text("MemAvailable:  5000000 kB\n")
    else:
        machine.cgroup.mkdir()
        (machine.cgroup / "memory.max").write_text("6000000000\n")
        (machine.cgroup / "memory.current").write_text("1000000000\n")
    before = find(machine, runtime_of(None), "memory")
    assert before.fix.text == "export MAX_JOBS=2"
    mended = in_shell_after(before.fix, machine)
    assert find(mended, runtime_of(None), "memory").status == OK


@pytest.mark.parametrize("content", ["", "MemAvailable: x", "MemAvailable: 1"])
def test_memory_that_is_not_told_breaks_nothing(machine: Machine, content: str) -> None:
    machine.meminfo.write_text(content)
    assert find(machine, runtime_of(None), "memory").status == OK


@carries_out(fixes.Kind.NO_ISOLATION)
@pytest.mark.slow
def test_a_build_that_cannot_see_torch_sees_it_without_isolation(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path / "place")
    place.publish_torch("2.13.0")
    place.install("torch")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "setup.py").write_text(
        "import torch, setuptools\nsetuptools.setup(name='theirs', version='1.0', packages=[])\n"
    )
    (folder / "pyproject.toml").write_text("[build-system]\nrequires = []\n")
    machine = Machine(env=place.env, folder=folder, processors=1)
    before = find(machine, runtime_of(None), "build isolation")
    assert before.code == codes.BUILD_ISOLATION
    place.type(f"cd '{folder}' && ! python -m pip install . 2>&1")
    place.type(f"cd '{folder}' && {before.fix.command}")
    assert place.installed_version("theirs") == "1.0"


def test_isolation_is_no_matter_where_no_torch_is_needed_or_pip_forbids_it(
    machine: Machine,
) -> None:
    def dimensions(machine: Machine) -> set[str]:
        findings = check_build(runtime_of(None), machine)
        return {finding.dimension for finding in findings if finding.status != OK}

    assert dimensions(machine) == set()
    project = machine.folder / "pyproject.toml"
    project.write_text('[build-system]\nrequires = ["setuptools", "torchship"]\n')
    assert dimensions(machine) == set()
    project.write_text('[build-system]\nrequires = [\n  "setuptools",\n  "torch>=2.4",\n]\n')
    assert dimensions(machine) == {"build isolation"}
    forbidden = machine._replace(env={**machine.env, "PIP_NO_BUILD_ISOLATION": "0"})
    assert dimensions(forbidden) == set()


@carries_out(fixes.Kind.SET_VARIABLE)
@pytest.mark.parametrize(
    ("listed", "capability", "status", "proposal"),
    [
        ("", (9, 0), OK, None),
        ("", (12, 0), REJECTED, "9.0+PTX"),
        ("", None, NOTE, "8.0;9.0+PTX"),
        ("9.0", (9, 0), OK, None),
        ("8.0 9.0a+PTX", (9, 0), OK, None),
        ("Hopper", (9, 0), OK, None),
        ("12.0", (9, 0), REJECTED, "9.0"),
        ("sm_90", (9, 0), REJECTED, "9.0"),
        ("8.0", (9, 0), NOTE, "9.0"),
    ],
)
def test_architectures_are_those_of_the_gpu_and_of_nvcc(
    machine: Machine,
    tmp_path: Path,
    listed: str,
    capability: tuple[int, int] | None,
    status: str,
    proposal: str | None,
) -> None:
    make_toolkit(tmp_path / "usr" / "cuda", "13.0")
    machine = machine._replace(env={**machine.env, "TORCH_CUDA_ARCH_LIST": listed})
    runtime = runtime_of("13.0", capability)
    before = find(machine, runtime, "architectures")
    assert before.status == status
    if proposal is None:
        assert before.fix.text == ""
        return
    assert f"TORCH_CUDA_ARCH_LIST={proposal}" in before.fix.text.replace("'", "")
    after = find(in_shell_after(before.fix, machine), runtime, "architectures")
    assert after.status == OK or capability == (12, 0)


def test_without_torch_nothing_else_is_looked_at(machine: Machine) -> None:
    runtime = make_runtime()._replace(torch=None)
    (finding,) = check_build(runtime, machine)
    assert finding.code == codes.TORCH_MISSING


def test_the_report_names_each_finding_with_its_code_and_cure(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_check, "Machine", lambda **_: machine)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    (machine.folder / "setup.py").write_text("import torch\n")
    make_gcc(Path(machine.env["PATH"]) / "g++", "7.5.0")
    assert main(arguments=["--build"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "TD803" in out
    assert "to fix build isolation: python -m pip install --no-build-isolation ." in out
    assert main(arguments=["--build", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ready"]
    assert {"TD803", "TD805"} <= {finding["code"] for finding in report["findings"]}


FOUND_NOTES = "no fault was found; what a note says breaks some builds and not others"


@pytest.mark.parametrize(
    ("compiler", "setup", "code", "closing"),
    [
        ("12.2.0", "import setuptools\n", 0, "nothing was found that breaks a build"),
        ("12.2.0", "import torch\n", 0, FOUND_NOTES),
        ("7.5.0", "import torch\n", 1, "the build would fail"),
    ],
)
def test_the_last_line_says_what_will_become_of_the_build(
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    compiler: str,
    setup: str,
    code: int,
    closing: str,
) -> None:
    monkeypatch.setattr(build_check, "Machine", lambda **_: machine)
    (machine.folder / "setup.py").write_text(setup)
    make_gcc(Path(machine.env["PATH"]) / "g++", compiler)
    assert build_check.main(runtime_of(None), as_json=False) == code
    assert capsys.readouterr().out.splitlines()[-1] == closing

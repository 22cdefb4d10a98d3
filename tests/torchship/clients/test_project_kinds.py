"""Projects of every kind, made by `torchship new` and changed as an author would, work from the
first command on: with kernels for both, for CUDA alone, for the CPU alone, of integers, and without
tensors or gradients.

The folder `kinds` holds the files that an author wrote.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from new_projects import REPO, borrow_tools, commit, make
from small_clients import FOLDER

from torchship.builder.cuda_toolkit import find_cuda_toolkit

pytestmark = pytest.mark.slow

SMOKE = REPO / "torchship" / "release" / "launch" / "engine_smoke.py"


class Project(NamedTuple):
    """A project, and the folder into which its package is installed."""

    repo: Path
    site: Path

    @property
    def package(self) -> str:
        return self.repo.name.replace("-", "_")

    def run(self, *command: object, code: int = 0, **environment: str) -> str:
        """The output of a command beside the project, with its package installed."""
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHON")}
        env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}
        env |= {"PYTHONPATH": str(self.site), **environment}
        process = subprocess.run(
            list(map(str, command)), cwd=self.repo.parent, env=env, capture_output=True, text=True
        )
        assert process.returncode == code, process.stdout + process.stderr
        return process.stdout + process.stderr

    def release(self, *options: object, code: int = 0) -> str:
        borrow_tools(self.repo)
        script = self.repo / "scripts" / "build_all.sh"
        return self.run(script, *options, code=code, PYTHONPATH="", PYTHON=sys.executable)

    def install(self) -> None:
        """Without optimisation, and for one GPU architecture."""
        options = ["-q", "--no-build-isolation", "--no-deps", "--target", self.site, self.repo]
        command = [sys.executable, "-m", "pip", "install", *options]
        self.run(*command, DEBUG="1", TORCH_CUDA_ARCH_LIST="9.0")

    def checker(self, *options: str, code: int = 0) -> str:
        return self.run(sys.executable, "-m", self.package, *options, code=code)

    def live_run(self) -> dict[str, set[str]]:
        """The dtypes by device of the checker's live run, which must find no fault."""
        report = json.loads(self.checker("--json"))
        assert report["works"], report
        return {one["device"]: {*one["differences"]} for one in report["smoke"]["devices"]}

    def smoke_test(self) -> tuple[str, dict[str, object]]:
        """The output and the facts of the release tool's smoke test, which must pass."""
        facts = self.site / "facts.json"
        command = [sys.executable, SMOKE, self.package, "--glue", "stable210", "--json", facts]
        output = self.run(*command)
        content: dict[str, object] = json.loads(facts.read_text(encoding="utf-8"))
        return output, content

    def own_tests(self) -> str:
        return self.run("pytest", "-q", "-p", "no:cacheprovider", self.repo / "tests")


def change(path: Path, *replacements: tuple[str, str]) -> None:
    content = path.read_text(encoding="utf-8")
    for pattern, new in replacements:
        content, count = re.subn(pattern, new, content)
        assert count, (path, pattern)
    path.write_text(content, encoding="utf-8")


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def write_files(project: Project, kind: str) -> None:
    """The author's files of one kind, under the project's names, in place of the template's."""
    for path in [*project.repo.glob("tests/test_*.py"), *project.repo.glob("csrc/**/rms_norm.*")]:
        path.unlink()
    for path in sorted((FOLDER / "kinds" / kind).rglob("*")):
        if path.suffix in (".py", ".h", ".cpp", ".cu"):
            name = str(path.relative_to(FOLDER / "kinds" / kind))
            target = project.repo / name.replace("own_op/", f"{project.package}/")
            if target.name == "check_op.py":
                target = target.with_name("test_op.py")
            content = path.read_text(encoding="utf-8").replace("own_op", project.package)
            content = content.replace("own-op", project.repo.name)
            target.write_text(content, encoding="utf-8")


Maker = Callable[[str, str, Callable[[Project], None]], Project]


@pytest.fixture(scope="module")
def make_kind(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Makes a project of a template, lets an author change it, and installs it."""

    def make_one(name: str, template: str, edit: Callable[[Project], None]) -> Project:
        root = tmp_path_factory.mktemp(name)
        project = Project(make(root, name, "--template", template), root / "site")
        edit(project)
        project.release("generate")
        commit(project.repo)
        project.install()
        return project

    return make_one


def for_the_cpu_alone(project: Project) -> None:
    repo = project.repo
    remove(repo / "csrc" / "kernels" / "cuda")
    change(repo / "csrc" / "ops" / "register.cpp", (r"kOnCPU \| kOnCUDA", "kOnCPU"))
    change(
        repo / "build_matrix.yaml",
        (r"(?m)^  cuda1\d:\n(?:    .*\n)+", ""),
        (r"(?m)^ +kernels:\n +cuda.*\n", ""),
        (r"(?m)^( +(?:devices|aten): )\[.*\]$", r"\1[cpu]"),
    )
    change(
        repo / project.package / "smoke.py",
        (r"DTYPES = \(.*\)", 'DTYPES = ("float32", "bfloat16")'),
    )


def for_cuda_alone(project: Project) -> None:
    repo = project.repo
    remove(repo / "csrc" / "kernels" / "cpu")
    change(repo / "csrc" / "ops" / "register.cpp", (r"kOnCPU \| kOnCUDA", "kOnCUDA"))
    change(
        repo / "build_matrix.yaml",
        (r"(?m)^  cpu: \{\}\n", ""),
        (r"\[cpu, ", "["),
        (r"\[cpu\]", "[]"),
    )


def of_kind(kind: str, operator: str) -> Callable[[Project], None]:
    def edit(project: Project) -> None:
        change(project.repo / "build_matrix.yaml", (r"operator: \w+", f"operator: {operator}"))
        write_files(project, kind)

    return edit


@pytest.fixture(scope="module")
def cpu_alone(make_kind: Maker) -> Project:
    return make_kind("host-op", "rms_norm", for_the_cpu_alone)


@pytest.fixture(scope="module")
def cuda_alone(make_kind: Maker) -> Project:
    if find_cuda_toolkit(os.environ) is None:
        pytest.skip("no nvcc is here")
    return make_kind("device-op", "rms_norm", for_cuda_alone)


@pytest.fixture(scope="module")
def factory(make_kind: Maker) -> Project:
    return make_kind("factory-op", "aten", of_kind("factory", "ramp"))


@pytest.fixture(scope="module")
def integers(make_kind: Maker) -> Project:
    return make_kind("whole-op", "aten", of_kind("integers", "tally"))


@pytest.fixture(scope="module")
def scale(make_kind: Maker) -> Project:
    """The op from start to end on docs/ship/own-op.md."""
    return make_kind("my-scale", "rms_norm", of_kind("scale", "scale"))


#: The third has the template's operator, whose tests and example test_project_builds.py runs.
OTHER_OPERATORS = ("factory", "integers")
KINDS = ("cpu_alone", *OTHER_OPERATORS)
WITH_OWN_TESTS = (*OTHER_OPERATORS, "scale")


@pytest.mark.parametrize(
    ("kind", "dtypes"),
    [
        ("cpu_alone", {"float32", "bfloat16"}),
        ("factory", {"float32", "float64", "int16", "complex64"}),
        ("integers", {"int64", "int32", "uint8"}),
        ("scale", {"float64", "float32", "float16", "bfloat16"}),
    ],
)
def test_the_live_run_tries_the_dtypes_of_the_op(kind, dtypes, request) -> None:
    project: Project = request.getfixturevalue(kind)
    devices = project.live_run()
    assert devices["cpu"] == dtypes
    assert all(tried == dtypes for tried in devices.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_smoke_test_passes_and_leaves_out_what_the_op_has_not(kind, request) -> None:
    output, facts = request.getfixturevalue(kind).smoke_test()
    assert (facts["failed"], facts["gradcheck"]) == (0, None)
    assert "gradcheck left out" in output


@pytest.mark.parametrize("kind", KINDS)
def test_its_variant_is_explained(kind, request) -> None:
    assert "not installed" not in request.getfixturevalue(kind).checker(
        "--explain", "stable210-cpu"
    )


@pytest.mark.parametrize("kind", WITH_OWN_TESTS)
def test_its_own_tests_pass(kind, request) -> None:
    output = request.getfixturevalue(kind).own_tests()
    assert " passed" in output and "failed" not in output


@pytest.mark.parametrize("kind", WITH_OWN_TESTS)
def test_its_example_runs(kind, request) -> None:
    project: Project = request.getfixturevalue(kind)
    project.run(sys.executable, project.repo / "examples" / "train.py")


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("cpu_alone", "stable210-cpu"),
        ("cuda_alone", "stable210-cu13"),
        ("factory", "stable210-cpu"),
    ],
)
def test_the_host_has_a_cell_of_the_matrix(kind, cell, request) -> None:
    listing = request.getfixturevalue(kind).release("--list", "--json")
    names = re.findall(r'"cell": "([^"]+)"', listing)
    assert cell in names
    other = "-cpu" if kind == "cuda_alone" else "-cu"
    assert [name for name in names if other in name] == []


def test_kernels_for_cuda_alone_load_and_say_where_they_cannot_compute(cuda_alone) -> None:
    import torch

    if torch.cuda.is_available():
        assert {*cuda_alone.live_run()} >= {"cuda:0"}
    else:
        assert cuda_alone.live_run() == {}
        assert "device-op can be loaded here, but has no device to compute on" in (
            cuda_alone.checker()
        )
    assert (cuda_alone.site / "device_op" / "lib" / "kernels-cuda13.so").is_file()
    assert not (cuda_alone.site / "device_op" / "lib" / "kernels-cpu.so").exists()


def test_the_smoke_test_of_kernels_for_cuda_alone_passes(cuda_alone) -> None:
    import torch

    output, facts = cuda_alone.smoke_test()
    assert facts["failed"] == 0
    assert facts["devices"] == (["cuda"] if torch.cuda.is_available() else [])
    assert torch.cuda.is_available() or "nothing to compare" in output


def test_a_variant_for_the_cpu_is_refused_where_kernels_are_for_cuda_alone(cuda_alone) -> None:
    output = cuda_alone.checker("--explain", "stable210-cpu", code=2)
    assert output == "device-op has kernels for cuda alone: no variant is stable210-cpu\n"


def test_the_own_tests_of_kernels_for_cuda_alone_try_no_cpu(cuda_alone) -> None:
    collecting = ("--collect-only", "-q", "-m", "cuda or not cuda")
    output = cuda_alone.run("pytest", *collecting, cuda_alone.repo / "tests")
    devices = set(re.findall(r"\[(?:.*-)?(cpu|cuda)(?:-.*)?\]", output))
    assert devices == {"cuda"}

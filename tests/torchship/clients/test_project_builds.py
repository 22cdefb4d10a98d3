"""New projects build, by every way, and their packages live beside each other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Protocol

import pytest
from new_projects import REPO, borrow_tools, commit, make, torchship
from processes import Forks, clean_environment

from torchship.project.archive import make_archive
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.load import load

pytestmark = pytest.mark.slow

SECTION = ".torch_extension.record"  # where a binary says what it is

# What each package computes. `late` has a torchship whose records lie elsewhere.
COMPUTE = """
import os, sys, threading, torch
CALLS = {
    "probe_op": lambda: torch.ops.probe_op.rms_norm(torch.ones(2, 8), torch.ones(8), 0.0),
    "late_op": lambda: torch.ops.late_op.affine(*(torch.ones(s) for s in ((2, 3), (4, 3), (4,)))),
}
def load(name):
    package = __import__(name, fromlist=["loader"])
    # One write, which no other thread's can part.
    print(f"{name} {package.loader.LOADER.loaded().variant}\\n", end="", flush=True)
"""


def run(*command: object, cwd: Path, check: bool = True, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHON")}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", **environment}
    arguments = list(map(str, command))
    process = subprocess.run(arguments, cwd=cwd, env=env, capture_output=True, text=True)
    assert (process.returncode == 0) == check, process.stdout + process.stderr
    return process.stdout + process.stderr


def pip(*arguments: object, cwd: Path, **environment: str) -> str:
    return run(sys.executable, "-m", "pip", *arguments, cwd=cwd, **environment)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_archive(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = make(tmp_path_factory.mktemp("probe"), "probe-op")
    commit(repo)
    return repo


@pytest.fixture(scope="module")
def late(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a later torchship, whose version is 9.9."""
    later = tmp_path_factory.mktemp("later")
    zipfile.ZipFile(archive).extractall(later)
    (metadata,) = later.glob("*.dist-info")
    metadata.rename(later / "torchship-9.9.dist-info")
    records = later / "torchship" / "judge" / "records.py"
    content = records.read_text(encoding="utf-8")
    assert SECTION in content
    records.write_text(content.replace(SECTION, ".torch_extension.elsewhere"), encoding="utf-8")
    repo = make(tmp_path_factory.mktemp("late"), "late-op", "--template", "aten", path=later)
    commit(repo)
    return repo


@pytest.fixture(scope="module")
def wheels(probe: Path, late: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    options = ("-q", "--no-build-isolation", "--no-deps", "-w", folder)
    for repo in (probe, late):
        pip("wheel", *options, repo, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def site(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, installed into one folder."""
    folder = tmp_path_factory.mktemp("site")
    options = ("-q", "--no-deps", "--target", folder)
    pip("install", *options, *wheels.glob("*.whl"), cwd=folder)
    return folder


class Python(Protocol):
    """Runs code after COMPUTE, with the packages of a folder; returns the lines that it prints."""

    def __call__(self, code: str, site: Path, *arguments: str, **environment: str) -> list[str]: ...


@pytest.fixture
def python(forked: Forks) -> Python:
    def run_code(code: str, site: Path, *arguments: str, **environment: str) -> list[str]:
        env = clean_environment(PYTHONPATH=str(site), **environment)
        process = forked.run(COMPUTE + code, *arguments, cwd=site.parent, env=env)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout.splitlines()

    return run_code


def test_its_own_tests_pass(probe: Path, site: Path) -> None:
    output = run("pytest", "-q", "tests", cwd=probe, PYTHONPATH=str(site))
    assert re.search(r"\d\d passed", output)
    assert "failed" not in output


def test_those_without_kernels_pass_too(late: Path, site: Path) -> None:
    output = run("pytest", "-q", "tests", cwd=late, PYTHONPATH=str(site))
    assert "passed" in output
    assert "failed" not in output


def test_a_wheel_has_the_vendored_torchship_but_for_the_tools_of_authors(
    late: Path, wheels: Path
) -> None:
    (wheel,) = wheels.glob("late_op-*.whl")
    (vendored,) = late.glob("vendor/*.whl")
    packed = zipfile.ZipFile(wheel)
    original = zipfile.ZipFile(vendored)
    prefix = "late_op/engine/"
    engine = [name for name in packed.namelist() if name.startswith(prefix)]
    names = {name: f"torchship/{name.removeprefix(prefix)}" for name in engine}
    assert [name for name in engine if packed.read(name) != original.read(names[name])] == []
    needed = ("torchship/runtime/", "torchship/judge/", "torchship/builder/", "torchship/include/")
    expected = {name for name in original.namelist() if name.startswith(needed)}
    assert expected - {*names.values()} == set()
    absent = ("command", "doctor", "porting", "project", "release", "templates")
    assert [name for name in engine if name.removeprefix(prefix).startswith(absent)] == []


def test_the_smoke_test_differentiates_both_templates(site: Path, python: Python) -> None:
    code = (
        "from importlib import import_module\n"
        "for name in ('probe_op', 'late_op'):\n"
        "    op, _, samples = import_module(f'{name}.smoke').parts()\n"
        "    print(torch.autograd.gradcheck(op, [s.requires_grad_() for s in samples]))"
    )
    assert python(code, site) == ["True", "True"]


@pytest.mark.parametrize("name", ["probe_op", "late_op"])
def test_the_variant_of_the_processor_is_explained(name: str, site: Path) -> None:
    command = [sys.executable, "-m", name, "--explain", "stable210-cpu"]
    output = run(*command, cwd=site.parent, PYTHONPATH=str(site))
    assert "not installed" not in output


@pytest.mark.parametrize("order", [("probe_op", "late_op"), ("late_op", "probe_op")])
def test_packages_load_in_any_order(site: Path, order: tuple[str, ...], python: Python) -> None:
    code = "for name in sys.argv[1:]: load(name)\nfor call in CALLS.values(): call()"
    assert [line.split()[0] for line in python(code, site, *order)] == [*order]


def test_packages_load_from_threads(site: Path, python: Python) -> None:
    code = (
        "go = threading.Barrier(len(CALLS))\n"
        "def work(name):\n    go.wait(); load(name)\n    for _ in range(100): CALLS[name]()\n"
        "threads = [threading.Thread(target=work, args=(name,)) for name in CALLS]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    loaded = {line.split()[0] for line in python(code, site)}
    assert loaded == {"probe_op", "late_op"}


def test_each_judges_only_its_own(site: Path, python: Python) -> None:
    code = (
        "from importlib import import_module\n"
        "for judge in ('probe_op', 'late_op'):\n"
        "    compat = import_module(f'{judge}.engine.judge')\n"
        "    project = import_module(f'{judge}._project').PROJECT\n"
        "    runtime = compat.probe_runtime(project=project, gpu=False)\n"
        "    for path in sys.argv[1:]: print(compat.judge_file(path, runtime).accepted)"
    )
    glues = [
        str(path) for name in ("probe_op", "late_op") for path in site.glob(f"{name}/lib/glue*")
    ]
    environment = {"PROBE_OP_LOAD": "0", "LATE_OP_LOAD": "0"}
    assert python(code, site, *glues, **environment) == ["True", "False", "False", "True"]


def test_a_fault_in_one_is_not_blamed_on_another(
    site: Path, tmp_path: Path, python: Python
) -> None:
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    (broken / "probe_op" / "lib" / "kernels-cpu.so").write_bytes(b"\x7fELF")
    code = (
        "try: load('probe_op')\nexcept ImportError as error: print(str(error).splitlines()[0])\n"
        "load('late_op'); CALLS['late_op']()"
    )
    error, loaded = python(code, broken)
    assert loaded.split()[0] == "late_op"
    assert error.startswith("probe-op cannot be loaded: kernels-cpu.so ")


# Binaries that are only packed: what is tested is not what they hold.
@pytest.fixture
def packed_binaries(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    (folder / "glue-stable210.so").write_bytes(b"\x7fELF")
    return {"LATE_OP_PREBUILT": str(folder)}


@pytest.mark.rehearsal
def test_the_source_distribution_builds_without_index_and_checkout(
    late: Path, tmp_path: Path, packed_binaries: dict[str, str]
) -> None:
    program = "import sys; sys.path[:0] = ['vendor']; import backend; backend.build_sdist('out')"
    copy = shutil.copytree(late, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    run(sys.executable, "-c", program, cwd=copy)
    (sdist,) = (copy / "out").glob("*.tar.gz")
    shutil.move(sdist, tmp_path)
    shutil.rmtree(copy)
    with tarfile.open(tmp_path / sdist.name) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"vendor/backend.py", "vendor/torchship.json", "late_op/engine/__init__.py"} <= names
    assert [name for name in names if name.startswith("build")] == []
    options = ["-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", tmp_path / "wheel"]
    pip("wheel", *options, tmp_path / sdist.name, cwd=tmp_path, **packed_binaries)
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    assert "late_op/engine/runtime/loader.py" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.rehearsal
def test_an_editable_install_has_a_copy_of_the_vendored_torchship(
    late: Path, tmp_path: Path, packed_binaries: dict[str, str]
) -> None:
    repo = shutil.copytree(late, tmp_path / "repo", ignore=shutil.ignore_patterns("build"))
    program = "import sys; sys.path[:0] = ['vendor']; import backend; backend.build_editable('out')"
    run(sys.executable, "-c", program, cwd=repo, **packed_binaries)
    (wheel,) = (repo / "out").glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    shutil.rmtree(repo / "out")
    code = (
        "import site, sys; site.addsitedir(sys.argv[1])\n"
        "import late_op.engine.judge as judge; print(judge.__file__)"
    )
    output = run(sys.executable, "-c", code, site, cwd=tmp_path, LATE_OP_LOAD="0")
    assert Path(output.strip()) == repo / "late_op" / "engine" / "judge" / "__init__.py"
    assert (repo / "late_op" / "lib" / "glue-stable210.so").is_file()
    assert run("git", "status", "--porcelain", cwd=repo) == ""


def test_a_bare_clone_says_that_it_has_no_binaries(late: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run("git", "clone", "-q", late, clone, cwd=tmp_path)
    output = run(sys.executable, "-c", "import late_op", cwd=clone, check=False)
    assert "ImportError: late-op cannot be loaded: " in output
    assert "late-op was not built here yet" in output


@pytest.mark.rehearsal
@pytest.mark.network
def test_no_index_gives_its_torchship_to_a_build(
    late: Path, tmp_path: Path, packed_binaries: dict[str, str]
) -> None:
    """In isolation, beside an index that serves another torchship."""
    served = tmp_path / "served"
    served.mkdir()
    stranger = served / "torchship-99-py3-none-any.whl"
    with zipfile.ZipFile(stranger, "w") as wheel:
        wheel.writestr("torchship/__init__.py", "raise SystemExit('a stranger was run')")
        wheel.writestr("torchship-99.dist-info/METADATA", "Name: torchship\nVersion: 99\n")
        wheel.writestr("torchship-99.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("torchship-99.dist-info/RECORD", "")
    options = ["-v", "--no-deps", "--find-links", served, "-w", tmp_path / "wheel"]
    output = pip("wheel", *options, late, cwd=tmp_path, **packed_binaries)
    assert "torchship-99" not in output
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    assert "late_op/engine/runtime/loader.py" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.rehearsal
def test_pip_installs_it_from_its_repository(late: Path, tmp_path: Path) -> None:
    options = ["-q", "--no-build-isolation", "--no-deps", "--target", tmp_path / "site"]
    pip("install", *options, f"git+file://{late}", cwd=tmp_path)
    command = [sys.executable, "-m", "late_op"]
    output = run(*command, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert "late-op works here" in output


@pytest.mark.rehearsal
def test_in_isolation_a_pin_is_required_and_nothing_else(late: Path) -> None:
    program = (
        "import sys; sys.path[:0] = ['vendor']; import backend\n"
        "print(backend.get_requires_for_build_wheel({'torch': '2.13.0'}))\n"
        "print(backend.get_requires_for_build_wheel({}))"
    )
    output = run(sys.executable, "-c", program, cwd=late)
    assert "['torch==2.13.0']\n" in output
    assert output.endswith("[]\n")


def test_every_cell_of_the_matrix_is_listed(probe: Path) -> None:
    borrow_tools(probe)
    listed = run(probe / "scripts" / "build_all.sh", "--list", "--json", cwd=probe)
    cells = all_cells(load(probe / "build_matrix.yaml"))
    assert re.findall(r'"cell": "([^"]+)"', listed) == [cell.name for cell in cells] != []


@pytest.mark.rehearsal
@pytest.mark.parametrize("template", ["probe", "late"])
def test_its_host_cell_is_packed_installed_and_run(
    template: str, request: pytest.FixtureRequest
) -> None:
    repo = request.getfixturevalue(template)
    if template == "late":  # the other project makes its own
        borrow_tools(repo)
    base = REPO / "build" / "bootstrap-channel"
    channel = ["--channel", base.as_uri()] if base.is_dir() else []
    command = [repo / "scripts" / "build_all.sh", "stable210-cpu", *channel]
    run(*command, cwd=repo, PYTHON=sys.executable)
    assert [*repo.glob(f"dist/{template}_op-*.whl")]
    assert [*repo.glob(f"dist/channel/linux-64/{template}-op-*.conda")]


@pytest.mark.rehearsal
def test_its_command_for_tests_passes(probe: Path) -> None:
    """Linters, the package, the cell of this machine, and the project's own tests."""
    assert " passed" in run(probe / "scripts" / "test.sh", cwd=probe, PYTHON=sys.executable)


@pytest.mark.rehearsal
@pytest.mark.network
def test_its_whole_matrix_is_built_installed_and_run(probe: Path) -> None:
    run(probe / "scripts" / "build_all.sh", cwd=probe, PYTHON=sys.executable)
    manifest = json.loads((probe / "dist" / "manifest.json").read_text(encoding="utf-8"))
    assert {cell["state"] for cell in manifest["cells"].values()} <= {"done", "skipped"}
    assert [a["path"] for a in manifest["artefacts"] if a["kind"] == "fat"]


PAGE = (REPO / "docs" / "ship" / "own-op.md").read_text(encoding="utf-8")
# How commands begin that run here. Others run in other tests, or need a GPU, conda or all cells.
HERE = ("scripts/build_all.sh --list", "scripts/build_all.sh generate")
ELSEWHERE = (
    *("python -m torchship new", "cd ../my-scale", "git ", "mkdir ", "source build/test-env"),
    *("scripts/build_all.sh host", "scripts/build_all.sh upload", "scripts/test.sh"),
    *("pip install .", "(cd /tmp && python", "pytest tests", "FORCE_CUDA=1"),
)


@pytest.mark.rehearsal
def test_commands_of_the_page_run(probe: Path) -> None:
    shown = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    lines = shown.replace("\\\n", "").splitlines()  # which continues a line
    runnable = [line for line in lines if line.startswith(HERE)]
    assert len(runnable) == len(HERE)
    others = [line for line in lines if line not in runnable and line != "scripts/build_all.sh"]
    assert [line for line in others if not line.startswith(ELSEWHERE)] == []
    for line in runnable:
        run("bash", "-ec", line, cwd=probe)


@pytest.mark.rehearsal
def test_an_update_after_a_build_changes_no_file_of_git(probe: Path) -> None:
    pytest.importorskip("pydantic")
    result = torchship("update", probe, cwd=probe.parent)
    assert result.returncode == 0, result.stderr
    assert run("git", "status", "--porcelain", cwd=probe) == ""

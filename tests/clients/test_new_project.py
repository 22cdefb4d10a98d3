"""scripts/new_project.sh makes repositories that build; their packages live beside lltm."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPO = Path(__file__).resolve().parents[2]
NEW = REPO / "scripts" / "new_project.sh"
SECTION = ".torch_extension.record"  # where a binary says what it is

# What each package computes. `late` has an engine whose records lie elsewhere.
COMPUTE = """
import os, sys, threading, torch
CALLS = {
    "lltm_conda": lambda: torch.ops.lltm.forward(
        *(torch.ones(s) for s in ((2, 3), (12, 7), (12,), (2, 4), (2, 4)))),
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


def make(root: Path, name: str, *options: str) -> Path:
    repo = root / name
    run(NEW, name, repo, *options, cwd=root)
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    commit = ["commit", "-q", "-m", "Start"]
    run("git", *identity, *commit, cwd=repo)
    (repo / "build").mkdir()
    (repo / "build" / "tools").symlink_to(REPO / "build" / "tools")
    return repo


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("probe"), "probe-op")


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = make(tmp_path_factory.mktemp("late"), "late-op", "--template", "aten")
    records = repo / "torchship" / "doctor" / "records.py"
    content = records.read_text(encoding="utf-8")
    assert SECTION in content
    records.write_text(content.replace(SECTION, ".torch_extension.elsewhere"), encoding="utf-8")
    return repo


@pytest.fixture(scope="module")
def site(probe: Path, late: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, installed into one folder; lltm is installed where the tests run."""
    folder = tmp_path_factory.mktemp("site")
    for repo in (probe, late):
        options = ["-q", "--no-build-isolation", "--no-deps", "--target", folder, "--upgrade"]
        command = [sys.executable, "-m", "pip", "install", *options, repo]
        run(*command, cwd=folder)
    return folder


def python(code: str, site: Path, *arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", COMPUTE + code, *arguments]
    return run(*command, cwd=site.parent, PYTHONPATH=str(site), **environment).splitlines()


def test_its_own_tests_pass(probe: Path, site: Path) -> None:
    output = run("pytest", "-q", "-m", "not cuda", "tests", cwd=probe, PYTHONPATH=str(site))
    assert re.search(r"\d\d passed", output)
    assert "failed" not in output


def test_those_without_kernels_pass_too(late: Path, site: Path) -> None:
    skipped = "not as_they_were_brought"  # its engine was changed here
    output = run("pytest", "-q", "-k", skipped, "tests", cwd=late, PYTHONPATH=str(site))
    assert "passed" in output
    assert "failed" not in output


def test_the_record_of_the_engine_has_its_version(probe: Path) -> None:
    record = json.loads((probe / "engine.json").read_text(encoding="utf-8"))
    ours = (REPO / "lltm_conda" / "_version.py").read_text(encoding="utf-8")
    assert f'__version__ = "{record["version"]}"' in ours


def test_every_cell_of_the_matrix_is_listed(probe: Path) -> None:
    def names(repo: Path) -> list[str]:
        listed = run(repo / "scripts" / "build_all.sh", "--list", "--json", cwd=repo)
        return re.findall(r'"cell": "([^"]+)"', listed)

    assert names(probe) == names(REPO) != []


def test_its_host_cell_is_packed_installed_and_run(probe: Path) -> None:
    base = REPO / "build" / "bootstrap-channel"
    channel = ["--channel", base.as_uri()] if base.is_dir() else []
    command = [probe / "scripts" / "build_all.sh", "stable210-cpu", *channel]
    run(*command, cwd=probe, PYTHON=sys.executable)
    assert [*probe.glob("dist/probe_op-*.whl")]
    assert [*probe.glob("dist/channel/linux-64/probe-op-*.conda")]


@pytest.mark.network
def test_its_whole_matrix_is_built_installed_and_run(probe: Path) -> None:
    """measurements/results/new_project.json.xz stores what it leaves in dist/manifest.json."""
    run(probe / "scripts" / "build_all.sh", cwd=probe, PYTHON=sys.executable)
    manifest = json.loads((probe / "dist" / "manifest.json").read_text(encoding="utf-8"))
    assert {cell["state"] for cell in manifest["cells"].values()} <= {"done", "skipped"}
    assert [a["path"] for a in manifest["artefacts"] if a["kind"] == "fat"]


@pytest.mark.parametrize("order", [("lltm_conda", "probe_op", "late_op")])
@pytest.mark.parametrize("turn", [1, -1])
def test_packages_load_in_any_order(site: Path, order: tuple[str, ...], turn: int) -> None:
    code = "for name in sys.argv[1:]: load(name)\nfor call in CALLS.values(): call()"
    assert [line.split()[0] for line in python(code, site, *order[::turn])] == [*order[::turn]]


def test_packages_load_from_threads(site: Path) -> None:
    code = (
        "go = threading.Barrier(3)\n"
        "def work(name):\n    go.wait(); load(name)\n    for _ in range(100): CALLS[name]()\n"
        "threads = [threading.Thread(target=work, args=(name,)) for name in CALLS]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    loaded = {line.split()[0] for line in python(code, site)}
    assert loaded == {"lltm_conda", "probe_op", "late_op"}


def test_each_judges_only_its_own(site: Path) -> None:
    code = (
        "from importlib import import_module\n"
        "for judge in ('probe_op', 'late_op'):\n"
        "    compat = import_module(f'{judge}.engine.doctor')\n"
        "    project = import_module(f'{judge}._project').PROJECT\n"
        "    runtime = compat.probe_runtime(project=project, gpu=False)\n"
        "    for path in sys.argv[1:]: print(compat.judge_file(path, runtime).accepted)"
    )
    glues = [
        str(path) for name in ("probe_op", "late_op") for path in site.glob(f"{name}/lib/glue*")
    ]
    environment = {"PROBE_OP_LOAD": "0", "LATE_OP_LOAD": "0"}
    assert python(code, site, *glues, **environment) == ["True", "False", "False", "True"]


PAGE = (REPO / "docs" / "ship" / "own-op.md").read_text(encoding="utf-8")
# How commands begin that run here. Others run in other tests, or need a GPU, conda or all cells.
HERE = ("scripts/build_all.sh --list", "scripts/build_all.sh --write-generated")
ELSEWHERE = (
    *("scripts/new_project.sh", "cd ../my-norm", "pip install .", "pytest tests", "cmake "),
    "scripts/lint.sh",
    *("scripts/build_all.sh host", "scripts/test.sh", "(cd /tmp && python", "conda install"),
    *("(cd /tmp && MY_NORM_LOAD=0", "scripts/build_all.sh --upload", "pip install dist/"),
)


def test_commands_of_the_page_run(probe: Path) -> None:
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)).splitlines()
    runnable = [line for line in lines if line.startswith(HERE)]
    assert len(runnable) == len(HERE)
    others = [line for line in lines if line not in runnable and line != "scripts/build_all.sh"]
    assert [line for line in others if not line.startswith(ELSEWHERE)] == []
    for line in runnable:
        run("bash", "-ec", line, cwd=probe)


def test_a_fault_in_one_is_not_blamed_on_another(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    (broken / "probe_op" / "lib" / "kernels-cpu.so").write_bytes(b"\x7fELF")
    code = (
        "load('lltm_conda')\n"
        "try: load('probe_op')\nexcept ImportError as error: print(str(error).splitlines()[0])\n"
        "load('late_op'); CALLS['lltm_conda'](); CALLS['late_op']()"
    )
    first, error, last = python(code, broken)
    assert (first.split()[0], last.split()[0]) == ("lltm_conda", "late_op")
    assert error.startswith("probe-op cannot be loaded: kernels-cpu.so ")


def test_an_update_brings_the_engine_and_touches_nothing_else(probe: Path, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    shutil.copytree(probe, repo, ignore=shutil.ignore_patterns("build", "dist", "lib"))
    ours = repo / "probe_op" / "functions.py"
    ours.write_text(ours.read_text() + "# mine\n")
    summary = "Said otherwise"
    # The second as --write-generated does.
    for name in ("build_matrix.yaml", "recipe/recipe.yaml"):
        content = (repo / name).read_text()
        changed = re.sub(r"(?m)^(  summary: ).*?(?=  #=|$)", rf"\1{summary}", content)
        (repo / name).write_text(changed)
        assert summary in (repo / name).read_text()
    theirs = repo / "torchship" / "include" / "torchship" / "guards.h"
    engine = theirs.read_text()
    theirs.write_text(engine + "// changed\n")
    output = run(NEW, "--update", repo, cwd=tmp_path, check=False)
    assert "torchship/include/torchship/guards.h" in output and "put it back" in output
    theirs.unlink()  # as if it were new in this engine
    run(NEW, "--update", repo, cwd=tmp_path)
    assert theirs.read_text() == engine
    changed = set(run("git", "status", "--porcelain", cwd=repo).splitlines())
    follows = {" M pyproject.toml", " M recipe/recipe.yaml", " M engine.json"}
    assert changed - follows == {" M build_matrix.yaml", " M probe_op/functions.py"}


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("Not-a-name", "there", "lower-case words"),
        ("torch", "there", "PyTorch's own"),
        ("fine", ".", "must be empty"),
    ],
)
def test_what_cannot_be_made_is_named(name: str, folder: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert message in run(NEW, name, tmp_path / folder, cwd=tmp_path, check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

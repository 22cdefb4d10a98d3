"""The workflows of a project have the jobs that its matrix needs, and no other."""

from __future__ import annotations

import re
import shutil
from io import StringIO
from pathlib import Path

import pytest
from new_projects import make
from rich.console import Console
from ruamel.yaml import YAML

from measurements.rehearsal.occasions import occasions_of
from measurements.rehearsal.rehearsal import Theatre
from measurements.rehearsal.source import Source
from torchship.release.matrix import generated
from torchship.release.matrix.load import load, load_settings

ARM = re.compile(r"(?m)^  linux-aarch64:\n(?:    .*\n)*")


def without_arm(content: str) -> str:
    return ARM.sub("", content)


def without_old_torches(content: str) -> str:
    return without_arm(re.sub(r'(?m)^  "2\.[4-9]":\n(?:    .*\n)*', "", content))


def one_cell(content: str) -> str:
    return re.sub(r"(?m)^  devices: .*$", "  devices: [cpu]", without_old_torches(content))


def for_cuda_alone(content: str) -> str:
    content = without_old_torches(content).replace("[cpu, cu12, cu13]", "[cu12, cu13]")
    return re.sub(r"(?m)^  cpu: .*\n", "", content)


def drop_code_for_the_cpu(project: Path) -> None:
    """As docs/ship/helpers.md has it for a project that is only for CUDA."""
    shutil.rmtree(project / "csrc" / "kernels" / "cpu")
    registration = project / "csrc" / "ops" / "register.cpp"
    code = registration.read_text(encoding="utf-8")
    assert "kOnCPU | kOnCUDA" in code
    registration.write_text(code.replace("kOnCPU | kOnCUDA", "kOnCUDA"), encoding="utf-8")


CHANGES = {
    "all": lambda content: content,
    "no Arm": without_arm,
    "no old torches": without_old_torches,
    "CUDA alone": for_cuda_alone,
    "one cell": one_cell,
}
JOBS = {
    "all": (["shards", "build", "optional", "arm", "merge", "attest", "draft"], True, "stable*"),
    "no Arm": (["shards", "build", "optional", "merge", "attest", "draft"], True, "stable*"),
    "no old torches": (["shards", "build", "merge", "attest", "draft"], True, "stable*"),
    "CUDA alone": (["shards", "build", "merge", "attest", "draft"], False, "stable*"),
    "one cell": (["shards", "build", "merge", "attest", "draft"], True, "stable*"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("projects"), "shaped-op")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.slow
def test_a_changed_matrix_changes_the_jobs(project: Path, change: str) -> None:
    matrix = project / "build_matrix.yaml"
    old = matrix.read_text(encoding="utf-8")
    folder = project / ".github" / "workflows"
    jobs, is_tested, selector = JOBS[change]
    try:
        matrix.write_text(CHANGES[change](old), encoding="utf-8")
        generated.write(load_settings(repo=project), Console(file=StringIO()))
        release = YAML(typ="safe").load(folder / "release.yml")
        test = YAML(typ="safe").load(folder / "test.yml")
        text = (folder / "test.yml").read_text(encoding="utf-8")
        assert [*release["jobs"]] == jobs
        assert release["jobs"]["merge"]["needs"] == [
            job for job in ("build", "optional", "arm") if job in jobs
        ]
        assert ("arm" in test["jobs"]) == ("arm" in jobs)
        assert ("- run: scripts/test.sh\n" in text) == is_tested
        assert selector in text
        assert "# begin:" not in text + (folder / "release.yml").read_text(encoding="utf-8")
    finally:
        matrix.write_text(old, encoding="utf-8")
        generated.write(load_settings(repo=project), Console(file=StringIO()))


def test_a_workflow_that_its_author_changed_is_left(project: Path) -> None:
    matrix = project / "build_matrix.yaml"
    old = matrix.read_text(encoding="utf-8")
    workflow = project / ".github" / "workflows" / "test.yml"
    before = workflow.read_text(encoding="utf-8")
    try:
        workflow.write_text(f"{before}# mine\n", encoding="utf-8")
        matrix.write_text(without_arm(old), encoding="utf-8")
        generated.write(load_settings(repo=project), Console(file=StringIO()))
        assert workflow.read_text(encoding="utf-8") == f"{before}# mine\n"
    finally:
        workflow.write_text(before, encoding="utf-8")
        matrix.write_text(old, encoding="utf-8")
        generated.write(load_settings(repo=project), Console(file=StringIO()))


@pytest.mark.slow
def test_a_matrix_of_aten_alone_names_no_stable_cells(tmp_path: Path) -> None:
    root = make(tmp_path, "aten-op", "--template", "aten")
    content = (root / "build_matrix.yaml").read_text(encoding="utf-8")
    content = re.sub(r"(?m)^  devices: .*$", "  devices: []", without_arm(content))
    (root / "build_matrix.yaml").write_text(content, encoding="utf-8")
    shape = generated.workflow_shape(load(root / "build_matrix.yaml"))
    assert not shape.stable


@pytest.mark.rehearsal
@pytest.mark.skipif(shutil.which("jq") is None, reason="GitHub's machines have jq")
@pytest.mark.parametrize("files", [("test.yml",), ("release.yml", "publish.yml")], ids="-".join)
@pytest.mark.parametrize("change", ["no Arm", "no old torches", "CUDA alone", "one cell"])
def test_the_workflows_of_a_changed_matrix_run(
    tmp_path: Path, change: str, files: tuple[str, ...]
) -> None:
    """Each on the last of its occasions, which has the jobs of all others: for `test.yml` a start
    by hand, for `release.yml` the tag, for `publish.yml` the release that was made of it."""
    root = make(tmp_path, "shaped-op")
    matrix = root / "build_matrix.yaml"
    content = CHANGES[change](matrix.read_text(encoding="utf-8"))
    # The CUDA that PyPI has a compiler of.
    matrix.write_text(content.replace("cu12, cu13", "cu13"), encoding="utf-8")
    if change == "CUDA alone":
        drop_code_for_the_cpu(root)
    generated.write(load_settings(repo=root), Console(file=StringIO()))
    Source(root).commit("Start")
    source = Source.clone(root, tmp_path / "source")
    if change == "no Arm":  # the only one with old torches, of which one is enough
        source.keep_cells()
    theatre = Theatre(source, tmp_path / "theatre")
    for workflow in (each for each in theatre.workflows() if each.file in files):
        occasion = occasions_of(workflow, f"v{source.version}")[-1]
        rehearsed = theatre.play(workflow, occasion)
        print(workflow.file, round(rehearsed.seconds), rehearsed.report.results)
        assert rehearsed.report.problems == []
        results = {**rehearsed.report.results}
        results.pop("optional", None)  # needs conda-forge, and stops no release
        assert {*results.values()} == {"success"}

"""The Slurm array and the Kubernetes job of docs/ship/shards.md: valid; between them every cell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from release_places import REPO
from ruamel.yaml import YAML

from torchship.release.matrix import cibuildwheel
from torchship.release.matrix.cells import all_cells, part_of

PAGE = REPO / "docs" / "ship" / "shards.md"
# Stands in for the release tool: leaves its arguments where the tool leaves what it made.
TOOL = """#!/bin/sh
mkdir dist
echo "$@" >dist/arguments
echo "$TRY" >"dist/try-$TRY"
exit "${CODE:-0}"
"""


def block(language: str, word: str) -> str:
    """The one block in this language that holds a word."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (only,) = [code for code in blocks if word in code]
    return only


@pytest.fixture
def job() -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(block("yaml", "kind: Job"))


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A repository with a tag, whose release tool only says what it was asked."""
    root = tmp_path / "lltm"
    (root / "scripts").mkdir(parents=True)
    (root / "scripts" / "build_all.sh").write_text(TOOL)
    (root / "scripts" / "build_all.sh").chmod(0o755)
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        [*identity, "commit", "-qm", "x"],
        ["tag", "v0.1.0"],
    ):
        subprocess.run(["git", "-C", root, *arguments], check=True)
    return root


def parts(folder: Path) -> Iterator[str]:
    """What follows `--shard` in every part that was kept."""
    for path in folder.glob("*/arguments"):
        option, part = path.read_text().split()
        assert option == "--shard"
        yield part


def slurm(checkout: Path, number: int, count: int, **env: str) -> int:
    env |= {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": str(count)}
    env |= {"SLURM_SUBMIT_DIR": str(checkout)}
    script = block("bash", "#SBATCH")
    return subprocess.run(["bash"], input=script, env={**os.environ, **env}, text=True).returncode


def kubernetes(checkout: Path, job: dict[str, Any], index: int, **env: str) -> int:
    """The container's command, its folders moved below that of the checkout."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    root = checkout.parent
    (root / "shards").mkdir(exist_ok=True)
    command = [
        word.replace("/tmp/lltm", f"{root}/{index}").replace("/shards", f"{root}/shards")
        for word in (*container["command"], *container["args"])
    ]
    env |= {"JOB_COMPLETION_INDEX": str(index), "GIT_CONFIG_COUNT": "1"}
    env |= {"GIT_CONFIG_KEY_0": f"url.{root}/.insteadOf"}
    env |= {"GIT_CONFIG_VALUE_0": re.search(r"(https://\S+/)lltm\.git", command[-1])[1]}
    (root / "lltm.git").is_symlink() or (root / "lltm.git").symlink_to(checkout)
    return subprocess.run(command, env={**os.environ, **env}).returncode


def everything(matrix, shards: Iterator[str]) -> bool:
    cells = all_cells(matrix)
    names = sorted(cell.name for part in shards for cell in part_of(cells, part))
    return names == sorted(cell.name for cell in cells)


def test_the_slurm_array_builds_every_cell_once(matrix, checkout) -> None:
    first, last = map(int, re.search(r"--array=(\d+)-(\d+)", block("bash", "#SBATCH")).groups())
    numbers = range(first, last + 1)
    assert [slurm(checkout, number, len(numbers)) for number in numbers] == [0] * len(numbers)
    assert everything(matrix, parts(checkout / "shards"))


def test_the_kubernetes_job_builds_every_cell_once(matrix, checkout, job) -> None:
    count = job["spec"]["completions"]
    assert [kubernetes(checkout, job, index) for index in range(count)] == [0] * count
    assert everything(matrix, parts(checkout.parent / "shards"))


def test_a_second_try_replaces_what_the_first_left(checkout, job) -> None:
    """Else the merge would take the first one's files, and the second's lie in a folder below."""
    for number in ("1", "2"):
        assert slurm(checkout, 2, 8, TRY=number) == 0
        assert kubernetes(checkout, job, 1, TRY=number) == 0
        shutil.rmtree(checkout.parent / "1")  # a pod has a disk of its own
    for part in (checkout / "shards" / "2", checkout.parent / "shards" / "1"):
        assert sorted(path.name for path in part.iterdir()) == ["arguments", "try-2"]


def test_a_part_that_fails_is_kept_and_fails_its_job(checkout, job) -> None:
    """The manifest of a part says what failed, and `merge` wants it."""
    assert slurm(checkout, 2, 8, CODE="1") == 1
    assert kubernetes(checkout, job, 1, CODE="1") == 1
    assert list(parts(checkout / "shards")) == ["2/8"] == list(parts(checkout.parent / "shards"))


def test_the_job_follows_kubernetes_schema(job) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(job, "1.31", strict=True)
    job["spec"]["template"]["spec"]["containers"][0]["imag"] = "x"
    with pytest.raises(validator.ValidationError):
        validator.validate(job, "1.31", strict=True)


def test_the_job_clones_the_project(matrix, job) -> None:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert f" {matrix.project.url}.git " in container["args"][0]


def test_the_job_runs_where_the_workflow_does(matrix, job) -> None:
    flow = YAML(typ="safe", pure=True).load(
        (REPO / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    )
    env = flow["jobs"]["build"]["env"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == cibuildwheel.image(matrix)
    assert {entry["name"]: entry["value"] for entry in container["env"]}.items() < env.items()

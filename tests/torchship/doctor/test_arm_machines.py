"""What the checker says on Arm, and on x86-64 of binaries for Arm."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made_facts import make_cuda, make_glue, make_torch
from shipped_facts import PROJECT, make_runtime

from torchship.judge import judge, read_binary
from torchship.judge.machine.runtime_probe import l4t
from torchship.judge.records import Driver, Environment, Runtime
from torchship.judge.support import load

ARM, X86 = "linux-aarch64", "linux-x86_64"


def runtime_on(platform: str, **facts: object) -> Runtime:
    return make_runtime(machine=platform.removeprefix("linux-"), **facts)


@pytest.mark.parametrize(("built", "host"), [(ARM, X86), (X86, ARM)])
def test_a_binary_of_the_other_platform_is_refused_for_that_alone(built: str, host: str) -> None:
    verdict = judge(make_glue(platform=built), runtime_on(host))
    rejected = [finding.dimension for finding in verdict.findings if finding.status == "rejected"]
    assert rejected == ["platform"]
    assert verdict.cause.why == f"glue-stable210.so was built for {built}, but this is {host}"
    machine = host.removeprefix("linux-")
    assert f"{PROJECT.version}-py3-none-manylinux_*_{machine}.whl" in verdict.cause.fix.text


@pytest.mark.parametrize("platform", [ARM, X86])
def test_a_binary_of_the_own_platform_is_accepted(platform: str) -> None:
    assert judge(make_glue(platform=platform), runtime_on(platform)).accepted


def test_what_is_not_built_names_what_is() -> None:
    cause = judge(make_glue(), runtime_on("linux-ppc64le")).cause
    assert cause.dimension == "platform"
    assert "no binary for linux-ppc64le" in cause.why
    assert f"{X86} and {ARM}" in cause.why
    assert "reference" in cause.fix.text


def test_each_platform_has_its_own_glues() -> None:
    """PyPI's torch 2.6 has another C++ ABI for Arm."""
    facts = load(PROJECT.folder)
    assert facts.platforms == (X86, ARM)
    assert "aten26-abi0" in facts.glues(X86) - facts.glues(ARM)
    assert "aten26-abi1" in facts.glues(ARM)
    assert facts.glues("linux-ppc64le") == frozenset()


@pytest.mark.parametrize(
    ("alignment", "page", "fits"),
    [
        *((4096, 4096, True), (65536, 4096, True), (65536, 65536, True), (4096, 65536, False)),
        *((4096, 16384, False), (0, 65536, True), (4096, 0, True)),
    ],
)
def test_segments_must_begin_where_pages_do(alignment: int, page: int, fits: bool) -> None:
    facts = runtime_on(ARM, page_size=page)
    verdict = judge(make_glue(platform=ARM, alignment=alignment), facts)
    assert verdict.accepted == fits
    if not fits:
        assert verdict.cause.dimension == "page size"
        assert f"max-page-size={page}" in verdict.cause.fix.text


def test_a_file_says_how_its_segments_are_aligned(sample: Path) -> None:
    process = subprocess.run(["readelf", "-lW", sample], capture_output=True, text=True)
    alignments = re.findall(r"^  LOAD .* (0x[0-9a-f]+)$", process.stdout, re.MULTILINE)
    assert read_binary(sample).alignment == min(int(alignment, 16) for alignment in alignments)


@pytest.mark.skipif(
    not shutil.which("aarch64-linux-gnu-gcc"),
    reason="no cross compiler: run scripts/test_env.sh --cross",
)
@pytest.mark.parametrize("size", [4096, 65536])
def test_an_object_for_arm_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "their.so"
    flags = ["-shared", "-fPIC", "-nostdlib", f"-Wl,-z,max-page-size={size}", "-xc", "-"]
    command = ["aarch64-linux-gnu-gcc", *flags, "-o", path]
    subprocess.run(command, input="int f(void) { return 1; }", text=True, check=True)
    binary = read_binary(path)
    assert (binary.platform, binary.alignment, binary.problems) == (ARM, size, ())


@pytest.mark.parametrize(
    ("content", "release"),
    [
        (
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64",
            "R36.4.3",
        ),
        ("# R35 (release), REVISION: 6.1, GCID: 39721438", "R35.6.1"),
        ("nonsense", "R?"),
    ],
)
def test_a_jetson_says_its_l4t(tmp_path: Path, content: str, release: str) -> None:
    path = tmp_path / "nv_tegra_release"
    path.write_text(f"{content}\n", encoding="utf-8")
    assert l4t(path) == release
    assert l4t(tmp_path / "none") == ""


def test_the_driver_of_a_jetson_comes_with_jetpack() -> None:
    torch = make_torch("2.11.0+cu130", cuda="13.0")
    facts = {"gpu_probed": True, "driver": Driver(None, (12, 6)), "l4t": "R36.4.3"}
    runtime = runtime_on(ARM, torch=torch, environment=Environment(), **facts)
    cause = judge(make_cuda(platform=ARM), runtime).cause
    assert cause.dimension == "driver"
    assert "L4T R36.4.3" in cause.observed
    assert "JetPack of CUDA 13.0" in cause.fix.text
    assert "tiny_client build" in cause.fix.text
    other = judge(make_cuda(platform=ARM), runtime._replace(l4t="")).cause
    assert "JetPack" not in other.fix.text

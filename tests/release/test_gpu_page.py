"""The pages say which GPUs our kernels serve, as the checker decides, and which CUDA torch has."""

from __future__ import annotations

import re

from release_places import REPO

from torchship.judge.rules.cuda import runs_on

GPU_ROW = re.compile(r"^\| ([^|]+) \| (\d+)\.(\d) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def words_of(page: str) -> str:
    return " ".join((REPO / page).read_text(encoding="utf-8").split())


def test_the_table_of_gpus_says_what_the_checker_decides(matrix) -> None:
    """B300, Rubin (10.7) and the DGX Spark's GB10 (12.1) among them: by code of their major."""
    page = (REPO / "docs/fails/faq.md").read_text(encoding="utf-8")
    rows = GPU_ROW.findall(page)
    assert {"10.7", "12.1"} <= {f"{major}.{minor}" for _, major, minor, *_ in rows}
    for gpu, major, minor, *cells in rows:
        capability = (int(major), int(minor))
        for kernels, cell in zip(("cuda12", "cuda13"), cells, strict=True):
            codes = [
                a for a in matrix.kernels[kernels].archs if runs_on((a,), capability) == "code"
            ]
            assert cell.partition(":")[0] == (codes[0] if codes else "none"), (gpu, kernels)


def test_pages_say_which_cuda_pypis_torch_is_built_for(matrix) -> None:
    majors = {minor: matrix.torch[minor].cuda_major for minor in matrix.minors()}
    last_12 = [minor for minor, major in majors.items() if major == 12][-1]
    first_13 = next(minor for minor, major in majors.items() if major == 13)
    support = words_of("docs/numbers/support.md")
    assert f"On PyPI, torch {last_12} and older are built for CUDA 12" in support
    assert f"torch {first_13} and newer for CUDA 13" in support
    assert f"PyPI's torch is built for CUDA 13 from {first_13} on" in words_of("docs/fails/faq.md")

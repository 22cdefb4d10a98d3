"""The page of GPUs says what the checker decides of our kernels."""

from __future__ import annotations

import re

from release_places import REPO

from torchship.doctor.checks.cuda import runs_on

GPU_ROW = re.compile(r"^\| ([^|]+) \| (\d+)\.(\d) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


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

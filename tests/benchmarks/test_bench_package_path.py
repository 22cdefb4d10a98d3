from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.package_path import prefer_installed, working_directory


def tree(root: Path, binary: bool) -> Path:
    (root / "lltm_conda" / "lib").mkdir(parents=True)
    if binary:
        (root / "lltm_conda" / "lib" / "glue-stable210.so").touch()
    return root.resolve()


def test_sources_without_binaries_come_after_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path, binary=False)
    monkeypatch.setattr(sys, "path", [str(root), "/site-packages", "/other"])
    prefer_installed(root)
    assert sys.path == ["/site-packages", "/other", str(root)]
    assert working_directory(root) != root


def test_sources_with_binaries_stay_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path, binary=True)
    monkeypatch.setattr(sys, "path", [str(root), "/site-packages"])
    prefer_installed(root)
    assert sys.path == [str(root), "/site-packages"]
    assert working_directory(root) == root

"""The page of the CUDA kernels names every family, every file, and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CUDA = REPO / "csrc" / "kernels" / "cuda"
PAGE = (CUDA / "README.md").read_text(encoding="utf-8")
SOURCES = sorted(path for path in CUDA.rglob("*") if path.suffix in (".cu", ".cpp", ".h"))


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def families_of(title: str) -> list[str]:
    return re.findall(r"^\| `([a-z0-9]+)` \|", section(title), re.MULTILINE)


def test_every_family_of_a_step_has_a_row() -> None:
    plan = (CUDA / "step" / "step_plan.cu").read_text(encoding="utf-8")
    names = re.search(r"const names\[\] = \{(.*?)\};", plan, re.DOTALL)
    assert names is not None
    assert sorted(re.findall(r'"(\w+)"', names[1])) == sorted(families_of("One step"))


def test_every_family_of_a_layer_has_a_row() -> None:
    names = [
        name
        for path in SOURCES
        if path.parent.name == "layer" and path.suffix == ".cu"
        for name in re.findall(r'LayerFamily \w+ = \{\s*"(\w+)"', path.read_text(encoding="utf-8"))
    ]
    assert sorted(names) == sorted(families_of("A layer"))


def test_a_source_is_named_or_included_by_one_that_is() -> None:
    named = {path.name for path in SOURCES if f"{path.name}`" in PAGE}
    included = {
        header
        for path in SOURCES
        for header in re.findall(r'#include "(?:[./\w]*/)?(\w+\.h)"', path.read_text("utf-8"))
    }
    assert {path.name for path in SOURCES} - named - included == set()


def test_what_the_page_names_is_there() -> None:
    tests = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert tests
    assert [name for name in tests if not (REPO / name).is_file()] == []
    files = re.findall(r"`(?:\w+/)?(\w+\.(?:cu|h|cpp))`", PAGE)
    source_names = {path.name for path in SOURCES}
    assert [name for name in files if name not in source_names] == []


def test_bounds_are_in_the_table_alone() -> None:
    """A plan holds no measured number of its own: such a number has four digits or more."""
    numbers = {}
    for path in (CUDA / "step" / "step_plan.cu", CUDA / "layer" / "layer_plan.cu"):
        code = re.sub(r'//.*|"[^"]*"', "", path.read_text(encoding="utf-8"))
        numbers[path.name] = re.findall(r"\b\d[\d']{3,}\b|\b\d+e[3-9]\b", code)
    assert numbers == {"step_plan.cu": [], "layer_plan.cu": []}

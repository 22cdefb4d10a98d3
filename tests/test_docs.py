"""The documentation is true where a machine can tell."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(REPO))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        link
        for link in LINK.findall(page.read_text())
        if not link.startswith(("http", "#", "mailto:"))
        and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert broken == []


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    queue = [REPO / "docs" / "index.md"]
    while queue:
        page = queue.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = (page.parent / link.partition("#")[0] for link in LINK.findall(page.read_text()))
        queue += [path.resolve() for path in targets if path.suffix == ".md" and path.is_file()]
    unreachable = [name_of(page) for page in PAGES if page not in seen]
    assert unreachable == [], "link these from docs/index.md"


@pytest.mark.parametrize("page", ["README.md", "docs/op.md", "docs/layer.md"])
def test_python_shown_runs(page: str) -> None:
    blocks = PYTHON.findall((REPO / page).read_text())
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {"__name__": "shown"})


def test_readme_begins_with_the_two_commands() -> None:
    lines = (REPO / "README.md").read_text().splitlines()
    assert lines[1].split("#")[0].strip() == "scripts/build_all.sh host"
    assert lines[2].split("#")[0].strip() == "scripts/test.sh"


CONDA_INSTALL = re.compile(r"conda install (?!--force-reinstall)([^`#\n]*\blltm\b[^`#\n]*)")


@pytest.mark.parametrize("page", ["README.md", "docs/conda.md"])
def test_conda_commands_name_both_channels(page: str) -> None:
    """Without conda-forge there is no pytorch that the package fits."""
    commands = CONDA_INSTALL.findall((REPO / page).read_text())
    assert commands
    assert [words for words in commands if not words.startswith("-c conda-forge -c ")] == []


def test_api_page_says_what_the_docstrings_say() -> None:
    pytest.importorskip("griffe")
    script = runpy.run_path(str(REPO / "scripts" / "api_page.py"))
    page = (REPO / "docs" / "api.md").read_text()
    assert page == script["render"](), "run: python scripts/api_page.py"


def test_api_page_describes_every_public_name() -> None:
    import lltm_conda

    described = set(re.findall(r"^### `(\w+)`", (REPO / "docs" / "api.md").read_text(), re.M))
    public = {name for name in lltm_conda.__all__ if not name.startswith("__")}
    assert public <= described

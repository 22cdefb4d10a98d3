"""Deleting or adding an entry of build_matrix.yaml, and `generate`, is all."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from release_places import REPO
from ruamel.yaml import YAML

from torchship.builder import HostCompiler
from torchship.release import ReleaseError
from torchship.release.matrix import generated
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.load import leftovers, load, load_settings
from torchship.release.matrix.platforms import FIRST
from torchship.release.matrix.templates import FOLDER, OPERATORS
from torchship.release.plan.machine import Compilers, Host
from torchship.release.plan.plan import Plan
from torchship.release.plan.planner import fill

GXX = HostCompiler(("g++",), "g++", "12.2.0")
HOST = Host("python3", "3.12", None, GXX, Compilers(debian=frozenset({"clang-19"})))
NEW_TORCH = """\
  "2.16":
    release: "2.16.0"
    pythons: ["3.11", "3.12", "3.13", "3.14", "3.15"]
    cuda: {version: "13.2", archs: [75, 80, 86, 90, 100, 120]}
    abi: {pypi: 1, conda: 1}
    gcc: [11, 15]
"""


def delete(pattern: str) -> Callable[[str], str]:
    """Deletes an entry with its indented lines."""

    def change(text: str) -> str:
        changed, count = re.subn(
            rf"(?m)^{pattern}.*\n(?:{re.match(' *', pattern)[0]} +.*\n)*", "", text
        )
        assert count == 1, pattern
        return changed

    return change


@dataclass(frozen=True)
class Case:
    """A change of the matrix, and the cells that go and come by it."""

    name: str
    change: Callable[[str], str]
    gone: str = "nothing"
    come: str = "nothing"
    is_slow: bool = False  # one goes the whole way by default


CASES = (
    Case("an old torch goes", delete('  "2.4":\n    release'), gone=r"aten24-.*"),
    Case("a torch of the stable glue goes", delete('  "2.12":\n    release'), is_slow=True),
    Case("a torch comes", lambda text: text + NEW_TORCH, is_slow=True),
    Case("a CUDA major goes", delete("  cuda12:"), gone=r".*-cu12(-\w+)?", is_slow=True),
    Case("a platform goes", delete("  linux-aarch64:"), gone=r".*-aarch64", is_slow=True),
    Case(
        "a platform comes",
        lambda text: text.replace(
            "  linux-aarch64:\n", "  linux-riscv64:\n    debian: riscv64\n  linux-aarch64:\n"
        ),
        come=r".*-riscv64",
        is_slow=True,
    ),
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of this repository, as it is in the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=REPO,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (REPO / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, tmp_path / name)
    return tmp_path


def cells_of(root: Path) -> set[str]:
    matrix = load(root / "build_matrix.yaml")
    return {cell.name for name in matrix.platforms for cell in all_cells(matrix.on(name))}


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.is_slow else []) for c in CASES],
)
@pytest.mark.slow
def test_an_entry_of_the_matrix_is_all(copy: Path, case: Case) -> None:
    before = cells_of(copy)
    path = copy / "build_matrix.yaml"
    path.write_text(case.change(path.read_text()))
    after = cells_of(copy)
    assert before - after == {name for name in before if re.fullmatch(case.gone, name)}
    assert all(re.fullmatch(case.come, name) for name in after - before)
    settings = load_settings(FIRST, copy)
    generated.write_stale(settings)
    generated.check(settings)
    for template in ("rms_norm", "aten"):
        folder = copy / "torchship" / "templates" / template
        theirs = cells_of(folder)
        assert not [name for name in theirs if re.fullmatch(case.gone, name)]
    for platform in load(path).platforms:
        settings = load_settings(platform, copy)
        plan = fill(Plan(settings, HOST, all_cells(settings.matrix), tools=settings.matrix.tools))
        assert {f"audit/{cell}" for cell in plan.cells} <= plan.tasks.keys()


def pages(root: Path) -> dict[str, str]:
    paths = [root / "README.md", *(root / "docs").rglob("*.md")]
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}


GENERATED = re.compile(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", re.DOTALL)
PRINTED = re.compile(r"^```text\n.*?^```$", re.DOTALL | re.MULTILINE)
#: How pages speak of the oldest torch that is served.
PROMISE = r"(?:from|than|torch)\s+{0}\s+(?:to|on|and|or)\b|\b{0}\s+(?:or newer|and newer|to 2)"


def by_hand_in(page: str) -> str:
    for others in (generated.IN_PROSE, GENERATED, PRINTED):
        page = others.sub("", page)
    return page


def test_no_page_promises_the_oldest_torch_by_hand() -> None:
    """But where `generate` writes; what was measured or printed stays true."""
    oldest = re.escape(load(REPO / "build_matrix.yaml").minors()[0])
    promises = re.compile(PROMISE.format(oldest))
    found = {
        name: promise[0]
        for name, page in pages(REPO).items()
        if not name.startswith("docs/numbers/") and (promise := promises.search(by_hand_in(page)))
    }
    assert found == {}


@pytest.mark.slow
def test_the_templates_do_not_hang_on_the_layout_of_the_matrix(copy: Path) -> None:
    """Lists without an indent, long lines in two, as a program writes them."""
    templates = [copy / FOLDER / name / "build_matrix.yaml" for name in OPERATORS]
    before = [load(path) for path in templates]
    yaml, matrix = YAML(), copy / "build_matrix.yaml"
    tree = yaml.load(matrix)
    with matrix.open("w") as file:
        yaml.dump(tree, file)
    generated.write_stale(load_settings(FIRST, copy))
    assert [load(path) for path in templates] == before


def test_pages_name_the_torches_that_are_left(copy: Path) -> None:
    path = copy / "build_matrix.yaml"
    oldest = load(path).minors()[0]
    path.write_text(delete(f'  "{oldest}":\n    release')(path.read_text()))
    generated.write_stale(load_settings(FIRST, copy))
    said = {
        found[3] for page in pages(copy).values() for found in generated.IN_PROSE.finditer(page)
    }
    assert said & {load(path).minors()[0]}
    assert not [fact for fact in said if re.search(rf"\b{re.escape(oldest)}\b", fact)]


def test_a_fact_that_no_page_can_name_is_said_with_those_that_are(copy: Path) -> None:
    (copy / "docs" / "index.md").write_text("torch <!--=oldest-->2.4<!--/-->")
    with pytest.raises(ReleaseError, match=r"docs/index\.md: <!--=oldest--> .*oldest-torch"):
        generated.check(load_settings(FIRST, copy))


def test_what_belongs_to_no_entry_is_said_with_its_line(copy: Path) -> None:
    path = copy / "build_matrix.yaml"
    assert leftovers(path) == []
    path.write_text(delete("  cuda12:")(delete('  "2.4":\n    release')(path.read_text())))
    lines = path.read_text().splitlines()
    said = leftovers(path)
    places = [int(text.split(":")[1]) for text in said]
    assert all("cu12" in lines[place - 1] or '"2.4"' in lines[place - 1] for place in places)
    assert sum("names 2.4, which has no entry" in text for text in said) == 1


def test_a_mistake_in_what_differs_is_named_at_its_line(copy: Path) -> None:
    path = copy / "build_matrix.yaml"
    text = path.read_text()
    path.write_text(
        text.replace(
            '"2.6": {cuda: null, aten: [cpu], abi: {pypi: 1}}', '"2.6": {cuda: null, gcc: [9]}'
        )
    )
    line = 1 + text.splitlines().index('        "2.6": {cuda: null, aten: [cpu], abi: {pypi: 1}}')
    with pytest.raises(ReleaseError, match=rf"build_matrix\.yaml:{line}: .*differs.*gcc"):
        load(path)

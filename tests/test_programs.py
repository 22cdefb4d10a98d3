"""What measures, builds the pages or serves a release by hand stands without the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks", "docs", "measurements", "scripts")
#: They run inside a Python that is judged, whose path is a part of what they measure.
INSIDE = {"judge_objects.py", "load_objects.py", "record_headers.py", "make_foreign_table.py"}


def programs() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((REPO / folder).rglob("*.py"))]


def is_path_edited(tree: ast.AST) -> bool:
    """Whether code assigns to `sys.path` or its parts, or calls a method that changes it."""
    changing = ("append", "extend", "insert", "remove", "sort", "pop", "clear", "reverse")
    stored = (ast.unparse(node) for node in ast.walk(tree) if is_stored(node))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return any(target.startswith("sys.path") for target in stored) or any(
        f"sys.path.{name}" in called for name in changing
    )


def is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)


def test_no_program_edits_the_path() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in programs()}
    editing = [path for path, tree in trees.items() if is_path_edited(tree)]
    assert {path.name for path in editing} == INSIDE


def test_no_program_imports_from_the_tests() -> None:
    own = {path.stem for path in programs()}
    tests = {path.stem for path in (REPO / "tests").rglob("*.py")} - own | {"tests"}
    importing = []
    for path in programs():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            importing += [
                f"{path.relative_to(REPO)}:{node.lineno} imports {name}"
                for name in names
                if name.partition(".")[0] in tests
            ]
    assert importing == []


#: The folders of the checkout whose modules are run by name.
RUN_BY_NAME = "benchmarks|docs|measurements|scripts|torchship"


def test_every_module_that_is_run_by_name_exists() -> None:
    """In pages, in docstrings, and in programs that start it: `("-m", "docs._ext.page_tables")`."""
    started = re.compile(rf"-m(?: |\", \")((?:{RUN_BY_NAME})\b[\w.]*\w)")
    folders = ("benchmarks", "docs", "measurements", "scripts", "torchship", ".github", ".ci")
    files = [*REPO.glob("*.md"), *(path for name in folders for path in (REPO / name).rglob("*"))]
    missing = {}
    for path in files:
        if path.suffix not in (".md", ".py", ".sh", ".yml") or not path.is_file():
            continue
        for name in started.findall(path.read_text(encoding="utf-8")):
            file = REPO / name.replace(".", "/")
            if not (file.with_suffix(".py").is_file() or (file / "__main__.py").is_file()):
                missing[name] = str(path.relative_to(REPO))
    assert missing == {}

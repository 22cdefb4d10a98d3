"""measurements/count_clarity.py counts what its rules say, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PROGRAM = REPO / "measurements" / "count_clarity.py"
spec = importlib.util.spec_from_file_location("count_clarity", PROGRAM)
assert spec is not None and spec.loader is not None
clarity = importlib.util.module_from_spec(spec)
sys.modules["count_clarity"] = clarity  # dataclasses look their module up
spec.loader.exec_module(clarity)


def places(rule: str, content: str) -> list[str]:
    source = clarity.Source.parse("example.py", content)
    return [place.what for place in clarity.RULES[rule](source)]


@pytest.mark.parametrize(
    "statement", ["a, b = f(), g()", "a, b = x, 1", "a, b = x.c, y.c", "a, b = x.c, 1"]
)
def test_values_without_a_tie_are_unrelated(statement: str) -> None:
    assert places("tuples", statement) == [statement]


@pytest.mark.parametrize(
    "statement",
    [
        "a, b = 1, -2",
        "a, b = [], {}",
        "a, b = b, a",
        "a[i], a[j] = a[j], a[i]",
        "a, b = x.c, x.d",
        "a, b = f()",
        "a = f(), g()",
    ],
)
def test_constants_swaps_attributes_and_unpacked_values_are_related(statement: str) -> None:
    assert places("tuples", statement) == []


@pytest.mark.parametrize(("length", "lines"), [(94, 0), (95, 1), (100, 1)])
def test_a_line_is_long_from_95_characters(length: int, lines: int) -> None:
    assert len(places("long", "x = 1\n#" + "-" * (length - 1))) == lines


@pytest.mark.parametrize("annotation", ["Any", "typing.Any", "Any | None", "'Any'"])
def test_a_signature_counts_each_parameter_and_result_that_is_any(annotation: str) -> None:
    function = f"def f(a: {annotation}, *b: int, c: int, **d: {annotation}) -> {annotation}: ..."
    assert places("any", function) == ["f(a: Any)", "f(d: Any)", "f(...) -> Any"]


def test_any_inside_another_type_does_not_count() -> None:
    assert places("any", "def f(a: dict[str, Any]) -> list[Any]: ...") == []


def test_a_call_counts_from_six_positional_arguments() -> None:
    calls = [
        "f(1, 2, 3, 4, 5)",
        "g(1, 2, 3, 4, 5, 6)",
        "h(1, 2, 3, 4, 5, x=6)",
        "k(1, 2, 3, 4, 5, *x)",
    ]
    assert places("positional", "\n".join(calls)) == ["g: 6 by position", "k: 6 by position"]


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ('why = f"{a} is bad"\nraise E(f"{why}; mend it")', 1),
        ('if a:\n  pass\nelse:\n  why = "bad"\n  raise E(f"{why}; mend it") from e', 1),
        ('why = f(a)\nraise E(f"{why}; mend it")', 0),
        ('why = "bad"\nraise E(f"{a} is bad")', 0),
        ('why = "bad"\nraise E(why)', 0),
        ('why = "bad"\nprint(why)\nraise E(f"{why}; mend it")', 0),
        ('why = "bad"\nprint(f"{why}; mend it")', 0),
    ],
)
def test_an_error_text_is_torn_if_the_statement_before_holds_a_piece(
    code: str, number: int
) -> None:
    assert len(places("torn", code)) == number


@pytest.mark.parametrize(
    "binding",
    [
        "found = 1",
        "found: int = 1",
        "found += 1",
        "a, (b, *found) = c",
        "for found in a: pass",
        "[1 for found in a]",
        "with a as found: pass",
        "try: pass\nexcept E as found: pass",
        "match a:\n  case [1, *found]: pass",
        "match a:\n  case {1: 2, **found}: pass",
        "match a:\n  case found: pass",
        "f(found := 1)",
        "def f(found): pass",
        "def f(*found): pass",
        "def f(a, *, found): pass",
        "def f(**found): pass",
        "lambda found: 1",
        "class A:\n  found: int",
        "class A:\n  def f(self): self.found = 1",
    ],
)
def test_every_way_to_bind_a_vague_name_counts(binding: str) -> None:
    assert places("names", binding) == ["found"]


@pytest.mark.parametrize(
    "use", ["f(found)", "f(found=1)", "a.found = 1", "self.found", "def found(): pass"]
)
def test_a_use_of_a_vague_name_binds_nothing(use: str) -> None:
    assert places("names", use) == []


def test_a_vague_name_counts_once_in_each_scope() -> None:
    content = "def f(found):\n  found = 1\n  def g():\n    found = 2\nfound = 3"
    assert len(places("names", content)) == 3


def test_each_vague_name_stands_under_one_reason() -> None:
    names = " ".join(clarity.VAGUE_NAMES_BY_REASON.values()).split()
    assert len(names) == len(set(names))


def test_a_line_of_code_is_neither_blank_nor_a_comment() -> None:
    content = "# why\n\nx = 1  # one\n  # two\ny = '''\nz'''\n"
    source = clarity.Source.parse("example.py", content)
    assert clarity.count(source).lines == 3


def test_folders_add_up_and_source_leaves_tests_examples_and_docs_out() -> None:
    names = ["setup.py", "a/b/one.py", "a/two.py", "tests/x.py", "examples/y.py", "docs/z.py"]
    sources = [clarity.Source.parse(name, "found = 1") for name in names]
    by_folder = clarity.count_by_folder(sources)
    numbers = {folder: counts.names for folder, counts in by_folder.items()}
    assert numbers == {
        "a": 2,
        "docs": 1,
        "examples": 1,
        "setup.py": 1,
        "tests": 1,
        "source": 3,
        "all": 6,
    }
    assert list(clarity.count_by_folder(sources, depth=2))[:2] == ["a", "a/b"]


def run_program(*arguments: str) -> str:
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_program_prints_a_row_for_each_folder(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("a, b = f(), g()\n")
    rows = run_program(str(tmp_path)).splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["one.py", "source", "all"]


def test_the_program_lists_places_as_an_editor_opens_them(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("x = 1\na, b = f(), g()\n")
    for root in (tmp_path, path):
        listing = run_program(str(root), "--list", "tuples")
        assert listing == f"{path}:2: a, b = f(), g()\n"


def test_the_program_counts_a_commit_and_not_the_files_around_it(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    path = tmp_path / "one.py"
    path.write_text("found = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "One")
    path.write_text("found = 1\nsaid = 2\n")
    names = {
        revision: json.loads(run_program(str(tmp_path), "--json", *revision))["all"]["names"]
        for revision in [(), ("--rev", "HEAD")]
    }
    assert names == {(): 2, ("--rev", "HEAD"): 1}

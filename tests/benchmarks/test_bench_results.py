"""The stored results: each is named, what is named exists, and the whole is small."""

from __future__ import annotations

import json
import lzma
import re
import statistics
import subprocess
from pathlib import Path

import pytest

from benchmarks import compare, schema
from measurements import storage

REPO = Path(__file__).resolve().parents[2]
LARGEST_TREE = 9_500_000
LARGEST_RESULTS = 1_500_000
ROOT = "measurements/results"
# A file under the root of results, in a sentence: with the root, or with the folder of a table.
NAMED = re.compile(rf"(?:{ROOT}/)?((?:[\w-]+/)*[\w.-]+\.(?:json\.xz|json|txt))(?![\w.])")

IN_FOLDER = re.compile(
    r"`((?:builds|cpu|gpu|h100|h200|picked|torches)/[\w.-]+\.(?:json\.xz|json|txt))`"
)


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=REPO, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("the sources are no git checkout")
    paths = (REPO / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def results() -> dict[str, Path]:
    """The stored files, by their path under the root of results."""
    return {path.relative_to(storage.RESULTS).as_posix(): path for path in tracked(ROOT)}


def pages() -> list[Path]:
    """The pages that say where a figure comes from. CHANGELOG tells of files that were."""
    return [page for page in tracked("*.md") if page.name != "CHANGELOG.md"]


def readers() -> list[Path]:
    """What reads stored results by name."""
    return tracked(
        "benchmarks/*.py", "measurements/*.py", "docs/_ext/*.py", "torchship/release/*.py"
    )


def names_in(content: str) -> set[str]:
    """What the text names of the results, in whole or as a folder of files."""
    return set(NAMED.findall(content))


def test_every_result_is_named_by_a_page_or_read_by_a_program() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (*pages(), *readers()))
    names = names_in(sources)
    unnamed = [
        name
        for name in results()
        if name not in names and f"{ROOT}/{Path(name).parent}`" not in sources
    ]
    assert unnamed == [], "a result that nothing shows: name it, or remove it"


def test_every_result_that_a_page_names_exists() -> None:
    stored = results()
    missing = []
    for page in pages():
        content = page.read_text(encoding="utf-8")
        starts = (match[1] for match in re.finditer(rf"`[^`]*?{ROOT}/([\w./*-]*)", content))
        names = {start.rstrip("*/") for start in starts} | set(IN_FOLDER.findall(content))
        missing += [
            f"{page.relative_to(REPO)}: {name}"
            for name in sorted(names)
            if not any(each.startswith(name) for each in stored)
        ]
    assert missing == []


def drawn_rows() -> list[tuple[str, list[str], list[str]]]:
    """The rows of tables of random draws: the file, and the figures of forward and backward."""
    rows = []
    for page in ("index.md", "speed/random.md"):
        for line in (REPO / "docs" / "numbers" / page).read_text(encoding="utf-8").splitlines():
            match = re.search(r"\| ([^|]+) \| ([^|]+) \| `([\w/-]*random-[\w.-]+)` \|$", line)
            if match is not None:
                forward, backward = (re.findall(r"[\d.]+", match[part]) for part in (1, 2))
                rows.append((match[3], forward, backward))
    return rows


def printed_row(name: str, metric: str) -> list[str]:
    """What `show` prints of a file's random draws in one direction."""
    report = schema.read(storage.RESULTS / name)
    peers = {ratio.peer for ratio in compare.ratios(report)} & {"lstm", "lstmcell"}
    values = [r.value for r in compare.ratios(report) if (r.peer, r.metric) == (*peers, metric)]
    slower = sum(value < compare.SLOWER for value in values)
    return [f"{statistics.median(values):.2f}", f"{min(values):.2f}", str(slower)]


def test_rows_of_random_draws_are_what_show_prints() -> None:
    rows = drawn_rows()
    assert rows
    for name, forward, backward in rows:
        assert forward == printed_row(name, "forward")[: len(forward)], name
        assert backward == printed_row(name, "backward")[: len(backward)], name


def test_the_tree_is_small() -> None:
    assert sum(path.stat().st_size for path in tracked()) < LARGEST_TREE
    assert sum(path.stat().st_size for path in tracked(ROOT)) < LARGEST_RESULTS


@pytest.mark.slow
def test_packed_results_hold_four_digits_a_number_and_a_record_a_line() -> None:
    others = []
    for name, path in results().items():
        if name.endswith(storage.PACKED):
            content = lzma.decompress(path.read_bytes()).decode()
            others += [name] * (storage.to_text(json.loads(content)) != content)
    assert others == []


def test_a_text_has_a_line_for_each_record() -> None:
    document = {"a": [1.23456, 2], "rows": [{"b": {"c": 123456.7}}, {"b": None}]}
    assert storage.to_text(document).splitlines() == [
        "{",
        ' "a": [1.235, 2],',
        ' "rows": [',
        '  {"b": {"c": 123500.0}},',
        '  {"b": null}',
        " ]",
        "}",
    ]


@pytest.mark.parametrize("name", ["a.json", "a.json.xz"])
def test_a_document_reads_back(name: str, tmp_path: Path) -> None:
    document = {"numbers": [1.5, -2, 0.0001234], "text": "µs", "rows": [{"a": None}]}
    storage.save(document, tmp_path / name)
    assert storage.load(tmp_path / name) == document


def test_the_same_document_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.json.xz", "b.json.xz"):
        storage.save({"rows": [{"a": 1.0}]}, tmp_path / name)
    assert (tmp_path / "a.json.xz").read_bytes() == (tmp_path / "b.json.xz").read_bytes()


@pytest.mark.parametrize("content", [b"no json", b"\xfd7zXZ\x00cut"])
def test_a_damaged_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.json.xz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.json\.xz holds no stored result"):
        storage.load(path)

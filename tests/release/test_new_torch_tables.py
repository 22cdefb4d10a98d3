"""A new torch is written into every table by a program, which was tried on one that we know."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from release_places import MATRIX, REPO

from measurements.new_torch import report, tables
from measurements.new_torch.facts import Facts, Pythons, find_pythons
from torchship.judge.reading.layouts import LAYOUTS
from torchship.release.matrix.load import load

NEWEST = max(LAYOUTS)
NAME = tables.dotted(NEWEST)
OLDEST = min(LAYOUTS)[1]
LAYOUT_TABLE = (REPO / "torchship/judge/reading/layouts.py").read_text()
SYMBOL_TABLE = (REPO / "torchship/judge/reading/symbols.json").read_text()
TEXT = MATRIX.read_text()


def facts_of(minor: tables.Minor, exported: frozenset[str] = frozenset()) -> Facts:
    """What a measurement of a torch that the tables know has to find."""
    entry = load(MATRIX).torch[tables.dotted(minor)]
    assert entry.cuda is not None
    return Facts(
        release=entry.release,
        pythons=Pythons(usual=tuple(entry.pythons), free_threaded=tuple(entry.free_threaded)),
        cuda=entry.cuda.version,
        archs=tuple(entry.cuda.archs),
        abi=entry.abi.pypi,
        layout=tuple(LAYOUTS[minor].values()),
        exported=exported,
    )


def without_newest() -> str:
    return tables.take_out_entry(TEXT, NEWEST)


def test_a_matrix_without_its_newest_torch_is_whole(tmp_path) -> None:
    path = tmp_path / "build_matrix.yaml"
    path.write_text(without_newest())
    assert load(path).minors() == [minor for minor in load(MATRIX).minors() if minor != NAME]


def test_what_was_built_with_a_torch_that_is_taken_out_takes_the_one_before(tmp_path) -> None:
    path = tmp_path / "build_matrix.yaml"
    pattern = re.compile(r'^(  built_with:|  default_torch:) "[\d.]+"', re.MULTILINE)
    newest = pattern.sub(rf'\1 "{NAME}"', TEXT)
    path.write_text(tables.take_out_entry(newest, NEWEST))
    matrix = load(path)
    assert matrix.stable.built_with == matrix.package.default_torch == matrix.minors()[-1] != NAME


def test_an_entry_that_is_measured_is_the_one_that_was_written_by_hand() -> None:
    written = tables.add_entry(without_newest(), facts_of(NEWEST))
    assert tables.find_entry(written, NEWEST)[0] == tables.find_entry(TEXT, NEWEST)[0]


def test_other_platforms_get_a_line_of_the_torch(tmp_path) -> None:
    path = tmp_path / "build_matrix.yaml"
    path.write_text(tables.add_entry(without_newest(), facts_of(NEWEST)))
    for platform in load(path).platforms:
        entry = load(path, platform).torch[NAME]
        assert entry == load(MATRIX, platform).torch[NAME]


def test_a_cpu_build_without_free_threading_has_a_valid_entry(tmp_path) -> None:
    path = tmp_path / "build_matrix.yaml"
    entry = Facts(
        release=f"{NAME}.0",
        pythons=Pythons(usual=("3.12",), free_threaded=()),
        cuda=None,
        archs=(),
        abi=1,
        layout=(),
        exported=frozenset(),
    )
    path.write_text(tables.add_entry(without_newest(), entry))
    added = load(path).torch[NAME]
    assert added.cuda is None and added.free_threaded == []


def test_a_row_of_the_layout_that_is_measured_is_the_one_that_was_written_by_hand() -> None:
    old = tables.take_out_layout(LAYOUT_TABLE, NEWEST)
    assert old != LAYOUT_TABLE
    assert tables.add_layout(old, NEWEST, tuple(LAYOUTS[NEWEST].values())) == LAYOUT_TABLE


def test_a_layout_is_compared_with_that_of_the_minor_before() -> None:
    following = (NEWEST[0], NEWEST[1] + 1)
    assert tables.read_layout_before(LAYOUT_TABLE, following) == tuple(LAYOUTS[NEWEST].values())


def test_a_nightly_may_be_two_minors_ahead(tmp_path) -> None:
    """Nightlies go on while a release is only a candidate."""
    ahead = replace(facts_of(NEWEST), release=f"2.{NEWEST[1] + 2}.0")
    path = tmp_path / "build_matrix.yaml"
    path.write_text(tables.add_entry(TEXT, ahead))
    assert load(path).minors()[-2:] == [NAME, f"2.{NEWEST[1] + 2}"]
    exported = {n for _, last, names in json.loads(SYMBOL_TABLE)["ranges"] for n in names}
    last = max(last for _, last in ranges(tables.add_symbols(SYMBOL_TABLE, ahead.minor, exported)))
    assert last == NEWEST[1] + 2


def ranges(table: str) -> dict[tuple[int, int], set[str]]:
    return {(first, last): {*names} for first, last, names in json.loads(table)["ranges"]}


def test_symbols_that_the_torch_still_has_reach_to_it() -> None:
    kept = ranges(SYMBOL_TABLE)
    exported = frozenset(n for (_, last), names in kept.items() if last == NEWEST[1] for n in names)
    old = tables.take_out_symbols(SYMBOL_TABLE, list(LAYOUTS))
    new = ranges(tables.add_symbols(old, NEWEST, exported))
    expected = {
        key: names
        for key, names in kept.items()
        # What every other minor has, or only this one, needs the objects that use it.
        if key not in ((OLDEST, NEWEST[1] - 1), (NEWEST[1], NEWEST[1]))
    }
    assert new == expected


def test_symbols_that_the_torch_lacks_end_with_the_minor_before() -> None:
    old = tables.take_out_symbols(SYMBOL_TABLE, list(LAYOUTS))
    lost = tables.lost_symbols(old, ())
    assert lost
    assert ranges(tables.add_symbols(old, NEWEST, ())) == ranges(old)
    assert tables.lost_symbols(old, lost) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda: tables.take_out_entry(TEXT, (2, 99)),
        lambda: tables.take_out_layout(LAYOUT_TABLE, (2, 99)),
        lambda: tables.add_layout(LAYOUT_TABLE, (1, 13), ()),
    ],
)
def test_a_torch_that_is_in_no_table_is_refused_by_name(change) -> None:
    with pytest.raises(ValueError, match=r"torch (2\.99|1\.13)"):
        change()


JSON = '{"filename":"torch-2.16.0-cp312-cp312-manylinux_2_28_x86_64.whl"}'
HTML = '<a href="/whl/torch-2.16.0.dev20261126%2Bcpu-cp314-cp314t-linux_x86_64.whl#sha256=0">x</a>'


@pytest.mark.parametrize(
    ("page", "version", "pythons"),
    [
        (JSON, "2.16.0", Pythons(("3.12",), ())),
        (HTML, "2.16.0.dev20261126+cpu", Pythons((), ("3.14t",))),
        (JSON.replace("cp312", "cp39"), "2.16.0", Pythons((), ())),
    ],
)
def test_an_index_says_for_which_pythons_a_torch_is(page, version, pythons) -> None:
    assert find_pythons(page, version, ["3.12", "3.14"]) == pythons


@pytest.mark.parametrize("page", ["", JSON.replace("x86_64", "aarch64"), JSON.replace("16", "15")])
def test_a_release_that_an_index_lacks_is_refused(page) -> None:
    with pytest.raises(ValueError, match="the index has no wheel of torch"):
        find_pythons(page, "2.16.0", ["3.12"])


@pytest.fixture(scope="module")
def stored() -> report.Report:
    return report.load()


def test_the_page_shows_the_stored_trial(stored) -> None:
    content = report.PAGE.read_text(encoding="utf-8")
    assert report.page(content, stored) == content


def test_the_stored_trial_went_well(stored) -> None:
    """An afternoon has four hours."""
    assert stored.was_taken_out
    assert stored.tests.failed == 0 and stored.tests.passed > 1000
    assert sum(step.seconds for step in stored.steps) < 4 * 3600


def test_the_stored_trial_wrote_the_tables_that_are_kept_by_hand(stored) -> None:
    """What differs from the commit needs other people's objects, or is said on the page."""
    written = {difference.file for difference in stored.tables}
    assert {"build_matrix.yaml", "torchship/judge/reading/layouts.py"} <= written
    for difference in stored.unlike_commit:
        # Which headers a release is compiled with is a person's choice.
        others = [line for line in difference.lines if not re.match("[-+]  headers:", line)]
        assert others == [] or difference.file == "torchship/judge/reading/symbols.json"
    assert re.match(r"\d+\.\d+\.\d+$", stored.torch)

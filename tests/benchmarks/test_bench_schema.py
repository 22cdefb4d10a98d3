"""A report of the benchmarks survives its file, and what is none is refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from bench_samples import report, result

from benchmarks.schema import Size, from_document, read, to_document, write
from measurements import storage

FULL = report(
    result("ours", [1.0, 2.0, 3.0]),
    result("python", [2.0, 4.0, 6.0], size=Size(1, 2, 3, 4), detail={"launches": 2.0}),
)


def test_a_report_survives_the_round_trip() -> None:
    assert from_document(to_document(FULL)) == FULL


@pytest.mark.parametrize("name", ["r.json", "r.json.xz"])
def test_a_written_file_reads_back_and_leaves_no_partial_one(name: str, tmp_path: Path) -> None:
    write(FULL, tmp_path / "folder" / name)
    assert read(tmp_path / "folder" / name) == FULL
    assert [p.name for p in (tmp_path / "folder").iterdir()] == [name]


def edited(**changes: object) -> dict[str, object]:
    return copy.deepcopy(to_document(FULL)) | changes


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (edited(schema=2), "schema 2"),
        (edited(surprise=1), "unexpected keyword argument 'surprise'"),
        (edited(results=[{"size": {"batch": 1}}]), "Size.* missing"),
        (edited(machine={"cpu": "a processor"}), "Machine.* missing"),
        ([], "schema None"),
    ],
)
def test_what_is_not_a_report_is_refused_by_name(document: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_document(document)


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    storage.save(edited(schema=99), path)
    with pytest.raises(ValueError, match=r"bad\.json.*schema 99"):
        read(path)


@pytest.mark.parametrize("size", [Size(16, 32, 128), Size(1, 2, 3, 4)])
def test_sizes_parse_from_what_the_command_line_takes(size: Size) -> None:
    argument = f"{size.batch},{size.inputs},{size.state}"
    assert Size.parse(argument if size.steps == 1 else f"{argument},{size.steps}") == size


@pytest.mark.parametrize(
    "argument", ["", "16", "16,32", "16,32,0", "16,32,x", "1,2,3,4,5", "1,2,-3"]
)
def test_other_sizes_are_refused(argument: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        Size.parse(argument)

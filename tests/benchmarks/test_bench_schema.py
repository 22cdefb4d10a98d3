"""A report of the benchmarks survives its file, and what is none is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_samples import report, result

from benchmarks.schema import Size, from_json, read, to_json, write

FULL = report(
    result("ours", [1.0, 2.0, 3.0]),
    result("python", [2.0, 4.0, 6.0], size=Size(1, 2, 3, 4), detail={"launches": 2.0}),
)


def test_a_report_survives_the_round_trip() -> None:
    assert from_json(to_json(FULL)) == FULL


def test_a_written_file_reads_back_and_leaves_no_partial_one(tmp_path: Path) -> None:
    write(FULL, tmp_path / "folder" / "r.json")
    assert read(tmp_path / "folder" / "r.json") == FULL
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["r.json"]


def test_an_older_file_with_modelled_floors_is_read() -> None:
    data = json.loads(to_json(FULL)) | {"ceilings": {"float32": {"gemm_flops": 1e12}}}
    data["results"][0]["floor"] = {"compute_us": 1.0}
    assert from_json(json.dumps(data)) == FULL


def edited(**changes: object) -> str:
    return json.dumps(json.loads(to_json(FULL)) | changes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (edited(schema=2), "schema 2"),
        (edited(surprise=1), "unexpected keyword argument 'surprise'"),
        (edited(results=[{"size": {"batch": 1}}]), "Size.* missing"),
        (edited(machine={"cpu": "a processor"}), "Machine.* missing"),
        ("[]", "schema None"),
    ],
)
def test_what_is_not_a_report_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_json(text)


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(edited(schema=99))
    with pytest.raises(ValueError, match=r"bad\.json.*schema 99"):
        read(path)


@pytest.mark.parametrize("size", [Size(16, 32, 128), Size(1, 2, 3, 4)])
def test_sizes_parse_from_what_the_command_line_takes(size: Size) -> None:
    text = f"{size.batch},{size.inputs},{size.state}"
    assert Size.parse(text if size.steps == 1 else f"{text},{size.steps}") == size


@pytest.mark.parametrize("text", ["", "16", "16,32", "16,32,0", "16,32,x", "1,2,3,4,5", "1,2,-3"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        Size.parse(text)

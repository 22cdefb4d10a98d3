"""`torchship port` prints what a port has to do, as text and as JSON, and reads any folder."""

import argparse
import json
import os

import pytest

from torchship.porting import report as porting_report
from torchship.porting.command import add_arguments, run
from torchship.porting.counterparts import Status

SOURCE = """\
#include <torch/extension.h>
at::Tensor twice(at::Tensor x, at::Scalar factor) {
  TORCH_CHECK(x.is_cuda());
  return at::permute(at::cumsum(x, 0), {1, 0});
}
int y = at::unheard_of(x);
"""


@pytest.fixture
def port(tmp_path, capsys):
    """Runs the command on the test's folder; returns the exit code, and what was printed."""

    def call(*options: str, folder=tmp_path):
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        code = run(parser.parse_args([str(folder), *options]))
        return code, capsys.readouterr()

    return call


def test_the_summary_counts_what_has_a_counterpart(report) -> None:
    made = report(SOURCE)
    assert made.to_port == 8
    assert made.count(Status.COUNTERPART) == 5  # Tensor, Tensor, TORCH_CHECK, is_cuda, permute
    assert made.count(Status.DISPATCHER) == 1  # cumsum
    assert [row.name for row in made.having(Status.WORKAROUND)] == ["Scalar"]
    assert [row.name for row in made.having(Status.UNKNOWN)] == ["unheard_of"]
    assert made.share == 6 / 8
    # permute has a wrapper in later headers, and the dispatcher before.
    assert (made.torch, made.headers) == ("2.10", "2.10")


def test_the_text_names_counterpart_torch_way_round_and_place(port, tmp_path) -> None:
    (tmp_path / "op.cpp").write_text(SOURCE)
    code, printed = port()
    assert code == 0
    for part in (
        "8 uses of torch outside its stable ABI, 0 inside",
        "6 of these (75%) have a counterpart",
        "the port would run on torch 2.10 and newer (cumsum, permute)",
        "1  TORCH_CHECK -> STD_TORCH_CHECK, torch 2.9",
        "take a double, an int64_t or a bool",
        "op.cpp:6",
        "torch/extension.h -> torch/csrc/stable/{library,tensor,ops}.h",
    ):
        assert part in printed.out


def test_the_json_has_every_place(port, tmp_path) -> None:
    (tmp_path / "op.cpp").write_text(SOURCE)
    code, printed = port("--json")
    parsed = json.loads(printed.out)
    assert code == 0
    assert parsed["schema"] == 1
    assert parsed["summary"]["uses"] == 8
    tensor = next(use for use in parsed["uses"] if use["name"] == "Tensor")
    assert tensor["places"] == [["op.cpp", 2], ["op.cpp", 2]]
    assert tensor["stable"] == "torch::stable::Tensor"


def test_a_folder_without_sources_is_refused_with_what_to_do(port, tmp_path) -> None:
    code, printed = port()
    assert code == 2
    assert printed.err.endswith("name the folder that does, such as csrc\n")
    code, printed = port(folder=tmp_path / "absent")
    assert code == 2
    assert "is not a folder; name a folder of C++ or CUDA sources" in printed.err


def test_excluded_and_hidden_folders_are_left_out(port, tmp_path) -> None:
    for folder in ("csrc", "third_party", ".git"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "op.cu").write_text("at::Tensor x;")
    _, printed = port("--exclude", "third_party", "--json")
    assert json.loads(printed.out)["files"] == 1


def test_what_cannot_be_read_is_named(port, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(porting_report, "MAX_FILE_BYTES", 100)
    (tmp_path / "large.cpp").write_text(SOURCE)
    (tmp_path / "small.cpp").write_text("at::Tensor x;")
    os.mkfifo(tmp_path / "pipe.cpp")
    _, printed = port("--json")
    parsed = json.loads(printed.out)
    assert parsed["files"] == 1
    assert [unread["file"] for unread in parsed["unread"]] == ["large.cpp", "pipe.cpp"]


def test_a_folder_of_too_many_sources_is_read_in_part_and_says_so(
    port, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(porting_report, "MAX_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.cpp").write_text("at::Tensor x;")
    _, printed = port()
    assert "2 source files" in printed.out
    assert "c.cpp: it and all later files: more than one report reads" in printed.out


def test_a_report_has_a_bounded_number_of_names_and_places(report, monkeypatch) -> None:
    monkeypatch.setattr(porting_report, "MAX_NAMES", 2)
    monkeypatch.setattr(porting_report, "MAX_PLACES", 3)
    rows = report("at::a; at::b; at::c; at::d;" + "at::a;" * 10).rows
    assert {row.name: row.count for row in rows} == {"a": 11, "b": 1, "other names": 2}
    assert [len(row.places) for row in rows] == [3, 2, 1]


def test_a_source_that_is_no_text_is_read(report, tmp_path) -> None:
    (tmp_path / "noise.cpp").write_bytes(bytes(range(256)) * 40 + b"\nat::Tensor x;")
    assert report().rows[-1].name == "Tensor"


def test_a_name_of_a_file_cannot_forge_a_line(port, tmp_path) -> None:
    (tmp_path / "a\nb.cpp").write_text("at::Tensor x;")
    _, printed = port()
    assert "a\\nb.cpp:1" in printed.out


def test_a_link_is_not_followed(port, tmp_path) -> None:
    (tmp_path / "op.cpp").write_text("at::Tensor x;")
    (tmp_path / "again.cpp").symlink_to(tmp_path / "op.cpp")
    (tmp_path / "loop").symlink_to(tmp_path)
    _, printed = port("--json")
    assert json.loads(printed.out)["files"] == 1

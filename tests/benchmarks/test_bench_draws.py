"""Random draws: the seed decides, bounds hold, and what is slower is measured again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench_samples import SIZE, report, result

from benchmarks import __main__ as command
from benchmarks import machine, session, sizes
from benchmarks.compare import ratios
from benchmarks.contender import DTYPES
from benchmarks.report import summary
from benchmarks.schema import Report, Size, read, write
from benchmarks.sizes import Draw


@pytest.mark.parametrize("what", ["layer", "step"])
def test_a_seed_draws_the_same_problems_each_time(what: str) -> None:
    assert sizes.draw(what, 3, 20, "cuda") == sizes.draw(what, 3, 40, "cuda")[:20]
    assert sizes.draw(what, 3, 20, "cuda") != sizes.draw(what, 4, 20, "cuda")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_draws_keep_their_bounds(device: str) -> None:
    for size, dtype in sizes.draw("layer", 1, 200, device):
        assert sizes.forward_elements(size) * DTYPES[dtype].itemsize <= sizes.MOST_BYTES
        assert sizes.forward_flops(size) <= sizes.MOST_WORK[device]
        assert 1 <= size.batch <= 512
        assert 16 <= size.inputs <= 3072
        assert 16 <= size.state <= 3072
        assert 8 <= size.steps <= 2048


def test_operations_and_elements_of_a_step_counted_by_hand() -> None:
    size = Size(16, 32, 128)
    assert sizes.forward_flops(size) == 2 * 16 * 160 * 384
    weights = 384 * 160
    bias = 384
    x = 16 * 32
    row = 16 * 128
    in_and_out = (weights + bias + x + 2 * row) + 2 * row
    assert sizes.forward_elements(size) == in_and_out + 3 * row


def test_about_half_of_the_layers_have_a_state_that_papers_use() -> None:
    states = [size.state for size, _ in sizes.draw("layer", 2, 400, "cuda")]
    assert 150 <= sum(state in sizes.STATES for state in states) <= 250


@pytest.mark.parametrize("what", ["layer", "step"])
@pytest.mark.slow
def test_the_command_measures_what_was_drawn(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = Size(2, 3, 4, 5 if what == "layer" else 1)
    monkeypatch.setattr(sizes, "draw", lambda *_: [Draw(size, "float32")])
    path = tmp_path / "random.json"
    arguments = ["random", "--what", what, "--seconds", "0.01", "--rounds", "2", "--again", "0"]
    assert command.main([*arguments, "--json", str(path)]) == 0
    assert {(r.size, r.metric) for r in ratios(read(path))} == {
        (size, "forward"),
        (size, "backward"),
    }
    assert f"| {session.PEERS[what]} | float32 | forward | 1 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "times, median", [((8.0, 20.0, 12.0), 1.2), ((20.0, 8.0), 0.8)], ids=["three", "lower of two"]
)
def test_what_is_slower_is_replaced_by_the_median_of_fresh_processes(
    monkeypatch: pytest.MonkeyPatch, times: tuple[float, ...], median: float
) -> None:
    def measured(peer: float) -> Report:
        return report(
            result("lstmcell", [peer]),
            result("ours", [10.0]),
            command="random",
            command_line="python -m benchmarks random --contenders lstmcell ours",
        )

    first_report = measured(5.0)
    again = iter(times)
    monkeypatch.setattr(session, "_measure", lambda *_: None)
    monkeypatch.setattr(machine, "describe_software", lambda: first_report.software)

    def run(command_line: list[str], **_: object) -> None:
        assert command_line[command_line.index("--contenders") + 1 :][:2] == ["lstmcell", "ours"]
        write(measured(next(again)), Path(command_line[command_line.index("--json") + 1]))

    monkeypatch.setattr(subprocess, "run", run)
    command_line = ["random", "--what", "step", "--contenders", "lstmcell", "ours"]
    command_line += ["--again", str(len(times))]
    arguments = command.parser().parse_args(command_line)
    settings = command.settings_of(arguments, "python -m benchmarks random")
    session.run(first_report, [Draw(SIZE, "float32")], settings)
    assert [r.value for r in ratios(first_report)] == [median]


def test_the_summary_counts_what_is_slower() -> None:
    rounds = {Size(1, 2, 3): 9.0, Size(1, 2, 4): 20.0, Size(1, 2, 5): 30.0}
    results = [
        result(name, [time], size=size)
        for size, peer in rounds.items()
        for name, time in (("lstm", peer), ("ours", 10.0))
    ]
    lines = summary(report(*results, command="random")).splitlines()
    assert "| lstm | all | forward | 3 | 2.00 | 0.90 | 1 |" in lines
    assert lines[-1] == "slower: B1 I2 S3 float32 forward 0.90 of lstm"


@pytest.mark.parametrize(
    "options, expected",
    [
        ([], ["bfloat16", "tf32", "float16"]),
        (["--dtype", "tf32", "float16"], ["tf32", "float16"]),
        (["--sizes", "2,3,4"], ["float32"]),
        (["--sizes", "2,3,4", "--dtype", "tf32"], ["tf32"]),
    ],
)
@pytest.mark.slow
def test_dtypes_choose_among_the_draws(
    options: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = [Draw(Size(2, 3, 4), dtype) for dtype in ("bfloat16", "tf32", "float16")]
    monkeypatch.setattr(sizes, "draw", lambda *_: drawn)
    measured: list[str] = []
    monkeypatch.setattr(session, "_measure", lambda report, draw, *_: measured.append(draw.dtype))
    command.main(["random", "--what", "step", *options])
    assert measured == expected


def test_a_deadline_holds_for_all_draws_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    size = Size(2, 3, 4, 5)
    monkeypatch.setattr(sizes, "draw", lambda *_: [Draw(size, "float32")] * 3)
    path = tmp_path / "late.json"
    assert command.main(["random", "--deadline", "-1", "--json", str(path)]) == 1
    assert [skip.reason for skip in read(path).skipped] == [
        "not begun: the deadline of -1 s had passed"
    ] * 3

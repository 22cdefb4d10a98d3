"""What a port of an extension took, in lines; and the page that shows it."""

from __future__ import annotations

from pathlib import Path

from measurements.porting.port_extensions import PAGE, changes, drawn, load


def test_the_page_shows_the_stored_ports() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert drawn(page, load()) == page, "run python -m measurements.porting.port_extensions NAME"


def test_every_stored_port_passes_its_own_tests() -> None:
    tried = [run for port in load() for run in port.runs if not run.is_import_only]
    assert tried
    assert all(run.passed > 0 and run.failed == 0 for run in tried)


def test_a_port_takes_at_most_thirty_lines_beyond_its_operators() -> None:
    for port in load():
        assert port.python.added + port.described_by_hand.added <= 30, port.name


def test_ports_for_cuda_alone_passed_their_tests_on_a_gpu() -> None:
    """Where there is no GPU, they can only be imported."""
    for_cuda_alone = [port for port in load() if any(run.is_import_only for run in port.runs)]
    assert for_cuda_alone
    for port in for_cuda_alone:
        assert any(run.gpu and run.passed > 0 for run in port.runs), port.name


def test_four_ports_work_beside_three_torches_or_more() -> None:
    assert sum(len(port.runs) >= 3 for port in load()) >= 4


def test_changed_new_and_removed_lines_are_counted(tmp_path: Path) -> None:
    before = tmp_path / "before"
    after = tmp_path / "after"
    for folder, files in (
        (before, {"kept.py": "a\nb\nc\n", "gone.py": "a\n", "same.py": "a\n"}),
        (after, {"kept.py": "a\nB\nc\nd\n", "new.py": "a\nb\n", "same.py": "a\n"}),
    ):
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
    assert changes(before, after) == {
        "gone.py": (0, 1, True),
        "kept.py": (2, 1, False),
        "new.py": (2, 0, False),
    }


def test_what_a_build_leaves_is_no_change(tmp_path: Path) -> None:
    for name in ("before/a.py", "after/a.py", "after/build/x.py", "after/p.egg-info/SOURCES.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a\n")
    assert changes(tmp_path / "before", tmp_path / "after") == {}

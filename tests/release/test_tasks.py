"""The engine: what is skipped, what is done again, what a failure stops."""

from __future__ import annotations

import errno

import pytest
from release import ReleaseError
from release.store import Stamp, Store, digest
from release.tasks import SkipTask, Status, Task, explain, run_tasks


class Silent:
    def started(self, task) -> None: ...
    def finished(self, outcome) -> None: ...


class World:
    """A folder with an input and tasks that count how often they ran."""

    def __init__(self, root) -> None:
        self.root, self.runs = root, []
        self.input = root / "input.txt"
        self.input.write_text("one")
        self.store = Store(root / "stamps")

    def copy(self, name, *, source=None, needs=(), fail=None, **options) -> Task:
        target = self.root / f"{name}.out"

        def run(context):
            self.runs.append(name)
            if fail:
                raise fail
            read = context.only(needs[0]) if needs else source or self.input
            target.write_text(read.read_text())
            return [target]

        inputs = () if needs else (source or self.input,)
        return Task(name, run, needs=needs, inputs=inputs, **options)

    def run(self, *tasks, jobs=1):
        self.runs = []
        return run_tasks(tasks, self.store, self.root / "logs", Silent(), jobs)


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def test_a_second_run_does_nothing(world) -> None:
    tasks = world.copy("a"), world.copy("b", needs=("a",))
    assert {o.status for o in world.run(*tasks).values()} == {Status.DONE}
    assert {o.status for o in world.run(*tasks).values()} == {Status.REUSED}
    assert world.runs == []


def test_a_changed_input_is_done_again_with_what_reads_its_output(world) -> None:
    tasks = world.copy("a"), world.copy("b", needs=("a",))
    world.run(*tasks)
    world.input.write_text("two")
    world.run(*tasks)
    assert world.runs == ["a", "b"]
    assert (world.root / "b.out").read_text() == "two"


def test_an_equal_output_stops_the_chain(world) -> None:
    world.run(world.copy("a"), world.copy("b", needs=("a",)))
    world.run(world.copy("a", facts={"flag": 1}), world.copy("b", needs=("a",)))
    assert world.runs == ["a"]


def test_a_changed_fact_is_done_again(world) -> None:
    world.run(world.copy("a", facts={"compiler": "g++ 12"}))
    world.run(world.copy("a", facts={"compiler": "g++ 13"}))
    assert world.runs == ["a"]


@pytest.mark.parametrize("damage", ["remove", "change"])
def test_a_damaged_output_is_not_reused(world, damage) -> None:
    world.run(world.copy("a"))
    out = world.root / "a.out"
    out.unlink() if damage == "remove" else out.write_text("other")
    world.run(world.copy("a"))
    assert world.runs == ["a"] and out.read_text() == "one"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": 1}', '{"unknown": 2}'])
def test_a_torn_stamp_is_not_trusted(world, text) -> None:
    world.run(world.copy("a"))
    (world.root / "stamps" / "a.json").write_text(text)
    world.run(world.copy("a"))
    assert world.runs == ["a"]


def test_a_task_that_was_interrupted_is_done_again(world) -> None:
    world.run(world.copy("a"))
    with pytest.raises(KeyboardInterrupt):
        world.run(world.copy("a", facts={"flag": 1}, fail=KeyboardInterrupt()))
    world.run(world.copy("a"))
    assert world.runs == ["a"], "the old stamp must have gone before the work began"


def test_a_failure_stops_only_what_needs_it(world) -> None:
    bad = world.copy("bad", fail=ReleaseError("no compiler; install one"))
    outcomes = world.run(bad, world.copy("after", needs=("bad",)), world.copy("other"))
    assert outcomes["bad"].status is Status.FAILED
    assert outcomes["bad"].reason == "no compiler; install one"
    assert outcomes["after"].status is Status.SKIPPED and "bad failed" in outcomes["after"].reason
    assert outcomes["other"].status is Status.DONE


def test_a_skipped_task_says_why_to_what_needs_it(world) -> None:
    bad = world.copy("bad", fail=SkipTask("needs an nvcc"))
    outcomes = world.run(bad, world.copy("after", needs=("bad",)))
    assert outcomes["bad"].status is Status.SKIPPED
    assert "needs an nvcc" in outcomes["after"].reason


def test_every_task_runs_once_whatever_the_number_of_workers(world) -> None:
    tasks = [world.copy(f"t{i}") for i in range(6)]
    tasks += [world.copy(f"u{i}", needs=(f"t{i}",)) for i in range(6)]
    assert {o.status for o in world.run(*tasks, jobs=4).values()} == {Status.DONE}
    assert sorted(world.runs) == sorted(task.name for task in tasks)


def test_a_full_disk_is_explained() -> None:
    text = explain(OSError(errno.ENOSPC, "No space left on device", "/big/file"))
    assert "/big/file" in text and "free some" in text


def test_the_digest_of_a_folder_ignores_byte_code(tmp_path) -> None:
    (tmp_path / "a.py").write_text("x")
    before = digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("y")
    assert digest(tmp_path) == before
    (tmp_path / "b.py").write_text("z")
    assert digest(tmp_path) != before


def test_a_stamp_survives_the_way_to_disk_and_back(tmp_path) -> None:
    store, stamp = Store(tmp_path), Stamp("key", {"a": "b"}, 1.5)
    store.write("glue/x", stamp)
    assert store.read("glue/x") == stamp


def shedding(world, name="big", **options) -> Task:
    """A task that leaves a folder for others and sheds it."""
    folder = world.root / f"{name}.folder"

    def run(context):
        world.runs.append(name)
        folder.mkdir(exist_ok=True)
        (folder / "library").write_text(world.input.read_text())
        return [folder]

    return Task(name, run, inputs=(world.input,), sheds=(folder,), **options)


def reader(world, name, need="big", **options) -> Task:
    """A task that needs the folder to be there."""
    target = world.root / f"{name}.out"

    def run(context):
        world.runs.append(name)
        target.write_text((context.only(need) / "library").read_text())
        return [target]

    return Task(name, run, needs=(need,), **options)


def test_what_is_shed_is_gone_after_its_last_reader(world) -> None:
    world.run(shedding(world), reader(world, "one"), reader(world, "two"))
    assert world.runs == ["big", "one", "two"]
    assert not (world.root / "big.folder").exists()


def test_what_was_shed_is_not_made_again_for_readers_that_are_done(world) -> None:
    tasks = shedding(world), reader(world, "one")
    world.run(*tasks)
    assert {o.status for o in world.run(*tasks).values()} == {Status.REUSED}
    assert world.runs == [] and not (world.root / "big.folder").exists()


def test_what_was_shed_comes_back_for_a_reader_that_must_run(world) -> None:
    world.run(shedding(world), reader(world, "one"))
    readers = reader(world, "two"), reader(world, "three")
    outcomes = world.run(shedding(world), reader(world, "one"), *readers, jobs=3)
    assert world.runs.count("big") == 1 and {"two", "three"} < {*world.runs}
    assert outcomes["one"].status is Status.REUSED and outcomes["two"].status is Status.DONE
    assert not (world.root / "big.folder").exists()


def test_a_chain_of_shed_folders_comes_back(world) -> None:
    def tasks(*more):
        middle = shedding(world, "middle", needs=("big",))
        return shedding(world), middle, reader(world, "last", "middle"), *more

    world.run(*tasks())
    world.run(*tasks(reader(world, "new", "middle")))
    assert world.runs == ["big", "middle", "new"]


def test_what_holds_too_much_waits_for_what_is_shed(world) -> None:
    tasks = []
    for name in ("a", "b", "c"):
        tasks += [shedding(world, name, holds=6), reader(world, f"{name}-reader", name)]
    peak = []

    class Watch(Silent):
        def finished(self, outcome):
            peak.append(len(list(world.root.glob("*.folder"))))

    run_tasks(tasks, world.store, world.root / "logs", Watch(), 3, room=12)
    assert max(peak) == 2 and len(world.runs) == 6


def test_a_task_larger_than_the_room_runs_all_the_same(world) -> None:
    outcomes = run_tasks(
        [shedding(world, holds=9)], world.store, world.root / "logs", Silent(), 2, room=5
    )
    assert outcomes["big"].status is Status.DONE

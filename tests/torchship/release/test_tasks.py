"""The engine: what is skipped, what is done again, what a failure stops."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier

import pytest
from small_clients import REPO
from steps import Silent, Step

from torchship.release import ReleaseError
from torchship.release.matrix.settings import Settings
from torchship.release.run import store
from torchship.release.run.shell import explain
from torchship.release.run.store import Stamp, digest, read_stamp, write_stamp
from torchship.release.run.tasks import FileTask, Outcome, SkipTask, Status, run_tasks


class World:
    """A folder with an input and tasks that count how often they ran."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.settings = settings
        self.runs: list[str] = []
        self.input = root / "input.txt"
        self.input.write_text("one")

    def copy(self, name, *, source=None, needs=(), fail=None, **options) -> Step:
        target = self.root / f"{name}.out"

        def run(context):
            self.runs.append(name)
            if fail:
                raise fail
            read = context.outcomes[needs[0].name].outputs[0] if needs else source or self.input
            target.write_text(read.read_text())
            return [target]

        inputs = () if needs else (source or self.input,)
        return Step(name=name, act=run, after=needs, inputs=inputs, **options)

    def run(self, *tasks, jobs=1):
        self.runs = []
        return self.do(tasks, jobs=jobs)

    def do(self, tasks, listener=None, **options) -> dict[str, Outcome]:
        """Runs tasks, and goes on counting."""
        return run_tasks(tasks, self.root, listener or Silent(), settings=self.settings, **options)


@pytest.fixture
def world(tmp_path, settings) -> World:
    return World(tmp_path, settings)


def test_a_second_run_does_nothing(world) -> None:
    a = world.copy("a")
    tasks = a, world.copy("b", needs=(a,))
    assert {o.status for o in world.run(*tasks).values()} == {Status.DONE}
    assert {o.status for o in world.run(*tasks).values()} == {Status.UNCHANGED}
    assert world.runs == []


def test_a_changed_input_is_done_again_with_what_reads_its_output(world) -> None:
    a = world.copy("a")
    tasks = a, world.copy("b", needs=(a,))
    world.run(*tasks)
    world.input.write_text("two")
    world.run(*tasks)
    assert world.runs == ["a", "b"]
    assert (world.root / "b.out").read_text() == "two"


def test_an_equal_output_stops_the_chain(world) -> None:
    for flag in (0, 1):
        a = world.copy("a", flag=flag)
        world.run(a, world.copy("b", needs=(a,)))
    assert world.runs == ["a"]


def test_a_changed_field_is_done_again(world) -> None:
    world.run(world.copy("a", flag="g++ 12"))
    world.run(world.copy("a", flag="g++ 13"))
    assert world.runs == ["a"]


@dataclass(frozen=True)
class Named:
    """As a cell of the matrix: its text is its name, which does not tell all of it."""

    name: str
    abi: int

    def __str__(self) -> str:
        return self.name


def test_a_field_counts_with_all_that_it_holds_not_with_its_name_alone(world) -> None:
    world.run(world.copy("a", flag=Named("cell", abi=0)))
    world.run(world.copy("a", flag=Named("cell", abi=0)))
    assert world.runs == []
    world.run(world.copy("a", flag=Named("cell", abi=1)))
    assert world.runs == ["a"]


@pytest.mark.parametrize(
    "edited", ["torchship/release/steps/pack/wheels.py", "torchship/judge/reading/elf.py"]
)
def test_changed_code_is_done_again(world, monkeypatch, edited) -> None:
    """The tool's code, and the engine's, which it calls."""
    assert REPO / edited in store.code()
    copy = world.root / "copy.py"
    copy.write_bytes((REPO / edited).read_bytes())
    monkeypatch.setattr(store, "code", lambda: (copy,))
    store.tool_digest.cache_clear()
    world.run(world.copy("a"))
    world.run(world.copy("a"))
    assert world.runs == []
    copy.write_text("edited")
    store.tool_digest.cache_clear()  # as a new process has it
    world.run(world.copy("a"))
    assert world.runs == ["a"]
    store.tool_digest.cache_clear()


@pytest.mark.parametrize("damage", ["remove", "change"])
def test_a_damaged_output_is_not_reused(world, damage) -> None:
    world.run(world.copy("a"))
    out = world.root / "a.out"
    out.unlink() if damage == "remove" else out.write_text("other")
    world.run(world.copy("a"))
    assert world.runs == ["a"] and out.read_text() == "one"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": 1}', '{"unknown": 2}'])
def test_a_torn_stamp_is_not_trusted(world, content) -> None:
    world.run(world.copy("a"))
    (world.root / "stamps" / "a.json").write_text(content)
    world.run(world.copy("a"))
    assert world.runs == ["a"]


def test_a_task_that_was_interrupted_is_done_again(world) -> None:
    world.run(world.copy("a"))
    with pytest.raises(KeyboardInterrupt):
        world.run(world.copy("a", flag=1, fail=KeyboardInterrupt()))
    world.run(world.copy("a"))
    assert world.runs == ["a"], "the old stamp must have gone before the work began"


def test_a_failure_stops_only_what_needs_it(world) -> None:
    bad = world.copy("bad", fail=ReleaseError("no compiler; install one"))
    outcomes = world.run(bad, world.copy("after", needs=(bad,)), world.copy("other"))
    assert outcomes["bad"].status is Status.FAILED
    assert outcomes["bad"].reason == "no compiler; install one"
    assert outcomes["after"].status is Status.SKIPPED and "bad failed" in outcomes["after"].reason
    assert outcomes["other"].status is Status.DONE


def test_a_skipped_task_says_why_to_what_needs_it(world) -> None:
    bad = world.copy("bad", fail=SkipTask("needs an nvcc"))
    outcomes = world.run(bad, world.copy("after", needs=(bad,)))
    assert outcomes["bad"].status is Status.SKIPPED
    assert "needs an nvcc" in outcomes["after"].reason


def test_every_task_runs_once_whatever_the_number_of_workers(world) -> None:
    tasks = [world.copy(f"t{i}") for i in range(6)]
    tasks += [world.copy(f"u{i}", needs=(tasks[i],)) for i in range(6)]
    assert {o.status for o in world.run(*tasks, jobs=4).values()} == {Status.DONE}
    assert sorted(world.runs) == sorted(task.name for task in tasks)


def test_a_full_disk_is_explained() -> None:
    message = explain(OSError(errno.ENOSPC, "No space left on device", "/big/file"), Path("/"))
    assert "/big/file" in message and "free some" in message


def test_the_digest_of_a_folder_ignores_byte_code(tmp_path) -> None:
    (tmp_path / "a.py").write_text("x")
    before = digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("y")
    assert digest(tmp_path) == before
    (tmp_path / "b.py").write_text("z")
    assert digest(tmp_path) != before


@pytest.mark.parametrize("change", ["content", "name", "link", "folder link", "empty folder"])
def test_the_digest_of_a_folder_is_of_its_content(tmp_path, change) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "folder").symlink_to("/tmp")
    odd = tmp_path / os.fsdecode(b"\xff\n")
    odd.write_text("x")
    before = digest(tmp_path)
    if change == "content":
        times = odd.stat()
        odd.write_text("y")
        os.utime(odd, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    elif change == "name":
        odd.rename(tmp_path / "b")
    elif change == "empty folder":
        (tmp_path / "c").mkdir()
    else:
        link = tmp_path / ("link" if change == "link" else "folder")
        link.unlink()
        link.symlink_to("/usr")
    assert digest(tmp_path) != before


def test_a_changed_byte_in_a_folder_is_made_again(world) -> None:
    folder = world.root / "kept.folder"

    def run(context):
        world.runs.append("kept")
        folder.mkdir(exist_ok=True)
        (folder / "library").write_text(world.input.read_text())
        return [folder]

    task = Step(name="kept", act=run, inputs=(world.input,))
    world.run(task)
    content = (folder / "library").read_text()
    (folder / "library").write_text("!" + content[1:])
    world.run(task)
    assert world.runs == ["kept"]
    assert (folder / "library").read_text() == content


def test_a_stamp_survives_the_way_to_disk_and_back(tmp_path) -> None:
    stamp = Stamp("key", {"a": "b"}, 1.5)
    write_stamp(tmp_path, "glue/x", stamp)
    assert read_stamp(tmp_path, "glue/x") == stamp


def large(world, name="big", first=None, **options) -> Step:
    """A task whose output, a folder, is temporary; it calls `first` before it begins."""
    folder = world.root / f"{name}.folder"

    def run(context):
        if first:
            first()
        world.runs.append(name)
        folder.mkdir(exist_ok=True)
        (folder / "library").write_text(world.input.read_text())
        return [folder]

    return Step(name=name, act=run, inputs=(world.input,), temporary=(folder,), **options)


def reader(world, name, need, **options) -> Step:
    """A task that needs the folder to be there."""
    target = world.root / f"{name}.out"

    def run(context):
        world.runs.append(name)
        target.write_text((context.outcomes[need.name].outputs[0] / "library").read_text())
        return [target]

    return Step(name=name, act=run, after=(need,), **options)


def test_a_temporary_output_is_gone_after_its_last_reader(world) -> None:
    big = large(world)
    world.run(big, reader(world, "one", big), reader(world, "two", big))
    assert world.runs == ["big", "one", "two"]
    assert not (world.root / "big.folder").exists()


def test_a_temporary_output_is_not_made_again_for_readers_that_are_done(world) -> None:
    big = large(world)
    tasks = big, reader(world, "one", big)
    world.run(*tasks)
    assert {o.status for o in world.run(*tasks).values()} == {Status.UNCHANGED}
    assert world.runs == [] and not (world.root / "big.folder").exists()


def test_a_temporary_output_comes_back_for_a_reader_that_must_run(world) -> None:
    big = large(world)
    one = reader(world, "one", big)
    world.run(big, one)
    readers = reader(world, "two", big), reader(world, "three", big)
    outcomes = world.run(big, one, *readers, jobs=3)
    assert world.runs.count("big") == 1 and {"two", "three"} < {*world.runs}
    assert outcomes["one"].status is Status.UNCHANGED and outcomes["two"].status is Status.DONE
    assert not (world.root / "big.folder").exists()


def test_a_chain_of_temporary_outputs_comes_back(world) -> None:
    big = large(world)
    middle = large(world, "middle", after=(big,))
    tasks = big, middle, reader(world, "last", middle)
    world.run(*tasks)
    world.run(*tasks, reader(world, "new", middle))
    assert world.runs == ["big", "middle", "new"]


def test_what_a_temporary_output_is_made_of_stays_as_long(world) -> None:
    """Both come back: the first for a reader of its own, then for the second."""
    big = large(world)
    middle = world.root / "middle.folder"

    def run(context):
        world.runs.append("middle")
        middle.mkdir(exist_ok=True)
        (middle / "library").write_text((world.root / "big.folder" / "library").read_text())
        return [middle]

    middle_task = Step(name="middle", act=run, after=(big,), temporary=(middle,))
    for flag in (1, 2):
        first = reader(world, "first", big, flag=flag)
        last = reader(world, "last", middle_task, flag=flag)
        outcomes = world.run(big, middle_task, first, last)
        assert outcomes["last"].status is Status.DONE
    assert world.runs == ["big", "first", "middle", "last"]
    assert not list(world.root.glob("*.folder"))


def test_a_task_that_only_waits_for_another_does_not_keep_its_output(world) -> None:
    big = large(world)
    one = reader(world, "one", big)
    existed = []

    def look(context):
        existed.append((world.root / "big.folder").exists())
        return []

    world.run(big, one, Step(name="look", act=look, after=(one, big), anyway=True))
    assert existed == [False]


def test_a_task_that_waits_learns_what_failed_and_gets_the_rest(world) -> None:
    good = world.copy("good")
    bad = world.copy("bad", fail=ReleaseError("no"))
    observed = []

    def look(context):
        observed.extend((o.status, o.outputs) for o in context.outcomes.values())
        return []

    outcomes = world.run(good, bad, Step(name="look", act=look, after=(good, bad), anyway=True))
    assert outcomes["look"].status is Status.DONE
    assert observed == [(Status.DONE, (world.root / "good.out",)), (Status.FAILED, ())]


def test_temporary_outputs_that_need_too_much_room_wait_for_others_to_go(world) -> None:
    """Two of three fit: the first two run together, the third after one of them is read."""
    both = Barrier(2, timeout=60)
    tasks = []
    events = []
    for name in ("a", "b", "c"):
        big = large(world, name, disk=6, first=both.wait if name != "c" else None)
        tasks += [big, reader(world, f"{name}-reader", big)]

    class Watch(Silent):
        def started(self, task):
            events.append(task.name)

        def finished(self, task, outcome):
            assert outcome.status is Status.DONE, outcome.reason
            events.append(f"{task.name} done")

    world.do(tasks, Watch(), jobs=3, room=12)
    before_c = events[: events.index("c")]
    assert {"a-reader done", "b-reader done"} & {*before_c}
    assert len(world.runs) == 6


def test_a_task_larger_than_the_room_runs_all_the_same(world) -> None:
    outcomes = world.do([large(world, disk=9)], jobs=2, room=5)
    assert outcomes["big"].status is Status.DONE


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined(FileTask):
    """A step with a number, a task and further tasks."""

    number: int
    first: Step
    others: tuple[Step, ...] = ()

    @property
    def reads(self):
        return (self.first, *self.others)

    def run(self, context):
        out = context.settings.build / "joined"
        out.write_text("".join(context.output(task).read_text() for task in self.reads))
        return [out]


def test_the_tasks_that_a_step_reads_come_before_it(world) -> None:
    a, b, c = (world.copy(name) for name in "abc")
    joined = Joined(name="joined", number=1, first=a, others=(b,), after=(c,))
    assert joined.needs == (a, b, c)
    assert joined.own_fields.keys() == {"number", "first", "others"}


def test_a_field_of_a_step_decides_the_result(world) -> None:
    a = world.copy("a")
    world.settings = replace(world.settings, build=world.root)
    for number, status in ((1, "done"), (1, "unchanged"), (2, "done")):
        outcomes = world.do([a, Joined(name="joined", number=number, first=a)])
        assert outcomes["joined"].status.value == status
    assert (world.root / "joined").read_text() == "one"

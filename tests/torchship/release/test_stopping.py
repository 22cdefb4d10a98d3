"""A signal while steps run in threads: the handler sets a flag, the main thread ends the steps."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from torchship.release.run import processes


@pytest.fixture
def commands(monkeypatch) -> list[threading.Event]:
    """What stands for the commands of steps: `end_children` sets these."""
    events: list[threading.Event] = []
    monkeypatch.setattr(processes, "end_children", lambda: [event.set() for event in events])
    monkeypatch.setattr(processes, "POLL", 0.01)
    return events


def step(commands: list[threading.Event], number: int = 1) -> str:
    """Waits for that many commands, one after the other."""
    for _ in range(number):
        commands.append(threading.Event())
        assert commands[-1].wait(30)
    return "over"


def stopped(commands: list[threading.Event], workers: int, *numbers: int) -> list[Future[str]]:
    """Steps of so many commands each, stopped when as many as there are workers have begun."""
    with (
        pytest.raises(KeyboardInterrupt),
        processes.deferred() as stop,
        ThreadPoolExecutor(workers) as pool,
    ):
        running = [pool.submit(step, commands, number) for number in numbers]
        while len(commands) < workers:
            pass
        processes.interrupt()
        stop.next_of(running)
    return running


def test_a_signal_only_sets_a_flag_while_steps_run(commands) -> None:
    commands.append(threading.Event())
    only_flag = False
    with pytest.raises(KeyboardInterrupt), processes.deferred() as stop:
        processes.interrupt()
        only_flag = stop.is_requested and not commands[0].is_set()
    assert only_flag


def test_the_main_thread_ends_what_runs_and_is_interrupted(commands) -> None:
    assert [future.result(0) for future in stopped(commands, 2, 1, 1)] == ["over", "over"]


def test_a_command_that_a_step_starts_later_is_ended_too(commands) -> None:
    (future,) = stopped(commands, 1, 3)
    assert len(commands) == 3 and future.result(0) == "over"


def test_a_step_that_has_not_begun_does_not_begin(commands) -> None:
    futures = stopped(commands, 1, 1, 1, 1)
    assert len(commands) == 1 and [future.cancelled() for future in futures] == [False, True, True]


def test_a_second_signal_interrupts_at_once(commands) -> None:
    commands.append(threading.Event())
    with pytest.raises(KeyboardInterrupt), processes.deferred() as stop:
        processes.interrupt()
        with pytest.raises(KeyboardInterrupt):
            processes.interrupt()
        assert stop.is_requested and commands[0].is_set()


def test_a_signal_interrupts_at_once_where_no_steps_run(commands) -> None:
    with processes.deferred():
        pass
    with pytest.raises(KeyboardInterrupt):
        processes.interrupt()


def test_without_a_signal_the_steps_that_are_over_come_back(commands) -> None:
    with processes.deferred() as stop, ThreadPoolExecutor(2) as pool:
        quick = pool.submit(str, 1)
        slow = pool.submit(step, commands)
        assert stop.next_of([quick, slow]) == {quick}
        while not commands:
            pass
        commands[0].set()
        assert stop.next_of([slow]) == {slow}

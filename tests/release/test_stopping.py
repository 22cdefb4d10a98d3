"""A signal while steps run in threads: it leaves word, and who waits for the steps ends them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from release import stopping


@pytest.fixture
def commands(monkeypatch) -> list[threading.Event]:
    """What stands for the commands of steps: `end_children` sets these."""
    found: list[threading.Event] = []
    monkeypatch.setattr(stopping, "end_children", lambda: [event.set() for event in found])
    monkeypatch.setattr(stopping, "LOOK", 0.01)
    return found


def step(commands: list[threading.Event], number: int = 1) -> str:
    """Waits for that many commands, one after the other."""
    for _ in range(number):
        commands.append(threading.Event())
        assert commands[-1].wait(30)
    return "over"


def test_a_signal_raises_nothing_where_steps_run(commands) -> None:
    with pytest.raises(KeyboardInterrupt), stopping.deferred() as stop:
        stopping.interrupt()
        assert stop.asked and not commands


def test_who_waits_ends_what_runs_and_is_interrupted(commands) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        stopping.deferred() as stop,
        ThreadPoolExecutor(2) as pool,
    ):
        running = [pool.submit(step, commands) for _ in range(2)]
        stopping.interrupt()
        stop.next_of(running)
    assert [future.result(0) for future in running] == ["over", "over"]


def test_a_command_that_a_step_starts_later_is_ended_too(commands) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        stopping.deferred() as stop,
        ThreadPoolExecutor(1) as pool,
    ):
        running = [pool.submit(step, commands, 3)]
        stopping.interrupt()
        stop.next_of(running)
    assert len(commands) == 3 and running[0].result(0) == "over"


def test_a_step_that_has_not_begun_does_not_begin(commands) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        stopping.deferred() as stop,
        ThreadPoolExecutor(1) as pool,
    ):
        running = [pool.submit(step, commands) for _ in range(3)]
        while not commands:
            pass
        stopping.interrupt()
        stop.next_of(running)
    assert len(commands) == 1 and [future.cancelled() for future in running] == [False, True, True]


def test_a_second_signal_interrupts_at_once(commands) -> None:
    commands.append(threading.Event())
    with pytest.raises(KeyboardInterrupt), stopping.deferred() as stop:
        stopping.interrupt()
        with pytest.raises(KeyboardInterrupt):
            stopping.interrupt()
        assert stop.asked and commands[0].is_set()


def test_a_signal_interrupts_at_once_where_no_steps_run(commands) -> None:
    with stopping.deferred():
        pass
    with pytest.raises(KeyboardInterrupt):
        stopping.interrupt()


def test_without_a_signal_the_steps_that_are_over_come_back(commands) -> None:
    with stopping.deferred() as stop, ThreadPoolExecutor(2) as pool:
        quick, slow = pool.submit(str, 1), pool.submit(step, commands)
        assert stop.next_of([quick, slow]) == {quick}
        while not commands:
            pass
        commands[0].set()
        assert stop.next_of([slow]) == {slow}

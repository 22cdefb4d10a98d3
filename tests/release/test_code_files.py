"""A task is done again when its code changes: its file, and what that imports, even indirectly."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest
from release import store
from release.runner import run_tasks
from release.store import Store
from release.tasks import Status, Task

FILES = {
    "step": "from tool import helper\nimport tool.parts.deep\n\ndef run(context):\n    return []\n",
    "helper": "def help():\n    from . import lazy\n",
    "lazy": "",
    "parts/__init__": "",
    "parts/deep": "from ..shared import name\n",
    "shared": "name = 1\n",
    "other": "",
}


class Silent:
    def started(self, task) -> None: ...
    def finished(self, task, outcome) -> None: ...


class World:
    """A package whose module `step` holds a task's code."""

    def __init__(self, root, monkeypatch) -> None:
        self.root = root
        monkeypatch.setattr(store, "PACKAGES", {"tool": root})
        (root / "tool" / "parts").mkdir(parents=True)
        for name, text in FILES.items():
            self.file(name).write_text(text)
        module = ModuleType("step")
        exec(compile(FILES["step"].split("\n\n")[1], self.file("step"), "exec"), vars(module))
        self.step = module.run

    def file(self, name: str):
        return self.root / "tool" / f"{name}.py"

    def code(self, function) -> set[str]:
        found = store.code_of(function)
        return {str(path.relative_to(self.root / "tool").with_suffix("")) for path in found}

    def run(self) -> Status:
        store.closure.cache_clear()  # as a new process has it
        store._imported.cache_clear()
        tasks = [Task("task", partial(self.step))]
        outcomes = run_tasks(tasks, Store(self.root / "stamps"), self.root / "logs", Silent())
        return outcomes["task"].status


@pytest.fixture
def world(tmp_path, monkeypatch):
    yield World(tmp_path, monkeypatch)
    store.closure.cache_clear()
    store._imported.cache_clear()


def test_the_code_is_the_file_and_what_it_imports(world) -> None:
    wanted = {"step", "helper", "lazy", "parts/deep", "shared"}
    assert world.code(world.step) == world.code(partial(world.step)) == wanted


@pytest.mark.parametrize("name", ["step", "helper", "lazy", "parts/deep", "shared"])
def test_an_edit_of_imported_code_is_done_again(world, name) -> None:
    assert world.run() is Status.DONE
    assert world.run() is Status.REUSED
    world.file(name).write_text(FILES[name] + "# edited\n")
    assert world.run() is Status.DONE


def test_an_edit_of_other_code_is_not(world) -> None:
    world.run()
    world.file("other").write_text("# edited\n")
    assert world.run() is Status.REUSED

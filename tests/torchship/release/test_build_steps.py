"""Compiling: nothing of an earlier build gets into a binary."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchship.builder import BuildRequest, Step
from torchship.release.matrix.settings import Settings
from torchship.release.run.shell import Log
from torchship.release.run.tasks import Context
from torchship.release.steps.compile import objects as build_steps


class Compiling:
    """Two sources, "compiled" by a command that counts, and "linked" into one object."""

    def __init__(self, root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.out = root / "out"
        self.settings = settings
        for name in ("a", "b"):
            (root / f"{name}.cpp").write_text(name, encoding="utf-8")
        monkeypatch.setattr(build_steps, "plan_build", lambda _: self.steps())

    def steps(self) -> list[Step]:
        steps = []
        for name in ("a", "b"):
            source = self.root / f"{name}.cpp"
            target = self.out / "objects" / f"{name}.o"
            script = f"echo {name} >>{self.root}/runs; cp {source} {target}"
            steps.append(Step(name, (source,), target, ("sh", "-c", script)))
        objects = tuple(step.output for step in steps)
        link = ("sh", "-c", f"cat {self.out}/objects/*.o >{self.out}/x.so")
        return [*steps, Step("link", objects, self.out / "x.so", link)]

    def run(self) -> list[str]:
        """Builds; which sources were compiled."""
        (self.root / "runs").write_text("", encoding="utf-8")
        request = BuildRequest(self.out, self.settings.project, kernels=())
        context = Context(Log(self.root / "log", self.settings), self.settings)
        (output,) = build_steps.build(context, request)
        assert output.read_text(encoding="utf-8") == "".join(
            (self.root / f"{name}.cpp").read_text(encoding="utf-8") for name in ("a", "b")
        )
        return (self.root / "runs").read_text(encoding="utf-8").split()


@pytest.fixture
def compiling(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Compiling:
    return Compiling(tmp_path, settings, monkeypatch)


def test_everything_is_compiled_with_the_compiler_of_the_run(compiling: Compiling) -> None:
    assert compiling.run() == ["a", "b"]
    assert compiling.run() == ["a", "b"]


def test_nothing_of_a_broken_build_is_linked_or_packed(compiling: Compiling) -> None:
    compiling.run()
    (compiling.out / "objects" / "a.o").write_text("half", encoding="utf-8")
    (compiling.out / "objects" / "c.o").write_text("old", encoding="utf-8")
    (compiling.out / "old.so").write_text("old", encoding="utf-8")
    assert compiling.run() == ["a", "b"]

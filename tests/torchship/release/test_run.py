"""A run as a whole, with steps that take no time: exit codes, what it leaves, what it keeps."""

from __future__ import annotations

import io
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from shared_objects import GLUE_RECORD, KERNELS_RECORD, shared_object
from small_releases import CONDA_FORGE
from small_wheels import make_wheel
from steps import PlannedStep, Run

from torchship.builder import HostCompiler
from torchship.release import ReleaseError
from torchship.release.matrix.cells import required
from torchship.release.matrix.schema import Tool
from torchship.release.matrix.settings import Settings
from torchship.release.plan.machine import Host
from torchship.release.plan.plan import Plan
from torchship.release.publishing.upload import upload
from torchship.release.run import release as run
from torchship.release.run import store
from torchship.release.run.manifest import parse, wrong_files
from torchship.release.run.release import Release, named_cells
from torchship.release.run.shell import CommandFailed, Log, telling_line
from torchship.release.run.tasks import SkipTask
from torchship.release.steps.pack.distributions import JoinWheels, PackedCell
from torchship.release.steps.pack.wheels import read_wheel
from torchship.release.steps.step import File, Part
from torchship.release.steps.tools.tools import wheel_path

GXX = HostCompiler(("g++",), "g++", "12.2.0")


class World:
    """A checkout of its own, in which cells are packed without being compiled."""

    def __init__(self, settings: Settings, objects: dict[str, bytes]) -> None:
        self.settings = settings
        self.objects = objects
        self.root = settings.build.parent
        self.dist = settings.dist
        self.total = len(required(settings.matrix))
        self.bad: dict[str, Exception] = {}
        self.further: list[str] = []  # steps of each cell that few tests need
        self.ran: list[str] = []
        self.out = io.StringIO()

    def fill(self, plan: Plan) -> Plan:
        packed = []
        for cell in plan.cells:
            wheel = PlannedStep(
                name=f"wheel/{cell}",
                act=self._step("wheel", cell),
                says=lambda path, cell=cell: Part(
                    files=(File(path, "thin", ("folder",), (cell.name,)),),
                    facts={"of": path.name},
                ),
            )
            plan.add(wheel, cell)
            run = Run(name=f"venv/{cell}", act=self._step("venv", cell), after=(wheel,))
            plan.add(run, cell)
            for kind in self.further:
                self._add(kind, cell, plan, after=wheel)
            packed.append(PackedCell(cell.name, wheel, tuple(plan.tasks_of(cell.name))))
        for tool in plan.tools:
            step = PlannedStep(
                name=f"pure/{tool.name}",
                act=self._tool_step(tool),
                says=lambda path: Part(files=(File(path, "pure", ("pypi", "folder")),)),
            )
            plan.add(step, tool)
            for kind in self.further:
                self._add(kind, tool, plan, after=step)
        if packed:
            fat_wheel = JoinWheels.plan(packed, plan)
            for cell in plan.cells:
                self._add("fat-run", cell, plan, after=fat_wheel)
        return plan

    def _add(self, kind, cell, plan, *, after) -> None:
        """Adds a step whose name may be in `bad`; `signature` writes a file for users."""
        name = f"{kind}/{cell.name}"

        def do(_context):
            if name in self.bad:
                raise self.bad[name]
            folder = self.dist if kind == "signature" else self.root / "build"
            path = folder / f"{cell.name}.{kind}"
            path.write_text(name)
            return [path]

        def says(path):
            is_file = kind == "signature"
            file = File(path, kind, ("folder",), (cell.name,))
            return Part(files=(file,)) if is_file else Part()

        plan.add(PlannedStep(name=name, act=do, says=says, after=(after,)), cell)

    def _step(self, step, cell):
        name = f"{step}/{cell.name}"

        def do(context):
            self.ran.append(name)
            context.log.write(f"doing {name}")
            if name in self.bad:
                raise self.bad[name]
            if step == "venv":
                report = self.root / "build" / f"{cell.name}.json"
                report.write_text('{"torch": "2.13.0", "failed": 0, "comparisons": [1, 2]}')
                return [report]
            binaries = {file: self.objects[file.split("-")[0]] for file in cell.files}
            version = f"0.1.0+{cell.local_version}"
            return [make_wheel(self.dist / "simple" / "tiny-client", binaries, version=version)]

        return do

    def _tool_step(self, tool):
        name = f"pure/{tool.name}"

        def do(context):
            self.ran.append(name)
            if name in self.bad:
                raise self.bad[name]
            path = self.dist / wheel_path(tool, context.settings)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tool.name.encode())
            return [path]

        return do

    def release(self, *selectors: str, **options) -> Release:
        console = Console(file=self.out, width=250)
        host = Host("python3", "3.11", None, GXX)
        options = {"channel": "bootstrap", **options}
        return Release(selectors, self.settings, host, console, **options)

    def run(self, *selectors: str, **options) -> int:
        self.ran = []
        self.out = io.StringIO()
        return self.release(*selectors, **options).run()

    @property
    def output(self) -> str:
        return self.out.getvalue()

    @property
    def manifest(self):
        return parse(self.dist / "manifest.json")

    @property
    def packed(self) -> tuple[str, set[str]]:
        """The fat wheel's local version and the kernels in it; the manifest must agree."""
        (path,) = self.dist.glob("tiny_client-*.whl")
        assert self.manifest.fat.path == path.name
        wheel = read_wheel(path)
        assert wheel.version.endswith(f"partial.{len(self.manifest.fat.cells)}of{self.total}")
        names = {Path(name).stem for name in wheel.binaries}
        return wheel.version, {n.removeprefix("kernels-") for n in names if n.startswith("ker")}


@pytest.fixture
def world(tmp_path, own_settings, monkeypatch) -> World:
    glue = shared_object(tmp_path / "o" / "glue.so", record=GLUE_RECORD)
    kernels = shared_object(tmp_path / "o" / "kernels.so", record=KERNELS_RECORD)
    objects = {"glue": glue.read_bytes(), "kernels": kernels.read_bytes()}
    new_world = World(own_settings, objects)
    monkeypatch.setattr(run, "fill", new_world.fill)
    monkeypatch.setattr(run, "obstacle", lambda cell, *_: self_obstacle(cell))
    return new_world


def self_obstacle(cell) -> str | None:
    return "no such torch" if cell.cxx11_abi != cell.torch.abi.pypi else None


def test_the_manifest_keeps_what_a_step_says(world) -> None:
    assert world.run("stable210-cpu") == 0
    entry = world.manifest.cells["stable210-cpu"]
    assert entry.facts == {"wheel/stable210-cpu": {"of": Path(entry.wheel).name}}
    (run,) = entry.runs
    assert run.facts == {"torch": "2.13.0", "comparisons": 2, "failed": 0}


def test_a_run_leaves_a_wheel_a_manifest_a_report_and_logs(world) -> None:
    assert world.run("stable210-cpu") == 0
    manifest = world.manifest
    assert manifest.cells["stable210-cpu"].state == "done"
    assert wrong_files(manifest.artefacts, world.dist) == []
    assert manifest.fat.cells == ["stable210-cpu"] and "+partial.1of" in manifest.fat.path
    assert manifest.cells["stable210-cpu"].runs[0].facts["comparisons"] == 2
    assert "doing venv/stable210-cpu" in (world.dist / "logs" / "stable210-cpu.log").read_text()
    assert (world.dist / "report.html").exists()
    assert (world.dist / "simple" / "tiny-client" / "index.html").exists()


def test_one_failing_cell_stops_no_other_and_fails_the_run(world) -> None:
    world.bad["wheel/stable210-cpu"] = ReleaseError("auditwheel finds no tag")
    assert world.run("stable210-*") == 1
    cells = world.manifest.cells
    assert {name: cell.state for name, cell in cells.items()} == {
        "stable210-cpu": "failed",
        "stable210-cu12": "done",
        "stable210-cu13": "done",
    }
    assert (
        "auditwheel finds no tag" in world.output and "| doing wheel/stable210-cpu" in world.output
    )
    assert world.manifest.fat.cells == ["stable210-cu12", "stable210-cu13"]
    assert "auditwheel finds no tag" in world.manifest.missing["stable210-cpu"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "g++ -c x.cpp\nx.cpp:3:5: error: no such name\nx.cpp:4:1: error: x\nninja: stopped",
            "x.cpp:3:5: error: no such name",
        ),
        ("Traceback:\n  File x\nRuntimeError: no torch\nfurther words", "RuntimeError: no torch"),
        ("error: subprocess\nmore\nERROR: Failed building wheel\n", "ERROR: Failed building wheel"),
        ("one\nthe last words\n\n", "the last words"),
        ("", ""),
    ],
)
def test_a_failed_command_is_told_with_the_sentence_of_its_log(said: str, sentence: str) -> None:
    assert telling_line(said.splitlines()) == sentence


def test_the_row_of_a_failed_step_has_the_sentence_of_its_log(world, tmp_path) -> None:
    with Log(tmp_path / "x.log", world.settings) as log, pytest.raises(CommandFailed) as failure:
        log.write("$ an earlier command\nx.cpp:1:1: error: of that one")
        log.run(["sh", "-c", "echo 'x.cpp:3:5: error: no such name'; exit 3"])
    world.bad["wheel/stable210-cpu"] = failure.value
    world.run("stable210-cpu")
    table = world.output[world.output.index("tiny-client release") :]
    assert "ended with exit code 3: x.cpp:3:5: error: no such name" in table
    assert "of that one" not in table


def test_what_cannot_be_built_is_said_before_anything_is_done(world) -> None:
    assert world.run("aten24-*-cpu") == 0
    skipped = "cannot be built here: aten24-abi1-cpu: no such torch"
    assert world.output.index(skipped) < world.output.index("wheel/aten24-abi0-cpu")


def test_nothing_is_started_if_no_named_cell_can_be_built(world) -> None:
    """Tools alone would be made, and the run fail after them."""
    with pytest.raises(
        ReleaseError, match=r"nothing was started.*\naten24-abi1-cpu: no such torch"
    ):
        world.run("aten24-abi1-cpu")
    assert world.ran == []


def test_the_table_shows_the_begin_of_a_long_reason(world) -> None:
    reason = "\n".join(f"error {number}" for number in range(50))
    world.bad["wheel/stable210-cpu"] = ReleaseError(reason)
    world.run("stable210-cpu")
    table = world.output[world.output.index("tiny-client release") :]
    assert "error 3" in table and "error 4" not in table and "its log has the rest" in table
    assert "error 49" in world.manifest.cells["stable210-cpu"].reason


def test_a_cell_that_does_not_run_stays_out_of_the_wheel(world) -> None:
    world.bad["venv/stable210-cu13"] = ReleaseError("two OpenMP runtimes")
    assert world.run("stable210-cpu", "stable210-cu13") == 1
    assert world.manifest.fat.cells == ["stable210-cpu"]
    assert world.packed == (f"0.1.0+partial.1of{world.total}", {"cpu"})


def test_a_cell_whose_package_fails_stays_out_of_the_wheel(world) -> None:
    world.further = ["conda-test"]
    world.bad["conda-test/stable210-cu13"] = ReleaseError("no such pytorch")
    assert world.run("stable210-cpu", "stable210-cu13") == 1
    assert world.packed == (f"0.1.0+partial.1of{world.total}", {"cpu"})
    assert "no such pytorch" in world.manifest.missing["stable210-cu13"]


def test_the_manifest_has_every_cell_of_a_fat_wheel_that_then_fails(world) -> None:
    world.bad["fat-run/stable210-cu13"] = ReleaseError("another glue was chosen")
    assert world.run("stable210-cpu", "stable210-cu13") == 1
    assert world.packed == (f"0.1.0+partial.2of{world.total}", {"cpu", "cuda13"})
    assert "stable210-cu13" not in world.manifest.missing
    assert world.manifest.failed == ["stable210-cu13"]
    assert {artefact.kind for artefact in world.manifest.left_behind} == {"fat", "thin"}


def test_a_kind_of_file_that_nobody_knows_is_listed_and_kept(world) -> None:
    world.further = ["signature"]
    world.run("stable210-cu13")
    world.run("stable210-cpu")
    signatures = [a for a in world.manifest.artefacts if a.kind == "signature"]
    assert [(a.cells, a.goes_to) for a in signatures] == [
        (["stable210-cpu"], ["folder"]),
        (["stable210-cu13"], ["folder"]),
    ]
    assert "stable210-cpu.signature" in world.output
    (world.dist / "stable210-cu13.signature").write_text("other")
    world.run("stable210-cpu")
    assert [a.cells for a in world.manifest.artefacts if a.kind == "signature"] == [
        ["stable210-cpu"]
    ]


def test_a_run_for_tools_alone_keeps_the_fat_wheel(world) -> None:
    """`upload` asks for one where a release lacks its tools."""
    tool = Tool(distribution="my-tool", folder="tool", run=["my-tool"])
    matrix = world.settings.matrix.model_copy(update={"tools": [tool]})
    world.settings = replace(world.settings, matrix=matrix)
    assert world.run("stable210-cpu", "stable210-cu13") == 0
    before = world.manifest
    assert world.run("my-tool") == 0
    assert world.manifest.fat == before.fat
    assert world.manifest.missing == before.missing
    assert {a.kind for a in world.manifest.artefacts} == {"fat", "thin", "pure"}
    world.further = ["pure-audit"]
    world.bad["pure-audit/my-tool"] = ReleaseError("it does not run")
    assert world.run("my-tool") == 1
    assert {a.kind for a in world.manifest.artefacts} == {"fat", "thin"}


def test_a_fat_wheel_that_cannot_be_made_fails_the_run(world, matrix) -> None:
    project = matrix.project.model_copy(update={"wheel_limit": 10})
    small = matrix.model_copy(update={"project": project})
    world.settings = replace(world.settings, matrix=small)
    assert world.run("stable210-cpu") == 1
    assert world.manifest.fat is None and "at most 10 are allowed" in world.output


def test_what_a_machine_cannot_build_is_named_and_fails_only_who_asked_for_it(world) -> None:
    assert world.run("aten24*cpu") == 0
    assert world.manifest.cells["aten24-abi1-cpu"].state == "skipped"
    assert world.manifest.missing["aten24-abi1-cpu"] == "no such torch"
    assert world.run("aten24-abi1-cpu", "aten24-abi0-cpu") == 1


def test_what_a_machine_cannot_run_is_partial(world) -> None:
    world.bad["venv/stable210-cu13"] = SkipTask("needs a GPU")
    assert world.run("stable210-cu*") == 0
    assert world.manifest.cells["stable210-cu13"].state == "partial"
    assert "stable210-cu13" in world.manifest.fat.cells and "needs a GPU" in world.output
    assert world.run("stable210-cu13") == 1


def test_cuda_kernels_that_no_gpu_has_run_are_said_to_be_so(world) -> None:
    world.run("stable210-cu13", "stable210-cpu")
    runs = {name: cell.runs[-1] for name, cell in world.manifest.cells.items()}
    assert runs["stable210-cpu"].ran
    assert not runs["stable210-cu13"].ran and "no run had a GPU" in world.output


def test_a_second_run_does_nothing_again(world) -> None:
    world.run("stable210-cpu")
    before = world.manifest.fat
    assert world.run("stable210-cpu") == 0
    assert world.ran == [] and world.manifest.fat == before
    assert world.manifest.cells["stable210-cpu"].steps.keys() >= {"wheel/stable210-cpu"}


def test_a_run_of_other_cells_keeps_what_is_there(world) -> None:
    world.run("stable210-cu13")
    assert world.run("stable210-cpu") == 0
    assert world.ran == ["wheel/stable210-cpu", "venv/stable210-cpu"]
    assert world.manifest.fat.cells == ["stable210-cpu", "stable210-cu13"]
    assert world.packed == (f"0.1.0+partial.2of{world.total}", {"cpu", "cuda13"})


def test_a_cell_that_fails_now_is_not_kept_from_before(world) -> None:
    world.run("stable210-cpu", "stable210-cu13")
    (world.root / "build" / "stamps" / "venv__stable210-cu13.json").unlink()
    world.bad["venv/stable210-cu13"] = ReleaseError("it does not run any more")
    assert world.run("stable210-cpu", "stable210-cu13") == 1
    assert world.packed == (f"0.1.0+partial.1of{world.total}", {"cpu"})


def test_what_another_compiler_made_is_not_kept(world, tmp_path) -> None:
    world.run("stable210-cu13")
    other = shared_object(tmp_path / "p" / "k.so", record=KERNELS_RECORD, defined=["more"])
    world.objects["kernels"] = other.read_bytes()
    assert world.run("stable210-cpu") == 0
    assert world.packed == (f"0.1.0+partial.1of{world.total}", {"cpu"})
    assert world.manifest.missing["stable210-cu13"] == "not selected"


def test_nothing_is_kept_of_a_torn_manifest(world) -> None:
    world.run("stable210-cpu")
    path = world.dist / "manifest.json"
    path.write_text(path.read_text()[:300])
    assert world.run("stable210-cu13") == 0
    assert world.manifest.fat.cells == ["stable210-cu13"]
    assert "set aside as manifest.json.set-aside-1" in world.output


def test_nothing_is_kept_of_other_sources(world, monkeypatch) -> None:
    world.run("stable210-cu13")
    monkeypatch.setattr(store, "source_identity", lambda *_: "t" * 64)
    assert world.run("stable210-cpu") == 0
    assert world.packed == (f"0.1.0+partial.1of{world.total}", {"cpu"})


@pytest.fixture
def checkout(tmp_path, settings, monkeypatch):
    """A git checkout with two commits, of which the run sees the first; returns its git."""
    root = tmp_path / "checkout"
    root.mkdir()

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    for content in ("first", "second"):
        (root / "op.cpp").write_text(content)
        git("add", ".")
        git("commit", "--quiet", "-m", content)
    git("checkout", "--quiet", "HEAD~1")
    inner = store.identity
    other_settings = replace(settings, repo=root)
    monkeypatch.setattr(run, "identity", lambda files, _settings: inner(files, other_settings))
    monkeypatch.setattr(run, "package_sources", lambda _repo: (root / "op.cpp",))
    return git


MOVES = {
    "moved": (["checkout", "--quiet", "-"], "HEAD moved from "),
    "moved and back": (["checkout", "--quiet", "-", "--", "op.cpp"], "source files were"),
    "a file more": (["init", "--quiet", "another"], "files were changed, added or removed"),
}


@pytest.mark.parametrize("how", MOVES)
def test_what_is_built_from_a_checkout_that_changes_is_not_certified(world, checkout, how) -> None:
    git_command, says = MOVES[how]
    step = world._step

    def moving(name, cell):
        do = step(name, cell)

        def act(context):
            if not world.ran:
                checkout(*git_command)
                if how == "moved and back":
                    checkout("reset", "--quiet", "--hard")
            return do(context)

        return act

    world._step = moving
    assert world.run("stable210-cpu") == 1
    manifest = world.manifest
    assert manifest.changed.startswith(f"during the run, {says}")
    assert (manifest.clean, manifest.artefacts) == (False, [])
    assert says in world.output
    with pytest.raises(ReleaseError, match=says):
        upload("./x", world.settings, Console(file=world.out), dry_run=True)
    world._step = step
    assert world.run("stable210-cpu") == 0
    assert (world.manifest.changed, len(world.manifest.artefacts)) == ("", 2)


def test_a_checkout_that_is_left_alone_is_certified(world, checkout) -> None:
    assert world.run("stable210-cpu") == 0
    assert (world.manifest.changed, world.manifest.clean) == ("", True)


def test_shards_share_the_cells(world) -> None:
    cells: list[str] = []
    for number in (1, 2, 3):
        assert world.run("stable210-*", shard=f"{number}/3") == 0
        assert world.manifest.shard == f"{number}/3"
        cells += [name.removeprefix("wheel/") for name in world.ran if name.startswith("wheel/")]
    assert sorted(cells) == ["stable210-cpu", "stable210-cu12", "stable210-cu13"]


def test_a_dry_run_makes_nothing(world, tmp_path) -> None:
    before = sorted(tmp_path.rglob("*"))
    world.release("stable210-cpu").show()
    assert sorted(tmp_path.rglob("*")) == before
    assert "wheel/stable210-cpu" in world.output and world.ran == []


def test_a_dry_run_says_what_is_unchanged(world, monkeypatch) -> None:
    def states() -> dict[str, str]:
        world.out = io.StringIO()
        world.release("stable210-cpu").show()
        lines = [line for line in world.output.splitlines() if "/stable210-cpu" in line]
        return {line[:44].strip(): line[45:57].strip() for line in lines}

    assert set(states().values()) == {"to make"}
    world.bad["fat-run/stable210-cpu"] = ReleaseError("it does not run")
    world.run("stable210-cpu")
    assert states() == {
        "wheel/stable210-cpu": "unchanged",
        "venv/stable210-cpu": "unchanged",
        "fat-run/stable210-cpu": "to make",
    }
    (world.root / "build" / "stable210-cpu.json").unlink()
    assert states()["venv/stable210-cpu"] == "to make"
    monkeypatch.setattr(store, "tool_digest", lambda: "another tool")
    assert set(states().values()) == {"to make"}


@pytest.mark.parametrize(
    ("named", "planned"),
    [("auto", CONDA_FORGE), ("conda-forge", CONDA_FORGE), ("bootstrap", None), ("URL", "URL")],
)
def test_a_dry_run_asks_nothing_of_the_network(world, monkeypatch, named, planned) -> None:
    monkeypatch.setattr(run, "conda_forge_in_reach", lambda: pytest.fail("asked the network"))
    plans: list[Plan] = []
    monkeypatch.setattr(run, "fill", lambda plan: plans.append(plan) or world.fill(plan))
    world.release("stable210-cpu", channel=named).show()
    assert [plan.channel for plan in plans] == [planned]
    assert ("is taken to be" in world.output) == (named == "auto")


def test_a_full_disk_fails_the_run_and_the_next_one_goes_on(world) -> None:
    world.bad["venv/stable210-cpu"] = OSError(28, "No space left on device", str(world.root))
    assert world.run("stable210-cpu", "stable210-cu13") == 1
    assert "MB are free" in world.output and "what is finished is kept" in world.output
    world.bad.clear()
    assert world.run("stable210-cpu", "stable210-cu13") == 0
    assert "wheel/stable210-cpu" not in world.ran and "venv/stable210-cpu" in world.ran


@pytest.mark.parametrize(
    ("selectors", "names"),
    [
        (["oldest"], {"aten24-abi0-cpu", "aten24-abi0-cu12"}),
        (["oldest", "aten24-abi1-cpu"], {"aten24-abi0-cpu", "aten24-abi0-cu12", "aten24-abi1-cpu"}),
        (["stable*", "all"], set()),
        ([], set()),
    ],
)
def test_oldest_names_no_cell_that_takes_a_torch_which_pypi_lacks(
    settings, selectors, names
) -> None:
    """Otherwise `oldest` could succeed on no machine with PyPI's torch."""
    host = Host("python3", "3.11", None, GXX)
    assert named_cells(selectors, host, settings) == names

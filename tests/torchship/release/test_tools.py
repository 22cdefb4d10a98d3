"""Tools: who makes them, what their wheels must be, the same bytes each time, and where they go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from small_clients import REPO
from small_releases import describe_artefact, make_manifest, make_release
from test_planner import HOST

from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.schema import Matrix, Tool
from torchship.release.matrix.settings import Settings
from torchship.release.plan.plan import Plan
from torchship.release.plan.planner import fill
from torchship.release.publishing import upload as uploading
from torchship.release.publishing.merge import merge
from torchship.release.run.manifest import ToolEntry, parse, tools_to_keep, write
from torchship.release.run.tasks import Context, Outcome, Status
from torchship.release.steps.conda.bootstrap import link_distributions
from torchship.release.steps.pack.wheels import Wheel, read_wheel
from torchship.release.steps.tools.packing import (
    PackTool,
    PackZipapp,
    extra_recipe,
    recipe,
    write_zipapp,
)
from torchship.release.steps.tools.tools import (
    chosen_tools,
    paths_of,
    tool_wheel_problems,
    wheel_path,
)

pytestmark = pytest.mark.usefixtures("no_placeholders")

CELL = "stable210-cpu"
TOOL = Tool(
    distribution="my-tool", folder="tool", run=["my-tool"], zipapp=True, extras={"all": ["x"]}
)
PLAIN_TOOL = Tool(distribution="plain-tool", folder="plain", run=["plain-tool"])
DOCTOR = Tool(
    distribution="torch-doctor",
    folder="torchship/doctor",
    packs=["torchship/judge"],
    run=["torch-doctor --help"],
    zipapp=True,
)
METADATA = b"""\
Metadata-Version: 2.4
Name: my-tool
Version: 0.1.0
Summary: A tool
Requires-Python: >=3.10
Requires-Dist: build>=1.2; extra == "all"
Requires-Dist: rich>=13; python_version >= "3.11" and extra == "all"
"""
INFO = {
    "METADATA": METADATA,
    "WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": b"[console_scripts]\nmy-tool = my_tool.command:main\n",
    "licenses/LICENSE": b"free",
}
COMMAND = b"import sys\n\n\ndef main():\n    print(sys.argv[1:])\n"
WHEEL = Wheel(
    name="my_tool",
    version="0.1.0",
    tag="py3-none-any",
    files={"my_tool/__init__.py": b"", "my_tool/command.py": COMMAND},
    info=INFO,
)


def with_info(**changes: bytes) -> Wheel:
    return WHEEL._replace(info={**INFO, **changes})


@pytest.fixture
def two_tools(matrix) -> Matrix:
    """The client's matrix with two tools."""
    return matrix.model_copy(update={"tools": [TOOL, PLAIN_TOOL]})


@pytest.mark.parametrize(
    ("selectors", "shard", "platform", "expected"),
    [
        ([], None, "linux-x86_64", 2),
        (["host"], None, "linux-x86_64", 2),
        (["all"], None, "linux-x86_64", 2),
        ([], "1/3", "linux-x86_64", 2),
        ([], "2/3", "linux-x86_64", 0),
        ([], "11/12", "linux-x86_64", 0),
        ([], None, "linux-aarch64", 0),
        (["stable210-cpu"], None, "linux-x86_64", 0),
        (["aten*"], None, "linux-x86_64", 0),
        (["stable210-cpu", "my-tool"], None, "linux-x86_64", 1),
        (["my-tool"], None, "linux-aarch64", 1),
    ],
)
def test_one_machine_makes_the_tools(
    selectors, shard, platform, expected, two_tools, settings
) -> None:
    own = replace(settings, matrix=two_tools.on(platform), native=platform)
    assert len(chosen_tools(selectors, shard, own)) == expected


def test_of_all_shards_exactly_one_makes_the_tools(two_tools, settings) -> None:
    own = replace(settings, matrix=two_tools)
    made = [chosen_tools([], f"{n}/12", own) for n in range(1, 13)]
    assert sum(map(bool, made)) == 1


def test_a_good_wheel_has_no_problem() -> None:
    assert list(tool_wheel_problems(WHEEL, TOOL, "0.1.0")) == []


@pytest.mark.parametrize(
    ("wheel", "problem"),
    [
        (WHEEL._replace(tag="cp311-cp311-linux_x86_64"), "its tag is cp311"),
        (with_info(WHEEL=b"Root-Is-Purelib: false\n"), "Root-Is-Purelib"),
        (with_info(METADATA=METADATA.replace(b"my-tool", b"other")), "its Name is other"),
        (with_info(METADATA=METADATA.replace(b"0.1.0", b"0.2.0")), "its Version is 0.2.0"),
        (with_info(METADATA=METADATA.replace(b"Requires-Python: >=3.10\n", b"")), "no Requires-Py"),
        (with_info(METADATA=METADATA + b"Requires-Dist: numpy\n"), "requires numpy"),
        (WHEEL._replace(info={k: v for k, v in INFO.items() if "LICENSE" not in k}), "no licence"),
        (with_info(**{"entry_points.txt": b""}), "no command my-tool"),
        (
            WHEEL._replace(files={"my_tool/__init__.py": b""}),
            "my_tool.command:main, which it lacks",
        ),
        (WHEEL._replace(files={**WHEEL.files, "other/x.py": b""}), "outside of the package"),
        (WHEEL._replace(files={**WHEEL.files, "my_tool/x.so": b""}), "is a compiled file"),
        (WHEEL._replace(files={**WHEEL.files, "my_tool/x": b"\x7fELF"}), "is a compiled file"),
        (WHEEL._replace(files={**WHEEL.files, "my_tool/x.py": b"def"}), "is not valid Python"),
    ],
)
def test_a_fault_of_a_wheel_is_named(wheel, problem) -> None:
    (fault,) = tool_wheel_problems(wheel, TOOL, "0.1.0")
    assert problem in fault


def test_one_file_runs_the_command(tmp_path) -> None:
    path = tmp_path / "my-tool.pyz"
    write_zipapp(path, WHEEL, "my-tool", epoch=1_700_000_000)
    run = subprocess.run([sys.executable, path, "x"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "['x']\n")
    run = subprocess.run([path, "y"], capture_output=True, text=True)
    assert run.stdout == "['y']\n"


def test_a_tool_may_require_what_its_one_file_carries(tmp_path) -> None:
    wheel = with_info(METADATA=METADATA + b"Requires-Dist: packaging>=22\n")
    assert list(tool_wheel_problems(wheel, TOOL, "0.1.0")) == []
    path = tmp_path / "my-tool.pyz"
    write_zipapp(path, wheel, "my-tool", epoch=1_700_000_000)
    code = "import packaging.version; print(packaging.__file__)"
    env = {"PYTHONPATH": str(path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", code]
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.stdout.startswith(str(path)), run.stderr


def test_the_package_of_conda_requires_what_the_wheel_does(own_settings) -> None:
    wheel = with_info(METADATA=METADATA + b"Requires-Dist: packaging>=22\n")
    run = json.loads(recipe(TOOL, wheel, own_settings))["requirements"]["run"]
    assert run == ["python >=3.10", "packaging >=22"]


def test_one_file_says_which_python_it_needs(tmp_path) -> None:
    path = tmp_path / "my-tool.pyz"
    info = {**INFO, "METADATA": METADATA.replace(b">=3.10", b">=3.99")}
    write_zipapp(path, WHEEL._replace(info=info), "my-tool", epoch=1_700_000_000)
    run = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert run.returncode == 1
    assert "my-tool needs Python 3.99 or newer, got 3." in run.stderr


def test_recipes_say_what_the_wheel_says(own_settings) -> None:
    """What only some Pythons need, a package for every Python cannot require."""
    own = json.loads(recipe(TOOL, WHEEL, own_settings))
    assert own["build"]["noarch"] == "python"
    assert own["build"]["python"]["entry_points"] == ["my-tool = my_tool.command:main"]
    assert own["requirements"]["run"] == ["python >=3.10"]
    extra = json.loads(extra_recipe(TOOL, WHEEL, "all", own_settings))
    assert extra["package"]["name"] == "my-tool-all"
    needs = ["python >=3.10", "my-tool ==0.1.0", "python-build >=1.2"]
    assert extra["requirements"]["run"] == needs


def test_every_tool_is_audited_installed_and_run_in_every_form(two_tools, settings) -> None:
    tasks = fill(Plan(settings, HOST, tools=two_tools.tools)).tasks
    for tool in two_tools.tools:
        names = {name for name, task in tasks.items() if tool.name in task.cells}
        kinds = {"pure", "pure-audit", "pure-venv", "noarch", "noarch-prefix"}
        kinds |= {"zipapp", "zipapp-run"} if tool.zipapp else set()
        assert {f"{kind}/{tool.name}" for kind in kinds} <= names
        extras = {f"{tool.name}-{extra}" for extra in tool.extras}
        assert {f"{k}/{e}" for k in ("pure-venv", "noarch-prefix") for e in extras} <= names
        for name in names & {f"pure-venv/{tool.name}", f"noarch/{tool.name}"}:
            assert tasks[f"pure-audit/{tool.name}"] in tasks[name].needs


def test_tools_leave_the_steps_of_the_cells_alone(two_tools, settings) -> None:
    (cell,) = (cell for cell in all_cells(two_tools) if cell.name == CELL)
    alone = fill(Plan(settings, HOST, [cell])).tasks
    together = fill(Plan(settings, HOST, [cell], tools=two_tools.tools)).tasks
    assert [name for name, task in together.items() if CELL in task.cells] == [
        name for name, task in alone.items() if CELL in task.cells
    ]


def test_beside_a_bootstrap_channel_an_extra_finds_what_it_requires(settings, tmp_path) -> None:
    versions = {"build": "1.3", "ruamel.yaml": "0.18"}
    link_distributions(tmp_path / "c", versions, Path("/site"), "3.11", subdir=settings.subdir)
    repodata = json.loads((tmp_path / "c" / settings.subdir / "repodata.json").read_text())
    packages = {p["name"]: p["version"] for p in repodata["packages"].values()}
    assert packages == {"python-build": "1.3", "ruamel.yaml": "0.18"}


def make_tool(tool: Tool, settings, log) -> dict[str, Path]:
    """The wheel and the one file of a tool."""
    plan = fill(Plan(settings, HOST, tools=[tool]))
    made: dict[str, Path] = {}
    outcomes: dict[str, Outcome] = {}
    for task in plan.tasks.values():
        if isinstance(task, (PackTool, PackZipapp)):
            paths = tuple(task.run(Context(log, settings, 1, outcomes)))
            outcomes[task.name] = Outcome(task.name, Status.DONE, outputs=paths)
            made[task.name.partition("/")[0]] = paths[0]
    return made


@pytest.mark.slow  # it is packed twice
def test_the_doctor_is_the_same_bytes_each_time_and_has_its_tables(
    own_settings, log, tmp_path
) -> None:
    settings = replace(own_settings, repo=REPO)
    first = make_tool(DOCTOR, settings, log)
    os.utime(REPO / DOCTOR.folder / "command.py")
    second_settings = replace(settings, build=tmp_path / "b" / "c", dist=tmp_path / "e")
    second = make_tool(DOCTOR, second_settings, log)
    assert [path.name for path in first.values()] == [
        "torch_doctor-0.1.0-py3-none-any.whl",
        "torch-doctor.pyz",
    ]
    assert [p.read_bytes() for p in first.values()] == [p.read_bytes() for p in second.values()]
    code = "from torch_doctor.judge.reading import layouts; print(len(layouts._ranges()))"
    env = {**os.environ, "PYTHONPATH": str(first["zipapp"])}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert int(run.stdout) > 200, run.stderr


def add_tool(shard: Path, settings, tool: Tool, content: Wheel | None = None) -> None:
    """Adds the wheel of a tool to the `dist` folder of a shard, and to its manifest."""
    name = wheel_path(tool, settings)
    folder = (shard / name).parent
    folder.mkdir(parents=True)
    (content or WHEEL).write(folder, epoch=1_700_000_000)
    manifest = parse(shard / "manifest.json")
    entry = ToolEntry(state="done", files=[name], log=f"logs/{tool.name}.log", host="h")
    log = shard / f"logs/{tool.name}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("made\n")
    changed = manifest.model_copy(
        update={
            "tools": {tool.name: entry},
            "artefacts": [*manifest.artefacts, describe_artefact(shard, name, "pure", [])],
        }
    )
    (shard / "manifest.json").write_text(changed.model_dump_json(by_alias=True))


@pytest.fixture
def tool_settings(own_settings):
    """Settings with a tool that is quickly made."""
    return replace(own_settings, matrix=own_settings.matrix.model_copy(update={"tools": [TOOL]}))


@pytest.fixture
def shards(matrix, objects, tmp_path) -> list[Path]:
    cells = [cell.name for cell in all_cells(matrix)][:2]
    for number, cell in enumerate(cells):
        make_manifest(tmp_path / str(number), matrix, {cell: "done"}, objects)
    return [tmp_path / str(number) for number in range(len(cells))]


def test_a_merge_takes_the_tools_of_the_shard_that_made_them(
    shards, tool_settings, console
) -> None:
    add_tool(shards[1], tool_settings, TOOL)
    assert merge(shards, console, tool_settings) == 0
    manifest = parse(tool_settings.manifest)
    assert manifest.tools["my-tool"].state == "done"
    name = wheel_path(TOOL, tool_settings)
    assert read_wheel(tool_settings.dist / name) == WHEEL
    assert name in {artefact.path for artefact in manifest.artefacts if artefact.kind == "pure"}
    assert (tool_settings.dist / "logs" / "my-tool.log").is_file()
    assert (tool_settings.index / "my-tool" / "index.html").is_file()


def test_two_shards_may_make_a_tool_of_the_same_bytes(shards, tool_settings, console) -> None:
    for shard in shards:
        add_tool(shard, tool_settings, TOOL)
    assert merge(shards, console, tool_settings) == 0


def test_a_tool_of_other_bytes_stops_a_merge(shards, tool_settings, console) -> None:
    add_tool(shards[0], tool_settings, TOOL)
    other = WHEEL._replace(files={**WHEEL.files, "my_tool/more.py": b""})
    add_tool(shards[1], tool_settings, TOOL, other)
    with pytest.raises(ReleaseError, match="differs from that in"):
        merge(shards, console, tool_settings)


def test_a_failed_tool_fails_a_merge(shards, tool_settings, console, capsys) -> None:
    manifest = parse(shards[0] / "manifest.json")
    failed = ToolEntry(state="failed", reason="pure/my-tool: no", host="h")
    changed = manifest.model_copy(update={"tools": {"my-tool": failed}})
    (shards[0] / "manifest.json").write_text(changed.model_dump_json(by_alias=True))
    assert merge(shards, console, tool_settings) == 1
    assert "FAILED my-tool: pure/my-tool: no" in capsys.readouterr().out


def test_a_tool_has_a_place_for_every_form(own_settings) -> None:
    assert paths_of(TOOL, own_settings) == [
        "simple/my-tool/my_tool-0.1.0-py3-none-any.whl",
        "my-tool.pyz",
        "channel/noarch/my-tool-0.1.0-py_0.conda",
        "channel/noarch/my-tool-all-0.1.0-py_0.conda",
    ]


@pytest.fixture
def uploadable(tool_settings) -> Settings:
    """A `dist` folder that may be uploaded, with a tool in every form."""
    dist = tool_settings.dist
    manifest = make_release(dist)
    kinds = {".whl": "pure", ".pyz": "zipapp", ".conda": "noarch"}
    artefacts = list(manifest.artefacts)
    for name in paths_of(TOOL, tool_settings):
        path = dist / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".whl":
            WHEEL.write(path.parent, epoch=1_700_000_000)
        else:
            path.write_bytes(name.encode())
        artefacts.append(describe_artefact(dist, name, kinds[path.suffix], []))
    tools = {"my-tool": ToolEntry(state="done", files=paths_of(TOOL, tool_settings))}
    write(
        manifest.model_copy(update={"tools": tools, "artefacts": artefacts}), dist / "manifest.json"
    )
    return tool_settings


@pytest.mark.parametrize(
    ("target", "kinds"),
    [
        ("testpypi", {"fat", "sdist", "pure"}),
        ("anaconda:me", {"conda", "noarch"}),
        ("FOLDER/public", {"thin", "conda", "pure", "noarch"}),
    ],
)
def test_a_target_gets_its_forms_of_the_tools(
    target, kinds, uploadable, tmp_path, monkeypatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(uploading, "published_hashes", lambda url: asked.append(url) or {})
    monkeypatch.setattr(uploading, "published_packages", lambda url, _: asked.append(url) or {})
    monkeypatch.setattr(uploading, "TWINE", ("true",))
    monkeypatch.setattr(uploading.shutil, "which", lambda name: name)
    out = Console(record=True, width=300)
    target = target.replace("FOLDER", str(tmp_path))
    assert uploading.upload(target, uploadable, out, dry_run=True) == 0
    lines = out.export_text().splitlines()
    names = {line.removeprefix("would upload ") for line in lines if line.startswith("would up")}
    artefacts = parse(uploadable.manifest).artefacts
    assert names == {artefact.path for artefact in artefacts if artefact.kind in kinds}
    if "public" not in target:  # of every distribution, what is there already is asked for
        assert {"tiny-client", "my-tool"} <= {part for url in asked for part in url.split("/")}


def test_a_folder_shows_the_wheel_of_a_tool_in_its_index(uploadable, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(uploading, "index_package", lambda *_: None)
    public = tmp_path / "public"
    assert uploading.upload(str(public) + "/", uploadable, Console(), dry_run=False) == 0
    assert read_wheel(public / wheel_path(TOOL, uploadable)) == WHEEL
    assert "my_tool-0.1.0" in (public / "simple" / "my-tool" / "index.html").read_text()


def test_a_release_without_its_tools_does_not_go_to_pypi(tool_settings) -> None:
    make_release(tool_settings.dist, tools={})
    with pytest.raises(ReleaseError, match=r"my-tool were not made; run scripts/build_all\.sh my-"):
        uploading.upload("pypi", tool_settings, Console(), dry_run=True)


def test_what_a_run_made_of_a_tool_is_kept_unless_it_changed(uploadable) -> None:
    manifest = parse(uploadable.manifest)
    assert tools_to_keep(manifest, manifest.sources, uploadable.dist) == manifest.tools
    assert tools_to_keep(manifest, "other", uploadable.dist) == {}
    (uploadable.dist / "my-tool.pyz").write_bytes(b"changed")
    assert tools_to_keep(manifest, manifest.sources, uploadable.dist) == {}

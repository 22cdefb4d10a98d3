"""The tree keeps the shape that docs/how/architecture.md draws, and says every fact once."""

from __future__ import annotations

import ast
import graphlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "lltm_conda"
CSRC = REPO / "csrc"
TEMPLATES = REPO / "torchship" / "templates"
STDLIB = sys.stdlib_module_names


def python_files(*folders: str) -> list[Path]:
    """The modules below these folders; torchship's templates are files of other projects."""
    paths = (path for folder in folders for path in sorted((REPO / folder).rglob("*.py")))
    return [path for path in paths if not path.is_relative_to(TEMPLATES)]


def name_of(path: Path) -> str:
    return str(path.relative_to(REPO))


def module_of(path: Path) -> str:
    """The dotted name that imports a file; `scripts` is on the path of its programs."""
    parts = path.relative_to(REPO).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "scripts"))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Everything imported, under TYPE_CHECKING and inside functions too: the absolute dotted name
    (of a `from` import: with the name that it takes) and the line."""
    package = [*module_of(path).split("."), *(["__init__"] * (path.name == "__init__.py"))][:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = [*base, *([node.module] if node.module else [])]
            yield from ((".".join([*start, alias.name]), node.lineno) for alias in node.names)


def imported_modules(paths: list[Path]) -> dict[str, list[str]]:
    """For each of these files, by module name, which of the others it imports."""
    files = {module_of(path): path for path in paths}
    graph: dict[str, list[str]] = {}
    for module, path in files.items():
        imported = set()
        for name, _ in imports(path):
            while name not in files and "." in name:
                name = name.rpartition(".")[0]
            imported |= {name} & files.keys() - {module}
        graph[module] = sorted(imported)
    return graph


def circles(graph: dict[str, list[str]]) -> list[str]:
    """The circles of imports, as many as must be cut until none is left."""
    descriptions = []
    while True:
        try:
            graphlib.TopologicalSorter(graph).prepare()
            return descriptions
        except graphlib.CycleError as error:
            circle = error.args[1][::-1]  # each module imports the next
            descriptions.append(" -> ".join(circle))
            graph = {**graph, circle[0]: [name for name in graph[circle[0]] if name != circle[1]]}


def test_no_imports_run_in_a_circle() -> None:
    graph = imported_modules(python_files("lltm_conda", "torchship", "benchmarks"))
    descriptions = circles(graph)
    assert not descriptions, "circles of imports:\n" + "\n".join(descriptions)


def test_a_circle_of_imports_is_shown_with_its_path() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": []}
    assert sorted(circles(graph)) == ["a -> b -> c -> a", "d -> e -> d"]


def strangers(path: Path, allowed: tuple[str, ...]) -> list[str]:
    """Imports that are neither of the standard library nor under one of the allowed names."""
    return [
        f"{name_of(path)}:{line} imports {module}"
        for module, line in imports(path)
        if module.split(".")[0] not in STDLIB
        and not any(module == name or module.startswith(name + ".") for name in allowed)
    ]


#: Never imported: `Record` shows it to type checkers alone, as Python has it from 3.11 on.
FOR_TYPE_CHECKERS = "typing_extensions.dataclass_transform"


#: Which parts of torchship, besides itself, a part may import; a client's package has those that
#: name no doctor.
PARTS = {
    "judge": (),
    "doctor": ("judge",),
    "builder": ("judge",),
    "porting": ("judge",),
}


@pytest.mark.parametrize(
    ("part", "path"),
    [(part, path) for part in PARTS for path in python_files(f"torchship/{part}")],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_a_part_imports_the_standard_library_and_its_own_below_alone(part: str, path: Path) -> None:
    if path.parent.name == "torch_doctor":  # the top of a package that holds both of them
        pytest.skip("its imports are those of the distribution")
    allowed = [f"torchship.{name}" for name in (part, *PARTS[part])]
    assert strangers(path, (*allowed, FOR_TYPE_CHECKERS)) == []


@pytest.mark.parametrize("path", python_files("lltm_conda"), ids=name_of)
def test_package_imports_torch_and_the_standard_library_alone(path: Path) -> None:
    assert strangers(path, ("lltm_conda", "torch")) == []


#: The folders of torchship that no client's package has.
AUTHORS_ONLY = ("command", "doctor", "porting", "project", "release", "templates")
ENGINE = [
    path
    for path in python_files("torchship")
    if path.relative_to(REPO / "torchship").parts[0] not in (*AUTHORS_ONLY, "__main__.py")
]


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_the_engine_knows_no_client_and_what_runs_the_op_alone_knows_torch(path: Path) -> None:
    torch = ("torch",) if path.name in ("autocast.py", "loader.py", "live_run.py") else ()
    setuptools = ("setuptools",) if path.name in ("backend.py", "setuptools_build.py") else ()
    allowed = (
        "torchship.builder",
        "torchship.judge",
        "torchship.runtime",
        "torchship.readme",
        "torchship.setuptools_build",
        FOR_TYPE_CHECKERS,
    )
    assert strangers(path, (*allowed, *torch, *setuptools)) == []


LIGHT = [REPO / "torchship" / "release" / f"{name}.py" for name in ("options", "root", "start")]


@pytest.mark.parametrize("path", [*python_files("torchship/command"), *LIGHT], ids=name_of)
def test_the_command_line_imports_torchship_and_the_standard_library_alone(path: Path) -> None:
    """It shows its help, and makes the release tool's environment, where nothing is installed."""
    assert strangers(path, ("torchship",)) == []


def test_the_loader_does_not_know_the_builder() -> None:
    runtime = REPO / "torchship" / "runtime"
    allowed = ("torchship.judge", "torchship.runtime.autocast", "torch")
    assert strangers(runtime / "loader.py", allowed) == []
    assert strangers(runtime / "autocast.py", ("torchship.judge", "torch")) == []


@pytest.mark.parametrize("path", python_files("torchship"), ids=name_of)
def test_torchship_imports_itself_by_relative_names(path: Path) -> None:
    """A copy of torchship serves another package under that package's name."""
    names = ("engine", "torchship")
    absolute = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and str(node.module).startswith(names)
        )
        or (isinstance(node, ast.Import) and any(a.name.startswith(names) for a in node.names))
    ]
    assert absolute == []


@pytest.mark.parametrize("path", python_files("torchship/project"), ids=name_of)
def test_the_commands_on_projects_need_no_package(path: Path) -> None:
    """`pip install torchship` brings none; what follows from a matrix asks for the release tool."""
    assert strangers(path, ("torchship.project", "torchship.builder", "torchship.release")) == []


@pytest.mark.parametrize("path", python_files("torchship/release"), ids=name_of)
def test_the_release_tool_imports_nothing_of_the_package(path: Path) -> None:
    assert [name for name, _ in imports(path) if name.split(".")[0] == PACKAGE.name] == []


@pytest.mark.parametrize(
    "path", [REPO / "setup.py", *python_files("lltm_conda", "benchmarks", "examples")], ids=name_of
)
def test_nothing_imports_the_scripts(path: Path) -> None:
    scripts = {path.stem for path in (REPO / "scripts").glob("*.py")} | {"scripts"}
    assert {name.split(".")[0] for name, _ in imports(path)}.isdisjoint(scripts)


@pytest.mark.parametrize("path", python_files("tests/torchship"), ids=name_of)
def test_the_suite_of_torchship_imports_no_client(path: Path) -> None:
    """Nor do the programs that its tests start."""
    names = [name for name, _ in imports(path) if name.split(".")[0] == PACKAGE.name]
    assert (names, re.findall(rf"import {PACKAGE.name}", path.read_text())) == ([], [])


def test_the_suite_of_torchship_names_no_client() -> None:
    """But where a new project must not have the name, or must not keep it."""
    expected = {"test_project_names.py", "test_project_new.py"}
    files = sorted((REPO / "tests" / "torchship").rglob("*.py"))
    assert files
    naming = {path.name for path in files if re.search("lltm", path.read_text(), re.IGNORECASE)}
    assert naming == expected


def test_judge_and_builder_import_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"  # any import of torch raises
        "import lltm_conda.engine.judge, lltm_conda.engine.builder\n"
        "print(*[name for name in sys.modules if name.split('.')[0] == 'lltm_conda'])"
    )
    env = {**os.environ, "LLTM_CONDA_LOAD": "0"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, env=env, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "lltm_conda.engine.builder" in run.stdout


# Which folders and headers of csrc a file may include, and which of others' it may not.
TORCH = r"torch/|ATen/|c10/"
CUDA = r"cuda|cub/|cooperative_groups|mma\.h|nv"
ARROWS: dict[str, tuple[set[str], str | None]] = {
    "kernels": ({"kernels", "torchship/kernels", "torchship/kernel_table.h"}, TORCH),
    "ops": ({"ops", "torchship", "kernels"}, f"{TORCH}|{CUDA}"),
    "torchship": ({"torchship"}, f"{TORCH}|{CUDA}"),
    "torchship/kernels": ({"torchship/kernels", "torchship/kernel_table.h"}, TORCH),
    "torchship/kernel_table.h": (set(), r"(?!stdint\.h$)"),
    "torch_extension.h": (set(), f"torch/csrc/|{CUDA}"),
    "torchship/torch_stable": ({"torchship"}, f"ATen/|c10/|torch/(?!csrc/|head)|{CUDA}"),
    "torchship/torch_aten": (
        {"torchship", "torch_extension.h"},
        f"torch/csrc/stable|{CUDA}",
    ),
}
INCLUDE_FOLDER = REPO / "torchship" / "include"
HOMES = (CSRC, INCLUDE_FOLDER)  # the folders in which a compiler looks for headers
NATIVE = sorted(
    path for home in HOMES for path in home.rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".c")
)
INCLUDE_LINE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def place_of(path: Path) -> Path:
    """The path of a native file below the one of `HOMES` that holds it."""
    return next(path.relative_to(home) for home in HOMES if path.is_relative_to(home))


def test_native_sources_are_in_the_known_folders() -> None:
    assert {place_of(path).parts[0] for path in NATIVE} == {
        "project.h",
        *(name.split("/")[0] for name in ARROWS),
    }


def test_csrc_holds_the_op_alone() -> None:
    assert {path.name for path in CSRC.iterdir()} == {"kernels", "ops", "project.h"}


@pytest.mark.parametrize("path", NATIVE, ids=name_of)
def test_includes_follow_the_arrows(path: Path) -> None:
    place = place_of(path)
    arrows = [ARROWS.get(str(home)) for home in (place, *place.parents)]
    allowed, forbidden = next(filter(None, arrows), (set(), TORCH))
    wrong = []
    for mark, header in INCLUDE_LINE.findall(path.read_text()):
        if mark == "<":
            if forbidden is not None and re.match(forbidden, header):
                wrong.append(f"<{header}>")
            continue
        candidates = [(folder / header).resolve() for folder in (path.parent, *HOMES)]
        target = next((candidate for candidate in candidates if candidate.is_file()), None)
        names = (*allowed, "project.h")  # the project's names: everyone
        targets = [home / name for home in HOMES for name in names]
        if target is None or not any(target.is_relative_to(one) for one in targets):
            wrong.append(f'"{header}"')
    assert wrong == []


def test_no_native_source_knows_python() -> None:
    offenders = [
        name_of(path)
        for path in NATIVE
        if re.search(r"Python\.h|pybind11|torch/extension\.h|torch/python\.h", path.read_text())
    ]
    assert offenders == []


def matrix() -> dict[str, Any]:
    yaml = pytest.importorskip("ruamel.yaml")
    return yaml.YAML(typ="safe").load(REPO / "build_matrix.yaml")


def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return tomllib.loads((REPO / "pyproject.toml").read_text())


def minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_builder_and_matrix_agree_on_the_torches() -> None:
    from lltm_conda.engine.builder.request import FIRST_STABLE, OLDEST

    assert minor(matrix()["stable"]["target"]) == FIRST_STABLE
    assert min(map(minor, matrix()["torch"])) == OLDEST
    support = json.loads((REPO / "lltm_conda" / "support.json").read_text(encoding="utf-8"))
    assert support["requires"] == [f"torch>={'.'.join(map(str, OLDEST))}"]


def test_builder_and_matrix_agree_on_the_oldest_cuda_and_gpu() -> None:
    from lltm_conda.engine.builder.cuda_toolkit import OLDEST_CUDA, OLDEST_GENERATION

    kernels = [entry for name, entry in matrix()["kernels"].items() if name != "cpu"]
    assert min(minor(entry["toolkit"])[0] for entry in kernels) == OLDEST_CUDA
    archs = [int(arch.split("_")[1]) for entry in kernels for arch in entry["archs"]]
    assert min(archs) // 10 == OLDEST_GENERATION


def test_oldest_python_is_the_same_everywhere() -> None:
    oldest = min(matrix()["package"]["pythons"], key=minor)
    settings = project()
    assert settings["project"]["requires-python"] == f">={oldest}"
    assert settings["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    assert settings["tool"]["mypy"]["python_version"] == oldest


def test_kernel_abi_of_records_is_that_of_the_header() -> None:
    from lltm_conda.engine.builder.sources import kernel_abi

    header = (CSRC / "kernels" / "lltm_kernels.h").read_text()
    assert f"#define LLTM_KERNEL_ABI {kernel_abi(CSRC)}\n" in header


def test_version_has_one_home() -> None:
    from lltm_conda._version import __version__

    homes = [
        name_of(path)
        for path in [REPO / "setup.py", *python_files("lltm_conda", "scripts")]
        if re.search(r"^__version__\s*=", path.read_text(), re.MULTILINE)
    ]
    assert homes == ["lltm_conda/_version.py"]
    assert "version" not in project()["project"]
    changelog = (REPO / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert __version__ in headings, f"CHANGELOG.md has no section for {__version__}"


def test_setup_installs_every_folder_of_the_package() -> None:
    code = (
        "from setuptools import distutils\nfrom distutils.core import run_setup\n"
        "print(*run_setup('setup.py', stop_after='init').packages)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True)
    packages = run.stdout.split()
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    expected = {".".join(folder.relative_to(REPO).parts) for folder in folders}
    engine = {path.parent.relative_to(REPO / "torchship") for path in ENGINE}
    expected |= {".".join(("lltm_conda.engine", *folder.parts)) for folder in engine}
    native = {path.parent for path in NATIVE if path.is_relative_to(CSRC)}
    expected |= {".".join(("lltm_conda", *folder.relative_to(REPO).parts)) for folder in native}
    headers = {path.parent for path in NATIVE if path.is_relative_to(INCLUDE_FOLDER)}
    expected |= {
        ".".join(("lltm_conda.engine", *folder.relative_to(REPO / "torchship").parts))
        for folder in headers
    }
    assert sorted(packages) == sorted(expected), run.stderr


def tracked() -> list[Path]:
    run = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=False
    )
    if run.returncode:
        pytest.skip("not a git checkout")
    return [path for name in run.stdout.split("\0") if name and (path := REPO / name).is_file()]


def test_the_engine_does_not_name_its_client() -> None:
    """Who a client is stands in its `project:` alone."""
    refused_names = REPO / "torchship" / "project" / "names.py"
    named = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in tracked()
        if path.is_relative_to(REPO / "torchship") and path != refused_names
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "lltm" in line.lower()
    ]
    assert named == []


def test_no_file_of_git_belongs_to_one_machine_or_to_a_build() -> None:
    own = Path(__file__).resolve()
    unfinished = re.compile(
        r"^(<<<<<<<|>>>>>>>) |\bFIXME\b|/(home|Users)/[a-z]|/root/", re.MULTILINE
    )
    wrong = []
    for path in tracked():
        data = path.read_bytes()
        if path.suffix in (".so", ".o", ".whl", ".conda", ".pyc") or len(data) > 2_000_000:
            wrong.append(f"{name_of(path)}: {len(data)} bytes")
        elif path != own and b"\0" not in data and (match := unfinished.search(data.decode())):
            wrong.append(f"{name_of(path)}: {match[0]}")
    assert wrong == []


def test_scripts_can_be_executed() -> None:
    commands = [*(REPO / "scripts").glob("*.sh"), REPO / ".ci" / "run"]
    assert [name_of(path) for path in commands if not os.access(path, os.X_OK)] == []


@pytest.mark.parametrize("path", python_files("benchmarks"), ids=name_of)
def test_benchmarks_know_of_the_measurements_their_storage_alone(path: Path) -> None:
    measurements = {name for name, _ in imports(path) if name.split(".")[0] == "measurements"}
    storage = ("measurements.storage",)
    assert [name for name in measurements if not name.startswith(storage)] == []


def test_measurements_run_in_no_circle() -> None:
    graph = imported_modules(python_files("benchmarks", "measurements"))
    import_circles = circles(graph)
    assert not import_circles, "circles of imports:\n" + "\n".join(import_circles)


def without_body(log: str) -> list[str]:
    """The commits of `git log` that do not say why; NULs part them, \\x01 their fields."""
    commits = [entry.split("\x01") for entry in log.split("\0") if entry.strip()]
    return [f"{name.strip()} {subject}" for name, subject, body in commits if not body.strip()]


def test_commits_say_why_in_their_body() -> None:
    """A merge says only what it merges; a shallow clone may not reach the first commit."""
    run = subprocess.run(
        ["git", "log", "--no-merges", "-z", "--format=%h%x01%s%x01%b", "b7fa4fb..HEAD"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        pytest.skip("no git history back to b7fa4fb, after which each commit has a body")
    assert without_body(run.stdout) == []


def test_a_commit_without_a_body_is_named() -> None:
    log = "a1\x01Add one\x01Because.\n\0b2\x01Add two\x01\0c3\x01Add three\x01 \n"
    assert without_body(log) == ["b2 Add two", "c3 Add three"]


def test_every_file_says_its_topic_in_a_docstring() -> None:
    """One topic a file: the sentence at its top says which."""
    python = [path for path in tracked() if path.suffix == ".py"]
    docstrings = {path: ast.get_docstring(ast.parse(path.read_text("utf-8"))) for path in python}
    assert [name_of(path) for path, docstring in docstrings.items() if not docstring] == []


@pytest.mark.parametrize("rule", ["tuples", "torn"])
def test_no_statement_assigns_unrelated_values_and_no_error_text_is_torn(rule: str) -> None:
    """One statement says one thing, and all of it; measurements/count_clarity.py has the rules."""
    program = REPO / "measurements" / "count_clarity.py"
    command = [sys.executable, str(program), str(REPO), "--list", rule]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == []


ANY_WITH_A_REASON = 20


def allowed_any(content: str) -> list[str]:
    """What stands behind each comment that allows `Any` in a signature."""
    return re.findall(r"#\s*noqa:\s*ANN401\b(.*)", content)


def test_any_in_a_signature_is_rare_and_has_a_reason() -> None:
    places = [
        (name_of(path), reason)
        for path in tracked()
        if path.suffix == ".py"
        for reason in allowed_any(path.read_text(encoding="utf-8"))
    ]
    assert [place for place in places if not re.match(r" - \S+", place[1])] == []
    assert len(places) <= ANY_WITH_A_REASON, places


def test_a_comment_that_allows_any_is_seen_with_its_reason() -> None:
    comment = "# noqa" + ": ANN401"
    assert allowed_any(f"def f(a: Any):  {comment} - torch's\ng(b)  {comment}\n") == [
        " - torch's",
        "",
    ]

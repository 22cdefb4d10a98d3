"""The tree keeps the shape that docs/how/architecture.md draws, and says every fact once."""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from torchship.engine import MODULES, PARTS

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "lltm_conda"
CSRC = REPO / "csrc"
TEMPLATES = REPO / "torchship" / "templates"
STDLIB = sys.stdlib_module_names


def python_files(*folders: str) -> list[Path]:
    """The modules below these folders, but for copies that a build made of torchship; torchship's
    templates are files of other projects."""
    paths = (path for folder in folders for path in sorted((REPO / folder).rglob("*.py")))
    copies = PACKAGE / "engine"
    return [
        path
        for path in paths
        if not path.is_relative_to(TEMPLATES)
        and (path == copies / "__init__.py" or not path.is_relative_to(copies))
    ]


def name_of(path: Path) -> str:
    return str(path.relative_to(REPO))


def module_of(path: Path) -> str:
    """The dotted name that imports a file; `scripts` is on the path of its programs."""
    parts = path.relative_to(REPO).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "scripts"))


class Import(NamedTuple):
    """One name that a file imports."""

    module: str  #: absolute and dotted; of a `from` import with the name that it takes
    line: int
    level: int  #: the dots of a relative import


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    """Everything that a file imports, under TYPE_CHECKING and inside functions too."""
    package = [*module_of(path).split("."), *(["__init__"] * (path.name == "__init__.py"))][:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, level=0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = [*base, *([node.module] if node.module else [])]
            names = [".".join([*start, alias.name]) for alias in node.names]
            found += [Import(name, node.lineno, node.level) for name in names]
    return tuple(found)


def top_imports(paths: Iterable[Path], *packages: str) -> list[str]:
    """Where these files import from one of these packages."""
    return [
        f"{name_of(path)}:{one.line} imports {one.module}"
        for path in paths
        for one in imports(path)
        if one.module.split(".")[0] in packages
    ]


def imported_modules(paths: list[Path]) -> dict[str, list[str]]:
    """For each of these files, by module name, which of the others it imports."""
    files = {module_of(path): path for path in paths}
    graph: dict[str, list[str]] = {}
    for module, path in files.items():
        imported = set()
        for name in (one.module for one in imports(path)):
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
    graph = imported_modules(python_files("lltm_conda", "torchship", "benchmarks", "measurements"))
    descriptions = circles(graph)
    assert not descriptions, "circles of imports:\n" + "\n".join(descriptions)


def test_a_circle_of_imports_is_shown_with_its_path() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": []}
    assert sorted(circles(graph)) == ["a -> b -> c -> a", "d -> e -> d"]


def strangers(paths: Iterable[Path], *allowed: str) -> list[str]:
    """Imports that are neither of the standard library nor under one of the allowed names."""
    return [
        f"{name_of(path)}:{one.line} imports {one.module}"
        for path in paths
        for one in imports(path)
        if one.module.split(".")[0] not in STDLIB
        and not any(f"{one.module}.".startswith(f"{name}.") for name in allowed)
    ]


#: Never imported: `Record` shows it to type checkers alone, as Python has it from 3.11 on.
FOR_TYPE_CHECKERS = "typing_extensions.dataclass_transform"


#: What a client's package has of torchship.
ENGINE = [
    *python_files(*(f"torchship/{part}" for part in PARTS)),
    *(REPO / "torchship" / f"{name}.py" for name in MODULES),
]
#: What runs the op.
WITH_TORCH = [path for path in ENGINE if path.name in ("autocast.py", "loader.py", "live_run.py")]
ENGINE_IMPORTS = ("torchship.builder", "torchship.judge", "torchship.runtime", FOR_TYPE_CHECKERS)
#: What builds a client's distributions.
BUILDING = [
    REPO / "torchship" / f"{name}.py"
    for name in ("backend", "engine", "readme", "setuptools_build")
]
#: The door to the engine in a checkout.
DOOR = PACKAGE / "engine" / "__init__.py"
#: What shows the help of the release tool and makes its environment, where nothing is installed.
LIGHT = [REPO / "torchship" / "release" / f"{name}.py" for name in ("options", "root", "start")]
RUNTIME = REPO / "torchship" / "runtime"
#: But the top of the distribution that holds both doctor and judge.
DOCTOR = [path for path in python_files("torchship/doctor") if path.parent.name != "torch_doctor"]
#: The door to `packaging`, the installed one or pip's copy.
STANDARDS = REPO / "torchship" / "doctor" / "environment" / "standards.py"

#: Who may import what beside the standard library, by the rule's name.
ARROWS_OF_IMPORTS: dict[str, tuple[list[Path], tuple[str, ...]]] = {
    "judge": (python_files("torchship/judge"), ("torchship.judge", FOR_TYPE_CHECKERS)),
    "doctor": (
        [path for path in DOCTOR if path != STANDARDS],
        ("torchship.doctor", "torchship.judge", FOR_TYPE_CHECKERS),
    ),
    "standards": ([STANDARDS], ("torchship.judge", "packaging", "pip._vendor.packaging")),
    "builder": (python_files("torchship/builder"), ("torchship.builder", "torchship.judge")),
    "porting": (python_files("torchship/porting"), ("torchship.porting", "torchship.judge")),
    "package": (
        [path for path in python_files("lltm_conda") if path != DOOR],
        ("lltm_conda", "torch"),
    ),
    "door": ([DOOR], ("torchship.engine",)),
    "engine with torch": (WITH_TORCH, (*ENGINE_IMPORTS, "torch")),
    "engine": (sorted({*ENGINE} - {*WITH_TORCH}), ENGINE_IMPORTS),
    "building": (
        BUILDING,
        (
            *("torchship.builder", "torchship.judge", "torchship.engine", "torchship.readme"),
            *("torchship.setuptools_build", "setuptools"),
        ),
    ),
    "command line": ([*python_files("torchship/command"), *LIGHT], ("torchship",)),
    "loader": (
        [RUNTIME / "loader.py"],
        ("torchship.judge", "torchship.runtime.autocast", "torch"),
    ),
    "autocast": ([RUNTIME / "autocast.py"], ("torchship.judge", "torch")),
    # `pip install torchship` brings `packaging` alone; what follows from a matrix asks for the
    # release tool.
    "projects": (
        # The author's Python runs setup_program.py alone, as a file.
        [path for path in python_files("torchship/project") if path.stem != "setup_program"],
        (
            *("torchship.project", "torchship.builder", "torchship.porting.tokens"),
            *("torchship.engine", "torchship.release", "packaging"),
        ),
    ),
}


@pytest.mark.parametrize("part", ARROWS_OF_IMPORTS)
def test_imports_follow_the_arrows(part: str) -> None:
    paths, allowed = ARROWS_OF_IMPORTS[part]
    assert paths
    assert strangers(paths, *allowed) == []


def test_torchship_imports_itself_by_relative_names() -> None:
    """A copy of torchship serves another package under that package's name."""
    absolute = [
        f"{name_of(path)}:{one.line} imports {one.module}"
        for path in python_files("torchship")
        for one in imports(path)
        if not one.level and one.module.startswith(("engine", "torchship"))
    ]
    assert absolute == []


def test_the_release_tool_and_the_suite_of_torchship_import_no_client() -> None:
    """Nor do the programs that its tests start."""
    paths = python_files("torchship/release", "tests/torchship")
    quoting = [
        name_of(path)
        for path in python_files("tests/torchship")
        if f"import {PACKAGE.name}" in path.read_text()
    ]
    assert (top_imports(paths, PACKAGE.name), quoting) == ([], [])


def test_nothing_imports_the_scripts() -> None:
    scripts = {path.stem for path in (REPO / "scripts").glob("*.py")} | {"scripts"}
    paths = [REPO / "setup.py", *python_files("lltm_conda", "benchmarks", "examples")]
    assert top_imports(paths, *scripts) == []


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


def wrong_includes(path: Path) -> list[str]:
    place = place_of(path)
    arrows = [ARROWS.get(str(home)) for home in (place, *place.parents)]
    allowed, forbidden = next(filter(None, arrows), (set(), TORCH))
    wrong = []
    for mark, header in INCLUDE_LINE.findall(path.read_text()):
        if mark == "<":
            if forbidden is not None and re.match(forbidden, header):
                wrong.append(f"{name_of(path)} includes <{header}>")
            continue
        candidates = [(folder / header).resolve() for folder in (path.parent, *HOMES)]
        target = next((candidate for candidate in candidates if candidate.is_file()), None)
        names = (*allowed, "project.h")  # the project's names: everyone
        targets = [home / name for home in HOMES for name in names]
        if target is None or not any(target.is_relative_to(one) for one in targets):
            wrong.append(f'{name_of(path)} includes "{header}"')
    return wrong


def test_includes_follow_the_arrows() -> None:
    assert [wrong for path in NATIVE for wrong in wrong_includes(path)] == []


def test_no_native_source_knows_python() -> None:
    words = re.compile(r"Python\.h|pybind11|torch/extension\.h|torch/python\.h")
    # These stand in for headers of Python's bindings, and include none of them.
    aten = INCLUDE_FOLDER / "torchship" / "torch_aten"
    stand_ins = [path for path in NATIVE if path.parent in (aten / "torch", aten / "pybind11")]
    others = [path for path in NATIVE if path not in stand_ins]
    assert [name_of(path) for path in others if words.search(path.read_text())] == []
    included = [
        (path, mark)
        for path in stand_ins
        for mark, header in INCLUDE_LINE.findall(path.read_text())
        if mark == "<" and words.search(header)
    ]
    assert included == []


def matrix() -> dict[str, Any]:
    yaml = pytest.importorskip("ruamel.yaml")
    return yaml.YAML(typ="safe").load(REPO / "build_matrix.yaml")


def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return tomllib.loads((REPO / "pyproject.toml").read_text())


def minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_builder_and_matrix_agree_on_the_first_stable_torch() -> None:
    from lltm_conda.engine.builder.request import FIRST_STABLE

    assert minor(matrix()["stable"]["target"]) == FIRST_STABLE


def test_the_builder_takes_every_cuda_and_gpu_of_the_matrix() -> None:
    from lltm_conda.engine.builder.cuda_toolkit import OLDEST_CUDA, OLDEST_GENERATION

    kernels = [entry for name, entry in matrix()["kernels"].items() if name != "cpu"]
    assert min(minor(entry["toolkit"])[0] for entry in kernels) >= OLDEST_CUDA
    archs = [int(arch.split("_")[1]) for entry in kernels for arch in entry["archs"]]
    assert min(archs) // 10 >= OLDEST_GENERATION


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
    folders = {path.parent for path in python_files(PACKAGE.name)}
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


def test_benchmarks_share_only_two_helpers_with_the_measurements() -> None:
    """How results are stored, and how the installed package is found beside the sources."""
    known = top_imports(python_files("benchmarks"), "measurements")
    shared = (" imports measurements.storage", " imports measurements.installed")
    assert [one for one in known if not any(name in one for name in shared)] == []


def test_every_file_says_its_topic_in_a_docstring() -> None:
    """One topic a file: the sentence at its top says which."""
    python = [path for path in tracked() if path.suffix == ".py"]
    docstrings = {path: ast.get_docstring(ast.parse(path.read_text("utf-8"))) for path in python}
    assert [name_of(path) for path, docstring in docstrings.items() if not docstring] == []


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

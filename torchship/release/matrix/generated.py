"""Writes and checks the files and parts of files that follow from the matrix and stored results."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version
from rich.console import Console

from ...builder.options import FILE_NAME
from ...project.record import PATH, content_digest, is_project, note_generated, read_record
from ...project.render import Names, render_frame
from ...project.workflows import Shape
from .. import ReleaseError
from ..paths import write_atomically
from . import cibuildwheel, evidence, support_table, templates
from .build_schema import Build
from .cells import STDLIB, all_cells, for_conda, render
from .feedstock import FOLDER, feedstock_files
from .platforms import FIRST
from .schema import Matrix, pair
from .settings import (
    ORIGIN,
    WRITE_COMMAND,
    Settings,
    device_types,
    has_cpu_glue,
    has_cuda_glue,
    make_settings,
    read_version,
)

SUPPORT_PAGE = Path("docs/numbers/support.md")
PYPROJECT = Path("pyproject.toml")
_ARM = "linux-aarch64"
# A line whose value follows from the template after `#=`: `{KEY}` of `project:`, `{version}`,
# `{pythons}`, `{default_torch}`, `{license_files}` of pyproject.toml, or what follows from
# `build:`: `{conda_requirements}`, `{cuda_run}` and `{cuda_host}`. In a workflow it is what
# `_of_cibuildwheel` says.
NAMED = re.compile(r"^( *(?:- |[\w-]+(?::| =) ))(.*)  #= (.*)$", re.MULTILINE)


#: In a page, a fact of `facts_in_prose` stands between two comments, of which one has its name.
IN_PROSE = re.compile(r"(<!--=([a-z-]+)-->)(.*?)<!--/-->")


class Part(NamedTuple):
    """A generated part of a file, which stands between two comments with its name."""

    name: str
    content: str
    comment: str = "<!-- {} -->"


def expected(settings: Settings) -> dict[Path, str]:
    """The right texts of the generated files, by path in the checkout."""
    repo = settings.repo
    matrix = settings.matrix.on(FIRST)
    package = settings.package.relative_to(repo)
    packaged = [cell for cell in all_cells(matrix) if for_conda(cell)]
    files = {
        Path("recipe/variants.yaml"): render(packaged, matrix),
        package / "support.json": support(matrix),
        package / "_project.py": project_record(matrix),
        Path("csrc/project.h"): project_header(matrix),
    }
    if matrix.build != Build() or (repo / package / FILE_NAME).exists():
        files[package / FILE_NAME] = build_options(matrix.build)
    if _is_read_by_cmake(repo):  # and by the scripts beside it
        files[Path("project.env")] = project_variables(matrix)
    version = read_version(repo / package / "_version.py")
    licenses = license_files((repo / PYPROJECT).read_text(encoding="utf-8"))
    for path in (Path("environment.yml"), Path("recipe/recipe.yaml"), PYPROJECT):
        content = (repo / path).read_text(encoding="utf-8")
        files[path] = named(content, matrix, version, licenses)
    if (repo / FOLDER).is_dir():  # a project may have no feedstock
        build_script = (repo / "recipe/build.sh").read_text(encoding="utf-8")
        files.update(feedstock_files(matrix, version, build_script))
    files.update(_workflows(settings))
    for path, part in _parts(make_settings(matrix, repo)):
        if not (repo / path).exists():  # a project may lack some of these files
            continue
        old = files.get(path) or (repo / path).read_text(encoding="utf-8")
        if f"{part.name}:" in old:  # nor must a page of the author's have the part
            files[path] = filled(path, old, part)
    files.update(_pages(matrix, repo, files))
    if (repo / templates.FOLDER).is_dir():
        files.update(templates.expected_templates(repo, expected))
    return files


def _pages(matrix: Matrix, repo: Path, files: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """The pages whose prose names torches of the matrix."""
    values = facts_in_prose(matrix)
    paths = [repo / "README.md", *sorted((repo / "docs").rglob("*.md"))]
    for path in paths:
        name = path.relative_to(repo)
        content = files.get(name) or (path.read_text(encoding="utf-8") if path.exists() else "")
        for fact in {found[2] for found in IN_PROSE.finditer(content)} - values.keys():
            raise ReleaseError(
                f"{name}: <!--={fact}--> names no fact; there are {', '.join(values)}"
            )
        if IN_PROSE.search(content):
            yield name, IN_PROSE.sub(lambda found: f"{found[1]}{values[found[2]]}<!--/-->", content)


def facts_in_prose(matrix: Matrix) -> dict[str, str]:
    """What pages say of the torches of the matrix, by its name."""
    minors = matrix.minors()
    own_glue = [minor for minor in minors if matrix.torch[minor].aten]
    two_abis = [minor for minor in minors if len(matrix.torch[minor].abis) > 1]
    return {
        "oldest-torch": minors[0],
        "newest-torch": minors[-1],
        "torches-with-own-glue": _range(own_glue),
        "torches-with-two-abis": _range(two_abis),
    }


def _range(minors: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys([minors[0], minors[-1]])) if minors else "none"


def _workflows(settings: Settings) -> Iterator[tuple[Path, str]]:
    """The workflows that torchship wrote into a project, and its author left as they were.

    Elsewhere they are written by hand, but for the lines that NAMED matches.
    """
    repo = settings.repo
    if not is_project(repo):
        for path in sorted((repo / ".github" / "workflows").glob("*.yml")):
            content = path.read_text(encoding="utf-8")
            if NAMED.search(content):
                filling = _filling(_of_cibuildwheel(settings.matrix))
                yield path.relative_to(repo), NAMED.sub(filling, content)
        return
    recorded = read_record(repo).generated
    for name, content in right_workflows(settings.matrix).items():
        path = repo / name
        if path.is_file() and content_digest(path.read_bytes()) == recorded.get(name):
            yield Path(name), content


def right_workflows(matrix: Matrix) -> dict[str, str]:
    """The workflows for this matrix, by path in the project."""
    project = matrix.project
    names = Names(
        distribution=project.distribution,
        package=project.package,
        prefix=project.prefix,
        folder=project.package,
        url=project.url,
    )
    frame = render_frame(names, workflow_shape(matrix))
    workflows = [name for name in frame if name.startswith(".github/workflows/")]
    return {name: frame[name].content.decode() for name in workflows}


def workflow_shape(matrix: Matrix) -> Shape:
    """Which jobs the workflows need for the cells of this matrix."""
    cells = all_cells(matrix.on(FIRST))
    has_arm = _ARM in matrix.platforms
    on_arm = all_cells(matrix.on(_ARM)) if has_arm else []
    return Shape(
        arm=bool(on_arm),
        # The job's torch is for the CPU.
        optional=any(cell.optional and not cell.needs_cuda_torch for cell in cells),
        stable=any(cell.stable for cell in cells),
        arm_stable=any(cell.stable for cell in on_arm),
        cpu=any(cell.device == "cpu" for cell in cells),
    )


def _is_read_by_cmake(repo: Path) -> bool:
    """Whether the project's CMakeLists.txt is torchship's, and not one that it had before."""
    path = repo / "CMakeLists.txt"
    return path.exists() and "TORCHSHIP" in path.read_text(encoding="utf-8", errors="replace")


def _parts(settings: Settings) -> Iterator[tuple[Path, Part]]:
    """The generated parts of files, by path in the checkout."""
    matrix = settings.matrix
    if (settings.repo / "scripts" / "cibuildwheel.sh").exists():  # which the table names
        yield PYPROJECT, Part("cibuildwheel", cibuildwheel.table(settings), comment="# {}")
    yield Path("README.md"), Part("support-table", support_table.brief(matrix))
    yield Path("docs/ship/release.md"), Part("glibc", floors(matrix))
    yield Path("docs/ship/costs.md"), Part("costs", f"\n{support_table.costs(matrix)}\n\n")
    yield Path("docs/ship/stable-abi.md"), Part("abis", f"\n{support_table.abis(matrix)}\n\n")
    if not (settings.repo / SUPPORT_PAGE).exists():
        return
    for name in matrix.platforms:
        results = evidence.load(settings.repo / evidence.results_of(name))
        suites = evidence.suites(settings.repo, name)
        table = support_table.full(matrix.on(name), results, suites)
        marks = "environments" if name == FIRST else f"environments-{name}"
        yield SUPPORT_PAGE, Part(marks, table)


def project_record(matrix: Matrix) -> str:
    """The module with the engine's record of the project, for the project's package."""
    project = matrix.project
    kernels = "".join(f'"{device}", ' for device in device_types(matrix))
    kernels = kernels.strip() if kernels.count(",") == 1 else kernels.removesuffix(", ")
    definition = f"{project.package}.{project.definition}" if project.definition else ""
    # What most projects do not differ in is not said.
    more = "    has_cuda_glue=True,\n" if has_cuda_glue(matrix) else ""
    more += "" if has_cpu_glue(matrix) else "    has_cpu_glue=False,\n"
    more += "" if matrix.stable.devices else "    is_stable=False,\n"
    return f'''# {ORIGIN}
"""The record of the project, for the engine."""

from pathlib import Path

from ._version import __version__
from .engine.judge.project import Project

PROJECT = Project(
    distribution="{project.distribution}",
    package="{project.package}",
    namespace="{project.namespace}",
    prefix="{project.prefix}",
    operator="{project.operator}",
    version=__version__,
    folder=Path(__file__).parent,
    kernels=({kernels}),
    definition="{definition}",
{more})
'''


def build_options(build: Build) -> str:
    """What the builder, which cannot read the matrix, must know of `build:`."""
    content = build.model_dump(exclude_defaults=True, exclude={"requires"})
    return json.dumps(content, indent=2) + "\n"


def license_files(pyproject: str) -> list[str]:
    """The files that pyproject.toml names as those of the licence, in one line."""
    found = re.search(r"(?m)^license-files = (\[.*\])$", pyproject)
    return list(json.loads(found[1])) if found else []


def named(content: str, matrix: Matrix, version: str, licenses: Sequence[str] = ()) -> str:
    """The content with the project's values in the lines that NAMED matches."""
    pythons = [pair(python) for python in matrix.package.pythons]
    build = matrix.build
    first = min(pythons)
    last = max(pythons)
    names = {
        **dict(matrix.project),
        "version": version,
        "pythons": f">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}",
        "default_torch": matrix.package.default_torch,
        "conda_requirements": build.conda_requirements,
        "cuda_run": build.cuda_packages,
        "cuda_host": cuda_headers(matrix),
        "license_files": json.dumps(list(licenses)),
        # In pyproject.toml of projects that torchship made before the build gave the list.
        "requirements": json.dumps(_requirements(matrix)),
    }
    return NAMED.sub(_filling(names), content)


def _of_cibuildwheel(matrix: Matrix) -> dict[str, str]:
    """What workflows repeat of the table of cibuildwheel."""
    return {
        "build_python": cibuildwheel.python(matrix),
        "build_python_path": cibuildwheel.interpreter(matrix),
        "build_image": cibuildwheel.image(matrix),
    }


def _filling(names: Mapping[str, object]) -> Callable[[re.Match[str]], str]:
    """What a line that NAMED matches becomes."""
    return lambda line: f"{line[1]}{line[3].format_map(names)}  #= {line[3]}"


def cuda_headers(matrix: Matrix) -> list[str]:
    """conda-forge's packages of the CUDA headers that the objects are compiled with."""
    packages = matrix.build.cuda_packages
    if has_cuda_glue(matrix):  # ATen's headers include these
        packages += ["libcublas", "libcusolver", "libcusparse"]
    return [f"{package}-dev" for package in dict.fromkeys(packages)]


def _requirements(matrix: Matrix) -> list[str]:
    """What the package requires, for any torch of the matrix."""
    return [f"torch>={matrix.minors()[0]}", *matrix.build.pip_requirements]


def support(matrix: Matrix) -> str:
    others = [matrix.on(name) for name in matrix.platforms if name != matrix.platform]
    facts = {
        "variants": [cell.name for cell in all_cells(matrix)],
        "torch_min": matrix.minors()[0],
        "torch_max": matrix.minors()[-1],
        "requires": _requirements(matrix),
        "torch_default": matrix.torch[matrix.package.default_torch].release,
        "python_min": min(matrix.package.pythons, key=Version),
        "channel": matrix.project.channel,
        "index": matrix.project.index,
        "others": {m.platform: [str(cell.variant) for cell in all_cells(m)] for m in others},
    }
    return json.dumps(facts, indent=2) + "\n"


def project_header(matrix: Matrix) -> str:
    project = matrix.project
    return f"""// {ORIGIN}
#pragma once

#define PROJECT_NAME "{project.distribution}"
#define PROJECT_PACKAGE "{project.package}"
// The C++ namespace, the dispatcher's namespace, and the prefix of exported C symbols.
#define PROJECT_NAMESPACE {project.namespace}
#define PROJECT_SYMBOL(name) {project.namespace}_##name
"""


def project_variables(matrix: Matrix) -> str:
    """The names that programs need which cannot read the matrix, for shells, CMake and Python."""
    project = matrix.project
    values = {
        "DISTRIBUTION": project.distribution,
        "PACKAGE": project.package,
        "NAMESPACE": project.namespace,
        "PREFIX": project.prefix,
        "OLDEST_TORCH": matrix.minors()[0],
        "DEFAULT_TORCH": matrix.torch[matrix.package.default_torch].release,
    }
    for name, value in values.items():
        if not re.fullmatch(r"[\w./+-]+", value):
            raise ReleaseError(
                f"build_matrix.yaml: {name.lower()} is {value!r}, but project.env can hold only "
                "letters, digits and any of _./+-; choose another name"
            )
    lines = (f'PROJECT_{name}="{value}"' for name, value in values.items())
    return "\n".join([f"# {ORIGIN}", *lines, ""])


def floors(matrix: Matrix) -> str:
    """The Markdown table of the glibc that each artefact needs."""
    sysroot = STDLIB["c_stdlib_version"]
    newest = matrix.package.manylinux
    image = cibuildwheel.IMAGE.partition("manylinux")[2].partition("-")[0].replace("_", ".")
    return f"""\
| artifact | glibc | who says so |
|---|---|---|
| what `scripts/build_all.sh` makes | what its objects need, at most {newest} | the objects |
| what the release workflows make | the same, at most {image} | the image of their jobs |
| packages of conda-build beside conda-forge | {sysroot} | the sysroot of `variants.yaml` |
| those beside the bootstrap channel | the host's | its sysroot |
"""


def filled(path: Path, old: str, part: Part) -> str:
    """The content `old` of the file `path`, with the part between the comments NAME:begin and
    NAME:end.
    """
    begin = part.comment.format(f"{part.name}:begin") + "\n"
    end = part.comment.format(f"{part.name}:end") + "\n"
    before, begin_mark, rest = old.partition(begin)
    _, end_mark, after = rest.partition(end)
    is_marked_once = begin_mark and end_mark and begin not in rest and end not in before + after
    if not is_marked_once:
        raise ReleaseError(
            f"{path} must hold {begin.strip()} and {end.strip()} once each, in this order; "
            "put them around the generated part"
        )
    return before + begin + part.content + end + after


def drifted(settings: Settings) -> dict[str, str]:
    """The right texts of generated files that are missing or outdated, by path in the checkout."""
    stale = {}
    for path, content in expected(settings).items():
        file = settings.repo / path
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            stale[str(path)] = content
    return stale


def check(settings: Settings) -> None:
    if stale := drifted(settings):
        raise ReleaseError(
            f"{', '.join(stale)}: not what build_matrix.yaml says; run {WRITE_COMMAND}"
        )


def write(settings: Settings, console: Console) -> None:
    names = write_stale(settings)
    console.print("\n".join(f"written {name}" for name in names) or "all files are up to date")


def write_stale(settings: Settings) -> list[str]:
    """Writes the files that are missing or outdated; returns their paths in the checkout.

    The record of generated files is one of them, if a hash in it changes.
    """
    stale = drifted(settings)
    for name, content in stale.items():
        write_atomically(settings.repo / name, content)
    is_noted = note_generated(settings.repo, stale)
    return [*stale, *([PATH.as_posix()] if is_noted else [])]

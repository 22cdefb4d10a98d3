"""`torchship init`: a repository with an extension gets a matrix for what its build does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pytest
import small_repositories as repositories
from new_projects import files, torchship, tracked
from ruamel.yaml import YAML
from small_projects import write

from torchship.project import init as planning
from torchship.project import setup_run, written
from torchship.project.archive import make_archive
from torchship.project.carried import Fate
from torchship.project.errors import ProjectError
from torchship.project.finish import finish
from torchship.project.init import Plan, plan_init
from torchship.project.people import people
from torchship.project.seen import Both
from torchship.project.written import write_all
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.generated import project_record, workflow_shape
from torchship.release.matrix.load import load

STABLE = """\
#include <torch/csrc/stable/library.h>
STABLE_TORCH_LIBRARY(fast, m) { m.def("twice(Tensor x) -> Tensor"); }
"""


@pytest.fixture(scope="module", autouse=True)
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """torchship's own archive, made once: a checkout takes seconds for it."""
    folder = tmp_path_factory.mktemp("archive")
    made = make_archive(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            planning, "make_archive", lambda target: Path(shutil.copy(made, target / made.name))
        )
        yield


@cache
def _seen(setup: str) -> Both:
    with TemporaryDirectory() as folder:
        root = repositories.make(Path(folder), {**repositories.PLAIN_REPOSITORY, "setup.py": setup})
        return setup_run.run_setup(root)


@pytest.fixture
def run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of each setup.py, for tests that change sources alone."""
    monkeypatch.setattr(
        planning, "run_setup", lambda root, _: _seen((root / "setup.py").read_text())
    )


def matrix_of(plan: Plan) -> dict[str, object]:
    content: dict[str, object] = YAML(typ="safe").load(plan.files["build_matrix.yaml"].content)
    return content


def pyproject_of(plan: Plan) -> str:
    return plan.files["pyproject.toml"].content.decode()


def fate_of(plan: Plan, what: str) -> Fate:
    """What became of the one value of this description."""
    (fate,) = {line.fate for line in plan.report.lines if line.what == what}
    return fate


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repositories.make(tmp_path_factory.mktemp("segment"), repositories.REPOSITORY)


@pytest.fixture(scope="module")
def run(repository: Path) -> Plan:
    """What a run of a setup.py that computes everything shows."""
    before = files(repository)
    plan = plan_init(repository)
    assert files(repository) == before  # setup.py writes a file into its folder
    return plan


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return repositories.make(tmp_path / "plain", repositories.PLAIN_REPOSITORY)


def test_the_matrix_says_what_setup_py_computes_on_both_kinds_of_machine(run: Plan) -> None:
    assert matrix_of(run)["build"] == {
        "glue": {
            "sources": ["csrc/op.cpp"],
            "include": ["third_party/headers"],
            "flags": ["-O3", "-Wno-sign-compare"],
            "defines": {"LIMIT": "64", "FOO": None},
            "cuda": {
                "sources": ["csrc/cuda/op.cu"],
                "defines": {"WITH_CUDA": None},
                "flags": ["--use_fast_math", "-Xcompiler=-fno-plt"],
                "libraries": ["cusparse"],
            },
        },
        "data": ["tables/one.bin"],
        "requires": ["einops>=0.6", "numpy"],
    }


@pytest.mark.parametrize(
    ("what", "fate"),
    [
        ("macro FOO", Fate.CARRIED),
        ("macro WITH_PYTHON", Fate.NEEDLESS),
        ("nvcc flag --use_fast_math", Fate.CARRIED),
        ("nvcc flag -arch=sm_90", Fate.NEEDLESS),
        ("flag -march=native", Fate.LEFT),
        ("file trace.txt", Fate.LEFT),
        ("link flag -s", Fate.NEEDLESS),
        ("link flag -Wl,-z,now", Fate.LEFT),
        ("library fftw3", Fate.LEFT),
        ("py_limited_api", Fate.NEEDLESS),
        ("requirement torch>=2.1", Fate.NEEDLESS),
        ("requirement scipy of the extra test", Fate.CARRIED),
        ("entry point segment of console_scripts", Fate.CARRIED),
        ("classifier Topic :: Scientific/Engineering", Fate.CARRIED),
        ("classifier License :: OSI Approved :: MIT License", Fate.NEEDLESS),
        ("data file segment/tables/one.bin", Fate.CARRIED),
    ],
)
def test_each_value_has_a_line_with_its_fate(run: Plan, what: str, fate: Fate) -> None:
    assert fate_of(run, what) is fate


def test_what_only_a_machine_with_cuda_builds_is_named(run: Plan) -> None:
    (line,) = [line for line in run.report.lines if line.what == "source csrc/cuda/op.cu"]
    assert line.source == "setup.py: segment._C, with CUDA alone"


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return plan_init(
        repositories.make(tmp_path_factory.mktemp("otherwise"), repositories.OTHERWISE)
    )


@pytest.mark.parametrize(
    ("what", "fates"),
    [
        ("requirement numba", {Fate.CARRIED}),
        ("classifier Topic :: Education", {Fate.CARRIED}),
        ("name plain-cpu", {Fate.LEFT}),
        ("library fftw3", {Fate.LEFT}),
        ("library folder /opt/fftw", {Fate.LEFT}),
        ("source plain/cpu.cpp", {Fate.CARRIED}),
        # The glue for CUDA has these too.
        ("include folder plain/cpu", {Fate.CARRIED, Fate.LEFT}),
        ("macro NO_GPU", {Fate.CARRIED, Fate.LEFT}),
        ("flag -fno-math-errno", {Fate.CARRIED, Fate.LEFT}),
    ],
)
@pytest.mark.slow
def test_what_only_a_machine_without_cuda_says_is_named(
    otherwise: Plan, what: str, fates: set[Fate]
) -> None:
    lines = [line for line in otherwise.report.lines if line.what == what]
    assert {line.fate for line in lines} == fates
    assert all(line.source.endswith(", without CUDA alone") for line in lines)


def test_the_requirements_of_both_machines_are_joined(otherwise: Plan) -> None:
    assert matrix_of(otherwise)["build"]["requires"] == ["numpy", "cuda-python", "numba"]
    sources = {line.what: line.source for line in otherwise.report.lines}
    assert sources["requirement numpy"] == "setup.py"
    assert sources["requirement cuda-python"] == "setup.py, with CUDA alone"


def test_operators_are_those_that_the_macros_leave(run: Plan) -> None:
    assert run.found[-1] == "twice, under_foo (bound by pybind11, which become operators)"


def test_names_and_licence_are_those_of_the_repository(run: Plan) -> None:
    project = matrix_of(run)["project"]
    assert isinstance(project, dict)
    assert {key: project[key] for key in ("distribution", "package", "license", "summary")} == {
        "distribution": "segment-ops",
        "package": "segment",
        "license": "MIT",
        "summary": "Sums of segments",
    }
    assert project["url"] == "https://github.com/ada/segment"


def test_pyproject_has_the_metadata(run: Plan) -> None:
    content = pyproject_of(run)
    for line in (
        'version = "1.2.3"  #= "{version}"',
        'requires-python = ">=3.10"',
        'authors = [{ name = "Ada" }]',
        'license-files = ["LICENSE"]',
        '"segment" = "segment.cli:main"',
        '"test" = ["scipy"]',
        'backend-path = ["vendor"]',
    ):
        assert line in content.splitlines()


def test_each_torch_gets_glue_for_the_cuda_of_its_wheels(run: Plan, tmp_path: Path) -> None:
    write_all(tmp_path, run.files)
    cells = {str(cell): cell for cell in all_cells(load(tmp_path / "build_matrix.yaml"))}
    assert {"aten24-abi0-cu12", "aten213-abi1-cu13", "aten215-abi1-cpu"} <= cells.keys()
    assert not [cell for cell in cells.values() if cell.stable]


def test_torchship_itself_is_among_the_files(run: Plan) -> None:
    record = json.loads(run.files["vendor/torchship.json"].content)
    assert f"vendor/{record['archive']}" in run.files
    assert set(record["generated"]) == {"vendor/backend.py"}


def test_without_a_run_nothing_is_run_and_what_is_computed_is_named(repository: Path) -> None:
    plan = plan_init(repository, is_run=False)
    assert fate_of(plan, "ext_modules of setup()") is Fate.LEFT
    assert fate_of(plan, "version of setup()") is Fate.LEFT
    assert not (repository / "trace.txt").exists()


@pytest.mark.slow
def test_a_file_of_the_package_that_setup_py_changes_is_left_to_the_author(plain: Path) -> None:
    changes = 'open("plain/__init__.py", "a").write("__version__ = 1")\n'
    write(plain, {"setup.py": changes + repositories.PLAIN})
    plan = plan_init(plain)
    assert fate_of(plan, "file plain/__init__.py") is Fate.LEFT
    assert not any("op.cpp" in line.what for line in plan.report.lines if line.fate is Fate.LEFT)
    assert (plain / "plain/__init__.py").read_text() == ""


def test_a_setup_py_that_takes_too_long_is_ended_and_read_instead(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_run, "MAX_SECONDS", 1)
    content = repositories.PLAIN + "import time; time.sleep(600)\n"
    (plain / "setup.py").write_text(content, encoding="utf-8")
    plan = plan_init(plain)
    assert fate_of(plan, "what setup.py computes") is Fate.LEFT
    assert "it took more than 1 s" in "\n".join(plan.text())
    assert 'version = "0.3"' in pyproject_of(plan)


@pytest.mark.parametrize(
    "before", ["import no_such_module", "raise SystemExit('no')", "import os; os.abort()"]
)
def test_a_setup_py_that_fails_is_read_instead_with_its_last_words(
    plain: Path, before: str
) -> None:
    (plain / "setup.py").write_text(f"{before}\n{repositories.PLAIN}", encoding="utf-8")
    (line,) = [x for x in plan_init(plain).report.lines if x.what == "what setup.py computes"]
    assert "name the Python that builds it: --python" in line.why


def test_what_fails_behind_setup_is_no_failure(plain: Path) -> None:
    content = f"{repositories.PLAIN}raise ValueError('later')\n"
    (plain / "setup.py").write_text(content, encoding="utf-8")
    assert plan_init(plain).report.count(Fate.LEFT) == 4  # summary, licence, url and author


def test_a_version_of_pyproject_is_kept_with_the_tables_of_others(plain: Path) -> None:
    (plain / "setup.py").unlink()
    table = '[tool.black]\nline-length = 90\n# mine\nother = """\n[project]\n"""\n'
    (plain / "pyproject.toml").write_text(
        '[project]\nname = "plain"\nversion = "1.0.0"\ndescription = "A sum"\n'
        '[project.urls]\nSource = "https://github.com/ada/plain"\n'
        f'[tool.setuptools.packages.find]\nwhere = ["nowhere"]\n{table}'
    )
    repositories.commit(plain)
    plan = plan_init(plain)
    content = pyproject_of(plan)
    assert 'version = "1.0.0"' in content
    assert table in content
    assert "packages.find" not in content
    assert fate_of(plan, "table tool.setuptools.packages.find") is Fate.NEEDLESS
    assert "url: https://github.com/ada/plain" in plan.files["build_matrix.yaml"].content.decode()


def test_a_pyproject_that_git_does_not_hold_is_not_changed(plain: Path) -> None:
    (plain / "pyproject.toml").write_text("[build-system]\nrequires = ['torch']\n")
    before = files(plain)
    result = torchship("init", cwd=plain)
    assert result.returncode == 2
    assert "git does not hold it as it is; commit it first" in result.stderr
    assert files(plain) == before


def test_a_matrix_that_is_there_is_not_overwritten(plain: Path) -> None:
    (plain / "build_matrix.yaml").write_text("mine")
    before = files(plain)
    result = torchship("init", cwd=plain)
    assert result.returncode == 2
    assert "build_matrix.yaml is there already, and init overwrites nothing" in result.stderr
    assert files(plain) == before


def test_all_files_are_written_or_none(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain / "pyproject.toml").write_text("[tool.black]\n")
    repositories.commit(plain)
    plan = plan_init(plain, is_run=False)
    before = files(plain)
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target) == plain / "vendor" / "torchship.json":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(written.Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_all(plain, plan.files)
    monkeypatch.undo()
    assert files(plain) == before
    assert not (plain / "vendor").exists()


@pytest.mark.slow
def test_the_command_says_what_it_runs_and_stages_the_archive(plain: Path) -> None:
    (plain / ".gitignore").write_text("*.whl\n")
    result = torchship("init", cwd=plain)
    assert result.returncode == 0, result.stderr
    assert f"running setup.py of {plain} in two copies" in result.stdout
    listing = subprocess.run(
        ["git", "-C", str(plain), "ls-files", "vendor"], capture_output=True, text=True, check=True
    )
    assert len(listing.stdout.splitlines()) == 3


@pytest.mark.slow
def test_without_a_setup_py_the_command_says_that_it_runs_setuptools(plain: Path) -> None:
    (plain / "setup.py").unlink()
    (plain / "pyproject.toml").write_text('[project]\nname = "plain"\nversion = "1.0"\n')
    repositories.commit(plain)
    result = torchship("init", cwd=plain)
    assert result.returncode == 0, result.stderr
    assert f"running setuptools for pyproject.toml of {plain} in two copies" in result.stdout


def test_the_target_that_links_torch_says_what_cmake_builds(tmp_path: Path) -> None:
    plan = plan_init(repositories.make(tmp_path, repositories.CMAKE_REPOSITORY), is_run=False)
    assert matrix_of(plan)["build"] == {
        "glue": {
            "sources": ["native/bind.cc", "core/sum.cpp"],
            "include": ["core"],
            "defines": {"CORE_VERSION": "1.4"},
            "cuda": {"sources": ["native/gpu.cu"], "defines": {"HAS_GPU": None}},
        }
    }
    assert fate_of(plan, "library fftw3") is Fate.LEFT
    assert not any("git mv" in stop for stop in plan.stops)


def test_a_package_that_no_usual_layout_has_is_to_be_moved(tmp_path: Path) -> None:
    moved = {
        name.replace("src/mutual", "code/mutual"): text.replace("src", "code")
        for name, text in repositories.CMAKE_REPOSITORY.items()
    }
    plan = plan_init(repositories.make(tmp_path, moved))
    assert any("git mv code/mutual mutual" in stop for stop in plan.stops)


def test_a_package_is_not_moved_beside_the_programs_that_import_it(tmp_path: Path) -> None:
    """Python searches the folder of a program first, and finds the source there."""
    setup = repositories.PLAIN.replace(
        'packages=["plain"]', 'package_dir={"": "code"}, packages=["plain"]'
    ).replace("plain/op.cpp", "csrc/op.cpp")
    files = {
        "setup.py": setup,
        "code/plain/__init__.py": "",
        "csrc/op.cpp": repositories.OPERATOR,
        "check.py": "import torch\nfrom plain import f\n",
        "other.py": "import plainer\n",
    }
    plan = plan_init(repositories.make(tmp_path, files))
    (stop,) = [stop for stop in plan.stops if "git mv" in stop]
    assert "mkdir -p src && git mv code/plain src/plain (beside check.py, Python" in stop


def test_flags_and_standard_of_every_target_are_carried_over(tmp_path: Path) -> None:
    content = repositories.CMAKE.replace(
        "option(WITH_GPU",
        'set(CMAKE_CXX_STANDARD 20)\nset(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} -ffast-math")\n'
        "if(CUDA_VERSION VERSION_LESS 11.0)\n  add_definitions(-DOLD_TOOLKIT)\nendif()\n"
        'set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} --expt-extended-lambda")\noption(WITH_GPU',
    )
    files = {**repositories.CMAKE_REPOSITORY, "CMakeLists.txt": content}
    plan = plan_init(repositories.make(tmp_path, files), is_run=False)
    glue = YAML(typ="safe").load(plan.files["build_matrix.yaml"].content)["build"]["glue"]
    assert glue["std"] == 20
    assert glue["flags"] == ["-ffast-math"]
    assert glue["cuda"]["flags"] == ["--expt-extended-lambda"]
    assert "OLD_TOOLKIT" not in glue["cuda"]["defines"]


def test_a_cu_file_that_is_cpp_without_cuda_is_compiled_as_both(tmp_path: Path) -> None:
    content = repositories.CMAKE.replace("core/sum.cpp", "core/sum.cu")
    files = {**repositories.CMAKE_REPOSITORY, "CMakeLists.txt": content, "core/sum.cu": ""}
    del files["core/sum.cpp"]
    plan = plan_init(repositories.make(tmp_path, files), is_run=False)
    glue = YAML(typ="safe").load(plan.files["build_matrix.yaml"].content)["build"]["glue"]
    assert "core/sum.cpp" in glue["sources"]
    assert "core/sum.cu" in glue["cuda"]["sources"]
    program = tmp_path / "core" / "sum.cpp"
    program.write_bytes(plan.files["core/sum.cpp"].content)
    (tmp_path / "core" / "sum.cu").write_text("int sum;\n")
    macros = [f"-D{name}" for name in glue["cuda"]["defines"]]
    for flags, is_there in (([], True), (macros, False)):
        seen = subprocess.run(
            ["g++", "-E", *flags, program], capture_output=True, text=True, check=True
        )
        assert ("int sum;" in seen.stdout) is is_there


def test_a_range_of_torch_trims_the_matrix(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace("packages=", "install_requires=['torch>=2.6'], packages=")
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup}
    plan = plan_init(repositories.make(tmp_path, files), is_run=False)
    path = tmp_path / "build_matrix.yaml"
    path.write_bytes(plan.files["build_matrix.yaml"].content)
    cells = [cell.name for cell in all_cells(load(path))]
    assert cells[0] == "aten26-abi0-cpu"
    assert fate_of(plan, "requirement torch>=2.6") is Fate.CARRIED


@pytest.mark.parametrize(
    ("requirement", "first", "last"),
    [
        ("torch>=2.12", "aten212-abi1-cpu", "aten215-abi1-cpu"),
        ("torch<2.9,>=2.5", "aten25-abi0-cpu", "aten28-abi1-cpu"),
    ],
)
def test_a_range_that_leaves_out_the_stable_torches_is_a_matrix_too(
    tmp_path: Path, requirement: str, first: str, last: str
) -> None:
    setup = repositories.PLAIN.replace(
        "packages=", f"install_requires=[{requirement!r}], packages="
    )
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup}
    plan = plan_init(repositories.make(tmp_path, files), is_run=False)
    path = tmp_path / "build_matrix.yaml"
    path.write_bytes(plan.files["build_matrix.yaml"].content)
    matrix = load(path)
    cells = [cell.name for cell in all_cells(matrix) if "conda" not in cell.name]
    assert (cells[0], cells[-1]) == (first, last)
    assert f"aten2{matrix.package.default_torch.partition('.')[2]}-abi1-cpu" in cells


def test_a_pin_of_a_torch_that_the_matrix_has_not_is_left_to_the_author(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace("packages=", "install_requires=['torch==1.9'], packages=")
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup}
    plan = plan_init(repositories.make(tmp_path, files), is_run=False)
    assert fate_of(plan, "requirement torch==1.9") is Fate.LEFT


def test_what_has_no_place_of_its_own_is_named(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace(
        "packages=",
        "author='Ada', maintainer='Grace', maintainer_email='grace@example.org', "
        "long_description='Another text', scripts=['tool.sh'], zip_safe=False, "
        "download_url='https://example.org/plain.tar.gz', platforms=['linux'], packages=",
    )
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup, "tool.sh": ""}
    plan = plan_init(repositories.make(tmp_path, files))
    assert fate_of(plan, "scripts ['tool.sh']") is Fate.LEFT
    assert fate_of(plan, "long_description of 12 characters") is Fate.LEFT
    assert fate_of(plan, "platforms ['linux']") is Fate.NEEDLESS
    assert fate_of(plan, "url Download https://example.org/plain.tar.gz") is Fate.CARRIED
    assert fate_of(plan, "maintainer Grace <grace@example.org>") is Fate.CARRIED
    pyproject = pyproject_of(plan)
    assert 'maintainers = [{ name = "Grace", email = "grace@example.org" }]' in pyproject
    assert '"Download" = "https://example.org/plain.tar.gz"' in pyproject
    assert not any("want_user_cfg" in line.what for line in plan.report.lines)


@pytest.mark.parametrize(
    ("names", "emails", "expected"),
    [
        ("Ada", "", ["Ada"]),
        ("Ada", "ada@x.org", ["Ada <ada@x.org>"]),
        ("", "ada@x.org", ["ada@x.org"]),
        ("Ada, Bob", "ada@x.org, bob@x.org", ["Ada <ada@x.org>", "Bob <bob@x.org>"]),
        ("Ada, Bob", "both@x.org", ["Ada, Bob <both@x.org>"]),
        ("Ada", "Bob <bob@x.org>, Eve <eve@x.org>", ["Ada", "Bob <bob@x.org>", "Eve <eve@x.org>"]),
        ("Ada", "nowhere", ["Ada"]),
        ("", "", []),
    ],
)
def test_nobody_of_several_authors_is_lost(names: str, emails: str, expected: list[str]) -> None:
    assert [str(person) for person in people(names, emails)] == expected


def test_authors_of_pyproject_are_carried_over(tmp_path: Path) -> None:
    table = (
        '[project]\nname = "plain"\nversion = "1.0"\n'
        'authors = [{ name = "Ada", email = "ada@x.org" }, { name = "Bob", email = "bob@x.org" }]\n'
    )
    files = {**repositories.PLAIN_REPOSITORY, "pyproject.toml": table}
    plan = plan_init(repositories.make(tmp_path, files))
    assert fate_of(plan, "author Ada <ada@x.org>") is Fate.CARRIED
    authors = repositories.read_toml(pyproject_of(plan))["project"]["authors"]
    assert authors == [
        {"name": "Ada", "email": "ada@x.org"},
        {"name": "Bob", "email": "bob@x.org"},
    ]


def test_without_a_url_that_of_the_repositorys_origin_is_taken(plain: Path) -> None:
    subprocess.run(
        ["git", "-C", str(plain), "remote", "add", "origin", "git@github.com:ada/plain.git"],
        check=True,
    )
    plan = plan_init(plain, is_run=False)
    matrix = YAML(typ="safe").load(plan.files["build_matrix.yaml"].content)
    assert matrix["project"]["url"] == "https://github.com/ada/plain"


TWO = repositories.PLAIN.replace(
    '[Extension("plain._C", ["plain/op.cpp"])]',
    '[Extension("plain._C", ["plain/op.cpp"]), Extension("plain._C", ["plain/more.cpp"])]',
)
FOLDERS = repositories.PLAIN.replace(
    '["plain/op.cpp"])]', '["plain/op.cpp"], include_dirs=["one", "two"])]'
)
DEGREE = """
namespace ours {
template <typename T> T twice(T x) { return x + x; }
static int local(int x) { return x; }
at::Tensor degree(const at::Tensor& row, int64_t count = 1) {
  if (count) { return row; }
  return {};
}
}
"""
BINDS = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }\n'


@pytest.mark.usefixtures("run_once")
@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({"plain/_version.py": "x = 1\n"}, "plain/_version.py has no __version__"),
        ({"plain/loader.py": ""}, "plain/loader.py is yours, and torchship needs the name"),
        ({"setup.py": TWO, "plain/more.cpp": ""}, "2 extensions have the name plain._C"),
        ({"plain/op.cpp": "#include <Python.h>\n"}, "plain/op.cpp: remove Python.h and PyInit_"),
        (
            {"plain/op.cpp": "#include <c10/cuda/CUDAStream.h>\n"},
            "plain/op.cpp: include headers of CUDA",
        ),
        (
            {"setup.py": TWO, "plain/op.cpp": BINDS, "plain/more.cpp": BINDS},
            "plain/op.cpp and plain/more.cpp both register the operator twice",
        ),
        ({"setup.cfg": "[metadata]\nname = plain\n"}, "git rm setup.cfg"),
        (
            {"setup.py": TWO, "plain/op.cpp": DEGREE, "plain/more.cpp": DEGREE},
            "plain/op.cpp and plain/more.cpp both define ours::degree()",
        ),
        (
            {
                "setup.py": FOLDERS,
                "plain/op.cpp": '#include "utils.h"\n',
                "one/utils.h": "int one;\n",
                "two/utils.h": "int two;\n",
            },
            "one/utils.h and two/utils.h differ, and sources include utils.h",
        ),
    ],
)
def test_what_would_stop_a_build_is_said_before(
    tmp_path: Path, changes: dict[str, str], stop: str
) -> None:
    root = repositories.make(tmp_path, {**repositories.PLAIN_REPOSITORY, **changes})
    plan = plan_init(root, is_run="setup.py" in changes)
    assert any(stop in each for each in plan.stops)


def test_files_that_run_setup_py_are_named(tmp_path: Path) -> None:
    """They are kept, and would fail once setup.py is gone."""
    files = {
        ".github/workflows/test.yml": "      - run: python3 setup.py develop\n",
        "pack.sh": "python -u setup.py sdist\n",
        "README.md": "The flags are in setup.py.\n",
    }
    root = repositories.make(tmp_path, {**repositories.PLAIN_REPOSITORY, **files})
    said = [line for line in plan_init(root, is_run=False).to_do if "setup.py is run" in line]
    assert [line.partition(":")[0] for line in said] == [".github/workflows/test.yml, pack.sh"]


def test_what_imports_setup_py_goes_with_it(tmp_path: Path) -> None:
    files = {**repositories.PLAIN_REPOSITORY, "setup_cpu.py": "import setup\nimport setuptools\n"}
    plan = plan_init(repositories.make(tmp_path, files), is_run=False)
    assert (
        "git rm setup.py setup_cpu.py: pyproject.toml takes the place "
        "(of setup_cpu.py too, for its import of setup.py)"
    ) in plan.to_do


@pytest.mark.parametrize(
    ("file", "content", "is_moved"),
    [
        ("bench.py", "import plain\n", True),
        ("tests/test_op.py", "import sys\nsys.path.insert(0, '..')\nfrom plain import op\n", True),
        ("tests/test_op.py", "import plain\n", False),
        ("tests/test_op.py", "import sys\nsys.path.insert(0, '..')\nimport plainer\n", False),
    ],
)
def test_a_package_moves_where_a_program_would_find_its_source_first(
    tmp_path: Path, file: str, content: str, is_moved: bool
) -> None:
    root = repositories.make(tmp_path, {**repositories.PLAIN_REPOSITORY, file: content})
    said = [line for line in plan_init(root, is_run=False).to_do if "git mv plain src/" in line]
    assert len(said) == is_moved
    # Its one source lies in it.
    assert all(
        f"its paths in build_matrix.yaml to src/plain: {file} would" in line for line in said
    )


def test_a_macro_that_the_matrix_names_need_not_be_named(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace(
        '["plain/op.cpp"])', '["plain/op.cpp", "plain/op.cu"], define_macros=[("USE_CUDA", None)])'
    )
    files = {
        **repositories.PLAIN_REPOSITORY,
        "setup.py": setup,
        "plain/op.cu": "__global__ void kernel() {}\n",
        "plain/op.cpp": "#include <c10/cuda/CUDAGuard.h>\n#ifdef USE_CUDA\nint x;\n#endif\n",
    }
    plan = plan_init(repositories.make(tmp_path, files), is_run=False)
    (stop,) = [stop for stop in plan.stops if "headers of CUDA" in stop]
    assert stop.endswith("#ifdef USE_CUDA")


@pytest.mark.slow  # imports torch twice, as the run of a setup.py that computes everything does
def test_an_extension_of_each_device_has_headers_of_its_own(tmp_path: Path) -> None:
    """Each source finds the headers of its own section first, so no name is taken twice.

    Python is told to look up the operators that only CUDA has.
    """
    bind = f"{repositories.OF_EACH_DEVICE['gpu/bind.cpp']}{BINDS}"
    root = repositories.make(tmp_path, {**repositories.OF_EACH_DEVICE, "gpu/bind.cpp": bind})
    plan = plan_init(root)
    assert "  what gpu/bind.cpp registers is not in a build for the CPU: " in "\n".join(plan.to_do)
    assert not any("differ" in stop for stop in plan.stops)
    glue = matrix_of(plan)["build"]["glue"]
    assert (glue["include"], glue["cuda"]["include"]) == (["cpu"], ["gpu"])
    assert glue["cuda"]["sources"] == ["gpu/bind.cpp", "gpu/op.cu"]


@pytest.mark.usefixtures("run_once")
@pytest.mark.parametrize(
    "other",
    [
        f"namespace {{ {DEGREE} }}",
        DEGREE.replace("int64_t count", "float count"),
        DEGREE.replace("namespace ours", "namespace theirs"),
        f"#ifdef NEVER\n{DEGREE}#endif\n",
        DEGREE.replace("at::Tensor degree", "inline at::Tensor degree"),
    ],
)
def test_functions_that_one_library_can_hold_stop_nothing(tmp_path: Path, other: str) -> None:
    files = {"setup.py": TWO, "plain/op.cpp": DEGREE, "plain/more.cpp": other}
    root = repositories.make(tmp_path, {**repositories.PLAIN_REPOSITORY, **files})
    assert not any("both define" in stop for stop in plan_init(root).stops)


@pytest.mark.parametrize(
    ("changes", "spdx"),
    [
        ({"LICENSE": "Apache License\nVersion 2.0, January 2004\n"}, "Apache-2.0"),
        (
            {
                "setup.py": repositories.PLAIN.replace("name=", "license='BSD', name="),
                "LICENSE_code": "Redistribution and use ... Neither the name of\n",
            },
            "BSD-3-Clause",
        ),
        (
            {"setup.py": repositories.PLAIN.replace("name=", "license='My Own', name=")},
            "LicenseRef-My-Own",
        ),
        ({}, "LicenseRef-NONE-GIVEN"),
    ],
)
def test_a_licence_that_is_there_is_never_replaced(
    tmp_path: Path, changes: dict[str, str], spdx: str
) -> None:
    root = repositories.make(tmp_path, {**repositories.PLAIN_REPOSITORY, **changes})
    project = matrix_of(plan_init(root, is_run=False))["project"]
    assert isinstance(project, dict)
    assert project["license"] == spdx


def test_each_value_takes_one_line_of_the_report(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace("packages=", "license='My\\n  Own\\n', packages=")
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup}
    plan = plan_init(repositories.make(tmp_path, files))
    lines = [*plan.report.text()]
    assert not any("\n" in line for line in lines)
    assert any(line.startswith("  left to you: license My Own (setup.py): ") for line in lines)


def test_an_author_whom_nobody_names_is_left_to_the_author(plain: Path) -> None:
    plan = plan_init(plain)
    assert fate_of(plan, "author") is Fate.LEFT
    assert '{ name = "YOUR NAME" }' in pyproject_of(plan)


def test_code_of_the_stable_abi_gets_the_stable_glue_alone(tmp_path: Path) -> None:
    write(tmp_path, {"fast/__init__.py": "", "csrc/op.cpp": STABLE})
    write_all(tmp_path, plan_init(tmp_path, "fast", is_run=False).files)
    matrix = load(tmp_path / "build_matrix.yaml")
    assert [str(cell) for cell in all_cells(matrix)] == ["stable210-cpu"]
    assert matrix.project.namespace == "fast"


ONLY_CUDA = """\
from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension
setup(name="plain", packages=["plain"], ext_modules=[
    CUDAExtension("plain._C", ["plain/op.cpp", "plain/op.cu"], define_macros=[("WITH_CUDA", None)])
])
"""


@pytest.mark.parametrize(
    ("source", "devices"),
    [
        ("#include <ATen/ATen.h>\n", {"cu12", "cu13"}),
        ("#include <ATen/ATen.h>\n#ifdef WITH_CUDA\n#endif\n", {"cpu", "cu12", "cu13"}),
    ],
)
@pytest.mark.slow  # each imports torch twice
@pytest.mark.usefixtures("run_once")
def test_an_extension_for_cuda_alone_has_no_glue_for_the_cpu(
    tmp_path: Path, source: str, devices: set[str]
) -> None:
    changes = {"setup.py": ONLY_CUDA, "plain/op.cpp": source, "plain/op.cu": ""}
    root = repositories.make(tmp_path, {**repositories.PLAIN_REPOSITORY, **changes})
    write_all(root, plan_init(root).files)
    matrix = load(root / "build_matrix.yaml")
    assert {cell.device for cell in all_cells(matrix)} == devices
    assert ("has_cpu_glue=False" in project_record(matrix)) == ("cpu" not in devices)
    # The job for optional cells has a torch for the CPU, which compiles no glue with CUDA code.
    assert workflow_shape(matrix).optional == ("cpu" in devices)


def test_a_repository_without_sources_is_refused(tmp_path: Path) -> None:
    result = torchship("init", "--no-run", cwd=tmp_path)
    assert result.returncode == 2
    assert "has no C++ or CUDA source" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose author has done all that was left to do."""
    root = tmp_path_factory.mktemp("finished")
    own = ".github/workflows/test.yml"
    write(root, {"fast/__init__.py": "value = 1\n", "csrc/op.cpp": STABLE, own: "name: mine\n"})
    write_all(root, plan_init(root, "fast", is_run=False).files)
    (root / "fast" / "__init__.py").write_text(
        "from .loader import LOADER\nfrom ._version import __version__\nLOADER.at_import()\n"
    )
    assert f"kept {own}: it was there, and torchship would generate another" in finish(root)
    return root


def test_the_second_step_adds_what_a_new_project_has(finished: Path) -> None:
    assert {
        "csrc/project.h",
        "fast/_project.py",
        "fast/loader.py",
        "fast/smoke.py",
        "recipe/recipe.yaml",
        "scripts/build_all.sh",
        "scripts/test.sh",
        ".github/workflows/release.yml",
    } <= {*files(finished)}
    assert (finished / "fast" / "_version.py").read_text() == '__version__ = "0.1.0"\n'
    assert os.access(finished / "scripts" / "test.sh", os.X_OK)


def test_the_second_step_changes_no_file_of_the_author(finished: Path) -> None:
    assert (finished / ".github/workflows/test.yml").read_text() == "name: mine\n"
    before = files(finished)
    finish(finished)
    assert files(finished) == before


@pytest.mark.parametrize(("branch", "is_named"), [("dev", True), ("master", False)])
def test_a_default_branch_that_no_workflow_runs_for_is_named(
    tmp_path: Path, branch: str, is_named: bool
) -> None:
    write(tmp_path, {"fast/__init__.py": "", "csrc/op.cpp": STABLE})
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    head = ["refs/remotes/origin/HEAD", f"refs/remotes/origin/{branch}"]
    subprocess.run([*git, "symbolic-ref", *head], check=True)
    write_all(tmp_path, plan_init(tmp_path, "fast", is_run=False).files)
    said = "\n".join(finish(tmp_path))
    assert (f"write {branch}, your default branch" in said) == is_named


IGNORED = {"build/x", "dist/x", "fast.egg-info/x", "fast/lib/x.so", "fast/__pycache__/x.pyc"}


@pytest.mark.parametrize("own", [None, "*.o\n", "/build\nlib/\n__pycache__\n*.so"])
def test_git_ignores_what_builds_write_after_the_second_step(
    tmp_path: Path, own: str | None
) -> None:
    """What the author's .gitignore says already is not said twice."""
    write(tmp_path, {"fast/__init__.py": "", "csrc/op.cpp": STABLE})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    if own is not None:
        (tmp_path / ".gitignore").write_text(own)
    write_all(tmp_path, plan_init(tmp_path, "fast", is_run=False).files)
    finish(tmp_path)
    command = ["git", "-C", str(tmp_path), "check-ignore", "--no-index", *IGNORED]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert {*listing.split()} == IGNORED
    content = (tmp_path / ".gitignore").read_text()
    assert content.startswith(own or "/build/\n")
    assert own != "/build\nlib/\n__pycache__\n*.so" or content.splitlines()[-2:] == [
        "/dist/",
        "*.egg-info/",
    ]
    finish(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == content


def test_a_file_that_the_author_ignores_is_staged_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, {"fast/__init__.py": "", "csrc/op.cpp": STABLE, ".gitignore": "_version.py\n"})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write_all(tmp_path, plan_init(tmp_path, "fast", is_run=False).files)
    finish(tmp_path)
    assert "fast/_version.py" in tracked(tmp_path)


@pytest.fixture(scope="module", params=["src", pytest.param("python", marks=pytest.mark.slow)])
def in_a_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a package that lies in another, in a repository that is finished."""
    root = tmp_path_factory.mktemp("layout")
    package = root / str(request.param) / "fast"
    write(root, {f"{request.param}/fast/__init__.py": "", "csrc/op.cpp": STABLE})
    plan = plan_init(root, "fast", is_run=False)
    assert plan.stops == ()
    write_all(root, plan.files)
    (package / "__init__.py").write_text("from ._version import __version__\n")
    finish(root)
    return package


@pytest.mark.slow
def test_a_package_stays_in_its_folder(in_a_folder: Path) -> None:
    root = in_a_folder.parents[1]
    assert not (root / "fast").exists()
    assert {"_project.py", "loader.py", "engine/__init__.py"} <= {*files(in_a_folder)}
    assert str(root) not in (in_a_folder / "_project.py").read_text()
    result = torchship("update", cwd=root)
    assert result.returncode == 0, result.stderr
    assert not (root / "fast").exists()


@pytest.mark.slow
def test_a_package_in_a_folder_builds(in_a_folder: Path, tmp_path: Path) -> None:
    root = in_a_folder.parents[1]
    command = [sys.executable, "-m", "build", "--no-isolation", "-o", str(tmp_path), str(root)]
    process = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = ZipFile(wheel).namelist()
    assert {"fast/__init__.py", "fast/lib/glue-stable210.so", "fast/engine/judge/project.py"} <= {
        *names
    }
    assert not [name for name in names if name.startswith(("src", "python"))]


@pytest.mark.slow
def test_what_was_left_out_does_not_come_with_an_update(tmp_path: Path) -> None:
    write(tmp_path, {"fast/__init__.py": "", "csrc/op.cpp": STABLE})
    write_all(tmp_path, plan_init(tmp_path, "fast", is_run=False).files)
    finish(tmp_path, ["workflows"])
    assert not (tmp_path / ".github").exists()
    result = torchship("update", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / ".github").exists()


def test_a_mistake_in_the_matrix_is_named_by_the_second_step(plain: Path) -> None:
    write_all(plain, plan_init(plain, is_run=False).files)
    matrix = plain / "build_matrix.yaml"
    content = matrix.read_text(encoding="utf-8")
    matrix.write_text(content.replace("  target:", "  tarmac:"), encoding="utf-8")
    with pytest.raises(ProjectError, match=r"unknown key `stable.tarmac`"):
        finish(plain)


@pytest.mark.slow
def test_what_init_describes_builds(finished: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"]
    process = subprocess.run(
        [*command, str(finished), "-w", str(tmp_path)],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert [path.name for path in tmp_path.glob("*.whl")] == [
        "fast-0.1.0-py3-none-linux_x86_64.whl"
    ]

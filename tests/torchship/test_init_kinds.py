"""`torchship init` on kinds of repositories that it once read wrongly, or in part."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import small_repositories as repositories
from ruamel.yaml import YAML
from small_projects import write

from torchship.builder.client import package_folder
from torchship.builder.registered_twice import bound_names
from torchship.project import init as planning
from torchship.project.archive import make_archive
from torchship.project.carried import Fate
from torchship.project.cmake_text import read_cmake
from torchship.project.finish import finish
from torchship.project.init import Plan, plan_init
from torchship.project.licenses import is_of_family
from torchship.project.people import people
from torchship.project.seen import Both, Seen, SeenExtension, SeenMetadata
from torchship.project.written import write_all
from torchship.release.steps.pack.sources import package_sources


@pytest.fixture(scope="module", autouse=True)
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """torchship's own archive, made once: a checkout takes seconds for it."""
    made = make_archive(tmp_path_factory.mktemp("archive"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            planning, "make_archive", lambda target: Path(shutil.copy(made, target / made.name))
        )
        yield


def matrix_of(plan: Plan) -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = YAML(typ="safe").load(
        plan.files["build_matrix.yaml"].content
    )
    return content


def line_of(plan: Plan, what: str) -> tuple[Fate, str]:
    """What became of the one value of this description, and why."""
    ((fate, why),) = {(line.fate, line.why) for line in plan.report.lines if line.what == what}
    return fate, why


def cmake(root: Path, text: str, **files: str) -> Both:
    write(root, {"CMakeLists.txt": text, **files})
    both = read_cmake(root)
    assert both is not None
    return both


def extension(root: Path, text: str, **files: str) -> SeenExtension:
    (found,) = cmake(root, text, **files).without.extensions
    return found


LIBRARY = "add_library(ours SHARED op.cpp)\n"
LINKED = f"{LIBRARY}target_link_libraries(ours torch)\n"


@pytest.mark.parametrize("name", ["torch_cpu_library", "torch_python", "c10", "Torch::Torch"])
def test_a_target_that_links_a_part_of_torch_is_the_extension(tmp_path: Path, name: str) -> None:
    text = LINKED.replace("torch)", f"{name})")
    assert extension(tmp_path, text).sources == ("op.cpp",)


def test_a_hash_in_a_string_begins_no_comment(tmp_path: Path) -> None:
    text = 'string(REGEX MATCH "#include (x)" found "${line}")\n' + LINKED
    assert extension(tmp_path, text).name == "ours"


def test_a_function_of_the_project_is_run_where_it_is_called(tmp_path: Path) -> None:
    text = """\
function(define name sources definitions)
  add_library(${name} SHARED ${sources})
  target_link_libraries(${name} torch)
  target_compile_definitions(${name} PRIVATE ${definitions})
endfunction()
set(FILES op.cpp more.cpp)
define(ours "${FILES}" "MAIN;LIMIT=4")
"""
    found = extension(tmp_path, text)
    assert found.sources == ("op.cpp", "more.cpp")
    assert found.macros == (("MAIN", None), ("LIMIT", "4"))


@pytest.mark.parametrize("option", ["", 'option(SWEEP "more" OFF)\n', "set(SWEEP NO)\n"])
def test_what_nothing_turns_on_is_left_out_and_named(tmp_path: Path, option: str) -> None:
    text = f"{option}if(SWEEP)\n  add_definitions(-DSWEEP)\nendif()\n{LINKED}"
    both = cmake(tmp_path, text)
    assert both.without.extensions[0].macros == ()
    assert both.without.untaken == ("SWEEP",)
    (tmp_path / "setup.py").write_text("arguments = ['-DSWEEP:BOOL=ON']\n")
    assert extension(tmp_path, text).macros == (("SWEEP", None),)


@pytest.mark.parametrize(
    "condition", ["WIN32", "BUILD_TESTS", "CMAKE_BUILD_TYPE STREQUAL Debug", "NOT CUDA_FOUND AND A"]
)
def test_conditions_of_others_are_left_out_without_a_word(tmp_path: Path, condition: str) -> None:
    text = f"option(A x ON)\nif({condition})\n  add_definitions(-DX)\nelse()\n"
    both = cmake(tmp_path, f"{text}  add_definitions(-DY)\nendif()\n{LINKED}")
    assert ("Y", None) in both.with_cuda.extensions[0].macros
    assert both.with_cuda.untaken == ()


def test_sources_that_a_list_loses_are_no_sources(tmp_path: Path) -> None:
    text = (
        'file(GLOB_RECURSE FILES "src/*.cpp")\nlist(FILTER FILES EXCLUDE REGEX "sweep")\n'
        "list(APPEND FILES a.cpp b.cpp)\nlist(REMOVE_ITEM FILES b.cpp)\n"
    )
    text += LINKED.replace("op.cpp", "${FILES}")
    files = {"src/op.cpp": "", "src/sweep/one.cpp": ""}
    assert extension(tmp_path, text, **files).sources == ("src/op.cpp", "a.cpp")


def test_the_words_of_a_cache_entry_are_no_values(tmp_path: Path) -> None:
    text = f'set(HEADERS inc CACHE PATH "the headers")\n{LINKED}'
    text += "target_include_directories(ours PRIVATE ${HEADERS})\n"
    assert extension(tmp_path, text).include == ("inc",)


def test_what_cmake_finds_elsewhere_is_named(tmp_path: Path) -> None:
    text = (
        "find_library(FFT_LIB NAMES fftw3)\nfind_path(FFT_DIR fftw3.h)\nfind_package(OpenCV)\n"
        f"{LINKED}add_library(fft INTERFACE)\ntarget_link_libraries(fft INTERFACE ${{FFT_LIB}})\n"
        "target_link_libraries(ours fft ${OpenCV_LIBS})\n"
        "target_include_directories(ours PRIVATE ${FFT_DIR} ${TORCH_INCLUDE_DIRS} "
        "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/inc> $<INSTALL_INTERFACE:include>)\n"
    )
    found = extension(tmp_path, text)
    assert found.libraries == ("${OpenCV_LIBS}", "libfftw3")
    assert found.include == ("$FFT_DIR", "inc")


@pytest.mark.parametrize(
    "language", ["project(ours LANGUAGES CXX CUDA)\n", "enable_language(CUDA)\n"]
)
def test_a_project_in_the_language_cuda_has_nothing_without_it(
    tmp_path: Path, language: str
) -> None:
    both = cmake(tmp_path, language + LINKED.replace("op.cpp", "op.cu"))
    assert both.needs_cuda
    assert both.with_cuda.extensions[0].is_cuda


def test_a_source_outside_of_the_folder_is_named_by_its_whole_path(tmp_path: Path) -> None:
    text = LINKED.replace("op.cpp", "../core/op.cpp")
    (source,) = extension(tmp_path / "bindings", text).sources
    assert source == str(tmp_path / "core" / "op.cpp")


TOLD = """\
import os
from importlib.metadata import version
from setuptools import Command, Extension, setup

os.environ["TORCH_CUDA_ARCH_LIST"] = "7.0;8.0"
open("plain/version.py", "w").write("__version__ = '0.3'\\n")


class CMakeExtension(Extension):
    def __init__(self, name, folder):
        super().__init__(name, [])
        self.sourcedir = os.path.abspath(folder)


class Clean(Command):
    pass


setup(
    name="plain",
    version="0.3+g0123abc",
    license="BSD",
    packages=["other", "plain"],
    ext_package="plain",
    python_requires="~=3.11",
    cmdclass={"clean": Clean},
    test_suite="tests",
    dependency_links=["https://example.org/simple"],
    package_data={"plain": ["*.so", "*.bin"]},
    install_requires=[
        "torch==" + version("torch").partition("+")[0], "typing; python_version < '3.5'", "numpy"
    ],
    entry_points={"console_scripts": ["tool = other.cli:main", "own = plain.cli:main"]},
    classifiers=["Programming Language :: Python :: 3.8", "Programming Language :: Python :: 3.12"],
    ext_modules=[CMakeExtension("plain._C", "plain/csrc")],
)
"""
TOLD_TOML = """\
[build-system]
requires = ["setuptools", "importlib-metadata; python_version < '3.8'"]
build-backend = "mine"
backend-path = ["tools"]
"""
TOLD_REPOSITORY = {
    "setup.py": TOLD,
    "pyproject.toml": TOLD_TOML,
    "setup.cfg": "[metadata]\nlicense_file = LICENSE\n[flake8]\nmax-line-length = 100\n",
    "LICENSE": "Permission is hereby granted, free of charge, to any person\n",
    "other/__init__.py": "",
    "plain/__init__.py": "",
    "plain/one.bin": "1",
    "plain/csrc/CMakeLists.txt": "set(CMAKE_CXX_STANDARD 20)\nadd_library(_C MODULE op.cpp)\n",
    "plain/csrc/op.cpp": repositories.OPERATOR,
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return plan_init(repositories.make(tmp_path_factory.mktemp("told"), TOLD_REPOSITORY))


@pytest.mark.parametrize(
    ("what", "fate", "why"),
    [
        ("version 0.3+g0123abc", Fate.CARRIED, "PyPI takes none"),
        ("license BSD", Fate.LEFT, "the text of LICENSE is that of MIT"),
        ("ext_package plain", Fate.NEEDLESS, "torch.ops"),
        ("requires-python ~=3.11", Fate.CARRIED, ""),
        ("command clean (Clean)", Fate.NEEDLESS, "no build runs it"),
        ("test_suite tests", Fate.NEEDLESS, "setuptools runs no tests"),
        ("dependency_links ['https://example.org/simple']", Fate.NEEDLESS, "pip does not read it"),
        ("package_data of plain *.so", Fate.LEFT, "no file matches it now"),
        ("data file plain/one.bin", Fate.CARRIED, ""),
        ('requirement typing; python_version < "3.5"', Fate.NEEDLESS, "leaves out every Python"),
        ("entry point tool of console_scripts", Fate.LEFT, "it is in other"),
        ("entry point own of console_scripts", Fate.CARRIED, ""),
        ("classifier Programming Language :: Python :: 3.8", Fate.NEEDLESS, "leaves this Python"),
        ("classifier Programming Language :: Python :: 3.12", Fate.CARRIED, ""),
        ("build backend mine in tools", Fate.LEFT, "was not seen"),
        (
            "build requirement importlib-metadata; python_version < '3.8'",
            Fate.NEEDLESS,
            "leaves out every Python",
        ),
        ("environment variable TORCH_CUDA_ARCH_LIST 7.0;8.0", Fate.NEEDLESS, "`archs:`"),
        ("file plain/version.py", Fate.LEFT, "its run wrote it"),
        ("module plain._C", Fate.NEEDLESS, "torch.ops"),
        ("source plain/csrc/op.cpp", Fate.CARRIED, ""),
        ("flag -std=c++20", Fate.CARRIED, ""),
    ],
)
def test_each_value_has_its_fate_and_its_reason(
    told: Plan, what: str, fate: Fate, why: str
) -> None:
    found, said = line_of(told, what)
    assert found is fate
    assert why in said


def test_a_pin_that_follows_from_the_installed_torch_trims_no_matrix(told: Plan) -> None:
    (line,) = [x for x in told.report.lines if x.what.startswith("requirement torch==")]
    assert line.fate is Fate.NEEDLESS
    assert len(matrix_of(told)["torch"]) > 5


def test_what_is_written_follows_from_the_values(told: Plan) -> None:
    project = repositories.read_toml(told.files["pyproject.toml"].content.decode())["project"]
    assert (project["version"], project["requires-python"]) == ("0.3", "~=3.11")
    assert project["scripts"] == {"own": "plain.cli:main"}
    assert project["classifiers"] == ["Programming Language :: Python :: 3.12"]


def test_a_setup_cfg_of_other_tools_stays(told: Plan) -> None:
    assert any(stop.endswith("setuptools reads both: remove [metadata]") for stop in told.stops)
    assert any(line.startswith("git rm setup.py:") for line in told.to_do)


def test_the_last_words_of_a_setup_py_that_gives_up_are_told(tmp_path: Path) -> None:
    setup = "import sys\nprint('fetch the headers first')\nsys.exit(1)\n" + repositories.PLAIN
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup}
    _, why = line_of(plan_init(repositories.make(tmp_path, files)), "what setup.py computes")
    assert "it ended before setup(), and said: fetch the headers first" in why


def test_arguments_in_a_dictionary_are_named_where_nothing_is_run(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(**dict(name='x', version='2'))\n"
    write(tmp_path, {**repositories.PLAIN_REPOSITORY, "setup.py": setup, "docs/__init__.py": ""})
    plan = plan_init(tmp_path, is_run=False)
    assert line_of(plan, "what setup() is given by `**`")[0] is Fate.LEFT
    assert line_of(plan, "name")[0] is Fate.LEFT
    assert matrix_of(plan)["project"]["package"] == "plain"  # which has the sources


def test_a_list_that_grows_is_named_where_nothing_is_run(tmp_path: Path) -> None:
    setup = "flags = ['-O3']\nflags.append('-DMORE')\n" + repositories.PLAIN.replace(
        '["plain/op.cpp"])', '["plain/op.cpp"], extra_compile_args=flags, language="c++")'
    ).replace("Extension(", "CppExtension(")
    write(tmp_path, {**repositories.PLAIN_REPOSITORY, "setup.py": setup})
    plan = plan_init(tmp_path, is_run=False)
    for argument in ("extra_compile_args", "language"):
        fate, why = line_of(plan, f"argument {argument}")
        assert (fate, why) == (Fate.LEFT, "only a run of setup.py shows what it is and does")


@pytest.mark.parametrize(("name", "is_taken"), [("torch_scatter", False), ("plain", True)])
def test_a_known_package_keeps_its_name(tmp_path: Path, name: str, is_taken: bool) -> None:
    setup = repositories.PLAIN.replace('"plain"', f'"{name}"').replace("plain._C", f"{name}._C")
    files = {"setup.py": setup, f"{name}/__init__.py": "", "plain/op.cpp": repositories.OPERATOR}
    plan = plan_init(repositories.make(tmp_path, files), "torch_scatter")
    assert any("is a package that others use" in stop for stop in plan.stops) is is_taken


@pytest.mark.parametrize(
    ("names", "emails", "expected"),
    [
        ("Ada", "Ada <ada@x.org>", ["Ada <ada@x.org>"]),
        ("Ada, Countess\nBob", "", ["Ada, Countess", "Bob"]),
    ],
)
def test_each_author_is_named_once(names: str, emails: str, expected: list[str]) -> None:
    assert [str(person) for person in people(names, emails)] == expected


def test_authors_without_addresses_are_carried_over_one_by_one(tmp_path: Path) -> None:
    table = '[project]\nname = "plain"\nversion = "1.0"\nauthors = [{name = "Ada"}, {name = "B"}]\n'
    files = {**repositories.PLAIN_REPOSITORY, "pyproject.toml": table}
    plan = plan_init(repositories.make(tmp_path, files))
    project = repositories.read_toml(plan.files["pyproject.toml"].content.decode())["project"]
    assert project["authors"] == [{"name": "Ada"}, {"name": "B"}]


def test_methods_of_a_class_are_no_operators() -> None:
    text = """
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, mod) {
      py::class_<Box>(mod, "Box").def(py::init<>()).def("open", &Box::open);
      auto inner = mod.def_submodule("inner");
      inner.def("area", &area);
      mod.def("volume", &volume).def("side", &side);
    }
    """
    assert bound_names(text) == ["area", "volume", "side"]


def seen(monkeypatch: pytest.MonkeyPatch, both: Both) -> None:
    monkeypatch.setattr(planning, "run_setup", lambda *_: both)


EXTENSION = SeenExtension(name="plain._C", place="setup.py", sources=("plain/op.cpp",))
METADATA = SeenMetadata(name="plain", packages={"plain": "plain"})


def told_by(extension: SeenExtension | None) -> Seen:
    if extension is None:
        return Seen(place="setup.py", error="it needs CUDA")
    return Seen(place="setup.py", extensions=(extension,), metadata=METADATA)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return repositories.make(tmp_path / "plain", repositories.PLAIN_REPOSITORY)


@pytest.mark.parametrize("is_cuda_alone", [False, True])
def test_cpp_that_calls_cuda_gets_a_glue_for_cuda(
    plain: Path, monkeypatch: pytest.MonkeyPatch, is_cuda_alone: bool
) -> None:
    """No .cu file tells that it is for CUDA."""
    with_cuda = replace(EXTENSION, is_cuda=True, macros=(("USE_GPU", None),))
    without = None if is_cuda_alone else EXTENSION
    seen(monkeypatch, Both(without=told_by(without), with_cuda=told_by(with_cuda)))
    matrix = matrix_of(plan_init(plain))
    glue = matrix["build"]["glue"]
    assert isinstance(glue, dict)
    assert glue["cuda"]["sources"] == ["plain/op.cpp"]
    assert set(matrix["kernels"]) == {"cuda12", "cuda13"}


def test_a_source_of_machines_without_cuda_is_not_in_the_glue_for_cuda(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two files binds all operators, for one kind of machine."""
    binds = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }\n'
    write(plain, {"plain/op.cpp": binds, "plain/op.cu": binds})
    with_cuda = replace(EXTENSION, is_cuda=True, sources=("plain/op.cu",))
    seen(monkeypatch, Both(without=told_by(EXTENSION), with_cuda=told_by(with_cuda)))
    plan = plan_init(plain)
    assert not any("both register" in stop for stop in plan.stops)
    assert line_of(plan, "source plain/op.cpp")[0] is Fate.CARRIED
    glue = matrix_of(plan)["build"]["glue"]
    assert isinstance(glue, dict)
    assert glue["sources"] == ["plain/op_host.cpp"]
    assert plan.found[-1].startswith("twice (")
    program = plain / "plain" / "op_host.cpp"
    program.write_bytes(plan.files["plain/op_host.cpp"].content)
    macros = [f"-D{name}" for name in glue["cuda"]["defines"]]
    for flags, is_there in (([], True), (macros, False)):
        command = ["g++", "-E", *flags, str(program)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert ("PYBIND11_MODULE" in text) is is_there


def test_code_for_the_cpu_whose_own_build_needs_cuda_is_told(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain / "plain" / "op.cpp").write_text("bool f(at::Tensor x) { return x.is_cpu(); }\n")
    (plain / "plain" / "op.cu").write_text("")
    with_cuda = replace(EXTENSION, is_cuda=True, sources=("plain/op.cpp", "plain/op.cu"))
    seen(monkeypatch, Both(without=told_by(None), with_cuda=told_by(with_cuda)))
    assert any("though the repository's own build needs CUDA" in x for x in plan_init(plain).found)


@pytest.mark.parametrize(
    ("what", "fate", "why"),
    [
        ("include folder $FFT_DIR", Fate.LEFT, "only a run of CMake"),
        ("include folder ../core", Fate.LEFT, "outside the folder of build_matrix.yaml"),
        ("library cudart_static", Fate.NEEDLESS, "torchship links it"),
        ("library nccl", Fate.LEFT, "torch for CUDA brings it"),
        ("library folder /usr/local/cuda/lib64", Fate.NEEDLESS, "finds the toolkit's"),
        ("flag -g", Fate.NEEDLESS, "where DEBUG is set"),
    ],
)
def test_libraries_and_folders_have_true_reasons(
    plain: Path, monkeypatch: pytest.MonkeyPatch, what: str, fate: Fate, why: str
) -> None:
    one = replace(
        EXTENSION,
        include=("$FFT_DIR", "../core"),
        libraries=("cudart_static", "nccl"),
        library_folders=("/usr/local/cuda/lib64",),
        flags=("-g",),
    )
    seen(monkeypatch, Both(without=told_by(one), with_cuda=told_by(one)))
    found, said = line_of(plan_init(plain), what)
    assert found is fate
    assert why in said


def test_an_empty_submodule_stops_a_build(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace(
        '["plain/op.cpp"])', '["plain/op.cpp"], include_dirs=["eigen", "third/include"])'
    )
    modules = '[submodule "a"]\n\tpath = eigen\n[submodule "b"]\n\tpath = third\n'
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup, ".gitmodules": modules}
    root = repositories.make(tmp_path, files)
    (root / "eigen").mkdir()
    plan = plan_init(root)
    for name in ("eigen", "third"):
        assert any(f"git submodule update --init {name}," in stop for stop in plan.stops)
    _, why = line_of(plan, "include folder third/include")
    assert why == "submodule third is not checked out"


def test_the_files_of_a_submodule_are_packed_and_checked_out(plain: Path, tmp_path: Path) -> None:
    files = {"sum.h": "", "sub/more.h": ""}
    headers = repositories.make(tmp_path / "headers", files)
    command = ["git", "-C", str(plain), "-c", "protocol.file.allow=always", "submodule", "--quiet"]
    subprocess.run([*command, "add", str(headers), "third"], check=True)
    write(plain, {"new.py": ""})
    packed = {path.relative_to(plain).as_posix() for path in package_sources(plain)}
    assert {"third/sum.h", "third/sub/more.h", "new.py", "plain/op.cpp"} <= packed
    finished(plain)
    for name in ("release", "test"):
        text = (plain / f".github/workflows/{name}.yml").read_text()
        assert text.count("submodules: recursive") == text.count("actions/checkout@") > 0


def test_a_package_that_others_share_is_told(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace('["plain"]', '["plain", "plain.own"]')
    files = {"setup.py": setup, "plain/own/__init__.py": "", "plain/op.cpp": "int one;\n"}
    plan = plan_init(repositories.make(tmp_path, files))
    assert any("plain has no __init__.py, so other distributions" in stop for stop in plan.stops)


def test_a_folder_without_python_hides_no_package(tmp_path: Path) -> None:
    write(tmp_path, {"fast/op.cpp": "", "src/fast/__init__.py": ""})
    assert package_folder(tmp_path, "fast") == tmp_path / "src" / "fast"


@pytest.mark.parametrize(
    ("said", "spdx", "is_one"),
    [
        ("BSD", "BSD-3-Clause", True),
        ("BSD", "MIT", False),
        ("GNU Lesser General Public License v3", "LGPL-3.0-or-later", True),
        ("see LICENSE", "MIT", True),
    ],
)
def test_a_licence_of_another_name_is_noticed(said: str, spdx: str, is_one: bool) -> None:
    assert is_of_family(said, spdx) is is_one


def test_a_project_in_a_folder_has_the_licence_of_the_repository(tmp_path: Path) -> None:
    files = {f"ops/{name}": text for name, text in repositories.PLAIN_REPOSITORY.items()}
    text = "This is free and unencumbered software released into the public domain.\n"
    root = repositories.make(tmp_path, {**files, "UNLICENSE": text})
    project = matrix_of(plan_init(root / "ops", is_run=False))["project"]
    assert project["license"] == "Unlicense"


def test_the_matrix_names_an_operator_that_it_takes(plain: Path) -> None:
    (plain / "plain" / "op.cpp").write_text(
        'TORCH_LIBRARY(plain, m) { m.def("_f(Tensor x) -> Tensor"); m.def("f(Tensor x) -> int"); }'
    )
    assert matrix_of(plan_init(plain, is_run=False))["project"]["operator"] == "f"


def test_a_package_with_another_name_keeps_the_shim_of_the_first_step(tmp_path: Path) -> None:
    setup = repositories.PLAIN.replace('name="plain"', 'name="pytorch-plain"')
    files = {**repositories.PLAIN_REPOSITORY, "setup.py": setup}
    assert "kept" not in finished(repositories.make(tmp_path, files))


def test_cells_that_no_workflow_builds_are_told(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cuda = replace(EXTENSION, is_cuda=True, macros=(("USE_GPU", None),))
    seen(monkeypatch, Both(without=told_by(EXTENSION), with_cuda=told_by(with_cuda)))
    write_all(plain, plan_init(plain).files)
    (line,) = [line for line in finish(plain) if line.startswith("not built by")]
    assert "aten24-abi1-cu12" in line
    assert "aten24-abi1-cpu" not in line


def finished(root: Path) -> str:
    write_all(root, plan_init(root, is_run=False).files)
    return "\n".join(finish(root))


def test_in_a_folder_of_a_repository_no_workflow_is_written(tmp_path: Path) -> None:
    files = {f"ops/{name}": text for name, text in repositories.PLAIN_REPOSITORY.items()}
    said = finished(repositories.make(tmp_path, files) / "ops")
    assert "left out .github/workflows/test.yml: GitHub reads workflows at the top" in said
    assert not (tmp_path / "ops" / ".github").exists()


def test_beside_a_release_of_the_authors_own_nothing_publishes(plain: Path) -> None:
    write(plain, {".github/workflows/release.yml": "name: mine\n"})
    said = finished(plain)
    assert "left out .github/workflows/publish.yml: it publishes what" in said
    assert not (plain / ".github/workflows/publish.yml").exists()
    assert (plain / ".github/workflows/test.yml").is_file()


def test_a_pattern_of_cmake_that_python_refuses_is_named(tmp_path: Path) -> None:
    both = cmake(tmp_path, 'set(ALL op.cpp)\nlist(FILTER ALL EXCLUDE REGEX "*_old")\n' + LINKED)
    assert any("list(FILTER ALL)" in what for what in both.without.unknown)


def test_functions_that_call_themselves_end(tmp_path: Path) -> None:
    calls = "many()\n" * 20  # 20 ** 8 calls down to the deepest that is read
    both = cmake(tmp_path, f"function(many)\n{calls}endfunction()\nmany()\n{LINKED}")
    assert any("calls of functions" in what for what in both.without.unknown)

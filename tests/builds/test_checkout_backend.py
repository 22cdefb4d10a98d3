"""The wheel and the editable install that torchship.backend makes of this checkout.

tests/torchship/builder/test_backend.py tests its hooks with a new project.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from build_places import Place, Ran, copy_sources, environment, run

import lltm_conda
from torchship.engine import MODULES, PARTS, copy_engine

INSTALLED = sorted((Path(lltm_conda.__file__).parent / "lib").glob("*.so"))

CALL = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path.cwd()))  # as backend-path has it
from torchship import backend
"""


def call(tree: Path, code: str, python: str | Path = sys.executable, **variables: str) -> Ran:
    """What a frontend does: it calls hooks of the backend in the folder of the sources."""
    return run(python, "-c", CALL + code, cwd=tree, env=environment(**variables))


@pytest.mark.slow
def test_missing_torch_names_the_flag(source_tree: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, with_torch=False)
    options = ("--no-build-isolation", "--no-deps", "-w", tmp_path)
    ran = place.pip("wheel", *options, source_tree)
    assert ran.code != 0
    assert "--no-build-isolation" in ran.output.partition("lltm is compiled against")[2]
    assert "Traceback" not in ran.output.partition("lltm is compiled against")[2]


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


@pytest.mark.slow
def test_the_backend_and_setup_py_make_the_same_wheel(source_tree: Path, tmp_path: Path) -> None:
    """The same files, with the engine as PACKAGE.engine and the prebuilt binaries in it."""
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    by_backend = tmp_path / "backend"
    name = call(source_tree, f"print(backend.build_wheel({str(by_backend)!r}))", **variables)
    name = name.good().splitlines()[-1]
    assert name.endswith(("-py3-none-linux_x86_64.whl", "-py3-none-linux_aarch64.whl"))
    by_setup = tmp_path / "setup"
    run(
        *(sys.executable, "setup.py", "-q", "bdist_wheel", "-d", by_setup),
        cwd=source_tree,
        env=environment(**variables),
    ).good()
    files = contents(by_backend / name)
    assert files == contents(by_setup / name)
    assert {f"lltm_conda/lib/{path.name}" for path in INSTALLED} <= files.keys()
    engine = {f"lltm_conda/engine/{name}" for name in engine_files(source_tree / "torchship")}
    assert engine == {
        file for file in files if file.startswith("lltm_conda/engine/") and file.endswith(".py")
    }


#: The most that a client's package has of torchship's Python, in bytes.
MOST_OF_OURS = 570_000


def test_a_package_has_little_of_torchship(tmp_path: Path) -> None:
    """And no module of the command, the doctor and the release tool."""
    copy_engine(tmp_path)
    modules = [*(tmp_path / "engine").rglob("*.py")]
    assert sum(path.stat().st_size for path in modules) <= MOST_OF_OURS
    folders = {path.name for path in (tmp_path / "engine").iterdir() if path.is_dir()}
    assert folders == {"builder", "include", "judge", "runtime"}


def engine_files(folder: Path) -> set[str]:
    """The modules of the engine in torchship, or in a copy of it."""
    parts = [path for part in PARTS for path in (folder / part).rglob("*.py")]
    modules = [folder / f"{name}.py" for name in MODULES]
    return {str(path.relative_to(folder)) for path in (*parts, *modules)}


#: Prints each file of the engine that has been imported under two names; there may be none.
TWICE = """
from collections import Counter
import sys, torchship.runtime.loader, torchship.judge
from lltm_conda.engine.judge import Finding
modules = {id(m): m for n, m in sys.modules.items() if n.startswith(("torchship", "lltm_conda"))}
files = Counter(str(getattr(m, "__file__", None)) for m in modules.values())
print([file for file, count in files.items() if count > 1], Finding is torchship.judge.Finding)
"""


def installed_in_place(tree: Path, place: Place) -> None:
    options = ("--no-build-isolation", "--no-deps", "-e", ".")
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    place.pip("install", *options, cwd=tree, **variables).good()


@pytest.mark.slow
def test_an_editable_install_has_the_binaries_and_the_engine_in_the_checkout(
    tmp_path: Path,
) -> None:
    """What git has there stays as it is, and the next wheel takes nothing from the copy."""
    tree = copy_sources(tmp_path / "tree")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    run("git", "init", "-q", cwd=tree).good()
    run("git", "add", "-A", cwd=tree).good()
    run(*git, "commit", "-qm", "all", cwd=tree).good()
    place = Place(tmp_path / "place")
    installed_in_place(tree, place)
    assert run("git", "status", "--porcelain", "lltm_conda/engine", cwd=tree).good() == ""
    in_place = {path.name for path in (tree / "lltm_conda" / "lib").iterdir()}
    assert in_place == {path.name for path in INSTALLED}
    assert engine_files(tree / "lltm_conda" / "engine") == engine_files(tree / "torchship")
    env = environment(PYTHONPATH=str(tree))
    assert run(place.python, "-c", TWICE, cwd=tmp_path, env=env).good() == "[] False\n"
    assert f"computed right with {tree}" in place.smoke()

    copy = tree / "lltm_conda" / "engine" / "judge"
    (copy / "gone.py").write_text("")
    (copy / "text.py").write_text("raise SystemExit('the copy was taken')")
    out = tmp_path / "out"
    code = f"print(backend.build_wheel({str(out)!r})); print(backend.build_sdist({str(out)!r}))"
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    wheel, sdist = call(tree, code, **variables).good().split()[-2:]
    with zipfile.ZipFile(out / wheel) as archive:
        taken = archive.read("lltm_conda/engine/judge/text.py")
        assert "lltm_conda/engine/judge/gone.py" not in archive.namelist()
    assert taken == (tree / "torchship" / "judge" / "text.py").read_bytes()
    with tarfile.open(out / sdist) as archive:
        engine = [name for name in archive.getnames() if "/lltm_conda/engine/" in name]
    assert [name.rpartition("/")[2] for name in engine] == ["__init__.py"]

    installed_in_place(tree, place)  # a copy again, without what torchship has not
    assert engine_files(tree / "lltm_conda" / "engine") == engine_files(tree / "torchship")


@pytest.mark.slow
def test_in_a_bare_checkout_the_engine_is_torchship(source_tree: Path, tmp_path: Path) -> None:
    """So each module exists once."""
    tree = copy_sources(tmp_path / "tree")
    env = environment(LLTM_CONDA_LOAD="0")
    assert run(sys.executable, "-c", TWICE, cwd=tree, env=env).good() == "[] True\n"


@pytest.mark.parametrize("with_torch", [pytest.param(True, marks=pytest.mark.slow), False])
def test_an_import_of_a_bare_checkout_says_what_is_wrong(tmp_path: Path, with_torch: bool) -> None:
    tree = copy_sources(tmp_path / "tree")
    place = Place(tmp_path / "place", with_torch=with_torch)
    ran = run(place.python, "-c", "import lltm_conda", cwd=tree, env=environment())
    cause = "lltm was not built here yet" if with_torch else "torch is not installed"
    assert ran.code == 1
    assert f"LLTMImportError: lltm cannot be loaded: {cause}\n" in ran.output

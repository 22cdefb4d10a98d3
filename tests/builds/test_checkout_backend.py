"""The wheel and the editable install that torchship.backend makes of this checkout.

tests/torchship/builder/test_backend.py tests its hooks with a new project.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from build_places import Place, Ran, copy_sources, environment, run

import lltm_conda
from lltm_conda.engine.builder.sources import NOT_PACKED

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


def test_missing_torch_names_the_flag(source_tree: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, with_torch=False)
    options = ("--no-build-isolation", "--no-deps", "-w", tmp_path)
    ran = place.pip("wheel", *options, source_tree)
    assert ran.code != 0
    assert "pip install --no-build-isolation" in ran.output
    assert "Traceback" not in ran.output.partition("lltm is compiled against")[2]


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


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
    # All of torchship but what run time does not need.
    engine = {
        f"lltm_conda/engine/{path.relative_to(source_tree / 'torchship')}"
        for path in (source_tree / "torchship").rglob("*.py")
        if not {*NOT_PACKED, "__main__.py"}
        & {*path.relative_to(source_tree / "torchship").parts[:1]}
    }
    assert engine == {
        file for file in files if file.startswith("lltm_conda/engine/") and file.endswith(".py")
    }


def test_an_editable_wheel_points_to_the_checkout(source_tree: Path, tmp_path: Path) -> None:
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    code = f"print(backend.build_editable({str(tmp_path)!r}))"
    name = call(source_tree, code, **variables).good().splitlines()[-1]
    assert not [file for file in contents(tmp_path / name) if file.endswith(".so")]
    in_place = {path.name for path in (source_tree / "lltm_conda" / "lib").iterdir()}
    assert in_place == {path.name for path in INSTALLED}


def test_a_change_of_torchship_counts_at_once_in_an_editable_install(tmp_path: Path) -> None:
    """There PACKAGE.engine is torchship itself, not a copy."""
    tree = copy_sources(tmp_path / "tree")
    place = Place(tmp_path / "place")
    options = ("--no-build-isolation", "--no-deps", "-e", ".")
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    place.pip("install", *options, cwd=tree, **variables).good()
    with (tree / "torchship" / "judge" / "text.py").open("a") as module:
        module.write("CHANGED = 'it counts'\n")
    code = "from lltm_conda.engine.judge import text; print(text.__file__, text.CHANGED)"
    env = environment(LLTM_CONDA_LOAD="0")
    output = run(place.python, "-c", code, cwd=tmp_path, env=env).good()
    assert output == f"{tree}/torchship/judge/text.py it counts\n"

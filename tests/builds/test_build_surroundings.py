"""Import, report and local build in any folder, under any umask, with nothing to write to."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build_places import REPO, Ran, environment

import lltm_conda

PACKAGE = Path(lltm_conda.__file__).parent
CLIENTS = REPO / "tests" / "clients"

ODD = {
    "punctuation": "a b$c:d;e 'f' \"g\" \\h `i` #j%",
    "almost a word of the dynamic linker": "$LIBRARY",
    "no UTF-8": os.fsdecode(b"caf\xe9"),
    "newline": "m\nn",  # ninja cannot write it
    "long": "/".join(["t" * 200] * 12),
}
IMPORT = """
import sys
sys.path.insert(0, sys.argv.pop())
import lltm_conda
from lltm_conda import PROJECT
from lltm_conda.engine.runtime.command_line import main
print(ascii(lltm_conda.__file__))
sys.exit(main(PROJECT, []))
"""
# A package with one operator and one kernel: every build is the engine's, and this one is short.
TINY = {
    "__init__.py": """
from pathlib import Path
from clients import loader_of, project_of
PROJECT = project_of("tiny", Path(__file__).parent)
LOADER = loader_of(PROJECT)
""",
    "__main__.py": """
import sys
from lltm_conda.engine.runtime.command_line import main
from tiny_client import PROJECT
sys.exit(main(PROJECT))
""",
}
JIT = """
import tiny_client, torch
from lltm_conda.engine.runtime import local_build
loaded = local_build.load(tiny_client.LOADER)
assert torch.equal(torch.ops.tiny.scale(torch.ones(2, 3), 3), torch.full((2, 3), 3.0))
print(loaded.paths[0])
"""
FORK = """
import os, torch, lltm_conda

def step():
    torch.manual_seed(0)
    cell = lltm_conda.LLTM(40, 50)
    sum(result.sum() for result in cell(torch.ones(60, 40))).backward()
    layer = lltm_conda.LLTMLayer(4, 5)
    layer(torch.ones(3, 2, 4))[0].sum().backward()
    return [p.grad for p in (*cell.parameters(), *layer.parameters())]

children = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
        again = step()
        os._exit(0 if all(map(torch.equal, again, step())) else 1)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def surrounded(*command: str | Path, umask: int = -1, cwd: Path, **changes: str) -> Ran:
    """Runs a command that is bound by permissions although its user may be root."""

    def drop_capabilities() -> None:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP

    process = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=environment(DEBUG="1", FORCE_CUDA="0", **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        umask=umask,
        preexec_fn=drop_capabilities,
        timeout=600,
    )
    return Ran(process.returncode, process.stdout)


def test_the_package_works_in_any_folder(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*ODD.values())
    shutil.copytree(PACKAGE, folder / "lltm_conda", ignore=shutil.ignore_patterns("__pycache__"))
    cache = str(tmp_path / "none")
    output = surrounded("-c", IMPORT, folder, cwd=tmp_path, LLTM_CONDA_CACHE=cache).good()
    assert ascii(str(folder / "lltm_conda" / "__init__.py")) in output
    assert output.endswith("lltm works here\n")


@pytest.mark.parametrize("name", ["$LIB", "x${ORIGIN}y", "$PLATFORM z"])
def test_a_path_that_the_dynamic_linker_rewrites_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    shutil.copytree(PACKAGE, folder / "lltm_conda", ignore=shutil.ignore_patterns("__pycache__"))
    result = surrounded("-c", IMPORT, folder, cwd=tmp_path, LLTM_CONDA_CACHE=str(tmp_path / "none"))
    assert result.code == 1
    assert re.search(r"^lltm_conda.*LLTMImportError: .*, which the dynamic linker replaces$",
                     result.output, re.MULTILINE)  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `tiny_client` is found, with its sources."""
    site = tmp_path_factory.mktemp("site")
    package = shutil.copytree(CLIENTS / "tiny", site / "tiny_client")
    for name, content in TINY.items():
        (package / name).write_text(content)
    path = os.pathsep.join(map(str, (site, CLIENTS, PACKAGE.parent)))
    return {"PYTHONPATH": path, "LLTM_CONDA_LOAD": "0"}


@pytest.mark.parametrize("umask", [0, 0o777], ids=oct)
def test_a_build_in_the_process_works_under_any_umask(
    tmp_path: Path, tiny: dict[str, str], umask: int
) -> None:
    cache = tmp_path / "cache"
    output = surrounded("-c", JIT, cwd=tmp_path, umask=umask, TINY_CACHE=str(cache), **tiny).good()
    assert output.startswith(str(cache)), output
    assert {path.stat().st_mode & 0o077 for path in (cache, *cache.rglob("*"))} == {0}


@pytest.mark.parametrize("name", ["punctuation", "no UTF-8", "newline"])
def test_a_build_works_in_any_cache_folder(tmp_path: Path, tiny: dict[str, str], name: str) -> None:
    cache = tmp_path / ODD[name] / "cache"
    command = ("-m", "tiny_client", "build")
    built = surrounded(*command, cwd=tmp_path, TINY_CACHE=str(cache), **tiny).good()
    assert "import tiny_client will find " in built
    assert {path.name.partition("-")[0] for path in cache.glob("*/*/*.so")} == {"glue", "kernels"}


@pytest.mark.parametrize("command", [("build",), ("build", "--list"), ()], ids=str)
def test_a_home_that_cannot_be_written_to_is_named_or_no_matter(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    places = {"HOME": str(home), "PYTHONPATH": str(PACKAGE.parent), "XDG_CACHE_HOME": ""}
    result = surrounded("-m", "lltm_conda", *command, cwd=tmp_path, **places)
    if command == ("build",):
        assert result.code == 1
        assert result.output.count("\n") == 1
        message = "cannot be made (Permission denied). To fix it: set LLTM_CONDA_CACHE"
        assert message in result.output
    else:
        result.good()
    assert list(home.iterdir()) == []


def test_a_build_refuses_a_cache_that_others_can_write_to(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o770)
    places = {"LLTM_CONDA_CACHE": str(cache), "PYTHONPATH": str(PACKAGE.parent)}
    result = surrounded("-m", "lltm_conda", "build", cwd=tmp_path, **places)
    assert result.code == 1
    assert "cache has mode 0770, not 0700. To fix it: chmod -R go= " in result.output
    assert list(cache.iterdir()) == []


def test_children_that_are_forked_after_the_import_compute(tmp_path: Path) -> None:
    output = surrounded("-c", FORK, cwd=tmp_path, PYTHONPATH=str(PACKAGE.parent)).good()
    assert output == f"{[0] * 8}\n"

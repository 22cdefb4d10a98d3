"""Import, report and local build in any folder, under any umask, with nothing to write to."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import Forks, clean_environment
from small_clients import copy_with_engine

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
import tiny_client
from tiny_client.__main__ import PROJECT, main
print(ascii(tiny_client.__file__))
sys.exit(main(PROJECT, []))
"""
JIT = """
import torch, tiny_client.jit
loaded = tiny_client.jit.load()
assert torch.equal(torch.ops.tiny.scale(torch.ones(2, 3), 3), torch.full((2, 3), 3.0))
print(loaded.paths[0])
"""


class Ran(NamedTuple):
    code: int
    output: str  # standard output and standard error

    def good(self) -> str:
        assert self.code == 0, f"exit code {self.code}:\n{self.output[-6000:]}"
        return self.output


def surrounded(*command: str | Path, umask: int = -1, cwd: Path, **changes: str) -> Ran:
    """Runs a command that is bound by permissions although its user may be root."""

    def drop_capabilities() -> None:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP

    process = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=clean_environment(DEBUG="1", FORCE_CUDA="0", **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        umask=umask,
        preexec_fn=drop_capabilities,
        timeout=600,
    )
    return Ran(process.returncode, process.stdout)


@pytest.mark.slow
def test_the_package_works_in_any_folder(tmp_path: Path, tiny_package: Path) -> None:
    package = copy_with_engine(tiny_package, tmp_path.joinpath(*ODD.values()) / "tiny_client")
    cache = str(tmp_path / "none")
    output = surrounded("-c", IMPORT, package.parent, cwd=tmp_path, TINY_CACHE=cache).good()
    assert ascii(str(package / "__init__.py")) in output
    assert output.endswith("tiny-client works here\n")


@pytest.mark.parametrize("name", ["$LIB", "x${ORIGIN}y", "$PLATFORM z"])
@pytest.mark.slow
def test_a_path_that_the_dynamic_linker_rewrites_is_refused(
    tmp_path: Path, tiny_package: Path, forked: Forks, name: str
) -> None:
    package = copy_with_engine(tiny_package, tmp_path / name / "tiny_client")
    env = clean_environment(TINY_CACHE=str(tmp_path / "none"))
    process = forked.run(IMPORT, str(package.parent), cwd=tmp_path, env=env)
    assert process.returncode == 1
    assert re.search(r"^tiny_client.*TinyImportError: .*, which the dynamic linker replaces$",
                     process.stderr, re.MULTILINE)  # fmt: skip


@pytest.fixture
def sources(tmp_path: Path, tiny_package: Path) -> dict[str, str]:
    """An environment in which a package is found that has sources and no binaries."""
    package = tmp_path / "site" / "tiny_client"
    shutil.copytree(tiny_package, package, ignore=shutil.ignore_patterns("lib"))
    return {"PYTHONPATH": str(package.parent), "TINY_LOAD": "0"}


@pytest.mark.slow  # compiles, as the next one does; test_jit.py and test_command_line.py build, too
@pytest.mark.parametrize("umask", [0, 0o777], ids=oct)
def test_a_build_in_the_process_works_under_any_umask(
    tmp_path: Path, sources: dict[str, str], umask: int
) -> None:
    cache = tmp_path / "cache"
    changes = {"TINY_CACHE": str(cache), **sources}
    output = surrounded("-c", JIT, cwd=tmp_path, umask=umask, **changes).good()
    assert output.startswith(str(cache)), output
    assert {path.stat().st_mode & 0o077 for path in (cache, *cache.rglob("*"))} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["punctuation", "no UTF-8", "newline"])
def test_a_build_works_in_any_cache_folder(
    tmp_path: Path, sources: dict[str, str], name: str
) -> None:
    cache = tmp_path / ODD[name] / "cache"
    command = ("-m", "tiny_client", "build")
    built = surrounded(*command, cwd=tmp_path, TINY_CACHE=str(cache), **sources).good()
    assert "import tiny_client will find " in built
    assert {path.name.partition("-")[0] for path in cache.glob("*/*/*.so")} == {"glue", "kernels"}


@pytest.mark.parametrize(
    "command",
    [("build",), ("build", "--list"), pytest.param((), marks=pytest.mark.slow)],
    ids=str,
)
def test_a_home_that_cannot_be_written_to_is_named_or_no_matter(
    tmp_path: Path, tiny_package: Path, command: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    places = {"HOME": str(home), "PYTHONPATH": str(tiny_package.parent), "XDG_CACHE_HOME": ""}
    result = surrounded("-m", "tiny_client", *command, cwd=tmp_path, **places)
    if command == ("build",):
        assert result.code == 1
        assert result.output.count("\n") == 1
        message = "cannot be made (Permission denied). To fix it: set TINY_CACHE"
        assert message in result.output
    else:
        result.good()
    assert list(home.iterdir()) == []


def test_a_build_refuses_a_cache_that_others_can_write_to(
    tmp_path: Path, tiny_package: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o770)
    places = {"TINY_CACHE": str(cache), "PYTHONPATH": str(tiny_package.parent)}
    result = surrounded("-m", "tiny_client", "build", cwd=tmp_path, **places)
    assert result.code == 1
    assert "cache has mode 0770, not 0700. To fix it: chmod -R go= " in result.output
    assert list(cache.iterdir()) == []

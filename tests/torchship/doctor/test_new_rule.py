"""A rule on a new fact of a file's headers takes the fact, the rule's module, a test and a line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environments import REPO, add_extension, add_torch, make_environment
from packaging_alone import packaging_alone
from shared_objects import shared_object

#: The fact, in two lines of one file: DT_FILTER, the library that has a file's functions.
ELF = Path("torchship/judge/reading/elf.py")
FIELD = ("    static_tls: int = 0", '    filtee: str = ""\n')
READ = (
    "            static_tls=self._tls_size",
    '            filtee=self._name(tags[0x7FFFFFFF]) if 0x7FFFFFFF in tags else "",\n',
)
RULE = '''"""A rule about files whose functions another library has: they were linked with `-F`."""

from __future__ import annotations

from ..records import REJECTED, BinaryRecord, Finding, Runtime
from ..words.codes import Code, Message
from .rule import NEEDS_LINKS, Rule, files_of

IS_FILTER = Code("TD599", "The file has no functions", why="It is a filter.", fix="Link it again.")


def check_filter(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    headers = files_of(binary, runtime)
    filtee = next((header.filtee for header in headers.values() if header.filtee), "")
    if not filtee:
        return None
    return Finding(
        status=REJECTED, code=IS_FILTER, observed=filtee, needed="functions", why="it is a filter"
    )


FILTER = Rule(
    rank=645,
    dimension="filters",
    codes=(IS_FILTER,),
    check=check_filter,
    messages=(Message("the filtee is gone", IS_FILTER, "filtee is gone"),),
    needs=(NEEDS_LINKS,),
    asks_object=True,
)
'''
PARTS = ("docs/__init__.py", "docs/_ext", "docs/fails", "torchship")


def copy_of_checkout(folder: Path) -> Path:
    for part in PARTS:
        if (REPO / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "templates")
            shutil.copytree(REPO / part, folder / part, ignore=ignored)
        else:
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / part, folder / part)
    return folder


def run(checkout: Path, *command: str) -> str:
    env = {**os.environ, "PYTHONPATH": f"{checkout}:{packaging_alone()}"}
    process = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, cwd=checkout, env=env
    )
    assert process.returncode in (0, 1), process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the rule: two files by hand, and what `code_pages` writes."""
    folder = copy_of_checkout(tmp_path_factory.mktemp("copy"))
    content = (folder / ELF).read_text()
    for before, line in (FIELD, READ):
        assert content.count(before) == 1
        content = content.replace(before, f"{line}{before}")
    (folder / ELF).write_text(content)
    (folder / "torchship/judge/rules/filters.py").write_text(RULE)
    run(folder, "docs._ext.code_pages")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An extension that is a filter."""
    prefix = tmp_path_factory.mktemp("env") / "env"
    site = make_environment(prefix)
    add_torch(site)
    path = add_extension(site, "theirs", pin="2.9.1")
    flags = ["-Wl,-F,libreal.so", f"-L{site / 'torch' / 'lib'}", "-l:libtorch_cpu.so"]
    shared_object(path, defined=["PyInit__C"], undefined=["_ZN2at6Tensor3addEv"], flags=flags)
    return prefix


@pytest.mark.parametrize("options", [(), ("--torch", "2.9")], ids=["check", "another torch"])
def test_its_finding_is_told(checkout: Path, environment: Path, options: tuple[str, ...]) -> None:
    told = run(checkout, "torchship.doctor", "--no-import", "--python", str(environment), *options)
    assert "theirs 1.0 does not work  TD599" in told


@pytest.mark.parametrize("subject", ["TD599", "_C.so: the filtee is gone"])
def test_it_is_explained(checkout: Path, subject: str) -> None:
    told = run(checkout, "torchship.doctor", "explain", subject)
    assert "TD599  The file has no functions" in told
    assert "It is a filter." in told


def test_its_pages_are_written(checkout: Path) -> None:
    pages = checkout / "docs" / "fails"
    assert "### `the filtee is gone`" in (pages / "codes" / "td599.md").read_text()
    assert "codes/td599.md" in (pages / "messages.md").read_text()
    assert "(td599.md)" in (pages / "codes" / "index.md").read_text()

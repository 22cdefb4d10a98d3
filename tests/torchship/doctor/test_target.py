"""What was read for one Python is never the answer for another."""

from __future__ import annotations

import grp
import os
import stat
import sys
from pathlib import Path

import pytest
from shared_objects import shared_object

from torchship.doctor.environment.owner import find_owner
from torchship.judge.target import Interpreter, Target, once


def python_with(site: Path) -> Interpreter:
    """The facts of a Python whose site folder this is."""
    return Interpreter(
        executable=sys.executable,
        prefix=str(site.parent),
        base_prefix=sys.base_prefix,
        path=(str(site),),
        sites=(str(site),),
        version=(3, 11, 7),
        implementation="cpython",
        free_threaded=False,
        machine="x86_64",
        libc="glibc 2.36",
        libstdcxx=None,
        torch=None,
    )


def test_each_target_remembers_its_own_answers() -> None:
    asked = []

    @once
    def answer(_: Target, name: str) -> int:
        asked.append(name)
        return len(asked)

    first, second = Target(), Target()
    assert [answer(first, "a"), answer(first, "b"), answer(second, "a")] == [1, 2, 3]
    assert [answer(first, "a"), answer(first, "b"), answer(second, "a")] == [1, 2, 3]


def test_the_owner_of_a_file_is_that_of_the_python_that_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that a group may write to counts only for the Python that executes its files."""
    site = tmp_path / "any-name"
    path = shared_object(site / "theirs" / "_C.so")
    info = site / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: theirs\nVersion: 1.0\n\n")
    (info / "RECORD").write_text("theirs/_C.so,sha256=x,1\n")
    site.chmod(stat.S_IMODE(site.stat().st_mode) | stat.S_IWGRP)
    entry = grp.struct_group(("lab", "x", os.getgid(), ["alice", "bob"]))
    monkeypatch.setattr(grp, "getgrgid", lambda _: entry)
    monkeypatch.syspath_prepend(str(site))
    assert find_owner(Target(), path) is None
    owner = find_owner(Target(python_with(site)), path)
    assert owner is not None
    assert owner.name == "theirs"


def test_a_target_tells_the_facts_of_its_python() -> None:
    other = python_with(Path("/env/site"))
    assert Target(other).search_path() == ("/env/site",)
    assert Target(other).prefix == "/env"
    assert Target().search_path() == tuple(sys.path)

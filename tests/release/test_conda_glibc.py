"""No package asks for an older glibc than its objects need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from release import ReleaseError
from release.bootstrap import sysroot
from release.conda_steps import glibc_of

from lltm_conda.engine.compat.binary import read_binary
from lltm_conda.engine.compat.records import dotted

pytest.importorskip("rattler")
pytest.importorskip("rattler_build")

from release.conda_worker import check_glibc


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """A shared object that needs glibc."""
    folder = tmp_path_factory.mktemp("object")
    (folder / "x.c").write_text('#include <stdio.h>\nvoid f(void) { puts("a"); }\n')
    made = folder / "files" / "x.so"
    made.parent.mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, folder / "x.c"], check=True)
    return made


def package(folder: Path, library: Path, depends: list[str]) -> Path:
    import rattler_build as rb

    words = ("lltm", "1.0", "linux-64", "cpu_0", folder)
    rb.assemble_package(*words, files_dir=library.parent, depends=depends, detect_prefix=False)
    return next(folder.rglob("lltm-1.0-cpu_0.conda"))


def test_what_the_objects_need_is_enough(tmp_path, library) -> None:
    check_glibc(package(tmp_path, library, [f"__glibc >={glibc_of([library])}"]))


@pytest.mark.parametrize("depends", [["__glibc >=2.1,<3.0.a0"], []], ids=["older", "none"])
def test_a_package_that_asks_for_less_is_refused(tmp_path, library, depends) -> None:
    need = dotted(read_binary(library).floors["GLIBC"])
    with pytest.raises(ReleaseError, match=f"x.so needs {need}; set LLTM_CONDA_GLIBC={need}"):
        check_glibc(package(tmp_path, library, depends))


def test_beside_the_bootstrap_channel_the_hosts_glibc_is_asked_for() -> None:
    host = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert sysroot().run_exports == {"strong": (f"__glibc >={host}",)}

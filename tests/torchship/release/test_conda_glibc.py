"""A package asks for the glibc that its objects need, wherever it was built."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from torchship.judge.reading.binary import read_binary
from torchship.judge.records import dotted
from torchship.release.steps.conda import commands as conda_commands
from torchship.release.steps.conda.bootstrap import sysroot as bootstrap_sysroot
from torchship.release.steps.conda.stubs import write_channel

rattler_build = pytest.importorskip("rattler_build")

RECIPE = """\
schema_version: 1
package: {{name: tiny-client, version: "1.0"}}
build: {{script: [cp "$RECIPE_DIR/x.so" "$PREFIX"]}}
requirements: {{run: [{need}]}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """A shared object that needs glibc."""
    path = tmp_path_factory.mktemp("object") / "x.so"
    path.with_suffix(".c").write_text('#include <stdio.h>\nvoid f(void) { puts("a"); }\n')
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, path.with_suffix(".c")], check=True)
    return path


@pytest.mark.parametrize("sysroot", ["", '"__glibc >=2.1,<3.0.a0"', "__glibc >=2.99"])
def test_a_package_asks_for_the_glibc_of_its_objects(
    tmp_path, library, sysroot, conda_worker
) -> None:
    """Whether the sysroot of its build asked for none, an older or a newer one."""
    shutil.copy(library, tmp_path)
    recipe, variants, out = (tmp_path / name for name in ("recipe.yaml", "variants.yaml", "out"))
    recipe.write_text(RECIPE.format(need=sysroot))
    variants.write_text("variant_glue: [x]\n")
    channel = write_channel(tmp_path / "channel", []).as_uri()
    conda_worker(conda_commands.build(variants, out, channels=[channel], recipe=recipe))
    (package,) = out.glob("*/*.conda")
    need = dotted(read_binary(library).floors["GLIBC"])
    assert rattler_build.Package.from_file(str(package)).depends == [f"__glibc >={need}"]


def test_beside_the_bootstrap_channel_the_hosts_glibc_is_asked_for() -> None:
    host = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert bootstrap_sysroot("linux-64").run_exports == {"strong": (f"__glibc >={host}",)}

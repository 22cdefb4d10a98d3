"""A project with ATen glue and a `build:` of its own goes through the whole `build_all.sh host`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from new_projects import REPO, borrow_tools, commit, make
from small_projects import write

from torchship.judge.machine.torch_probe import find_torch

pytestmark = pytest.mark.rehearsal

SOURCES = {
    # Bound as pybind11 does it, with a bundled header, a macro and a header that a program writes.
    "native/deep/bound.cc": """\
#include <torch/extension.h>

#include "bundled/twice.hpp"
#include "written.h"

at::Tensor scaled(at::Tensor& x, int times, float factor) {
  return bundled::twice(x) * times * factor * OFFSET / WRITTEN;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scaled", &scaled); }
""",
    "native/affine.cpp": """\
#include <ATen/ATen.h>
#include <torch/library.h>

at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::addmm(bias, x, weight.t());
}

TORCH_LIBRARY_FRAGMENT(ware_op, m) {
  m.def("affine(Tensor x, Tensor weight, Tensor bias) -> Tensor");
}
TORCH_LIBRARY_IMPL(ware_op, CPU, m) { m.impl("affine", &affine); }
""",
    "native/left_out.cpp": "#error this source is left out\n",
    "third_party/bundled/twice.hpp": """\
#include <ATen/ATen.h>
namespace bundled {
inline at::Tensor twice(const at::Tensor& x) { return x + x; }
}  // namespace bundled
""",
    "tools/write.py": """\
import sys
from pathlib import Path
Path(sys.argv[1], "written.h").write_text("#define WRITTEN 2")
""",
    "ware_op/table.txt": "data of the package\n",
}
BUILD = """\
build:
  glue:
    sources: [native, "!native/left_out.cpp"]
    include: [third_party]
    defines: {OFFSET: 5}
    flags: [-fno-math-errno]
  generated:
    - object: glue
      command: [python, tools/write.py, "{out}"]
      inputs: [tools/write.py]
      outputs: [written.h]
  data: [table.txt]

"""


class Release(NamedTuple):
    """A project after its release on this machine."""

    repo: Path
    cell: str

    def files(self, pattern: str) -> list[Path]:
        return sorted((self.repo / "dist").glob(pattern))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    repo = make(tmp_path_factory.mktemp("ware"), "ware-op", "--template", "aten")
    (repo / "csrc" / "ops" / "register.cpp").unlink()
    write(repo, SOURCES)
    matrix = repo / "build_matrix.yaml"
    content = matrix.read_text(encoding="utf-8")
    content = re.sub(r"(?m)^  linux-aarch64:\n(?:    .*\n|    *#.*\n)*", "", content)
    content = content.replace("# The glue that every torch", f"{BUILD}# The glue that every torch")
    content = re.sub(r"(?m)^  devices: \[cpu\]$", "  devices: []", content)
    head, mark, torches = content.partition("\ntorch:\n")
    torches = re.sub(r"(?m)^(    gcc: .*\n)(?!    aten)", r"\1    aten: [cpu]\n", torches)
    matrix.write_text(head + mark + torches, encoding="utf-8")
    torch = find_torch()
    minor = "".join(map(str, torch.version_tuple))
    build_all(repo, "generate")
    commit(repo)
    base = REPO / "build" / "bootstrap-channel"
    build_all(repo, "host", *(["--channel", base.as_uri()] if base.is_dir() else []))
    return Release(repo, f"aten{minor}-abi{torch.cxx11_abi}-cpu")


def build_all(repo: Path, *options: str) -> None:
    borrow_tools(repo)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.run(
        [str(repo / "scripts" / "build_all.sh"), *options],
        cwd=repo,
        env=environment | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_the_cell_of_this_machine_is_built_installed_and_run(release: Release) -> None:
    manifest = json.loads((release.repo / "dist" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["cells"][release.cell]["state"] == "done"


def test_the_wheel_has_the_glue_and_the_data(release: Release) -> None:
    (wheel,) = release.files("ware_op-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"ware_op/lib/glue-{release.cell.removesuffix('-cpu')}.so" in names
    assert "ware_op/table.txt" in names


def test_the_source_distribution_has_all_that_a_build_needs(release: Release) -> None:
    (sdist,) = release.files("ware_op-*.tar.gz")
    listing = subprocess.run(["tar", "tzf", str(sdist)], capture_output=True, text=True, check=True)
    names = {name.partition("/")[2] for name in listing.stdout.splitlines()}
    needed = SOURCES.keys() - {"native/left_out.cpp"}
    assert needed <= names


def test_the_conda_package_has_the_glue_and_the_data(release: Release) -> None:
    from rattler import PathsJson

    (package,) = release.files("channel/linux-64/ware-op-*.conda")
    paths = PathsJson.from_package_archive(package).paths
    names = {str(path.relative_path).partition("site-packages/")[2] for path in paths}
    assert f"ware_op/lib/glue-{release.cell.removesuffix('-cpu')}.so" in names
    assert "ware_op/table.txt" in names


def test_the_bound_operator_computes(release: Release, tmp_path: Path) -> None:
    (wheel,) = release.files("ware_op-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import torch, ware_op\n"
        "print(torch.ops.ware_op.scaled(torch.ones(2), 3, 0.5).tolist(), ware_op.affine)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert process.stdout.startswith("[7.5, 7.5]"), process.stderr

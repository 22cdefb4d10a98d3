"""Small programs of libraries that build on torch.nn: each trains, stores or explains a layer.

The libraries of requirements/libraries.txt are installed into a folder of their own, beside the
torch of the tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((Path(__file__).parent / "library_programs").glob("*.py"))
LOCK = ROOT / "requirements" / "libraries.txt"

pytestmark = [pytest.mark.slow, pytest.mark.network]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("the environment of the tests has no uv; make it with scripts/test_env.sh")
    folder = tmp_path_factory.mktemp("libraries")
    install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", folder]
    process = subprocess.run(
        [*install, "--require-hashes", "--no-deps", "-r", LOCK], capture_output=True, text=True
    )
    if process.returncode != 0:
        pytest.skip(f"the libraries cannot be installed: {process.stderr[-500:]}")
    return folder


def with_path(libraries: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(libraries)]))
    return os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_library_program(libraries: Path, program: Path, tmp_path: Path) -> None:
    shutil.copy(program, tmp_path)  # a program's folder comes first on sys.path
    process = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env=with_path(libraries),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, f"{process.stdout[-2000:]}\n{process.stderr[-4000:]}"


def test_onnxruntime(libraries: Path, tmp_path: Path) -> None:
    tests = Path(__file__).with_name("test_layer_onnx.py")
    settings = ["-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "no:cacheprovider"]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-n0", "-q", "-k", "onnxruntime", tests],
        cwd=tmp_path,  # in the repository, the sources would shadow the installed package
        env=with_path(libraries),
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
    assert "skipped" not in process.stdout, process.stdout[-4000:]


PAGE = ROOT / "docs" / "use" / "training.md"
BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMPARED = """
import onnxruntime
session = onnxruntime.InferenceSession("layer.onnx")
other = torch.randn(3, 7, 8)
results = session.run(None, {session.get_inputs()[0].name: other.numpy()})
torch.testing.assert_close(torch.from_numpy(results[0]), layer(other)[0])
"""


def test_onnx_examples_of_the_page(libraries: Path, tmp_path: Path) -> None:
    """Word for word, after the blocks before them; each file computes what the layer does."""
    blocks = [
        block + (COMPARED if ".onnx" in block else "")
        for needs, block in BLOCK.findall(PAGE.read_text())
        if not needs or "onnx" in needs
    ]
    assert sum(".onnx" in block for block in blocks) == 2
    (tmp_path / "page.py").write_text("".join(blocks))
    process = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=with_path(libraries),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]

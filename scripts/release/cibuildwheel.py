"""The [tool.cibuildwheel] table of pyproject.toml, generated from the matrix."""

from packaging.version import Version

from release import PROJECT, ReleaseError
from release.pack_steps import PREBUILT
from release.schema import Matrix

# PyTorch's own build images: manylinux_2_28 with one CUDA toolkit in /usr/local/cuda.
IMAGE = "pytorch/manylinux2_28-builder:cuda{}"
BINARIES = f"/tmp/{PROJECT.distribution}-binaries"


def python(matrix: Matrix) -> str:
    """The newest Python for which every torch has a wheel; it builds the wheel for all Pythons."""
    common = set(matrix.package.pythons)
    for torch in matrix.torch.values():
        common &= set(torch.pythons)
    if not common:
        text = "build_matrix.yaml: no Python has a wheel of every torch, but cibuildwheel compiles"
        raise ReleaseError(f"{text} all glues with one Python; drop the oldest torch")
    return max(common, key=Version)


def image(matrix: Matrix) -> str:
    """The container with the nvcc that PyPI lacks; PyPI's wheels give the other toolkits."""
    missing = [name for name, toolkit in matrix.toolkits.items() if not toolkit.nvcc]
    if len(missing) > 1:
        text = f"build_matrix.yaml: PyPI has no nvcc {' nor '.join(missing)}"
        raise ReleaseError(f"{text}, and an image has only one CUDA toolkit; make your own image")
    return IMAGE.format(missing[0] if missing else max(matrix.toolkits, key=Version))


def table(matrix: Matrix) -> str:
    tag = "cp" + python(matrix).replace(".", "")
    torch = matrix.torch[matrix.package.default_torch].release
    archs = [name.removeprefix("linux-") for name in matrix.platforms]
    return f"""\
[tool.cibuildwheel]
# No binary refers to a Python symbol, so one build makes the wheel for every Python.
build = [{", ".join(f'"{tag}-manylinux_{name}"' for name in archs)}]
archs = [{", ".join(f'"{name}"' for name in archs)}]
build-frontend = "build"
manylinux-x86_64-image = "{image(matrix)}"
manylinux-aarch64-image = "manylinux_2_28"
before-all = "{{project}}/scripts/cibuildwheel.sh before-all"
before-build = "{{project}}/scripts/cibuildwheel.sh before-build"
repair-wheel-command = "{{project}}/scripts/cibuildwheel.sh repair {{wheel}} {{dest_dir}}"
test-requires = ["torch=={torch}", "numpy"]
test-command = "{{project}}/scripts/cibuildwheel.sh test"

[tool.cibuildwheel.environment]
CUDA_HOME = "/usr/local/cuda"
{PREBUILT} = "{BINARIES}"
PYTHON = "/opt/python/{tag}-{tag}/bin/python"
"""

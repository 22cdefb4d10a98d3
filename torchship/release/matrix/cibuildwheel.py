"""Makes the table of cibuildwheel in pyproject.toml, and runs two steps of that table.

The table follows from the matrix. scripts/cibuildwheel.sh runs the two steps:

    python -m torchship.release.matrix.cibuildwheel before-all [SELECTOR ...]
    python -m torchship.release.matrix.cibuildwheel repair WHEEL DEST_DIR

Between the two steps, cibuildwheel calls the build backend, which packs the binaries in the
folder that the project's variable PREBUILT names.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version
from rich.console import Console

from .. import ReleaseError
from ..plan.host import probe
from ..run.release import Release
from ..run.store import source_epoch
from ..run.tasks import GOOD, Status
from ..steps.compile.objects import objects_of
from ..steps.pack.distributions import gather, partial_version, prebuilt_variable, true_tag
from ..steps.pack.wheels import read_wheel
from .cells import all_cells, required
from .load import load_settings
from .platforms import facts_of
from .schema import Matrix, machine_of
from .settings import Settings

# No emoji: `:x:` in a path or in a compiler's message stays what it is.
console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, emoji=False)
# PyTorch's own build images: manylinux_2_28 with one CUDA toolkit in /usr/local/cuda.
IMAGE = "pytorch/manylinux2_28-builder:cuda{}"


def python(matrix: Matrix) -> str:
    """The newest Python for which every torch of the matrix has a wheel."""
    pythons = (set(torch.pythons) for torch in matrix.torch.values())
    common = set(matrix.package.pythons).intersection(*pythons)
    if not common:
        raise ReleaseError(
            "build_matrix.yaml: no Python has a wheel of every torch, but cibuildwheel compiles "
            "all glues with one Python; drop the oldest torch"
        )
    return max(common, key=Version)


def tag(matrix: Matrix) -> str:
    """cibuildwheel's name of that Python, such as `cp312`."""
    return "cp" + python(matrix).replace(".", "")


def interpreter(matrix: Matrix) -> str:
    """The path of that Python in a manylinux image."""
    return f"/opt/python/{tag(matrix)}-{tag(matrix)}/bin/python"


def image(matrix: Matrix) -> str:
    """The build image with the toolkit whose nvcc PyPI lacks; if PyPI has all, with the newest."""
    missing = [name for name, toolkit in matrix.toolkits.items() if not toolkit.nvcc]
    if len(missing) > 1:
        raise ReleaseError(
            f"build_matrix.yaml: PyPI has no nvcc {' nor '.join(missing)}, and an image has only "
            "one CUDA toolkit; make your own image"
        )
    return IMAGE.format(missing[0] if missing else max(matrix.toolkits, key=Version))


def table(settings: Settings) -> str:
    matrix = settings.matrix
    torch = matrix.torch[matrix.package.default_torch].release
    archs = [machine_of(name) for name in matrix.platforms]
    images = "\n".join(
        f'manylinux-{machine_of(name)}-image = "{facts_of(name).image or image(matrix)}"'
        for name in matrix.platforms
    )
    return f"""\
[tool.cibuildwheel]
# No binary refers to a Python symbol, so one build makes the wheel for every Python.
build = [{", ".join(f'"{tag(matrix)}-manylinux_{name}"' for name in archs)}]
archs = [{", ".join(f'"{name}"' for name in archs)}]
build-frontend = "build"
{images}
before-all = "{{project}}/scripts/cibuildwheel.sh before-all"
before-build = "{{project}}/scripts/cibuildwheel.sh before-build"
repair-wheel-command = "{{project}}/scripts/cibuildwheel.sh repair {{wheel}} {{dest_dir}}"
test-requires = ["torch=={torch}", "numpy"]
test-command = "{{project}}/scripts/cibuildwheel.sh test"

[tool.cibuildwheel.environment]
CUDA_HOME = "/usr/local/cuda"
{prebuilt_variable(settings)} = "/tmp/{settings.project.distribution}-binaries"
PYTHON = "{interpreter(matrix)}"
"""


def before_all(selectors: Sequence[str]) -> int:
    """Builds the selected cells that can be built here; PREBUILT's folder gets audited binaries.

    Returns the exit code: 1 if a task failed or the folder stays empty.
    """
    settings = load_settings()
    variable = prebuilt_variable(settings)
    target = os.environ.get(variable)
    if not target:
        raise ReleaseError(f"{variable} is not set; set it to a folder for the binaries")
    host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), settings)
    jobs = os.cpu_count() or 1
    release = Release(selectors, settings, host, console, channel="bootstrap", jobs=jobs)
    for name, reason in release.skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False, soft_wrap=True)
    plan = release.plan(None, pack=False)
    outcomes = release.do(plan)
    good = [cell for cell in plan.cells if outcomes[f"audit/{cell}"].status in GOOD]
    tasks = [task.name for cell in good for task in objects_of(cell, plan)]
    binaries = {path for name in tasks for path in outcomes[name].outputs}
    folder = gather(binaries, Path(target))
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    console.print(f"{folder}: {names or 'empty'}", markup=False, soft_wrap=True)
    failed = any(outcome.status is Status.FAILED for outcome in outcomes.values())
    return 1 if failed or not names else 0


def repair(wheel: Path, folder: Path) -> int:
    """Writes the wheel with its true tag into `folder`; returns the exit code 0.

    The version of a wheel that lacks required variants says how many of them the wheel has.
    """
    settings = load_settings()
    packed = read_wheel(wheel)
    binaries = {Path(path).name for path in packed.binaries}
    whole = [cell.name for cell in all_cells(settings.matrix) if {*cell.files} <= binaries]
    local = partial_version(whole, required(settings.matrix))
    folder.mkdir(parents=True, exist_ok=True)
    tagged = packed.renamed(local=local, tag=true_tag(packed, settings.machine))
    final = tagged.write(folder, epoch=source_epoch(settings))
    console.print(f"{final.name}: {', '.join(whole)}", markup=False)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line; the result of parsing has the function `run`, which takes that result."""
    parser = argparse.ArgumentParser(
        prog="python -m torchship.release.matrix.cibuildwheel", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="STEP")
    step = commands.add_parser("before-all", help="compile and audit the binaries of the wheel")
    step.add_argument("selectors", nargs="*", metavar="SELECTOR", help="cells or patterns")
    step.set_defaults(run=lambda options: before_all(options.selectors))
    step = commands.add_parser("repair", help="give the wheel its platform tag and final name")
    step.add_argument("wheel", type=Path, metavar="WHEEL")
    step.add_argument("folder", type=Path, metavar="DEST_DIR")
    step.set_defaults(run=lambda options: repair(options.wheel, options.folder))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ReleaseError as error:
        console.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())

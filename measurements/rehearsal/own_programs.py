"""The stand-ins of this repository's own scripts and modules.

They understand a command line by the parser of the real program. What the release tool lists and
joins is its own work; what it would compile is prebuilt.
"""

from __future__ import annotations

import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from torchship.builder import HostCompiler
from torchship.release import ReleaseError, conda_worker
from torchship.release.__main__ import check_options
from torchship.release.cells import all_cells, part_of
from torchship.release.host import Host, chosen_cells
from torchship.release.listing import github, json_list
from torchship.release.options import Options, make_parser, read_options
from torchship.release.run import named_cells
from torchship.release.schema import FIRST
from torchship.release.toolchains import Compilers
from torchship.release.tools import chosen_tools

from .forge import ARM_IMAGE, CUDA_HOME, NIGHTLY_FILES, OWNER, REPOSITORY
from .machine import Answer, Call, Machine, Refused
from .prebuilt import Order
from .stand_ins import Places, World, stand_in

TORCH_OF_CONDA = "build/torch"


def platform_of(machine: Machine) -> str:
    return "linux-aarch64" if machine.job.runs_on.endswith("-arm") else FIRST


def github_host(world: World) -> Host:
    """The facts of GitHub's ubuntu-24.04: g++ 13, and clang 19 in reach of apt."""
    return Host(
        python="python3",
        python_minor=world.forge.python,
        torch=None,
        compiler=HostCompiler(("g++",), "g++", "13.3.0"),
        cuda=Compilers(debian=frozenset({"clang-19"})),
    )


def parse(
    call: Call, read: Callable[[Sequence[str]], Namespace], arguments: Sequence[str]
) -> Namespace:
    """What a parser of ours reads out of a command line. Raises Refused if it refuses it."""
    errors = StringIO()
    try:
        with redirect_stderr(errors):
            return read(arguments)
    except SystemExit:
        raise Refused(f"{call}: {errors.getvalue().strip().splitlines()[-1]}") from None


def check_python(call: Call, world: World) -> None:
    """Raises Refused if the Python that would run the call is not there, or is another one."""
    machine = call.machine
    python = call.env.get("PYTHON", "")
    if machine.container:
        own = machine.workspace / TORCH_OF_CONDA / "bin" / "python"
        if python != world.forge.python_of_images and (python != str(own) or not own.exists()):
            raise Refused(f"{call}: PYTHON is {python!r}, which {machine.container} lacks")
    elif machine.python != world.forge.python or python:
        raise Refused(f"{call}: needs the python {world.forge.python} that setup-python brings")


def check_container(call: Call, world: World) -> str:
    """The image of a job, after checks of what it must be told. Raises Refused."""
    image = call.machine.container
    if not image:
        return ""
    call.needs_variable("RELEASE_IMAGE", image)
    if image == world.forge.pinned_image:
        call.needs_variable("CUDA_HOME", CUDA_HOME)
    elif image != ARM_IMAGE or platform_of(call.machine) == FIRST:
        raise Refused(f"{call}: {image} is not the image of this release")
    trusted = call.machine.home / ".gitconfig"
    if not trusted.is_file() or str(call.machine.workspace) not in trusted.read_text():
        raise Refused(f"{call}: git does not trust the checkout, which another user owns")
    return image


@stand_in(".ci/run")
def run_ci(call: Call, places: Places, world: World) -> None:
    """The whole suite of tests."""
    check_python(call, world)
    call.needs_variable("UV_TORCH_BACKEND", "cpu")


@stand_in("scripts/test.sh --torch <version>")
def run_tests(call: Call, places: Places, world: World) -> None:
    """The tests with another torch, which must be the newest."""
    check_python(call, world)
    if places["version"] != world.forge.newest_torch:
        raise Refused(f"{call}: the newest torch is {world.forge.newest_torch}")


@stand_in("scripts/new_torch.sh <version> --index <index>")
def try_torch(call: Call, places: Places, world: World) -> None:
    """The report and the patch of a torch that no table knows, which must be the nightly."""
    check_python(call, world)
    if places["version"] != world.forge.nightly_torch:
        raise Refused(f"{call}: the newest nightly is {world.forge.nightly_torch}")
    if places["index"] != world.forge.nightly_index:
        raise Refused(f"{call}: nightlies are in {world.forge.nightly_index}")
    folder = call.machine.workspace / "build" / "new_torch" / places["version"]
    folder.mkdir(parents=True)
    for name in NIGHTLY_FILES:
        (folder / name).write_text(f"{name} of {places['version']}")


@stand_in("scripts/docs.sh")
def build_site(call: Call, places: Places, world: World) -> None:
    """A site of two pages, which say for which version they were built."""
    check_python(call, world)
    version = world.occasion.tag.removeprefix("v") or "dev"
    project = REPOSITORY.partition("/")[2]
    call.needs_variable("DOCS_VERSION", version)
    call.needs_variable("DOCS_VERSIONS", f"https://{OWNER}.github.io/{project}/versions.json")
    for name in ("index.html", "start/index.html"):
        path = call.machine.workspace / "build" / "site" / name
        path.parent.mkdir(parents=True)
        path.write_text(f"{name} of {version}")


@stand_in("python -m cibuildwheel --platform linux --archs native --output-dir <folder>")
def build_by_cibuildwheel(call: Call, places: Places, world: World) -> None:
    """The fat wheel of the machine's platform."""
    check_python(call, world)
    if "cibuildwheel" not in call.machine.environments.get("python", ()):
        raise Refused(f"{call}: cibuildwheel is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        build_whole(call, Path(scratch), world)
        folder = call.folder / places["folder"]
        folder.mkdir()
        (wheel,) = Path(scratch, "dist").glob("lltm-*.whl")
        shutil.copy(wheel, folder)


@stand_in("build/tools/bin/python -m torchship.release.conda_worker [arguments...]")
def run_conda_worker(call: Call, places: Places, world: World) -> None:
    """conda-forge's pytorch for the optional cells, if the worker understands the command."""
    call.needs_variable("PYTHONPATH", ".")
    if call.folder != call.machine.workspace:
        raise Refused(f"{call}: PYTHONPATH is meant for the checkout")
    options = parse(call, conda_worker.make_parser().parse_args, places.several)
    specs = getattr(options, "specs", [])
    releases = {cell.torch.release for cell in world.forge.optional}
    expected = {f"pytorch =={release} cpu*": release for release in releases}
    if len(specs) != 2 or specs[0] not in expected or specs[1] != f"python {world.forge.python}.*":
        raise Refused(f"{call}: needs a pytorch of {', '.join(sorted(releases))} and a python")
    if options.channel != ["conda-forge"] or options.prefix != Path(TORCH_OF_CONDA):
        raise Refused(f"{call}: needs {TORCH_OF_CONDA} and conda-forge")
    call.machine.provide(f"{TORCH_OF_CONDA}/bin/python")
    call.machine.environments[TORCH_OF_CONDA] = {expected[specs[0]]}


@stand_in("scripts/build_all.sh [arguments...]")
def run_release_tool(call: Call, places: Places, world: World) -> Answer:
    """The release tool: its own parser, its own list and its own merge; builds are prebuilt."""
    check_python(call, world)
    for name in ("python", "uv"):
        call.machine.provide(f"build/tools/bin/{name}")
    call.machine.environments["build/tools"] = {"pydantic", "rich"}
    try:
        options = read_options(parse(call, make_parser().parse_intermixed_args, places.several))
        check_options(options)
        return _release(call, options, world)
    except ReleaseError as error:
        raise Refused(f"{call}: {error}") from error


def _release(call: Call, options: Options, world: World) -> Answer:
    settings = world.forge.settings[platform_of(call.machine)]
    if options.list_cells:
        host = github_host(world)
        cells = chosen_cells(options.selectors, host, settings)
        show = json_list if options.json else github
        return Answer(output=f"{show(cells, host, settings)}\n" if options.for_programs else "")
    if options.merge:
        folders = [call.folder / folder for folder in options.merge]
        root = call.machine.workspace
        return Answer(code=world.prebuilt.join(folders, settings.platform, root))
    if options != Options(selectors=options.selectors, shard=options.shard):
        raise Refused(f"{call}: no workflow builds like this")
    if options.selectors or options.shard:
        return build_part(call, options, world)
    return build_whole(call, call.machine.workspace, world)


def build_part(call: Call, options: Options, world: World) -> Answer:
    """Some cells into `dist`: those of a shard, or those that are named."""
    settings = world.forge.settings[platform_of(call.machine)]
    cells = chosen_cells(options.selectors, github_host(world), settings)
    if options.shard:
        cells = part_of(cells, options.shard)
    torch: set[str] = set()
    if call.env.get("PYTHON", "").endswith(f"{TORCH_OF_CONDA}/bin/python"):
        torch = call.machine.environments[TORCH_OF_CONDA]
    skipped = {cell.name for cell in cells if cell.optional and cell.torch.release not in torch}
    order = _order(
        call,
        world,
        cells=tuple(cell.name for cell in cells if cell.name not in skipped),
        has_tools=bool(chosen_tools(options.selectors, options.shard, settings)),
    )
    answer = _deliver(call, order, world, call.machine.workspace / "dist")
    is_incomplete = skipped & named_cells(options.selectors, github_host(world), settings)
    return Answer(code=1) if is_incomplete else answer


def build_whole(call: Call, root: Path, world: World) -> Answer:
    """Every cell of the platform into `root/dist`, joined into its fat wheel."""
    settings = world.forge.settings[platform_of(call.machine)]
    order = _order(
        call,
        world,
        cells=tuple(cell.name for cell in all_cells(settings.matrix) if not cell.optional),
        has_tools=settings.platform == FIRST,
    )
    shard = root / "shard"
    answer = _deliver(call, order, world, shard)
    if answer.code:
        shutil.move(shard, root / "dist")
    else:
        world.prebuilt.join([shard], settings.platform, root)
    return answer


def _order(call: Call, world: World, *, cells: tuple[str, ...], has_tools: bool) -> Order:
    return Order(
        platform=platform_of(call.machine),
        cells=cells,
        has_tools=has_tools,
        image=check_container(call, world),
        failing=world.occasion.failing,
    )


def _deliver(call: Call, order: Order, world: World, dist: Path) -> Answer:
    """What was ordered, and the logs of its steps; the exit code says whether a cell failed."""
    logs = call.machine.workspace / "build" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for name in order.cells:
        (logs / f"{name}.log").write_text(f"the log of {name}\n")
    world.prebuilt.deliver(order, dist)
    return Answer(code=1 if order.failing & {*order.cells, order.platform} else 0)

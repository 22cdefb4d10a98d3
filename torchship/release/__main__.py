"""The command line of the release tool; scripts/build_all.sh starts it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from . import ReleaseError
from .matrix import generated
from .matrix.cells import by_platform
from .matrix.load import leftovers, load, load_settings
from .matrix.settings import PLATFORM_VARIABLE, Settings, make_settings, native_platform
from .options import (
    Asked,
    Build,
    Generate,
    List,
    Merge,
    Recipe,
    Request,
    Upload,
    Yank,
    command_of,
    read,
)
from .plan.host import chosen_cells, probe
from .publishing.merge import merge
from .publishing.take_back import yank
from .publishing.upload import upload
from .root import MATRIX_NAME, find_root
from .run.listing import github, json_list, list_cells
from .run.processes import signals_interrupt
from .run.release import Release, base_channel
from .run.shell import explain, is_disk_full
from .steps.conda.packages import build_recipe
from .steps.verify.full import verify_built

# No emoji: `:x:` in a path or in a compiler's message stays what it is.
errors = Console(stderr=True, highlight=False, emoji=False)
console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, emoji=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line of scripts/build_all.sh; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        command, own = command_of(given)
        name = "scripts/build_all.sh" if command == "release" else f"scripts/build_all.sh {command}"
        asked = read(command, own, name)
    except ReleaseError as error:
        return _fail(error, Path.cwd())
    return carry_out(asked)


def carry_out(asked: Asked) -> int:
    """Does what a command line asks for.

    Returns the exit code: 1 if a step failed, 2 if the command cannot be carried out, 130 if it
    was stopped, else 0.
    """
    with signals_interrupt():
        root = Path.cwd()
        try:
            root = find_root(asked.project)
            return run(asked.request, root)
        except (ReleaseError, OSError) as error:
            return _fail(error, root)
        except KeyboardInterrupt:
            console.print("stopped; start the same command again: what is finished is kept")
            return 130


def _fail(error: ReleaseError | OSError, root: Path) -> int:
    """Shows an error; returns the exit code. Raises an OSError that is no full disk."""
    if isinstance(error, OSError) and not is_disk_full(error):
        raise error
    console.print(f"error: {explain(error, root)}", markup=False, style="red", soft_wrap=True)
    return 2


def run(request: Request, root: Path) -> int:
    """Does what the command line asks for in the project `root`, one platform after the other."""
    default = os.environ.get(PLATFORM_VARIABLE) or native_platform()
    settings = load_settings(default, root)
    if isinstance(request, Generate | List):
        for leftover in leftovers(root / MATRIX_NAME):
            errors.print(leftover, markup=False, soft_wrap=True, style="yellow")
    if isinstance(request, Generate):
        generated.write(settings, console)
        return 0
    generated.check(settings)
    if isinstance(request, Merge):
        return merge(request.folders, console, settings)
    if isinstance(request, Yank):
        yank(request.version, request.folder, settings, console, reason=request.reason)
        return 0
    codes = []
    for platform, selectors in _groups(request, default, root).items():
        try:
            own_settings = make_settings(load(root / MATRIX_NAME, platform), root)
            codes.append(run_for_platform(request, selectors, own_settings))
        except (ReleaseError, OSError) as error:  # the other platforms have their turn
            codes.append(_fail(error, root))
    return max(codes)


PlatformRequest = Build | List | Upload | Recipe


def _groups(request: PlatformRequest, default: str, root: Path) -> dict[str, list[str]]:
    """The selectors by the platform that they are for."""
    selectors = list(request.selectors)
    if os.environ.get(PLATFORM_VARIABLE):
        return {default: selectors}
    if not selectors and isinstance(request, List) and not request.for_programs:
        selectors = ["all"]
    groups = by_platform(selectors, load(root / MATRIX_NAME), default)
    return groups or {default: []}


def run_for_platform(request: PlatformRequest, selectors: Sequence[str], settings: Settings) -> int:
    """Does what is asked for one platform; returns the exit code."""
    if isinstance(request, Upload):
        return upload(
            request.target,
            settings,
            console,
            dry_run=request.dry_run,
            allow_partial=request.allow_partial,
        )
    if isinstance(request, Recipe):
        channel = base_channel(request.channel, console, settings)
        build_recipe(request.variant, channel, console, settings)
        return 0
    host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), settings)
    if isinstance(request, List):
        cells = chosen_cells(selectors, host, settings)
        if request.for_programs:
            print((json_list if request.json else github)(cells, host, settings))
        else:
            list_cells(cells, host, settings, console)
        return 0
    jobs = max(1, request.jobs or os.cpu_count() or 1)
    release = Release(
        selectors=selectors,
        settings=settings,
        host=host,
        console=console,
        channel=request.channel,
        shard=request.shard,
        jobs=jobs,
        verbose=request.verbose,
    )
    if request.dry_run:
        release.show()
        return 0
    code = release.run()
    if request.is_verified:
        code = max(code, verify_built(settings, console, jobs, request.python))
    return code


if __name__ == "__main__":
    sys.exit(main())

"""The command line of the release tool; scripts/build_all.sh starts it."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from . import ReleaseError, generated
from .cells import by_platform
from .conda_steps import build_recipe
from .host import chosen_cells, probe
from .listing import github, json_list, list_cells
from .matrix import load, load_settings
from .merge import merge
from .options import Options, make_parser, read_options
from .processes import signals_interrupt
from .root import MATRIX_NAME, find_root
from .run import Release, base_channel
from .settings import PLATFORM_VARIABLE, Settings, make_settings, native_platform
from .shell import explain, is_disk_full
from .take_back import yank
from .upload import upload
from .verify_full import verify_built

# No emoji: `:x:` in a path or in a compiler's message stays what it is.
console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, emoji=False)

# The options of a build that the other commands take, too.
HONOURED = {
    "--merge": (),
    "--upload": ("--dry-run", "--allow-partial", "SELECTOR"),
    "--recipe": ("SELECTOR",),
    "--yank": (),
    "--write-generated": (),
    "--list": ("--dry-run", "SELECTOR"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line of scripts/build_all.sh; returns the exit code."""
    return carry_out(make_parser().parse_intermixed_args(arguments))


def carry_out(parsed: argparse.Namespace) -> int:
    """Does what a parsed command line asks for.

    Returns the exit code: 1 if a step failed, 2 if the command cannot be carried out, 130 if it
    was stopped, else 0.
    """
    with signals_interrupt():
        return _carry_out(parsed)


def _carry_out(parsed: argparse.Namespace) -> int:
    root = Path.cwd()
    try:
        options = read_options(parsed)
        check_options(options)
        root = find_root(options.project)
        return run(options, root)
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


def run(options: Options, root: Path) -> int:
    """Does what the command line asks for in the project `root`, one platform after the other."""
    default = os.environ.get(PLATFORM_VARIABLE) or native_platform()
    settings = load_settings(default, root)
    if options.write_generated:
        generated.write(settings, console)
        return 0
    generated.check(settings)
    if options.merge:
        return merge(options.merge, console, settings)
    if options.yank is not None:
        take_back(options.yank, options, settings)
        return 0
    codes = []
    for platform, selectors in _groups(options, default, root).items():
        try:
            own_settings = make_settings(load(root / MATRIX_NAME, platform), root)
            codes.append(run_for_platform(selectors, options, own_settings))
        except (ReleaseError, OSError) as error:  # the other platforms have their turn
            codes.append(_fail(error, root))
    return max(codes)


def take_back(version: str, options: Options, settings: Settings) -> None:
    """Carries out `--yank`. Raises ReleaseError."""
    if options.folder is None:
        raise ReleaseError("--yank needs --folder DIR; name what --upload DIR has filled")
    if not options.folder.is_dir():
        raise ReleaseError(
            f"--folder: {options.folder} is no folder; name what --upload has filled"
        )
    if not options.reason or not options.reason.strip():
        raise ReleaseError("--yank needs --reason TEXT; say in a sentence what went wrong")
    yank(version, options.folder, settings, console, reason=options.reason)


def check_options(options: Options) -> None:
    """Refuses options that exclude each other, and the empty text of an unset variable."""
    values = {
        "--channel": options.channel,
        "--shard": options.shard,
        "--upload": options.upload,
        "--recipe": options.recipe,
        "--yank": options.yank,
    }
    for name, value in values.items():
        if value is not None and not value.strip():
            raise ReleaseError(f"{name}: got an empty text; give a value, or leave out {name}")
    if any(not selector.strip() for selector in options.selectors):
        raise ReleaseError("got an empty selector; name a cell, or leave it out")
    if options.python and options.verify != "full":
        raise ReleaseError("--python belongs to --verify full; add it, or set PYTHON instead")
    if options.for_programs and not options.list_cells:
        name = "--json" if options.json else "--github"
        raise ReleaseError(f"{name} belongs to --list; add it, or leave out {name}")
    _check_commands(options)


def _check_commands(options: Options) -> None:
    """Refuses two commands in one, and options that a command would leave out without a word."""
    commands = {
        "--merge": bool(options.merge),
        "--upload": options.upload is not None,
        "--recipe": options.recipe is not None,
        "--yank": options.yank is not None,
        "--write-generated": options.write_generated,
        "--list": options.list_cells,
    }
    named = [name for name, is_named in commands.items() if is_named]
    if len(named) > 1:
        raise ReleaseError(
            f"{' and '.join(named)} are commands of their own; run one after the other"
        )
    used = {
        "--dry-run": options.dry_run,
        "--allow-partial": options.allow_partial,
        "--shard": options.shard is not None,
        "--verify": options.verify != "one",
        "SELECTOR": bool(options.selectors),
    }
    for name in named:
        for option, is_used in used.items():
            if is_used and option not in HONOURED[name]:
                raise ReleaseError(f"{name} does nothing with {option}; leave one of them out")


def _groups(options: Options, default: str, root: Path) -> dict[str, list[str]]:
    """The selectors by the platform that they are for."""
    selectors = list(options.selectors)
    if os.environ.get(PLATFORM_VARIABLE):
        return {default: selectors}
    if not selectors and options.list_cells and not options.for_programs:
        selectors = ["all"]
    groups = by_platform(selectors, load(root / MATRIX_NAME), default)
    return groups or {default: []}


def run_for_platform(selectors: Sequence[str], options: Options, settings: Settings) -> int:
    if options.upload:
        return upload(
            options.upload,
            settings,
            console,
            dry_run=options.dry_run,
            allow_partial=options.allow_partial,
        )
    if options.recipe:
        channel = base_channel(options.channel, console, settings)
        build_recipe(options.recipe, channel, console, settings)
        return 0
    host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), settings)
    if options.list_cells:
        cells = chosen_cells(selectors, host, settings)
        if options.for_programs:
            print((json_list if options.json else github)(cells, host, settings))
        else:
            list_cells(cells, host, settings, console)
        return 0
    jobs = max(1, options.jobs or os.cpu_count() or 1)
    release = Release(
        selectors=selectors,
        settings=settings,
        host=host,
        console=console,
        channel=options.channel,
        shard=options.shard,
        jobs=jobs,
        verbose=options.verbose,
    )
    if options.dry_run:
        release.show()
        return 0
    code = release.run()
    if options.verify == "full":
        code = max(code, verify_built(settings, console, jobs, options.python))
    return code


if __name__ == "__main__":
    sys.exit(main())

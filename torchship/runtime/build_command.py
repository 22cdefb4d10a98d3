"""`python -m PACKAGE build`: compiles into the cache, lists what is there, and removes it."""

import argparse
import shutil
import sys
from contextlib import suppress

from ..builder import BuildError
from ..judge import cache, find_torch, judge_file, probe_runtime, select
from ..judge.machine.torch_probe import TorchNotFoundError
from ..judge.project import Project
from ..judge.words import render
from .local_build import SETTINGS, build, readable_files


def make_parser(project: Project) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{project.command} build",
        description=(
            f"Compile {project.distribution} for the torch of this environment, into your cache: "
            f"${project.variable('CACHE')}, else $XDG_CACHE_HOME/{project.package}, "
            f"else ~/.cache/{project.package}. import {project.package} finds the result there. "
            f"The build honours {', '.join(SETTINGS)} and MAX_JOBS."
        ),
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--list", action="store_true", help="list the builds in the cache")
    group.add_argument("--remove", metavar="KEY", help="remove one build, or `all`")
    parser.add_argument("--force", action="store_true", help="build again even if it is cached")
    return parser


def run(project: Project, options: argparse.Namespace) -> int:
    """Does what the options of `make_parser` say; returns the exit code."""
    try:
        if options.list:
            return _list(project)
        if options.remove is not None:
            return _remove(project, options.remove)
        return _build(project, force=options.force)
    except (
        BuildError,
        cache.CacheError,
        cache.NoCacheFolderError,
        TorchNotFoundError,
    ) as error:
        print(render.shorten(str(error)), file=sys.stderr)
        return 1


def _list(project: Project) -> int:
    try:
        print(f"build cache: {render.shorten(str(cache.root(project)))}\n")
    except cache.NoCacheFolderError as error:
        print(f"build cache: none\n\n{error}")
        return 0
    rows = []
    for entry in cache.entries(project):
        torch = f"torch {entry.manifest.torch}"
        built_for = torch if entry.finished else "nothing yet: killed or running"
        rows.append((entry.key, entry.manifest.variant, f"{entry.size / 1e6:.1f} MB", built_for))
    print(render.table(("key", "variant", "size", "built for"), rows) if rows else "empty")
    return 0


def _remove(project: Project, key: str) -> int:
    entries = cache.entries(project)
    chosen = [entry for entry in entries if key in ("all", entry.key)]
    if not chosen:
        if key == "all":
            return 0
        keys = ", ".join(entry.key for entry in entries) or "nothing"
        raise BuildError(f"no build {key!r} in the cache; it holds: {keys}")
    cache.make(project, cache.root(project))
    with readable_files(), cache.locked(project, wait=False) as is_locked:
        if is_locked is False:
            raise BuildError("nothing was removed: another process builds here. Try again later")
        for entry in chosen:
            # An unfinished build removes its folder at its end.
            with suppress(FileNotFoundError):
                shutil.rmtree(entry.path)
                if entry.finished and not any(entry.path.parent.iterdir()):
                    entry.path.parent.rmdir()
            print(f"removed {entry.key}")
    return 0


def _build(project: Project, *, force: bool) -> int:
    torch = find_torch()
    folder = build(project, torch, force=force)
    runtime = probe_runtime(torch, project=project)
    # The import will judge the build, too; this check also covers the GPU and all libraries.
    selection = select(cache.trusted_files(project, folder), runtime, judge_file)
    if selection.complete:
        print(f"import {project.package} will find {selection.variant}")
        return 0
    print(render.cause_text(selection.cause), file=sys.stderr)
    return 1

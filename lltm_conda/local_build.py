"""`python -m lltm_conda build`: compile the variant that fits here into the cache of the user."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from . import loader
from ._version import __version__
from .compat import cache, driver_probe, find_torch, judge_file, probe_runtime, render, select
from .compat.package_files import source_hash
from .compat.records import TorchInstall
from .compat.torch_probe import TorchNotFoundError


def main(arguments: list[str]) -> int:
    """The `build` command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.list:
            return _list()
        if options.remove is not None:
            return _remove(options.remove)
        return _build(options)
    except (cache.CacheError, TorchNotFoundError) as error:
        print(render.shorten(str(error)), file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lltm_conda build",
        description="Compile lltm for the torch of this environment, into a cache of your own "
        f"({render.shorten(str(cache.root()))}) that import lltm_conda looks into. CXX, CUDA_HOME, "
        "TORCH_CUDA_ARCH_LIST, FORCE_CUDA and MAX_JOBS are honoured.",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--list", action="store_true", help="what the cache holds")
    group.add_argument("--remove", metavar="KEY", help="remove one build, or `all`")
    parser.add_argument("--force", action="store_true", help="build again what is there already")
    return parser


def _list() -> int:
    rows = [
        (entry.key, entry.variant, f"{entry.size / 1e6:.1f} MB", f"torch {entry.torch}")
        for entry in cache.entries()
    ]
    print(f"build cache: {render.shorten(str(cache.root()))}\n")
    print(render.table(("key", "variant", "size", "built for"), rows) if rows else "empty")
    return 0


def _remove(key: str) -> int:
    chosen = [entry for entry in cache.entries() if key in ("all", entry.key)]
    if not chosen and key != "all":
        known = ", ".join(entry.key for entry in cache.entries()) or "nothing"
        print(f"no build {key!r} in the cache; it holds: {known}", file=sys.stderr)
        return 1
    for entry in chosen:
        shutil.rmtree(entry.path)
        if not any(entry.path.parent.iterdir()):
            entry.path.parent.rmdir()
        print(f"removed {entry.key}")
    return 0


def _build(options: argparse.Namespace) -> int:
    from .builder import BuildError

    torch = find_torch()
    sources = source_hash(loader.PACKAGE)
    if sources is None:
        print(
            "this installation of lltm carries no C++ sources (no csrc folder), so nothing can be "
            "built; install from the source distribution: "
            "python -m pip install --no-binary lltm --no-build-isolation lltm",
            file=sys.stderr,
        )
        return 1
    folder = cache.entry_folder(torch, __version__, sources)
    if folder.is_dir() and not options.force:
        cache.trusted_files(folder)
        print(f"built already: {render.shorten(str(folder))}   (again: --force)")
        return _judge(folder, torch)
    cache.make(folder.parent)
    # What is compiled here will be executed: nobody else may write it, not even for a moment.
    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory(dir=cache.root(), prefix="building-") as work:
            made = _compile(torch, Path(work))
            variant = _variant(made)
            manifest = {"variant": variant, "torch": torch.version, "version": __version__}
            finished = Path(work) / "finished"
            finished.mkdir()
            for path in made:
                shutil.move(path, finished / path.name)
                (finished / path.name).chmod(0o700)
            (finished / cache.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
            if folder.exists():
                shutil.rmtree(folder)
            try:
                finished.rename(folder)
            except OSError:
                if not folder.is_dir():  # else: somebody finished the same build before us
                    raise
    except BuildError as error:
        print(f"lltm was not built: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"lltm was not built: {error.filename or cache.root()}: {error.strerror}. Free some "
            "space or name another folder in LLTM_CONDA_CACHE, and run the same command again",
            file=sys.stderr,
        )
        return 1
    finally:
        os.umask(before)
    print(f"built {variant} for torch {torch.version}: {render.shorten(str(folder))}")
    return _judge(folder, torch)


def _compile(torch: TorchInstall, work: Path) -> list[Path]:
    from .builder import execute, fitting_request, plan

    env = dict(os.environ)
    if not env.get("TORCH_CUDA_ARCH_LIST"):
        found = {device.capability for device in driver_probe.probe_devices()}
        if found:
            archs = [f"{major}.{minor}" for major, minor in sorted(found)]
            env["TORCH_CUDA_ARCH_LIST"] = ";".join(archs) + "+PTX"
    request = fitting_request(torch, work / "lib", env=env)
    steps = plan(request)
    execute(steps, work / "work")
    return [step.output for step in steps if step.output.suffix == ".so"]


def _variant(made: list[Path]) -> str:
    glue = next((path.stem.removeprefix("glue-") for path in made if "glue-" in path.name), "?")
    kernels = [path.stem.removeprefix("kernels-") for path in made if "kernels-" in path.name]
    cuda = [name.replace("cuda", "cu") for name in kernels if name != "cpu"]
    return f"{glue}-{cuda[0] if cuda else 'cpu'}"


def _judge(folder: Path, torch: TorchInstall) -> int:
    """Hold what was built against this machine, as the import will do it."""
    runtime = probe_runtime(torch, package_version=__version__)
    selection = select(cache.trusted_files(folder), runtime, judge_file)
    if selection.complete:
        print(f"import lltm_conda will find {selection.variant}")
        return 0
    print(render.cause_text(selection.cause), file=sys.stderr)
    return 1

"""The command lines of `worker.py`: one function for each of its commands."""

import sys
from collections.abc import Sequence
from pathlib import Path

WORKER = (sys.executable, "-m", f"{__package__}.worker")


def bootstrap(out: Path, *, wheels: Path, python: str, torch: Path | None = None) -> list[str]:
    """With `torch`, an environment, the channel has a pytorch that links to it."""
    command = [*WORKER, "bootstrap", str(out), "--wheels", str(wheels), "--python", python]
    return [*command, "--torch", str(torch)] if torch else command


def build(
    variants: Path,
    out: Path,
    *,
    channels: Sequence[str],
    recipe: Path | None = None,
    run_tests: bool = False,
) -> list[str]:
    """Without `recipe`, the worker takes the project's."""
    command = [*WORKER, "build", str(variants), str(out), *_options(channels)]
    if recipe:
        command += ["--recipe", str(recipe)]
    if run_tests:
        command.append("--test")
    return command


def index(channel: Path, packages: Sequence[Path]) -> list[str]:
    return [*WORKER, "index", str(channel), *map(str, packages)]


def contents(package: Path, binaries: Sequence[Path], wheel: Path | None = None) -> list[str]:
    """With `wheel`, the package must hold that wheel's files, and no other."""
    command = [*WORKER, "contents", str(package), *map(str, binaries)]
    return [*command, "--wheel", str(wheel)] if wheel else command


def test(package: Path, *, channels: Sequence[str]) -> list[str]:
    return [*WORKER, "test", str(package), *_options(channels)]


def install(prefix: Path, specs: Sequence[str], *, channels: Sequence[str]) -> list[str]:
    return [*WORKER, "install", str(prefix), *specs, *_options(channels)]


def _options(channels: Sequence[str]) -> list[str]:
    return [word for channel in channels for word in ("--channel", channel)]

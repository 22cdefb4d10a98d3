"""The fat wheel: every variant that was built, each shared object once."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from release import DIST, ReleaseError, of_project
from release.pack_steps import true_tag
from release.paths import ENVS, TEMPORARY, fresh, replace_wheel, tool
from release.shell import Log
from release.tasks import Context, SkipTask, Task
from release.verify_steps import run_installed
from release.wheels import join, read_wheel

LIMIT = int(of_project("wheel_limit"))  # bytes


def fat_wheel(
    context: Context,
    *,
    wheels: Mapping[str, Task],
    runs: Mapping[str, Sequence[Task]],
    required: Collection[str],
    carried: Mapping[str, Path],
) -> Sequence[Path]:
    """Joins the thin wheels of this run's cells, and those of cells that an earlier run built.

    A cell is left out whose wheel was not packed or did not run.
    """
    found = {
        cell: context.only(task)
        for cell, task in wheels.items()
        if task in context.made and not context.failed & {*runs[cell]}
    }
    found |= agreeing(carried, found)
    if not found:
        raise SkipTask("no variant was built, so there is nothing to pack")
    return [replace_wheel(make_fat_wheel(context.log, found, required), DIST, any_version=True)]


def agreeing(carried: Mapping[str, Path], wheels: Mapping[str, Path]) -> dict[str, Path]:
    """The carried wheels, but for those with a binary that this run made differently."""
    now = {n: data for path in wheels.values() for n, data in read_wheel(path).binaries.items()}
    return {
        cell: path
        for cell, path in carried.items()
        if all(now.get(n, data) == data for n, data in read_wheel(path).binaries.items())
    }


def make_fat_wheel(log: Log, wheels: Mapping[str, Path], required: Collection[str]) -> Path:
    """The joined wheel in a temporary folder, with its true tag, and within the size limit."""
    work = fresh(TEMPORARY / "fat-wheel")
    joined = join(dict(sorted(wheels.items())), local=partial_version(wheels, required))
    for name, data in joined.binaries.items():
        log.write(f"{name}: {len(data)} bytes")
    given = {Path(name).name: data for name, data in joined.binaries.items()}
    made = joined.write(fresh(work / "joined"))
    tagged = true_tag(log, made, given, fresh(work / "repaired"))
    final = tagged.write(fresh(work / "final"))
    if final.stat().st_size > LIMIT:
        text = f"{final.name}: {final.stat().st_size} bytes, at most {LIMIT} are allowed"
        raise ReleaseError(f"{text}; build for fewer architectures, or find what grew in the log")
    return final


def partial_version(packed: Collection[str], required: Collection[str]) -> str | None:
    """The local version of a wheel that lacks required cells, `partial.3of15`; else None."""
    count = len({*packed} & {*required})
    return None if count == len(required) else f"partial.{count}of{len(required)}"


def fat_site(context: Context, *, fat_wheel: Task, python: str) -> Sequence[Path]:
    """A folder with the fat wheel alone, which environments with a torch put on their path."""
    folder = fresh(ENVS / "fat-site")
    command = [tool("uv"), "pip", "install", "--no-deps", "--no-index", "--python", python]
    context.log.run([*command, "--target", folder, context.only(fat_wheel)])
    return [folder]


def fat_run(context: Context, *, glue: str, venv: Task, site: Task) -> Sequence[Path]:
    """Runs the fat wheel beside the torch that a glue was built for; it must choose that glue."""
    folder = context.made[venv][0]
    python = folder / "bin" / "python"
    name = f"{glue}-fat"
    return [run_installed(context.log, python, folder, name, site=context.only(site), glue=glue)]

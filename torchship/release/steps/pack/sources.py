"""Which files of a checkout a distribution may hold."""

from pathlib import Path

from ...run.shell import output_of

# Folders at the top of the checkout that no distribution holds.
NOT_PACKED = {
    "tests",
    "docs",
    "scripts",
    "benchmarks",
    "measurements",
    "recipe",
    "requirements",
}
BUILD_PRODUCTS = {"build", "dist", ".venv", "__pycache__", "lib"}


def package_sources(repo: Path) -> tuple[Path, ...]:
    """The files that a distribution may hold: git's, or without git, all but build products."""
    # git lists the files of submodules among the tracked ones alone.
    tracked = output_of("git", "ls-files", "-c", "--recurse-submodules", "-z", cwd=repo)
    others = output_of("git", "ls-files", "-o", "--exclude-standard", "-z", cwd=repo)
    if tracked is None or others is None:
        paths = (path.relative_to(repo) for path in repo.rglob("*"))
        names = [str(path) for path in paths if not BUILD_PRODUCTS & set(path.parts)]
    else:
        names = [name for name in f"{tracked}\0{others}".split("\0") if name]
    packed = []
    for name in sorted(names):
        top = name.partition("/")[0]
        if top not in NOT_PACKED and not top.startswith(".") and (repo / name).is_file():
            packed.append(repo / name)
    return tuple(packed)

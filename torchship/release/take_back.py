"""Takes a release back: yanks a version of a folder, or corrects the metadata in its channel."""

import fnmatch
from pathlib import Path

from packaging.version import Version
from rich.console import Console

from . import ReleaseError, conda_commands
from .conda_steps import run_worker
from .pack_steps import write_index
from .settings import Settings
from .shell import Log
from .taken_back import Fix, read_fixes, read_taken_back, write_taken_back

PYPI = "https://pypi.org/manage/project/{}/releases/"


def yank(version: str, folder: Path, settings: Settings, console: Console, *, reason: str) -> None:
    """Makes pip and conda's solvers pass over a version.

    Who asks pip for exactly this version, or conda for the URL of a package, still gets it. Raises
    ReleaseError if the folder has nothing of this version.
    """
    names = [name for name in _file_names(folder) if version_of(name) == version]
    if not names:
        versions = sorted({version_of(name) for name in _file_names(folder)})
        raise ReleaseError(
            f"{folder}: has nothing of version {version}; it has {', '.join(versions) or 'nothing'}"
        )
    taken_back = read_taken_back(folder)
    yanked = {**taken_back.yanked, version: reason}
    write_taken_back(taken_back.model_copy(update={"yanked": yanked}), folder)
    index(folder, settings)
    console.print(f"yanked {version} in {folder}: {len(names)} files", markup=False)
    project = settings.project.distribution
    for name in (project, *(tool.name for tool in settings.matrix.tools)):
        console.print(f"on PyPI by hand: {PYPI.format(name)}", markup=False)
    console.print(
        "on Anaconda by hand: "
        f"anaconda move --from-label main --to-label broken OWNER/{project}/{version}",
        markup=False,
        soft_wrap=True,
    )


def hotfix(file: Path, folder: Path, settings: Settings, console: Console) -> None:
    """Makes the channel of a folder say of packages what a file says of them.

    Raises ReleaseError if a pattern of the file fits no package.
    """
    fixes: dict[str, Fix] = read_fixes(file)
    packages = [path.name for path in folder.glob("channel/*/*.conda")]
    for pattern in fixes:
        if not fnmatch.filter(packages, pattern):
            raise ReleaseError(
                f"{file}: {pattern} fits no package of {folder}/channel; it has "
                f"{', '.join(sorted(packages)) or 'none'}"
            )
    taken_back = read_taken_back(folder)
    update = {"fixes": {**taken_back.fixes, **fixes}}
    write_taken_back(taken_back.model_copy(update=update), folder)
    index(folder, settings)
    fixed = {name for pattern in fixes for name in fnmatch.filter(packages, pattern)}
    console.print(f"fixed in {folder}/channel: {', '.join(sorted(fixed))}", markup=False)


def index(folder: Path, settings: Settings) -> None:
    """Indexes the channel and the wheels of a folder anew, with what was taken back."""
    if (folder / "simple").is_dir():
        write_index(folder / "simple", read_taken_back(folder).yanked)
    if (folder / "channel").is_dir():
        with Log(settings.logs / "take-back.log", settings) as log:
            run_worker(log, conda_commands.index(folder / "channel", []))


def _file_names(folder: Path) -> list[str]:
    paths = [*folder.glob("simple/*/*.whl"), *folder.glob("channel/*/*.conda")]
    return sorted(path.name for path in paths if "-repodata-patches-" not in path.name)


def version_of(file: str) -> str:
    """The public version in the name of a wheel or of a conda package."""
    if file.endswith(".conda"):
        return file.rsplit("-", 2)[1]
    return Version(file.split("-")[1]).public

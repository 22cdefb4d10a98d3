"""Takes a release back: yanks a version of a folder."""

from pathlib import Path

from rich.console import Console

from .. import ReleaseError
from ..matrix.settings import Settings
from ..run.shell import Log
from ..steps.conda import commands as conda_commands
from ..steps.conda.packages import run_worker
from ..steps.pack.distributions import write_index
from .taken_back import TakenBack, read_taken_back, version_of, write_taken_back

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
    yanked = {**read_taken_back(folder).yanked, version: reason}
    write_taken_back(TakenBack(yanked=yanked), folder)
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


def index(folder: Path, settings: Settings) -> None:
    """Indexes the channel and the wheels of a folder anew, with what was taken back."""
    if (folder / "simple").is_dir():
        write_index(folder / "simple", read_taken_back(folder).yanked)
    if (folder / "channel").is_dir():
        with Log(settings.logs / "take-back.log", settings) as log:
            run_worker(log, conda_commands.index(folder / "channel", []))


def _file_names(folder: Path) -> list[str]:
    paths = [*folder.glob("simple/*/*.whl"), *folder.glob("channel/*/*.conda")]
    return sorted(path.name for path in paths if "-yanked-versions-" not in path.name)

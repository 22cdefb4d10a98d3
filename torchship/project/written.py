"""Writes several files into a repository: all of them, or none."""

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from .record import replace_file
from .render import File


def write_all(root: Path, files: Mapping[str, File]) -> None:
    """Writes the files by their paths in `root`; if one fails, puts back what was there.

    They are made in a folder beside `root` first, so that a full disk is noticed before.
    """
    with TemporaryDirectory(prefix=".torchship-", dir=root) as folder:
        beside = Path(folder)
        for name, file in files.items():
            replace_file(beside / "new" / name, file.content, mode=file.mode)
            if (root / name).is_file():
                (beside / "old" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, beside / "old" / name)
        folders = [parent for name in files for parent in (root / name).relative_to(root).parents]
        made = [root / one for one in dict.fromkeys(folders) if not (root / one).exists()]
        done: list[str] = []
        try:
            for name in files:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (beside / "new" / name).replace(root / name)
                done.append(name)
        except BaseException:
            for name in done:
                (root / name).unlink()
                if (beside / "old" / name).exists():
                    (beside / "old" / name).replace(root / name)
            for one in made:  # the innermost first
                if one.is_dir() and not any(one.iterdir()):
                    one.rmdir()
            raise


def stage(root: Path, names: Iterable[str]) -> None:
    """Adds files to git by force: many repositories ignore wheels, or a generated version."""
    command = ["git", "-C", str(root), "add", "--force", "--", *names]
    subprocess.run(command, capture_output=True, check=False)  # without git, there is none to tell

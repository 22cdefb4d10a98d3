"""Runs commands into a log file; a failure carries the log's last lines."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from release import REPO, ReleaseError

TAIL = 25
FULL = os.strerror(errno.ENOSPC)

# Facts of the invoking environment that must not reach what we build or test.
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
_FOREIGN += ("LD_LIBRARY_PATH", "LD_RUN_PATH")
_OWN = ("LLTM_CONDA_LOAD", "LLTM_CONDA_PREBUILT", "PYTHONDONTWRITEBYTECODE")


def clean_env(**extra: str) -> dict[str, str]:
    """This process's environment without what ties it to one Python, plus `extra`.

    Programs speak the language that `Log.run` understands.
    """
    env = {key: value for key, value in os.environ.items() if key not in (*_FOREIGN, *_OWN)}
    return {**env, "LC_ALL": "C.UTF-8", **extra}


class CommandFailed(ReleaseError):
    """A command did not end well; `said` holds the end of what it said."""

    def __init__(self, text: str, said: str) -> None:
        super().__init__(text)
        self.said = said


class Log:
    """One step's log file; `run` streams a command's output into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1, errors="replace")

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: str) -> None:
        self._file.write(line.rstrip("\n") + "\n")

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = REPO,
        remedy: str = "",
    ) -> None:
        """Runs a command to its end.

        Raises:
            CommandFailed: its exit code is not 0.
            ReleaseError: it does not start.
        """
        words = [str(word) for word in command]
        self.write(f"$ {shlex.join(words)}")
        try:
            done = subprocess.run(
                words,
                cwd=cwd,
                env=dict(env) if env is not None else clean_env(),
                stdin=subprocess.DEVNULL,
                stdout=self._file,
                stderr=subprocess.STDOUT,
                close_fds=False,  # see `leftovers`
            )
        except OSError as error:
            raise ReleaseError(f"{words[0]} does not start: {error.strerror}. {remedy}") from error
        if done.returncode:
            short = " ".join([Path(words[0]).name, *words[1:4]])
            text = f"`{short} ...` ended with exit code {done.returncode}"
            said = self.tail()
            if FULL in said:
                text, remedy = f"{text}: {FULL}", ""
            raise CommandFailed(f"{text}. {remedy}" if remedy else text, said)

    def tail(self, lines: int = TAIL) -> str:
        self._file.flush()
        text = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(text[-lines:])

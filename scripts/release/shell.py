"""Runs commands with their output in a log file; a failure carries the log's last lines."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from release import PROJECT, REPO, ReleaseError

TAIL = 25  # lines
FULL = os.strerror(errno.ENOSPC)
CREDENTIALS = re.compile(r"(\w://)[^\s/@'\"]+@")

# Settings of the calling environment that must not reach what we build or test.
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
_FOREIGN += ("LD_LIBRARY_PATH", "LD_RUN_PATH")
_OWN = (PROJECT.variable("LOAD"), PROJECT.variable("PREBUILT"), "PYTHONDONTWRITEBYTECODE")


def clean_env(**extra: str) -> dict[str, str]:
    """This process's environment plus `extra`, without what points to one Python.

    The language is fixed, because `Log.run` looks for texts in a command's output.
    """
    env = {key: value for key, value in os.environ.items() if key not in (*_FOREIGN, *_OWN)}
    return {**env, "LC_ALL": "C.UTF-8", **extra}


def redacted(text: str) -> str:
    """The text without the passwords and tokens in its URLs."""
    return CREDENTIALS.sub(r"\1***@", text)


class CommandFailed(ReleaseError):
    """A command failed; `said` holds the end of its output."""

    def __init__(self, text: str, said: str) -> None:
        super().__init__(text)
        self.said = said


class Log:
    """The log file of one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1, errors="replace")

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self.path.is_file():  # a device may have no end
            return
        text = self.path.read_text(encoding="utf-8", errors="replace")
        if (clean := redacted(text)) != text:
            self.path.write_text(clean, encoding="utf-8")

    def write(self, line: str) -> None:
        self._file.write(redacted(line.rstrip("\n")) + "\n")

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = REPO,
        remedy: str = "",
    ) -> None:
        """Runs a command to its end, with its output in the log.

        Raises:
            CommandFailed: its exit code is not 0; the text ends with `remedy`.
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
        """The last lines of the log."""
        self._file.flush()
        text = redacted(self.path.read_text(encoding="utf-8", errors="replace"))
        return "\n".join(text.splitlines()[-lines:])

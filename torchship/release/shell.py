"""Runs commands, and writes their output, without secrets, into log files."""

import errno
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from ..builder import BuildError
from . import BUILD, PROJECT, REPO, ReleaseError

TAIL = 25  # lines
FULL = os.strerror(errno.ENOSPC)
PATIENCE = 2.0  # seconds to wait for output after a command has ended
# Credentials in a URL, the token of a conda channel, tokens of PyPI and GitHub.
CREDENTIALS = re.compile(r"(?<=\w://)[^\s/'\"]+(?=@)|(?<=/t/)[^\s/'\"]+(?=/)")
TOKENS = re.compile(r"\b(pypi-|gh[a-z]_|github_pat_)\w[\w-]{15,}")
SECRET_NAMES = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY", re.IGNORECASE)

# Variables of the calling environment that builds and tests must not get.
_LEFT_OUT = {PROJECT.variable("LOAD"), PROJECT.variable("PREBUILT"), "PYTHONDONTWRITEBYTECODE"}
_LEFT_OUT |= {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"}
_LEFT_OUT |= {"LD_LIBRARY_PATH", "LD_RUN_PATH"}


def clean_env(**extra: str) -> dict[str, str]:
    """This process's environment without the variables _LEFT_OUT, plus `extra`.

    The language is fixed, because `Log.run` looks for texts in a command's output.
    """
    env = {key: value for key, value in os.environ.items() if key not in _LEFT_OUT}
    return {**env, "LC_ALL": "C.UTF-8", **extra}


def output_of(*command: str, cwd: Path = REPO) -> str | None:
    """The standard output of a command; None if the command does not start, or fails."""
    try:
        done = subprocess.run(command, cwd=cwd, env=clean_env(), capture_output=True, text=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def redacted(text: str) -> str:
    """The text without credentials in URLs, without tokens, and without this process's secrets.

    The secrets are the values of variables such as TWINE_PASSWORD, and the passwords in URLs that
    variables hold, if they have at least 6 characters.
    """
    found = {value for name, value in os.environ.items() if SECRET_NAMES.search(name)}
    for value in os.environ.values():
        if "://" in value:
            passwords = [part.partition(":")[2] for part in CREDENTIALS.findall(value)]
            found |= {*passwords, *map(unquote, passwords)}
    for secret in sorted((value for value in found if len(value) > 5), key=len, reverse=True):
        text = text.replace(secret, "***")
    return TOKENS.sub("***", CREDENTIALS.sub("***", text))


def is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return FULL in str(error)


def explain(error: BaseException) -> str:
    """An error's message without secrets; for a full disk, a text with the folder and a remedy."""
    if not is_disk_full(error):
        known = isinstance(error, (ReleaseError, BuildError))
        return redacted(str(error) if known else f"{type(error).__name__}: {error}")
    name = getattr(error, "filename", None)
    where = Path(name or BUILD)
    while not where.is_dir():
        where = where.parent
    what = f" for {name}" if name else "" if isinstance(error, OSError) else f" ({error})"
    free = f"{shutil.disk_usage(where).free / 1e6:.0f} MB are free in {where}"
    text = f"no space left on device{what}: {free}; free some and run the same again: what is"
    return redacted(f"{text} finished is kept")


class CommandFailed(ReleaseError):
    """A command failed; `said` is the end of the log."""

    def __init__(self, text: str, said: str) -> None:
        super().__init__(text)
        self.said = said


class Log(AbstractContextManager["Log"]):
    """The log file of one step, which gets every line without secrets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1, errors="replace")
        self._failed: OSError | None = None  # why the output of a command could not be written

    def __exit__(self, *_: object) -> None:
        self._file.close()

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

        Raises CommandFailed if the exit code is not 0, ReleaseError if the command does not start,
        and OSError if the log cannot be written. `remedy` ends the texts of ReleaseError, and of
        CommandFailed unless the log's end reports a full disk.
        """
        words = [str(word) for word in command]
        self.write(f"$ {shlex.join(words)}")
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=env or clean_env(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                close_fds=False,  # see `processes`
            )
        except OSError as error:
            text = f"{words[0]} does not start: {error.strerror}. {remedy}"
            raise ReleaseError(text.removesuffix(". ")) from error
        copier = threading.Thread(target=self._copy, args=(process.stdout,), daemon=True)
        copier.start()
        code = process.wait()
        copier.join(PATIENCE)  # a daemon of the command may keep the pipe open
        if self._failed is not None:
            raise self._failed
        if code:
            short = " ".join([Path(words[0]).name, *words[1:4]])
            text = f"`{short} ...` ended with exit code {code}"
            said = self.tail()
            if FULL in said:
                text, remedy = f"{text}: {FULL}", ""
            raise CommandFailed(f"{text}. {remedy}".removesuffix(". "), said)

    def _copy(self, output: IO[str]) -> None:
        for line in output:  # goes on after an error, as a full pipe would stop the command
            try:
                self.write(line)
            except ValueError:  # the log was closed
                return
            except OSError as error:
                self._failed = error

    def tail(self, lines: int = TAIL) -> str:
        self._file.flush()
        text = self.path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

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

from ...builder import BuildError
from ...judge.project import Project
from .. import ReleaseError
from ..matrix.settings import Settings

TAIL = 25  # lines
FULL = os.strerror(errno.ENOSPC)
_MAX_LINE = 300
_ERROR_OF_COMPILER = re.compile(r".*\S[:)] (?:fatal )?error: ")
#: As Python and pip name one.
_NAMED_ERROR = re.compile(r"\s*(?:error|ERROR): |(?:[A-Za-z_]+\.)*[A-Za-z]+(?:Error|Exception)\b")
PATIENCE = 2.0  # seconds to wait for output after a command has ended
# Credentials in a URL, the token of a conda channel, tokens of PyPI and GitHub.
CREDENTIALS = re.compile(r"(?<=\w://)[^\s/'\"]+(?=@)|(?<=/t/)[^\s/'\"]+(?=/)")
TOKENS = re.compile(r"\b(pypi-|gh[a-z]_|github_pat_)\w[\w-]{15,}")
SECRET_NAMES = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY", re.IGNORECASE)

# Variables of the calling environment that builds and tests must not get.
_LEFT_OUT = {
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LD_LIBRARY_PATH",
    "LD_RUN_PATH",
}


def neutral_env() -> dict[str, str]:
    """This process's environment without the variables _LEFT_OUT.

    The language is fixed, because the tool looks for texts in the output of commands.
    """
    env = {key: value for key, value in os.environ.items() if key not in _LEFT_OUT}
    return {**env, "LC_ALL": "C.UTF-8"}


def clean_env(project: Project, **extra: str) -> dict[str, str]:
    """The neutral environment without the project's own variables for imports and builds, plus
    `extra`.
    """
    env = neutral_env()
    for name in ("LOAD", "PREBUILT"):
        env.pop(project.variable(name), None)
    return {**env, **extra}


def output_of(*command: str, cwd: Path | None = None) -> str | None:
    """The standard output of a command; None if the command does not start, or fails."""
    try:
        process = subprocess.run(
            command, cwd=cwd, env=neutral_env(), capture_output=True, text=True
        )
    except OSError:
        return None
    return None if process.returncode else process.stdout


def redacted(text: str) -> str:
    """The text without credentials in URLs, without tokens, and without this process's secrets.

    The secrets are the values of variables such as TWINE_PASSWORD, and the passwords in
    URLs that variables hold, if they have at least 6 characters.
    """
    secrets = {value for name, value in os.environ.items() if SECRET_NAMES.search(name)}
    for value in os.environ.values():
        if "://" in value:
            passwords = [part.partition(":")[2] for part in CREDENTIALS.findall(value)]
            secrets |= {*passwords, *map(unquote, passwords)}
    for secret in sorted((value for value in secrets if len(value) > 5), key=len, reverse=True):
        text = text.replace(secret, "***")
    return TOKENS.sub("***", CREDENTIALS.sub("***", text))


def is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return FULL in str(error)


def explain(error: BaseException, folder: Path) -> str:
    """An error's message without secrets; for a full disk, a text with the folder and a remedy.

    `folder` is where the disk is full if the error names no file.
    """
    if is_disk_full(error):
        return redacted(_explain_full_disk(error, folder))
    if isinstance(error, (ReleaseError, BuildError)):
        return redacted(str(error))
    return redacted(f"{type(error).__name__}: {error}")


def _explain_full_disk(error: BaseException, folder: Path) -> str:
    file = getattr(error, "filename", None)
    place = Path(file or folder)
    while not place.is_dir():
        place = place.parent
    if file:
        cause = f" for {file}"
    else:
        cause = "" if isinstance(error, OSError) else f" ({error})"
    megabytes = shutil.disk_usage(place).free / 1e6
    return (
        f"no space left on device{cause}: {megabytes:.0f} MB are free in {place}; "
        "free some and run the same again: what is finished is kept"
    )


class CommandFailed(ReleaseError):
    """A command failed; `log_end` has the last lines of its log."""

    def __init__(self, message: str, log_end: str) -> None:
        super().__init__(message)
        self.log_end = log_end


class Log(AbstractContextManager["Log"]):
    """The log file of one step, which gets every line without secrets."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1, errors="replace")
        self._failure: OSError | None = None  # why the output of a command could not be written

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: str) -> None:
        self._file.write(redacted(line.rstrip("\n")) + "\n")

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        remedy: str = "",
    ) -> None:
        """Runs a command to its end, by default in the checkout, with its output in the log.

        Raises CommandFailed if the exit code is not 0, ReleaseError if the command does not
        start, and OSError if the log cannot be written. `remedy` ends the texts of
        ReleaseError, and of CommandFailed unless the log's end reports a full disk.
        """
        arguments = [str(argument) for argument in command]
        self.write(f"$ {shlex.join(arguments)}")
        try:
            process = subprocess.Popen(
                arguments,
                cwd=cwd or self.settings.repo,
                env=env or clean_env(self.settings.project),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                close_fds=False,  # see `processes`
            )
        except OSError as error:
            message = f"{arguments[0]} does not start: {error.strerror}"
            raise ReleaseError(_with_remedy(message, remedy)) from error
        copier = threading.Thread(target=self._copy, args=(process.stdout,), daemon=True)
        copier.start()
        code = process.wait()
        copier.join(PATIENCE)  # a daemon of the command may keep the pipe open
        if self._failure is not None:
            raise self._failure
        if code:
            raise self._failure_of(arguments, code, remedy)

    def _failure_of(self, arguments: Sequence[str], code: int, remedy: str) -> CommandFailed:
        short = " ".join([Path(arguments[0]).name, *arguments[1:4]])
        message = f"`{short} ...` ended with exit code {code}"
        log_end = self.tail()
        if said := telling_line(self._said_by_the_command()):
            message += f": {said}"
        if FULL in log_end:
            return CommandFailed(f"{message}: {FULL}", log_end)
        return CommandFailed(_with_remedy(message, remedy), log_end)

    def _said_by_the_command(self) -> list[str]:
        """The lines of the log behind the last command in it."""
        self._file.flush()
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        begins = (index for index in reversed(range(len(lines))) if lines[index].startswith("$ "))
        return lines[next(begins, -1) + 1 :]

    def _copy(self, output: IO[str]) -> None:
        for line in output:  # goes on after an error, as a full pipe would stop the command
            try:
                self.write(line)
            except ValueError:  # the log was closed
                return
            except OSError as error:
                self._failure = error

    def tail(self, lines: int = TAIL) -> str:
        self._file.flush()
        content = self.path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(content.splitlines()[-lines:])


def telling_line(lines: Sequence[str]) -> str:
    """The line that says best why a command failed, shortened; "" if it said nothing.

    It is a compiler's first error, else the last error that names itself, else the last line.
    """
    compiler = (line for line in lines if _ERROR_OF_COMPILER.match(line))
    named = (line for line in reversed(lines) if _NAMED_ERROR.match(line))
    last = (line for line in reversed(lines) if line.strip())
    line = next(compiler, None) or next(named, None) or next(last, "")
    return line.strip()[:_MAX_LINE]


def _with_remedy(message: str, remedy: str) -> str:
    return f"{message}. {remedy}" if remedy else message

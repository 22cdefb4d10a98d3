"""The two installers, pip and conda: how each installs, reinstalls and removes in an environment.

Each method gives a command for a shell. Names and versions in it are quoted already. Only
`by_installer` and `by_conda` know which kinds the commands of conda are of.
"""

from __future__ import annotations

import os

from ..project import Record
from ..records import Environment, Fix
from ..text import quoted
from .kinds import Kind, command_alone, command_in_words


class Pip(Record):
    """pip, or uv where pip is missing, which takes the same options."""

    environment: Environment

    def _start(self, action: str) -> str:
        environment = self.environment
        python = "python" if environment.is_active else quoted(environment.python)
        if self.environment.has_pip:
            return f"{python} -m pip {action}"
        return f"uv pip {action} --python {python}"

    def install(self, *arguments: str) -> str:
        """Install what is missing; other arguments are options."""
        return " ".join(filter(None, (self._start("install"), *arguments)))

    def reinstall(self, *arguments: str) -> str:
        """Install all files again, and leave what it requires as it is."""
        return self.install("--force-reinstall --no-deps", *arguments)

    def compile(self, *arguments: str) -> str:
        """Compile with what is installed here, and install. pip's cache may hold what was compiled
        for another torch."""
        return self.reinstall("--no-build-isolation --no-cache-dir", *arguments)

    def remove(self, name: str) -> str:
        return f"{self._start('uninstall')} {name}"

    def remove_at_once(self, names: str) -> str:
        """Remove without a question, as the first of two commands on one line."""
        return self.remove(f"-y {names}" if self.environment.has_pip else names)


class Conda(Record):
    """conda, which installs into the active environment unless its folder is named."""

    environment: Environment

    def _start(self, action: str) -> str:
        prefix = self.environment.prefix
        active = os.environ.get("CONDA_PREFIX", "")
        # An empty path would stand for the working folder, which may be gone.
        same = bool(active) and os.path.realpath(active) == os.path.realpath(prefix)
        is_active = not prefix or same
        return f"conda {action}" if is_active else f"conda {action} -p {quoted(prefix)}"

    def install(self, *arguments: str) -> str:
        """Install what is missing; other arguments are options."""
        return " ".join(filter(None, (self._start("install"), *arguments)))

    def reinstall(self, *arguments: str) -> str:
        """Install all files again."""
        return self.install("--force-reinstall", *arguments)

    def remove(self, name: str) -> str:
        """Remove a package, and leave those that require it as they are."""
        return f"{self._start('remove')} --force {name}"


def by_installer(environment: Environment, kind: Kind, *, pip: str, conda: str) -> Fix:
    """The command of the environment's installer. `kind` is that of pip's."""
    return by_conda(conda) if environment.kind == "conda" else command_alone(kind, pip)


def by_conda(command: str, words: str = "{command}") -> Fix:
    """A command of conda's, in the words of the fix."""
    is_again = " --force-reinstall " in command
    kind = Kind.REINSTALL_BY_CONDA if is_again else Kind.INSTALL_BY_CONDA
    return command_in_words(kind, words, command)

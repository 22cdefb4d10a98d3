"""The machine of a job: its folders, and programs on PATH that call back to this process.

Each stand-in of a program is a file that sends its arguments, folder and variables through a socket
and ends as it is told. What a program does is therefore written in `programs`, in one language, and
can look at everything that the rehearsal knows.
"""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .workflow import Job

_CLIENT = """\
#!{python} -IS
import json, os, socket, sys
variables = dict(os.environ)
message = [{machine!r}, sys.argv[0], sys.argv[1:], os.getcwd(), variables]
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    connection.sendall(json.dumps(message).encode())
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile("rb") as answer:
        code, output = json.load(answer)
sys.stdout.write(output)
sys.exit(code)
"""
#: Programs that are what they seem: a stand-in of these names would prove nothing.
REAL = ("bash", "env", "jq", "python3", "sh", "tar")


class Refused(Exception):
    """A stand-in was called in a way that the real thing would refuse, or that nobody means."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a program. `program` is a path in the checkout, or a name on PATH."""

    machine: Machine
    program: str
    arguments: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]

    @property
    def words(self) -> tuple[str, ...]:
        return (self.program, *self.arguments)

    def __str__(self) -> str:
        return " ".join(self.words)

    def needs_variable(self, name: str, value: str) -> None:
        """Raises Refused if a variable has not this value."""
        if self.env.get(name) != value:
            raise Refused(f"{self}: {name} is {self.env.get(name)!r}, needs {value!r}")

    def needs_permission(self, scope: str, level: str) -> None:
        """Raises Refused if the job's token may not do this."""
        permissions = self.machine.job.permissions
        if permissions.get(scope) not in (level, "write"):
            raise Refused(f"{self}: {self.machine.job.name} has no permission `{scope}: {level}`")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a program ended."""

    code: int = 0
    output: str = ""


Responder = Callable[[Call], Answer]


@dataclass(kw_only=True)
class Machine:
    """The machine of one job: fresh folders, and what the job's steps have put on it."""

    job: Job
    name: str
    container: str
    folder: Path
    switchboard: Switchboard
    #: The version of the `python` that a step has set up.
    python: str = ""
    #: Whether git may push to GitHub.
    has_git_login: bool = False
    #: What was installed into each environment, by its folder in the checkout.
    environments: dict[str, set[str]] = field(default_factory=dict)
    #: The wheels that were installed into each of them.
    wheels: dict[str, list[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in (self.workspace, self.home, self.programs, self.temporary):
            path.mkdir(parents=True)
        for name in REAL:
            if path_of_real := shutil.which(name):
                (self.programs / name).symlink_to(path_of_real)

    @property
    def workspace(self) -> Path:
        return self.folder / "work"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def path_variable(self) -> str:
        return f"{self.programs}:/usr/bin:/bin"

    def provide(self, name: str) -> None:
        """Puts the stand-in of a program on PATH, or into the checkout if the name is a path."""
        path = self.workspace / name if "/" in name else self.programs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(
            _CLIENT.format(
                python=sys.executable, machine=self.name, address=self.switchboard.address
            )
        )
        path.chmod(0o755)

    def has_program(self, name: str) -> bool:
        return (self.workspace / name if "/" in name else self.programs / name).exists()

    def name_of_program(self, started_as: str, folder: str) -> str:
        """A path in the checkout, or the name of a program on PATH."""
        path = Path(os.path.normpath(Path(folder, started_as)))
        if path.is_relative_to(self.workspace):
            return path.relative_to(self.workspace).as_posix()
        return path.name


class Switchboard:
    """Answers the calls of all machines' programs, one at a time."""

    def __init__(self, address: str, answer: Responder) -> None:
        self.address = address
        self._answer = answer
        self._machines: dict[str, Machine] = {}

    def add(self, machine: Machine) -> None:
        self._machines[machine.name] = machine

    def respond(self, message: bytes) -> bytes:
        name, started_as, arguments, folder, env = json.loads(message)
        machine = self._machines[name]
        call = Call(
            machine=machine,
            program=machine.name_of_program(started_as, folder),
            arguments=tuple(arguments),
            folder=Path(folder),
            env=env,
        )
        answer = self._answer(call)
        return json.dumps([answer.code, answer.output]).encode()


@contextmanager
def open_switchboard(answer: Responder) -> Iterator[Switchboard]:
    """A switchboard that listens until the block ends."""
    # In a short folder, as the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir="/tmp") as folder:
        switchboard = Switchboard(str(Path(folder, "calls")), answer)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(switchboard.respond(self.rfile.read()))

        with socketserver.UnixStreamServer(switchboard.address, Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            try:
                yield switchboard
            finally:
                server.shutdown()


def run_real(call: Call, program: str, arguments: Sequence[str]) -> Answer:
    """Runs the real program of a call, found outside of the machine's stand-ins."""
    real = shutil.which(program, path="/usr/bin:/bin:/usr/local/bin")
    if real is None:
        raise Refused(f"{call}: {program} is not on this machine; install it")
    result = subprocess.run(
        [real, *arguments], cwd=call.folder, env=dict(call.env), capture_output=True, text=True
    )
    return Answer(code=result.returncode, output=result.stdout)

"""Processes of Python: clean ones, and ones that are forked after the import of torch.

An import of torch takes seconds, a fork of a process that has imported it a tenth of one. So a
test forks wherever it does not matter who imported torch first.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LIMIT = 300  # seconds, of one process

# What steers the loader or a build. The prefixes are those of the small clients.
_STEERING = ("CC", "CXX", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "CUDA_PATH", "CUDACXX", "DEBUG")
_STEERING += ("FORCE_CUDA", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR")
_PREFIXES = ("PYTHON", "TINY_", "BARE_")

# Imports the modules of its arguments, then reads tasks line by line, and answers each with the
# exit code of its process.
_SERVER = """
import importlib, json, os, signal, sys, traceback

for name in sys.argv[1:]:
    importlib.import_module(name)

def run(task):
    signal.alarm(task["limit"])
    for number, path in enumerate(task["output"], 1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    os.dup2(os.open(task["input"], os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(task["env"])
    os.chdir(task["cwd"])
    sys.path[:0] = ["", *filter(None, task["env"].get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[:] = ["-c", *task["arguments"]]
    try:
        exec(compile(task["code"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return 1 if isinstance(error.code, str) else error.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = run(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


# As Python has them while it imports the package of `-m`.
_MODULE = """
import runpy, sys

sys.orig_argv[:] = [sys.executable, "-m", *sys.argv[1:]]
name = sys.argv.pop(1)
sys.argv[0] = "-m"
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""
_PROGRAM = """
import os, runpy, sys

sys.argv[:] = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without what steers the loader or a build, then `changes`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_PREFIXES) and name not in _STEERING
    }
    return {**kept, **changes}


class Forks:
    """Runs code in processes that are forked after the import of some modules."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._output = [folder / "stdout", folder / "stderr"]
        self._input = folder / "stdin"

    def run(
        self,
        code: str,
        *arguments: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Like `python -c CODE` in `cwd` with this environment, by default a clean one; `text` is
        on its standard input."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        for path in self._output:
            path.write_text("")
        self._input.write_text(text)
        task = {
            "code": code,
            "arguments": arguments,
            "cwd": str(cwd),
            "env": clean_environment() if env is None else env,
            "output": [str(path) for path in self._output],
            "input": str(self._input),
            "limit": LIMIT,
        }
        self._server.stdin.write(json.dumps(task) + "\n")
        self._server.stdin.flush()
        exit_code = int(self._server.stdout.readline())
        stdout, stderr = (path.read_text(errors="replace") for path in self._output)
        return subprocess.CompletedProcess(["-c", code], exit_code, stdout, stderr)

    def module(
        self,
        name: str,
        *arguments: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Like `python -m NAME` with these arguments."""
        return self.run(_MODULE, name, *arguments, cwd=cwd, env=env, text=text)

    def program(
        self, path: Path, *arguments: str, cwd: Path, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Like `python PATH` with these arguments."""
        return self.run(_PROGRAM, str(path), *arguments, cwd=cwd, env=env)


@contextlib.contextmanager
def forks(
    *modules: str, env: dict[str, str] | None = None, options: tuple[str, ...] = ()
) -> Iterator[Forks]:
    """Runs code in processes that have imported these modules, which may not start threads.

    `env` is the environment of their import, by default a clean one, and `options` are Python's.
    """
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [sys.executable, "-P", *options, "-c", _SERVER, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment() if env is None else env,
        )
        with server:
            yield Forks(server, Path(folder))
            assert server.stdin is not None
            server.stdin.close()

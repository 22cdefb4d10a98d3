"""No password or token reaches a file that a run leaves, however it ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_checkout import ENVIRONMENT
from small_clients import REPO
from test_run import world

from torchship.release.run.shell import CommandFailed, Log, explain, redacted

__all__ = ["world"]

SECRETS = {
    "PIP_INDEX_URL": "https://me:pa55word@example.org/simple",
    "PIP_EXTRA_INDEX_URL": "https://me:p%40ss%2Fw0rd@example.org/simple",
    "TWINE_PASSWORD": "twine-secret",
    "ANACONDA_API_TOKEN": "anaconda-secret",
}
SAYS = "; ".join(f'echo "{name} is ${name}"' for name in SECRETS)
LEAKS = ("pa55word", "p%40ss", "p@ss/w0rd", "twine-secret", "anaconda-secret", "t0ken")


@pytest.fixture(autouse=True)
def secrets(monkeypatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def leaks(*folders: Path) -> list[str]:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    contents = {path: path.read_text(errors="replace") for path in files}
    return [
        f"{path}: {word}" for path, content in contents.items() for word in LEAKS if word in content
    ]


@pytest.mark.parametrize(
    "content",
    [
        "looking in https://me:pa55word@example.org/simple, then elsewhere",
        "https://me:a@b@pa55word@example.org",
        "'https://pa55word@example.org'",
        "Authorization: twine-secret",
        "the password is p@ss/w0rd",
        "https://conda.anaconda.org/t/t0ken-of-mine/channel/noarch",
        "pypi-t0kenAgEIcHlwaS5vcmcCJDU",
        "ghp_t0kenABCDEFGHIJKLMNOPQR",
    ],
)
def test_every_kind_of_secret_is_removed(content) -> None:
    assert not [word for word in LEAKS if word in redacted(content)], redacted(content)


def test_other_text_stays() -> None:
    content = "https://example.org/a@b git@github.com:x.git user@host -t/tmp/x/ pypi-name"
    assert redacted(content) == content


def test_a_run_leaves_no_secret(world, monkeypatch) -> None:
    """Below dist/ and build/logs/: in logs, the manifest and the report, of failed steps too."""
    inner = world._step

    def telling(step, cell):
        do = inner(step, cell)

        def run(context):
            context.log.run(["sh", "-c", SAYS])
            if step == "venv":
                context.log.run(["sh", "-c", f"{SAYS}; exit 3"], remedy=SECRETS["PIP_INDEX_URL"])
            return do(context)

        return run

    monkeypatch.setattr(world, "_step", telling)
    channel = "https://me:pa55word@example.org/t/t0ken/channel"
    monkeypatch.setattr("torchship.release.run.release.base_channel", lambda *_: channel)
    assert world.run("stable210-cpu") == 1
    assert leaks(world.dist, world.root / "build" / "logs") == []
    assert "me:" not in world.output
    assert "TWINE_PASSWORD is ***" in (world.dist / "logs" / "stable210-cpu.log").read_text()


def test_an_error_carries_no_secret() -> None:
    assert redacted(SECRETS["TWINE_PASSWORD"]) == "***"
    index = SECRETS["PIP_INDEX_URL"]
    assert "pa55word" not in explain(ValueError(index), REPO)
    assert "pa55word" not in explain(OSError(errno.ENOSPC, f"No space left: {index}", index), REPO)


def test_a_killed_run_leaves_no_secret(tmp_path) -> None:
    code = (
        "import pathlib\n"
        "from torchship.release.matrix.load import load_settings\n"
        "from torchship.release.run.shell import Log\n"
        f"path = pathlib.Path({str(tmp_path / 'logs' / 'x.log')!r})\n"
        "with Log(path, load_settings()) as log:\n"
        f"    log.run(['sh', '-c', '''{SAYS}; echo said; sleep 60'''])"
    )
    env = ENVIRONMENT
    path = tmp_path / "logs" / "x.log"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=env, start_new_session=True) as process:
        end = time.monotonic() + 60
        while not (path.is_file() and "said" in path.read_text().splitlines()):
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert leaks(tmp_path / "logs") == []
        os.killpg(process.pid, signal.SIGKILL)


# A module `venv`, whose environments have a Python that shows what it is told to install from.
VENV = """
import os, pathlib, sys
python = pathlib.Path(sys.argv[1], "bin", "python")
python.parent.mkdir(parents=True)
python.write_text(os.environ["STUB"])
python.chmod(0o755)
"""


def test_the_log_of_the_tools_environment_has_no_secret(tmp_path) -> None:
    (tmp_path / "build_matrix.yaml").touch()
    (tmp_path / "venv.py").write_text(VENV)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "STUB": f"#!/bin/sh\n{SAYS}\nexit 1\n"}
    program = REPO / "torchship" / "release" / "launch" / "run_module.py"
    process = subprocess.run(
        [sys.executable, program, "torchship.release.start", "torchship.release", "--list"],
        env={**env, "RELEASE_PROJECT": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2, process.stderr
    log = tmp_path / "build" / "logs" / "tools.log"
    assert "PIP_INDEX_URL is https://***@example.org/simple" in log.read_text()
    assert not [word for word in LEAKS[:3] if word in log.read_text() + process.stderr]


def test_a_daemon_that_keeps_the_output_open_holds_nothing_up(
    tmp_path, monkeypatch, settings
) -> None:
    monkeypatch.setattr("torchship.release.run.shell.PATIENCE", 0.2)
    begun = time.monotonic()
    path = tmp_path / "x.log"
    with Log(path, settings) as log, pytest.raises(CommandFailed, match="exit code 4"):
        log.run(["sh", "-c", "echo said; sleep 8 & exit 4"])
    assert time.monotonic() - begun < 6
    assert "said" in (tmp_path / "x.log").read_text()

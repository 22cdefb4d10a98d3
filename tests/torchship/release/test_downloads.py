"""A download whose hash is wrong is fetched again once; other failures are final."""

from __future__ import annotations

import hashlib
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest
from small_client import PROJECT
from small_wheels import make_wheel

from torchship.release import ReleaseError
from torchship.release.paths import tool
from torchship.release.run.shell import Log
from torchship.release.run.tasks import Context
from torchship.release.steps.compile import downloads
from torchship.release.steps.conda import packages as conda_steps

NAME = "tiny_client-0.1.0-py3-none-any.whl"


class Index(BaseHTTPRequestHandler):
    """An index with one wheel, which is served wrong as often as it is told to."""

    def __init__(self, state: dict, *arguments) -> None:
        self.state = state
        super().__init__(*arguments)

    def do_GET(self) -> None:
        if self.path.endswith(".whl"):
            self.state["fetched"] += 1
            wrong = self.state["fetched"] <= self.state["wrong"]
            self._answer(self.state["other" if wrong else "wheel"], "application/zip")
        elif self.path.startswith("/simple/tiny-client/"):
            sha256 = hashlib.sha256(self.state["wheel"]).hexdigest()
            self._answer(f'<a href="{NAME}#sha256={sha256}">{NAME}</a>'.encode(), "text/html")
        else:
            self.send_error(404)

    def _answer(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The state of a running index; `url` is its address."""
    if not Path(tool("uv")).exists():
        pytest.skip("uv is not installed")
    good = make_wheel(tmp_path / "good", {}, tag="py3-none-any").read_bytes()
    other = make_wheel(tmp_path / "bad", {"evil.so": b"evil"}, tag="py3-none-any").read_bytes()
    state = {"wheel": good, "other": other, "wrong": 0, "fetched": 0}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, state))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state["url"] = f"http://127.0.0.1:{server.server_port}/simple"
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield state
    server.shutdown()


def install(program: str, state: dict, log, target: Path) -> None:
    command = [
        "install",
        "--no-deps",
        "--target",
        target,
        "--index-url",
        state["url"],
        PROJECT.distribution,
    ]
    if program == "uv":
        downloads.uv(log, ["pip", *command, "--python-version", "3.11"])
    else:
        downloads.pip(log, command)


@pytest.mark.parametrize("program", ["uv", "pip"])
@pytest.mark.slow
def test_a_wrong_hash_is_fetched_again(program, index, log, tmp_path) -> None:
    index["wrong"] = 1
    install(program, index, log, tmp_path / "site")
    assert (tmp_path / "site" / "tiny_client" / "__init__.py").exists()
    assert not (tmp_path / "site" / "tiny_client" / "lib").exists()
    assert index["fetched"] >= 2


@pytest.mark.parametrize("program", ["uv", "pip"])
@pytest.mark.slow
def test_a_hash_that_is_wrong_twice_fails(program, index, log, tmp_path) -> None:
    index["wrong"] = 1000
    with pytest.raises(ReleaseError, match="wrong twice"):
        install(program, index, log, tmp_path / "site")
    assert not (tmp_path / "site" / "tiny_client").exists()


def test_another_failure_is_not_tried_again(index, log, tmp_path) -> None:
    with pytest.raises(ReleaseError) as error:
        downloads.uv(
            log, ["pip", "install", "--target", tmp_path, "--index-url", index["url"], "x"]
        )
    assert "wrong twice" not in str(error.value)
    assert "fetching again" not in log.path.read_text()


def test_passwords_of_an_index_reach_no_log(index, log, monkeypatch) -> None:
    """They are not in the command, and what a program prints of them is removed."""
    secret = index["url"].replace("http://", "http://me:pa55word@")
    monkeypatch.setenv("PIP_INDEX_URL", secret)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", secret)
    with log, pytest.raises(ReleaseError):
        downloads.uv(log, ["pip", "install", "--target", log.path.parent / "x", "nothing"])
    with Log(log.path.with_name("echo.log"), log.settings) as echo:
        echo.run(["echo", f"looking in {secret}"])
        assert "pa55word" not in echo.tail()
        echo.write(f"then in {secret}")
    logs = [path.read_text() for path in log.path.parent.glob("*.log")]
    assert len(logs) == 2 and not any("pa55word" in content for content in logs)
    assert "http://***@127.0.0.1" in logs[0] + logs[1]


def test_the_bootstrap_channel_gets_the_setuptools_of_the_tool(
    log, own_settings, monkeypatch
) -> None:
    """Every package names the setuptools that made it: with the newest one, bytes would change."""
    arguments: list[object] = []
    monkeypatch.setattr(conda_steps, "pip", lambda _, command: arguments.extend(command))
    step = conda_steps.DownloadWheels(name="wheelhouse", python="python3", python_minor="3.11")
    step.run(Context(log, own_settings))
    named = [str(word) for word in arguments if str(word).startswith("setuptools")]
    assert named == [f"setuptools=={version('setuptools')}"]

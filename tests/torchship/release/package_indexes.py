"""A package index on this machine that takes uploads, and pip, which installs from it by name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def serve_index(folder: Path) -> Iterator[str]:
    """The address of an index of a new folder, which gets what is uploaded."""
    import pypiserver

    folder.mkdir()
    app = pypiserver.app(roots=[folder], authenticate=[], password_file=".", disable_fallback=True)
    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def account(index: str) -> dict[str, str]:
    """The variables by which twine uploads to an index."""
    facts = {"REPOSITORY_URL": f"{index}/", "USERNAME": "me", "PASSWORD": "secret"}
    return {f"TWINE_{name}": value for name, value in facts.items()}


def pip_install(distribution: str, index: str, site: Path) -> None:
    """Installs a distribution into the folder `site`, without what it requires."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir"]
    command = [*pip, "--index-url", f"{index}/simple/", "--target", site, distribution]
    # Settings of this machine could name other indexes.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    process = subprocess.run(command, env=env, cwd=site.parent, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr

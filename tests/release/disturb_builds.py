"""Disturbs runs of the release tool; the same command afterwards must make the same bytes.

    python tests/release/disturb_builds.py [KIND...] --work FOLDER [--seed N] [--cells [NAME...]]

A clone of this commit is built once undisturbed (or `--like` names a checkout of it in which the
same command ended well), then again and again from nothing, and each time something happens
(`KINDS`, all without KIND). `--cells` without a name is the whole matrix of this platform. Moments
are drawn by the seed. Two things count: what the disturbed run said, and whether the command, given
again, made every file of `dist` with the same bytes, but those that hold times: logs, manifest,
report, and the index of the channel. Only root can mount a small disk and a read-only checkout;
`--faketime` names the library of Debian's libfaketime.

The results are added to benchmarks/results/disturbances.json and shown in docs/ship/release.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
RESULTS = REPO / "benchmarks" / "results" / "disturbances.json"
PAGE = REPO / "docs" / "ship" / "release.md"
BEGIN, END = "<!-- disturbances:begin -->\n", "<!-- disturbances:end -->\n"

DISK = 24_000_000_000  # bytes of the small disk; all that a run of three cells makes fits
CHAIN = 20  # disturbances in a row, the same command each time, before the bytes are compared
NETWORK = 60  # seconds until there is none
DAYS = 400  # by which a clock is wrong
# What nobody should have to read.
NO_WORD = re.compile(r"Traceback|^\w*(Error|Exception)\b")
WORD = re.compile(r"error: |failed +|.*: No space left on device|stopped|waiting")
TIMED = {"manifest.json", "report.html"}  # they hold durations
# The index of a channel holds the moment at which it was written.
DATED = re.compile(r"dist/channel/[\w-]+/(repodata[._]|shards/)")

Row = dict[str, Any]


class Checkout:
    """A clone of this commit, in which one command is given."""

    def __init__(self, root: Path, cells: Sequence[str]) -> None:
        self.root = root
        self.command = ["scripts/build_all.sh", *cells, "--channel", "bootstrap"]
        subprocess.run(["git", "clone", "--quiet", REPO, root], check=True)
        head = ["git", "-C", root, "rev-parse", "HEAD"]
        self.commit = subprocess.run(
            head, check=True, capture_output=True, text=True
        ).stdout.strip()

    def start(self, said: str = "said", **env: str) -> subprocess.Popen[bytes]:
        """The command, with its output in a file beside the checkout."""
        with self.beside(said).open("wb") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            return subprocess.Popen(self.command, cwd=self.root, env=os.environ | env, **streams)

    def beside(self, name: str) -> Path:
        """A file that is not on the checkout's disk."""
        return self.root.parents[1] / name

    def words(self, said: str = "said") -> str:
        """Why a run ended, in its own words."""
        lines = [line.strip() for line in self.beside(said).read_text().splitlines()]
        if any(map(NO_WORD.match, lines)):
            return "NO CLEAR WORD: " + " | ".join(lines[-3:])
        telling = [line for line in lines if WORD.match(line)] or [*filter(None, lines)][-1:]
        return "".join(telling[:1]).replace(str(self.root), "CHECKOUT")[:300]

    def reset(self) -> None:
        """As after the clone, but for the environment of the tool itself."""
        shutil.rmtree(self.root / "dist", ignore_errors=True)
        for path in (self.root / "build").iterdir():
            if path.is_file():
                path.unlink()
            elif path.name != "tools":
                shutil.rmtree(path)


def steps(root: Path) -> int:
    """How many steps are finished in a checkout."""
    return len(list((root / "build" / "stamps").glob("*.json")))


def hashes(root: Path) -> dict[str, str]:
    """Every file of a checkout that is handed out."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / "dist").rglob("*"))
        if path.is_file() and path.name not in TIMED and path.parent.name != "logs"
    }


class Disturber:
    """Disturbs one checkout; `rows` tell what was seen."""

    def __init__(self, checkout: Checkout, args: argparse.Namespace) -> None:
        self.checkout, self.random = checkout, random.Random(args.seed)
        self.faketime, like = args.faketime, args.like
        self.rows: list[Row] = []
        self.store: Callable[[], None] = list  # does nothing
        if like is None and checkout.start().wait():
            sys.exit(f"the undisturbed run failed: {checkout.words()}")
        root = checkout.root if like is None else like
        manifest = json.loads((root / "dist" / "manifest.json").read_text(encoding="utf-8"))
        if manifest["commit"] != checkout.commit:
            sys.exit(f"{root} holds a build of {manifest['commit']}; build {checkout.commit} there")
        self.seconds = args.seconds or manifest["seconds"]
        self.wanted, self.total = hashes(root), steps(root)
        print(f"undisturbed: {self.seconds:.0f} s, {self.total} steps", *self.wanted, sep="\n")
        if like is None:
            checkout.reset()

    def chain(
        self, kind: str, count: int, disturb: Callable[[subprocess.Popen[bytes]], tuple[int, str]]
    ) -> None:
        """Disturbs a run `count` times at random moments, at most CHAIN times in a row."""
        row: list[Row] = []
        while count:
            finished = steps(self.checkout.root)
            left = self.seconds * (1 - finished / (self.total + 1))
            process, after = self.checkout.start(), self.random.uniform(0.02, 0.8) * left
            with suppress(subprocess.TimeoutExpired):
                process.wait(after)
            if process.poll() is None:
                code, said = disturb(process)
                moment = {"after": round(after, 1), "steps": [finished, steps(self.checkout.root)]}
                row.append(self.seen(kind, code, said, **moment))
                count -= 1
            # Else it was quicker than the undisturbed run, and this moment does not count.
            if process.returncode == 0 or len(row) == CHAIN or not count:
                self.again(row)
                row = []

    def seen(self, kind: str, code: int, said: str, **more: Any) -> Row:
        self.rows.append({"kind": kind, "code": code, "said": said, **more})
        print(json.dumps(self.rows[-1]), flush=True)
        return self.rows[-1]

    def again(self, rows: Sequence[Row]) -> None:
        """Gives the same command, undisturbed, compares, and begins anew."""
        code = self.checkout.start().wait()
        made = hashes(self.checkout.root)
        wrong = sorted(k for k in {*made, *self.wanted} if made.get(k) != self.wanted.get(k))
        for row in rows:
            row |= {"again": code, "other": wrong}
        print(f"again: {code}, other files: {wrong}", flush=True)
        if code:
            print(self.checkout.beside("said").read_text(), flush=True)
        self.store()
        self.checkout.reset()

    # What happens; KINDS says what each is called.

    def kill(self) -> None:
        self.chain("kill -9", 20, self._killed)

    def _killed(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        os.kill(process.pid, signal.SIGKILL)  # the tool alone: what it started goes on
        return process.wait(), ""

    def disk(self) -> None:
        self.chain("full disk", 10, self._filled)

    def _filled(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """A file takes what is free, and what becomes free, until the run ends."""
        ballast = self.checkout.root.parent / "ballast"
        with ballast.open("wb") as file:
            size = 0
            while process.poll() is None:
                free = os.statvfs(ballast)
                part = free.f_bfree * free.f_frsize
                while part >= free.f_frsize:
                    try:
                        os.posix_fallocate(file.fileno(), size, part)
                        size += part
                    except OSError:
                        part //= 2
                time.sleep(0.2)
        ballast.unlink()
        return process.wait(), self.checkout.words()

    def clock(self) -> None:
        """A clock that is wrong during the run, and right again afterwards."""
        for days in (-DAYS, DAYS):
            env = {"LD_PRELOAD": self.faketime, "FAKETIME": f"{days:+}d"}
            code = self.checkout.start(**env).wait()
            self.again([self.seen(f"clock {days:+} days", code, self.checkout.words())])

    def network(self) -> None:
        with one_way_out() as (address, cut):
            cache = str(self.checkout.beside("cache"))
            process = self.checkout.start(
                HTTPS_PROXY=address, HTTP_PROXY=address, UV_CACHE_DIR=cache, PIP_NO_CACHE_DIR="1"
            )
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(NETWORK, self.random.uniform(0.02, 0.3) * self.seconds))
            cut()
            code = process.wait()
        shutil.rmtree(cache, ignore_errors=True)
        self.again([self.seen("no network", code, self.checkout.words())])

    def second(self) -> None:
        first = self.checkout.start()
        time.sleep(self.random.uniform(0.05, 0.5) * self.seconds)
        code = self.checkout.start("second").wait()
        row = self.seen("second run", code, self.checkout.words("second"))
        if first.wait():
            sys.exit(f"the first of two runs failed: {self.checkout.words()}")
        self.again([row])

    def readonly(self) -> None:
        """Before the first run: not even the tool's environment is there."""
        root = self.checkout.root
        (root / "build").rename(aside := root.with_name("build-aside"))
        subprocess.run(["mount", "--bind", root, root], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        code = self.checkout.start().wait()
        subprocess.run(["umount", root], check=True)
        aside.rename(root / "build")
        self.again([self.seen("read-only checkout", code, self.checkout.words())])


KINDS = ("kill", "disk", "clock", "network", "second", "readonly")


@contextmanager
def one_way_out() -> Iterator[tuple[str, Callable[[], None]]]:
    """A proxy, and what cuts every connection through it and refuses new ones."""
    open_sockets: list[socket.socket] = []

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            host, _, port = self.rfile.readline().split()[1].decode().rpartition(":")
            while self.rfile.readline().strip():
                pass
            if server.cut:
                return
            with socket.create_connection((host, int(port))) as far:
                open_sockets.extend((self.connection, far))
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=copy, args=(far, self.connection), daemon=True)
                back.start()
                copy(self.connection, far)
                back.join()

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut() -> None:
        server.cut = True
        for one in open_sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel)
    server.cut, server.daemon_threads = False, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", cut
    server.shutdown()
    server.server_close()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of DISK bytes in place of the folder."""
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(DISK)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
        image.unlink()


def changed(row: Row) -> list[str]:
    """The files of the next run that are not those of an undisturbed one."""
    return [name for name in row["other"] if not DATED.match(name)]


def said_of(rows: Sequence[Row]) -> str:
    """What runs said, each sentence once, without numbers and paths."""
    words = [(row["said"] if row["code"] else "it ended well", row) for row in rows]
    texts = {re.sub(r"(?<![\w.])[\d.]+|/[\w./-]+", "…", word): row for word, row in words}
    codes = sorted({row["code"] for row in rows})
    said = " / ".join(text.replace("|", "\\|") for text in texts if text) or "nothing"
    return f"{said} (exit code {' or '.join(map(str, codes))})"


def table(runs: Sequence[Row]) -> str:
    """The stored runs as Markdown, one line for each kind of disturbance."""
    if not runs:
        return "Nothing is stored yet.\n"
    lines = ["| what happened | times | what the run said | the same command again |\n"]
    lines.append("|---|---|---|---|\n")
    for run in runs:
        for kind in dict.fromkeys(row["kind"] for row in run["rows"]):
            rows = [row for row in run["rows"] if row["kind"] == kind]
            good = sum(row["again"] == 0 and not changed(row) for row in rows)
            again = f"the same bytes: {good} of {len(rows)}"
            cells = f"`{' '.join(run['cells'])}`" if run["cells"] else "the whole matrix"
            lines.append(f"| {kind}: {cells} | {len(rows)} | {said_of(rows)} | {again} |\n")
    lines.append("\n")
    lines += [f"- `{r['command']}`: commit {r['commit'][:12]}, {r['date']}\n" for r in runs]
    return "".join(lines)


def page(text: str, runs: Sequence[Row]) -> str:
    """The text of docs/ship/release.md with the table between its markers."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table(runs) + END + rest.partition(END)[2]


def stored() -> list[Row]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def store(run: Row) -> None:
    """Adds a run; kinds of disturbance that it repeats for the same cells take the old place."""
    runs = stored()
    kinds = {row["kind"] for row in run["rows"]}
    for old in runs:
        if old["cells"] == run["cells"]:
            old["rows"] = [row for row in old["rows"] if row["kind"] not in kinds]
    runs = [old for old in runs if old["rows"]] + [run]
    RESULTS.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), runs), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--work", type=Path, required=True, help="an empty folder, 30 GB free")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", nargs="*", default=["host"], help="none: the whole matrix")
    parser.add_argument("--like", type=Path, metavar="CHECKOUT", help="built there, undisturbed")
    text = "that an undisturbed run takes; by default what that run took"
    parser.add_argument("--seconds", type=float, help=text)
    parser.add_argument("--faketime", default="libfaketime.so.1", help="path of the library")
    args = parser.parse_args()
    kinds = args.kinds or list(KINDS)
    words = ["--cells", *args.cells] if args.cells != ["host"] else []
    command = ["python tests/release/disturb_builds.py", *args.kinds, "--work FOLDER"]
    folder = args.work / "disk"
    folder.mkdir(parents=True)
    with small_disk(folder) if "disk" in kinds else nullcontext():
        checkout = Checkout(folder / "lltm", args.cells)
        disturber = Disturber(checkout, args)
        run = {
            "command": " ".join([*command, f"--seed {args.seed}", *words]),
            "cells": args.cells,
            "commit": checkout.commit,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
            "seconds": round(disturber.seconds),
            "files": len(disturber.wanted),
            "rows": disturber.rows,
        }
        disturber.store = lambda: store(run)
        for kind in kinds:
            getattr(disturber, kind)()
        shutil.rmtree(folder / "lltm")
    return int(any(row["again"] or changed(row) for row in disturber.rows))


if __name__ == "__main__":
    sys.exit(main())

"""Disturbs runs of the release tool; the same command afterwards must make the same bytes.

    python measurements/disturb_builds.py [KIND...] --work FOLDER [--seed N] [--cells [NAME...]]

A clone of this commit is built once undisturbed (or `--like` names a checkout of it in which
the same command ended well), then again and again from nothing, and each time something
happens (`KINDS`, all without KIND). `--cells` without a name is the whole matrix of this
platform. Moments are drawn by the seed. Two things count: what the disturbed run said, and
whether the command, given again, made every file of `dist` with the same bytes, but those
that hold times: logs, manifest, report, and the index of the channel. Only root can mount a
small disk and a read-only checkout; `--faketime` names the library of Debian's libfaketime.

The results are added to measurements/results/disturbances.json.xz; docs/ship/steps.md shows
them.
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
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO))

from measurements import storage  # noqa: E402

RESULTS = storage.RESULTS / "disturbances.json.xz"
PAGE = REPO / "docs" / "ship" / "steps.md"
BEGIN = "<!-- disturbances:begin -->\n"
END = "<!-- disturbances:end -->\n"

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


@dataclass
class Disturbance:
    """One disturbed run, and what the same command made afterwards."""

    kind: str
    code: int
    """The exit code of the disturbed run."""
    message: str
    """Why the run ended, in its own words."""
    after: float | None = None
    """Seconds from the run's start to the disturbance."""
    steps: list[int] | None = None
    """How many steps were finished at the run's start, and at the disturbance."""
    next_code: int = 0
    """The exit code of the same command, given again."""
    changed_files: list[str] = field(default_factory=list)
    """The files of the next run whose bytes are not those of an undisturbed run."""

    @property
    def unexpected_files(self) -> list[str]:
        """The changed files that hold no moment of time."""
        return [name for name in self.changed_files if not DATED.match(name)]

    @property
    def is_repaired(self) -> bool:
        """Whether the same command, given again, made the same bytes."""
        return self.next_code == 0 and not self.unexpected_files


@dataclass
class Run:
    """The disturbances of one command line."""

    command: str
    cells: list[str]
    commit: str
    date: str
    machine: str
    seconds: int
    """What the undisturbed run took."""
    files: int
    rows: list[Disturbance]


class Checkout:
    """A clone of this commit, in which one command is given."""

    def __init__(self, root: Path, command: Sequence[str], commit: str) -> None:
        self.root = root
        self.command = command
        self.commit = commit

    @classmethod
    def clone(cls, root: Path, cells: Sequence[str]) -> Checkout:
        subprocess.run(["git", "clone", "--quiet", REPO, root], check=True)
        head = ["git", "-C", str(root), "rev-parse", "HEAD"]
        commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
        return cls(root, ["scripts/build_all.sh", *cells, "--channel", "bootstrap"], commit)

    def start(self, output: str = "output", **env: str) -> subprocess.Popen[bytes]:
        """The command, with its output in a file beside the checkout."""
        with self.beside(output).open("wb") as out:
            return subprocess.Popen(
                self.command,
                cwd=self.root,
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def beside(self, name: str) -> Path:
        """A file that is not on the checkout's disk."""
        return self.root.parents[1] / name

    def message(self, output: str = "output") -> str:
        """Why a run ended, in its own words."""
        lines = [line.strip() for line in self.beside(output).read_text().splitlines()]
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


def count_steps(root: Path) -> int:
    """How many steps are finished in a checkout."""
    return len(list((root / "build" / "stamps").glob("*.json")))


def hashes(root: Path) -> dict[str, str]:
    """Every file of a checkout that is handed out."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / "dist").rglob("*"))
        if path.is_file() and path.name not in TIMED and path.parent.name != "logs"
    }


def _store_nothing() -> None:
    pass


class Disturber:
    """Disturbs one checkout; `rows` tell what was seen."""

    def __init__(self, checkout: Checkout, args: argparse.Namespace) -> None:
        self.checkout = checkout
        self.random = random.Random(args.seed)
        self.faketime = args.faketime
        self.rows: list[Disturbance] = []
        self.store: Callable[[], None] = _store_nothing
        like = args.like
        if like is None and checkout.start().wait():
            sys.exit(f"the undisturbed run failed: {checkout.message()}")
        root = checkout.root if like is None else like
        manifest = json.loads((root / "dist" / "manifest.json").read_text(encoding="utf-8"))
        if manifest["commit"] != checkout.commit:
            sys.exit(f"{root} holds a build of {manifest['commit']}; build {checkout.commit} there")
        self.seconds = args.seconds or manifest["seconds"]
        self.undisturbed = hashes(root)
        self.total = count_steps(root)
        print(f"undisturbed: {self.seconds:.0f} s, {self.total} steps")
        print(*self.undisturbed, sep="\n")
        if like is None:
            checkout.reset()

    def chain(
        self, kind: str, count: int, disturb: Callable[[subprocess.Popen[bytes]], tuple[int, str]]
    ) -> None:
        """Disturbs a run `count` times at random moments, at most CHAIN times in a row."""
        row: list[Disturbance] = []
        while count:
            finished = count_steps(self.checkout.root)
            remaining = self.seconds * (1 - finished / (self.total + 1))
            process = self.checkout.start()
            after = self.random.uniform(0.02, 0.8) * remaining
            with suppress(subprocess.TimeoutExpired):
                process.wait(after)
            if process.poll() is None:
                code, message = disturb(process)
                steps = [finished, count_steps(self.checkout.root)]
                moment = round(after, 1)
                disturbance = Disturbance(kind, code, message, after=moment, steps=steps)
                row.append(self.record(disturbance))
                count -= 1
            # Else it was quicker than the undisturbed run, and this moment does not count.
            if process.returncode == 0 or len(row) == CHAIN or not count:
                self.repeat(row)
                row = []

    def record(self, disturbance: Disturbance) -> Disturbance:
        self.rows.append(disturbance)
        print(json.dumps(asdict(disturbance)), flush=True)
        return disturbance

    def repeat(self, rows: Sequence[Disturbance]) -> None:
        """Gives the same command, undisturbed, compares, and begins anew."""
        code = self.checkout.start().wait()
        repeated = hashes(self.checkout.root)
        names = {*repeated, *self.undisturbed}
        changed = sorted(n for n in names if repeated.get(n) != self.undisturbed.get(n))
        for row in rows:
            row.next_code = code
            row.changed_files = changed
        print(f"again: {code}, changed files: {changed}", flush=True)
        if code:
            print(self.checkout.beside("output").read_text(), flush=True)
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
        return process.wait(), self.checkout.message()

    def clock(self) -> None:
        """A clock that is wrong during the run, and right again afterwards."""
        for days in (-DAYS, DAYS):
            env = {"LD_PRELOAD": self.faketime, "FAKETIME": f"{days:+}d"}
            code = self.checkout.start(**env).wait()
            kind = f"clock {days:+} days"
            self.repeat([self.record(Disturbance(kind, code, self.checkout.message()))])

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
        self.repeat([self.record(Disturbance("no network", code, self.checkout.message()))])

    def second(self) -> None:
        first = self.checkout.start()
        time.sleep(self.random.uniform(0.05, 0.5) * self.seconds)
        code = self.checkout.start("second").wait()
        row = self.record(Disturbance("second run", code, self.checkout.message("second")))
        if first.wait():
            sys.exit(f"the first of two runs failed: {self.checkout.message()}")
        self.repeat([row])

    def readonly(self) -> None:
        """Before the first run: not even the tool's environment is there."""
        root = self.checkout.root
        aside = root.with_name("build-aside")
        (root / "build").rename(aside)
        subprocess.run(["mount", "--bind", root, root], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        code = self.checkout.start().wait()
        subprocess.run(["umount", root], check=True)
        aside.rename(root / "build")
        message = self.checkout.message()
        self.repeat([self.record(Disturbance("read-only checkout", code, message))])


KINDS = ("kill", "disk", "clock", "network", "second", "readonly")


class Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    is_cut = False
    """Whether new connections are refused."""


@contextmanager
def one_way_out() -> Iterator[tuple[str, Callable[[], None]]]:
    """A proxy, and what cuts every connection through it and refuses new ones."""
    open_sockets: list[socket.socket] = []

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            host, _, port = self.rfile.readline().split()[1].decode().rpartition(":")
            while self.rfile.readline().strip():
                pass
            if server.is_cut:
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
        server.is_cut = True
        for connection in open_sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    server = Proxy(("127.0.0.1", 0), Tunnel)
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


def summarise(rows: Sequence[Disturbance]) -> str:
    """What runs said, each sentence once, without numbers and paths."""
    messages = [row.message if row.code else "it ended well" for row in rows]
    sentences = dict.fromkeys(
        re.sub(r"(?<![\w.])[\d.]+|/[\w./-]+", "…", message) for message in messages
    )
    codes = sorted({row.code for row in rows})
    joined = " / ".join(sentence.replace("|", "\\|") for sentence in sentences if sentence)
    return f"{joined or 'nothing'} (exit code {' or '.join(map(str, codes))})"


def table(runs: Sequence[Run]) -> str:
    """The stored runs as Markdown, one line for each kind of disturbance."""
    if not runs:
        return "Nothing is stored yet.\n"
    lines = ["| what happened | times | what the run said | the same command again |\n"]
    lines.append("|---|---|---|---|\n")
    for run in runs:
        cells = f"`{' '.join(run.cells)}`" if run.cells else "the whole matrix"
        for kind in dict.fromkeys(row.kind for row in run.rows):
            rows = [row for row in run.rows if row.kind == kind]
            repaired = sum(row.is_repaired for row in rows)
            again = f"the same bytes: {repaired} of {len(rows)}"
            lines.append(f"| {kind}: {cells} | {len(rows)} | {summarise(rows)} | {again} |\n")
    lines.append("\n")
    lines += [f"- `{run.command}`: commit {run.commit[:12]}, {run.date}\n" for run in runs]
    return "".join(lines)


def page(content: str, runs: Sequence[Run]) -> str:
    """The content of docs/ship/steps.md with the table between its markers."""
    before, _, rest = content.partition(BEGIN)
    return before + BEGIN + table(runs) + END + rest.partition(END)[2]


def stored() -> list[Run]:
    if not RESULTS.exists():
        return []
    documents = cast("list[dict[str, Any]]", storage.load(RESULTS))
    return [
        Run(**{**document, "rows": [Disturbance(**row) for row in document["rows"]]})
        for document in documents
    ]


def store(run: Run) -> None:
    """Adds a run; kinds of disturbance that it repeats for the same cells take the old place."""
    kinds = {row.kind for row in run.rows}
    runs: list[Run] = []
    for old in stored():
        is_repeated = old.cells == run.cells
        rows = [row for row in old.rows if not (is_repeated and row.kind in kinds)]
        if rows:
            runs.append(replace(old, rows=rows))
    runs.append(run)
    storage.save([asdict(each) for each in runs], RESULTS)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), runs), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--work", type=Path, required=True, help="an empty folder, 30 GB free")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", nargs="*", default=["host"], help="none: the whole matrix")
    parser.add_argument("--like", type=Path, metavar="CHECKOUT", help="built there, undisturbed")
    help_of_seconds = "that an undisturbed run takes; by default what that run took"
    parser.add_argument("--seconds", type=float, help=help_of_seconds)
    parser.add_argument("--faketime", default="libfaketime.so.1", help="path of the library")
    args = parser.parse_args()
    kinds = args.kinds or list(KINDS)
    cells = ["--cells", *args.cells] if args.cells != ["host"] else []
    command = ["python measurements/disturb_builds.py", *args.kinds, "--work FOLDER"]
    folder = args.work / "disk"
    folder.mkdir(parents=True)
    with small_disk(folder) if "disk" in kinds else nullcontext():
        checkout = Checkout.clone(folder / "lltm", args.cells)
        disturber = Disturber(checkout, args)
        run = Run(
            command=" ".join([*command, f"--seed {args.seed}", *cells]),
            cells=args.cells,
            commit=checkout.commit,
            date=time.strftime("%Y-%m-%d", time.gmtime()),
            machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
            seconds=round(disturber.seconds),
            files=len(disturber.undisturbed),
            rows=disturber.rows,
        )
        disturber.store = partial(store, run)
        for kind in kinds:
            getattr(disturber, kind)()
        shutil.rmtree(folder / "lltm")
    return 0 if all(row.is_repaired for row in disturber.rows) else 1


if __name__ == "__main__":
    sys.exit(main())

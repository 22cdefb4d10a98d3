"""`doctor choose` and `doctor FILE.whl`: which of several wheels works here, best first."""

from __future__ import annotations

import http.server
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_facts import make_runtime, make_torch
from shared_objects import fake_torch, shared_object
from sick_environment import SickEnvironment, carries_out

from torchship.doctor.command import main
from torchship.doctor.wheels import choose, remote
from torchship.doctor.wheels.unpacking import WheelError, WheelName
from torchship.judge import fixes, probe_runtime

ADD = "_ZN2at6Tensor3addEv"
ONLY_OLD = "_ZN2at10only_in_29Ev"
TAGS = "py3-none-any"


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """A CPU build of torch 2.13."""
    root = fake_torch(tmp_path / "site", "2.13.0+cpu", exports=[ADD])
    (root / "__init__.py").touch()
    return root


def make_wheel(
    folder: Path,
    version: str,
    symbols: list[str] | None = None,
    *,
    requires: str = "torch",
    tags: str = TAGS,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """A wheel of `theirs` with one extension that needs these symbols."""
    folder.mkdir(exist_ok=True)
    stub = shared_object(folder / "stub" / "libtorch_cpu.so", soname="libtorch_cpu.so")
    extension = shared_object(
        folder / "made" / "_C.so", undefined=[ADD, *(symbols or [])], libraries=[stub]
    )
    info = f"theirs-{version.partition('+')[0]}.dist-info"
    header = f"Metadata-Version: 2.1\nName: theirs\nVersion: {version}\nRequires-Dist: {requires}\n"
    path = folder / f"theirs-{version}-{tags}.whl"
    with zipfile.ZipFile(path, "w", compression) as file:
        file.write(extension, "theirs/_C.so")
        file.writestr("theirs/data.bin", b"\0" * 5_000_000, zipfile.ZIP_STORED)
        file.writestr(f"{info}/METADATA", header)
        file.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tags}\n")
        file.writestr(f"{info}/RECORD", "theirs/_C.so,,\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Wheels of four kinds; those of 2.x work or not with torch 2.13 for the CPU."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "1.0", requires="torch==2.13.0")
    make_wheel(folder, "2.0", [ONLY_OLD], requires="torch==2.13.0")
    make_wheel(folder, "2.1", requires="torch==2.9.1")
    make_wheel(folder, "2.2")
    make_wheel(folder, "3.0+cu12torch2.13")
    make_wheel(folder, "3.1", requires="torch==2.13.0", tags="cp27-cp27mu-linux_x86_64")
    return folder


STATES = {
    "1.0": ("fits", "vouches for torch 2.13"),
    "2.0": ("fails", "lacks symbols"),
    "2.1": ("fails", "it requires torch ==2.9.1"),
    "2.2": ("unknown", "nothing says"),
    "3.0+cu12torch2.13": ("fails", "it is built for CUDA 12"),
    "3.1": ("fails", "for another Python (cp27-cp27mu)"),
}


def states(report: dict[str, list[dict[str, str]]]) -> dict[str, tuple[str, str]]:
    return {item["wheel"].split("-")[1]: (item["state"], item["why"]) for item in report["wheels"]}


def check(report: dict[str, list[dict[str, str]]]) -> None:
    judged = states(report)
    assert judged.keys() == STATES.keys()
    for version, (state, reason) in STATES.items():
        assert judged[version][0] == state, (version, judged[version])
        assert reason in judged[version][1]
    assert report["wheels"][0]["state"] == "fits"
    assert [item["state"] for item in report["wheels"]][1] == "unknown"


def test_a_folder_of_wheels_is_judged_best_first(
    folder: Path, torch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments=["choose", str(folder), "--torch", str(torch), "--json"]) == 0
    check(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(("version", "code"), [("1.0", 0), ("2.0", 1)])
def test_one_wheel_is_judged_as_a_wheel(
    folder: Path, torch: Path, capsys: pytest.CaptureFixture[str], version: str, code: int
) -> None:
    wheel = folder / f"theirs-{version}-{TAGS}.whl"
    assert main(arguments=[str(wheel), "--torch", str(torch)]) == code
    out = " ".join(capsys.readouterr().out.split())
    assert STATES[version][1] in out
    assert ("to install the first: python -m pip install" in out) == (code == 0)
    assert (" fits " in out) == (code == 0) and " works" not in out  # it was only read


@pytest.mark.parametrize(
    "arguments",
    [["choose", "nowhere"], ["x.whl", "y"], ["choose", "no-wheel.whl"]],
)
def test_what_is_no_wheel_is_bad_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments=arguments) == 2
    assert capsys.readouterr().err.strip()


def test_a_damaged_wheel_does_not_work(
    tmp_path: Path, torch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / f"theirs-1.0-{TAGS}.whl"
    wheel.write_bytes(b"PK\3\4 no")
    assert main(arguments=[str(wheel), "--torch", str(torch)]) == 1
    assert "cannot be read as a wheel" in " ".join(capsys.readouterr().out.split())


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder, and notes what it has sent."""

    def __init__(self, folder: Path, *, has_ranges: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.has_ranges = has_ranges
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """`/simple/theirs/` links to the wheels, as an index does."""

    server: Server

    def do_GET(self) -> None:
        if self.path == "/simple/theirs/":
            names = [path.name for path in self.server.folder.glob("*.whl")]
            anchors = "".join(f'<a href="../../files/{name}#sha256=0">x</a>' for name in names)
            self.answer(200, anchors.encode(), {"Content-Type": "text/html"})
            return
        content = (self.server.folder / self.path.rpartition("/")[2]).read_bytes()
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if not asked or not self.server.has_ranges:
            self.answer(200, content, {})
            return
        first, _, last = asked.partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        stop = min(int(last) + 1, len(content)) if first else len(content)
        numbers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
        self.answer(206, content[start:stop], numbers)

    def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.server.sent += len(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*, has_ranges: bool) -> Server:
        server = Server(folder, has_ranges=has_ranges)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_of_an_index_that_sends_ranges_little_is_fetched(
    serve: Callable[..., Server], torch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(has_ranges=True)
    url = f"{server.url}/simple/theirs/"
    assert main(arguments=["choose", url, "--torch", str(torch), "--json"]) == 0
    check(json.loads(capsys.readouterr().out))
    # Each of the four wheels that are opened has 5 MB: their ends, and the start of three.
    assert server.sent < 6_000_000


@pytest.mark.parametrize("is_for_here", [True, False])
def test_of_an_index_what_is_for_others_is_counted(
    folder: Path,
    serve: Callable[..., Server],
    torch: Path,
    capsys: pytest.CaptureFixture[str],
    is_for_here: bool,
) -> None:
    """On a page, which nobody has put together; in a folder each has its row."""
    if not is_for_here:
        for wheel in folder.glob(f"*-{TAGS}.whl"):
            wheel.unlink()
    others = ("3.2", "py3-none-win_amd64"), ("3.3", "py3-none-manylinux_2_28_s390x")
    for version, tags in others:
        make_wheel(folder, version, tags=tags)
    url = f"{serve(has_ranges=True).url}/simple/theirs/"
    code = main(arguments=["choose", url, "--torch", str(torch)])
    out = capsys.readouterr().out
    here = f"{choose._python_here(probe_runtime(gpu=False))} on "
    if is_for_here:
        assert f"; 5 of 8 wheels are for {here}" in out
        assert "to install the first: " in out
    else:
        assert f"; none of 3 wheels are for {here}" in out
    assert code == (not is_for_here)
    for shown in ("win_amd64", "s390x", "cp27"):
        assert shown not in out
    main(arguments=["choose", str(folder), "--torch", str(torch)])
    out = capsys.readouterr().out
    assert all(shown in out for shown in ("win_amd64", "s390x", "cp27"))


def test_what_was_not_opened_is_counted_and_not_said_to_fail(
    folder: Path,
    torch: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "_MAX_OPENED", 1)
    make_wheel(folder, "4.0", requires="torch==2.9.1")
    assert main(arguments=["choose", str(folder), "--torch", str(torch)]) == 1
    out = capsys.readouterr().out
    assert "... and 4 not looked at, since better ones were" in out
    assert "theirs-1.0-" not in out
    assert out.endswith("none of them is known to fit here\n")


def test_of_a_server_without_ranges_a_wheel_is_fetched_whole(
    serve: Callable[..., Server], torch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{serve(has_ranges=False).url}/simple/theirs/"
    assert main(arguments=["choose", url, "--torch", str(torch), "--json"]) == 0
    check(json.loads(capsys.readouterr().out))


def test_a_wheel_that_is_too_large_to_fetch_cannot_be_told(
    serve: Callable[..., Server],
    torch: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_MAX_OF_WHEEL", 300_000)
    for has_ranges in (True, False):
        url = f"{serve(has_ranges=has_ranges).url}/theirs-1.0-{TAGS}.whl"
        assert main(arguments=["choose", url, "--torch", str(torch)]) == 1
        out = " ".join(capsys.readouterr().out.split())
        assert "cannot be told" in out
        assert "not checked: " in out


def test_a_server_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments=["choose", "http://127.0.0.1:1/simple/x/"]) == 2
    assert "http://127.0.0.1:1/simple/x/ cannot be fetched" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "torch", "says"),
    [
        ("a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "2.13.0", ""),
        ("a-1-cp39-abi3-manylinux2014_x86_64.whl", "2.13.0", ""),
        ("a-1-cp312-abi3-linux_x86_64.whl", "2.13.0", "another Python"),
        ("a-1-cp310-cp310-linux_x86_64.whl", "2.13.0", "another Python"),
        ("a-1-cp39-none-any.whl", "2.13.0", "another Python"),
        ("a-1-cp39-cp311-linux_x86_64.whl", "2.13.0", "another Python"),
        ("a-1-py3-cp311-linux_x86_64.whl", "2.13.0", "another Python"),
        ("a-1-py3-none-manylinux_1_0_x86_64.whl", "2.13.0", "no installer takes"),
        ("a-1-cp313-cp313t-linux_x86_64.whl", "2.13.0", "another Python"),
        ("a-1-py3-none-manylinux_2_99_x86_64.whl", "2.13.0", "needs glibc 2.99"),
        ("a-1-py3-none-musllinux_1_2_x86_64.whl", "2.13.0", "another C library"),
        ("a-1-py3-none-macosx_11_0_x86_64.whl", "2.13.0", "it is for macosx"),
        ("a-1-py3-none-manylinux_2_28_aarch64.whl", "2.13.0", "it is for manylinux"),
        ("a-1+cu12torch2.8cxx11abiTRUE-py3-none-any.whl", "2.8.0+cu128", ""),
        ("a-1+cu12torch2.8cxx11abiFALSE-py3-none-any.whl", "2.8.0+cu128", "C++ ABI 0"),
        ("a-1+cu11torch2.8-py3-none-any.whl", "2.8.0+cu128", "built for CUDA 11"),
        ("a-1+pt29cu128-py3-none-any.whl", "2.8.0+cu128", "built for torch 2.9"),
        ("a-1+pt214cu128-py3-none-any.whl", "2.13.0+cu128", ""),
        ("a-1+cu128-py3-none-any.whl", "2.8.0", "built for CUDA 12, and torch"),
    ],
)
def test_what_a_wheels_name_excludes(name: str, torch: str, says: str) -> None:
    cuda = "12.8" if "+cu" in torch else None
    runtime = make_runtime(make_torch(torch, cuda=cuda))
    why = choose.excluded_by_name(WheelName.parse(name), runtime)
    assert (says in why) if says else not why


@pytest.mark.parametrize(
    ("tags", "python", "free_threaded", "fits"),
    [
        ("cp315-abi3t", (3, 15, 0), True, True),
        ("cp315-abi3t", (3, 16, 0), True, True),
        ("cp315-abi3t", (3, 14, 0), True, False),
        ("cp315-abi3t", (3, 15, 0), False, False),
        ("cp315-abi3.abi3t", (3, 15, 0), False, True),
        ("cp315-abi3.abi3t", (3, 15, 0), True, True),
        ("cp310-abi3", (3, 15, 0), False, True),
        ("cp310-abi3", (3, 15, 0), True, False),
        ("cp315-cp315", (3, 15, 0), False, True),
        ("cp315-cp315t", (3, 15, 0), True, True),
    ],
)
def test_wheels_of_the_limited_apis_fit_the_pythons_whose_installers_take_them(
    tags: str, python: tuple[int, ...], free_threaded: bool, fits: bool
) -> None:
    """PEP 803. packaging 26.4 on CPython 3.15.2 lists cp315-abi3, and not cp315-abi3t."""
    runtime = make_runtime(make_torch(), python=python, free_threaded=free_threaded)
    why = choose.excluded_by_name(WheelName.parse(f"a-1-{tags}-linux_x86_64.whl"), runtime)
    assert why.startswith("it is for another Python") != fits


@pytest.mark.parametrize("name", ["a.whl", "a-1.whl", "a-1-py3-none-any.zip", "a" * 2000 + ".whl"])
def test_what_is_not_named_as_a_wheel_is_refused(name: str) -> None:
    with pytest.raises(WheelError, match="is not named as a wheel is"):
        WheelName.parse(name)


def test_the_newest_release_comes_first_and_then_the_build_for_this_torch() -> None:
    runtime = make_runtime(make_torch("2.8.0+cu128", cuda="12.8"))
    names = ["1.9", "1.10", "1.10+cu12torch2.7", "1.10+cu12torch2.8"]
    parsed = [WheelName.parse(f"a-{version}-py3-none-any.whl") for version in names]
    ordered = sorted(parsed, key=lambda name: choose.rank(name, runtime))
    assert ordered[0].version == "1.10+cu12torch2.8"
    assert ordered[-1].version == "1.9"


@carries_out(fixes.Kind.INSTALL_WHEEL)
def test_the_best_wheel_is_installed_by_the_command(tmp_path: Path) -> None:
    place = SickEnvironment(tmp_path / "place")
    place.publish_torch("2.13.0+cpu", [ADD])
    place.install("torch")
    wheels = tmp_path / "a folder"
    make_wheel(wheels, "1.0", requires="torch==2.13.0")
    make_wheel(wheels, "2.0", [ONLY_OLD], requires="torch==2.13.0")
    runtime = probe_runtime(place.site / "torch", gpu=False)
    best = choose.choose([str(wheels)], runtime)[0]
    place.type(choose.install_wheel(best, runtime).command)
    assert place.judge("theirs/_C.so").accepted


@pytest.mark.parametrize(
    ("requires", "refused"),
    [
        ("torch==2.*", ""),
        ("torch!=2.*", "it requires torch !=2.*"),
        ("torch~=2.9", ""),
        ("torch~=2.9.0", "it requires torch ~=2.9.0"),
        ("Torch<2", "it requires torch <2"),
        ('torch==2.5.1; sys_platform == "darwin"', ""),
        ('torch==2.5.1; extra == "gpu"', ""),
        ('torch==2.5.1; python_version >= "3" or extra == "x"', "it requires torch ==2.5.1"),
        ('torch==2.5.1; platform_release != "extra"', "it requires torch ==2.5.1"),
        ("torch\nRequires-Python: <3.8", "it requires Python <3.8"),
        ("torch\nRequires-Python: >=3.8", ""),
    ],
)
def test_what_an_installer_refuses_is_not_chosen(
    tmp_path: Path, torch: Path, capsys: pytest.CaptureFixture[str], requires: str, refused: str
) -> None:
    wheel = make_wheel(tmp_path / "wheels", "1.0", requires=requires)
    main(arguments=[str(wheel), "--torch", str(torch), "--json"])
    report = json.loads(capsys.readouterr().out)
    (found,) = report["wheels"]
    assert (found["state"] == "fails") is bool(refused), found
    assert refused in found["why"]
    assert not (refused and report["install"])

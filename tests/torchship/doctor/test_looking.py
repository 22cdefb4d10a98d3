"""What is seen when packages are imported: real imports, in small real environments."""

from __future__ import annotations

import ast
import os
import signal
import time
from pathlib import Path

import pytest
from environments import ABSENT, SYMBOL
from looked_environment import LookedEnvironment, subject
from shared_objects import shared_object

from torchship.doctor.looking import import_probe
from torchship.doctor.looking.linker_log import parse_log
from torchship.doctor.looking.seen import End, facts_of, frames_in, seen_at_end

CRASH = "import ctypes\n\ndef crash():\n    ctypes.string_at(0)\n\ncrash()\n"


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    return LookedEnvironment(tmp_path / "env")


@pytest.fixture(scope="module")
def shared_env(tmp_path_factory: pytest.TempPathFactory) -> LookedEnvironment:
    """An environment for tests that only add a package of their own name."""
    return LookedEnvironment(tmp_path_factory.mktemp("looking") / "env")


def test_a_package_that_imports_works(shared_env: LookedEnvironment) -> None:
    shared_env.add("good", "import torch\n")
    looked = shared_env.look("good")
    assert looked.torch is not None and looked.torch.works
    seen = looked.packages["good"]
    assert seen.works and seen.imports_torch
    assert seen.file == str(shared_env.site / "good" / "__init__.py")
    assert any(path.endswith("/torch/lib/libc10.so") for path in seen.mapped)


def test_an_error_has_its_frames_and_what_it_was_raised_from(
    shared_env: LookedEnvironment,
) -> None:
    inner = "def fail():\n    raise OSError('the cause')\n"
    source = (
        "from .inner import fail\n"
        "try:\n    fail()\nexcept OSError as error:\n    raise ImportError('outer') from error\n"
    )
    shared_env.add("raising", source, inner=inner)
    seen = shared_env.look("raising").packages["raising"]
    assert seen.outcome == "raised"
    assert [error.last_line for error in seen.errors] == [
        "ImportError: outer",
        "OSError: the cause",
    ]
    frame = seen.errors[1].frames[-1]
    assert (Path(frame.file).name, frame.line, frame.function) == ("inner.py", 2, "fail")


def test_an_error_that_hides_its_cause_tells_it_all_the_same(
    shared_env: LookedEnvironment,
) -> None:
    source = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ImportError('no') from None\n"
    shared_env.add("hiding", source)
    errors = shared_env.look("hiding").packages["hiding"].errors
    assert errors[1].type == "ZeroDivisionError"


@pytest.mark.parametrize("packages", [("crashing",), ("crashing", "beside")])
def test_a_crash_has_its_signal_and_its_frames(
    env: LookedEnvironment, packages: tuple[str, ...]
) -> None:
    for name in packages:
        env.add(name, CRASH if name == "crashing" else "import torch\n")
    looked = env.look(*packages)
    seen = looked.packages["crashing"]
    assert (seen.outcome, seen.signal) == ("died", "SIGSEGV")
    assert seen.frames[-1].function == "string_at"
    assert [frame.function for frame in seen.frames if frame.file.endswith("crashing/__init__.py")]
    assert all(looked.packages[name].works for name in packages[1:])


@pytest.mark.parametrize("beside", [(), ("beside",)])
def test_an_import_without_end_is_ended_and_tells_where(
    env: LookedEnvironment, beside: tuple[str, ...]
) -> None:
    env.add("waiting", "import time\n\ndef wait():\n    time.sleep(600)\n\nwait()\n")
    for name in beside:
        env.add(name, "import torch\n")
    start = time.monotonic()
    seen = env.look("waiting", *beside, seconds=1.0).packages["waiting"]
    assert seen.outcome == "out of time"
    assert seen.frames[-1].function == "wait"
    assert time.monotonic() - start < 30


def test_a_package_that_ends_the_process_is_told(shared_env: LookedEnvironment) -> None:
    shared_env.add("leaving", "import os\nos._exit(3)\n")
    shared_env.add("exiting", "import sys\nsys.exit('no license')\n")
    packages = shared_env.look("leaving", "exiting").packages
    assert packages["leaving"].outcome == "ended"
    assert packages["exiting"].last_line == "SystemExit: no license"


def test_nothing_is_read_from_standard_input(shared_env: LookedEnvironment) -> None:
    shared_env.add("asking", "import sys\nassert sys.stdin.read() == '', 'something'\n")
    assert shared_env.look("asking").packages["asking"].works


def test_what_an_import_prints_is_caught_and_bounded(
    shared_env: LookedEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    source = "print('x' * 5_000_000, flush=True)\nimport os\nos.write(2, b'last words')\n"
    shared_env.add("talking", source)
    seen = shared_env.look("talking").packages["talking"]
    assert seen.works
    assert len(seen.output) <= 64_000 and "last words" in seen.output
    assert capfd.readouterr() == ("", "")


def test_a_package_sees_what_it_sees_for_its_user(shared_env: LookedEnvironment) -> None:
    source = "import sys\nassert (sys.argv, sys.path[0]) == (['-c'], ''), (sys.argv, sys.path)\n"
    shared_env.add("curious", source)
    seen = shared_env.look("curious").packages["curious"]
    assert seen.works, seen.last_line


def test_a_file_of_the_folder_hides_the_standard_library_as_for_the_user(
    env: LookedEnvironment,
) -> None:
    env.add("reading", "import json\njson.loads\n")
    (env.folder / "json.py").write_text("")
    seen = env.look("reading").packages["reading"]
    assert seen.errors[0].type == "AttributeError"


def test_what_an_import_starts_ends_with_it(shared_env: LookedEnvironment, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = (
        "import subprocess\n"
        "process = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pid)!r}, 'w').write(str(process.pid))\n"
    )
    shared_env.add("starting", source)
    assert shared_env.look("starting").packages["starting"].works
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # until the kernel has ended it
            os.kill(int(pid.read_text()), 0)
            time.sleep(0.05)


def test_a_failure_beside_others_is_tried_again_alone(env: LookedEnvironment) -> None:
    env.add("alone", "import sys\nassert 'torch' not in sys.modules\nimport torch\n")
    env.add("beside", "import torch\n")
    packages = env.look("alone", "beside").packages
    assert packages["alone"].works and packages["beside"].works


def test_success_beside_others_counts_only_for_what_imports_torch_first(
    env: LookedEnvironment,
) -> None:
    folder = env.add("eager", "from . import _C\nimport torch\n")
    module = env.add_module(folder / "_C.so", needs=SYMBOL)
    env.add("beside", "import torch\n")
    seen = env.look(subject("eager", module), "beside").packages["eager"]
    assert seen.works and seen.needs_torch_first
    assert "libtorch_cpu.so: cannot open shared object file" in seen.errors[0].message


def test_packages_are_imported_side_by_side(env: LookedEnvironment, tmp_path: Path) -> None:
    source = (
        "import torch, os, time\n"
        f"folder = {str(tmp_path)!r}\n"
        "open(f'{folder}/{__name__}.here', 'w').close()\n"
        "for _ in range(100):\n"
        "    if len([name for name in os.listdir(folder) if name.endswith('.here')]) > 1:\n"
        "        break\n"
        "    time.sleep(0.1)\n"
        "else:\n    raise TimeoutError\n"
    )
    for name in ("one", "two"):
        env.add(name, source)
    packages = env.look("one", "two", jobs=2).packages
    assert packages["one"].works and packages["two"].works


def test_torch_is_imported_once_for_packages_that_work(env: LookedEnvironment) -> None:
    count = env.prefix / "count"
    with (env.torch / "__init__.py").open("a") as source:
        source.write(f"open({str(count)!r}, 'a').write('x')\n")
    names = ("one", "two", "three")
    for name in names:
        env.add(name, "import torch\n")
    packages = env.look(*names).packages
    assert all(packages[name].works for name in names)
    assert count.read_text() == "x"


def test_where_torch_does_not_import_no_package_is_tried(env: LookedEnvironment) -> None:
    (env.torch / "__init__.py").write_text("raise OSError('broken torch')\n")
    marker = env.prefix / "imported"
    for name in ("one", "two"):
        env.add(name, f"open({str(marker)!r}, 'w').close()\n")
    looked = env.look("one", "two")
    assert looked.torch is not None
    assert looked.torch.last_line == "OSError: broken torch"
    assert not looked.packages and not marker.exists()


def test_extensions_that_the_import_leaves_alone_are_loaded(env: LookedEnvironment) -> None:
    folder = env.add("lazy", "import torch\n")
    good = env.add_module(folder / "_good.so", needs=SYMBOL)
    bad = env.add_module(folder / "_bad.so", needs=ABSENT)
    crashing = env.add_module(folder / "_crash.so", code="*(volatile int *)0 = 1;")
    looked = env.look(subject("lazy", good, bad, crashing))
    assert looked.packages["lazy"].works
    assert looked.extensions[good].works
    assert looked.extensions[good].name == "lazy._good"
    failing = looked.extensions[bad]
    assert failing.outcome == "raised" and f"undefined symbol: {ABSENT}" in failing.last_line
    assert failing.log is not None and ABSENT in failing.log.errors[-1].text
    died = looked.extensions[crashing]
    assert died.signal == "SIGSEGV" and died.log is not None


def test_an_extension_that_the_import_loads_is_not_loaded_again(env: LookedEnvironment) -> None:
    folder = env.add("using", "import torch\nfrom . import _C\n")
    module = env.add_module(folder / "_C.so", needs=SYMBOL)
    looked = env.look(subject("using", module))
    assert str(module) in looked.packages["using"].mapped
    assert module not in looked.extensions


def test_extensions_of_a_package_that_fails_are_tried_alone(env: LookedEnvironment) -> None:
    folder = env.add("failing", "import torch\nraise RuntimeError('operator does not exist')\n")
    library = shared_object(
        folder / "ops.so", undefined=[ABSENT], libraries=[env.torch / "lib" / "libtorch_cpu.so"]
    )
    looked = env.look(subject("failing", library, kind="library"))
    seen = looked.extensions[library]
    assert seen.errors[0].message.startswith("Could not load this library")
    assert f"undefined symbol: {ABSENT}" in seen.errors[1].message
    assert seen.before[0].message == "operator does not exist"


def test_a_missing_library_is_told_with_who_needs_it_and_where_it_was_sought(
    env: LookedEnvironment,
) -> None:
    folder = env.add("lacking", "import torch\nfrom . import _C\n")
    library = shared_object(folder / "libgone.so.7", soname="libgone.so.7")
    module = env.add_module(folder / "_C.so", libraries=(library,))
    library.unlink()
    elsewhere = env.prefix / "elsewhere"
    elsewhere.mkdir()
    looked = env.look(subject("lacking", module), LD_LIBRARY_PATH=str(elsewhere))
    log = looked.packages["lacking"].log
    assert log is not None
    assert log.needed_by["libgone.so.7"] == str(module)
    assert f"{elsewhere}/libgone.so.7" in log.tried["libgone.so.7"]


def test_a_file_behind_the_one_that_python_takes_is_hidden(env: LookedEnvironment) -> None:
    import sysconfig

    folder = env.add("twice", "import torch\n")
    taken = env.add_module(folder / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}", needs=SYMBOL)
    left_over = env.add_module(folder / "_C.abi3.so", needs=ABSENT)
    looked = env.look(subject("twice", taken, left_over))
    assert looked.extensions[taken].works
    hidden = looked.extensions[left_over]
    assert (hidden.outcome, hidden.file) == ("hidden", str(taken))


def test_a_module_beside_its_package_has_its_own_name(env: LookedEnvironment) -> None:
    env.add("flash", "import torch\n")
    module = env.add_module(env.site / "flash_cuda.so", needs=SYMBOL)
    seen = env.look(subject("flash", module)).extensions[module]
    assert seen.works and seen.name == "flash_cuda"


def test_the_probe_runs_on_python_3_7() -> None:
    source = Path(import_probe.__file__).read_text()
    ast.parse(source, feature_version=(3, 7))


def test_the_probe_imports_only_what_is_built_in_or_loaded_at_the_start() -> None:
    tree = ast.parse(Path(import_probe.__file__).read_text())
    statements = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    names = {alias.name for one in statements for alias in one.names}
    assert names == {"annotations", "builtins", "faulthandler", "os", "sys", "time"}


def test_any_text_survives_the_way_to_the_doctor() -> None:
    text = 'quote " and \\ \n\x1b[31m \udc80 é 🙂'
    fact = {"what": text, "outcome": "worked", "seconds": 1.5, "mapped": [text]}
    (seen,) = facts_of(import_probe.encoded(fact).encode())
    assert not isinstance(seen, End)
    assert (seen.what, seen.mapped) == (text, (text,))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1]",
        b'{"what": 1, "outcome": "worked", "seconds": 1, "mapped": []}',
        b'{"what": "x", "outcome": "perfect", "seconds": 1, "mapped": []}',
        b'{"what": "x", "outcome": "worked", "seconds": 1, "mapped": null}',
        b'{"what": "x", "outcome": "raised", "seconds": 1, "mapped": [], "errors": [{}]}',
        b'{"ended": "x", "status": "9", "late": false, "output": 3}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_fact_is_left_out(line: bytes) -> None:
    good = b'{"what": "x", "outcome": "worked", "seconds": 1, "mapped": []}'
    assert len([*facts_of(line + b"\n" + good + b"\n")]) == 1


def test_frames_of_faulthandler_are_read_outermost_first() -> None:
    output = (
        "noise\nFatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/site/p/inner.py", line 7 in load\n'
        '  File "<frozen importlib._bootstrap>", line 1 in _call\n'
        '  File "/site/p/__init__.py", line 2 in <module>\n\nExtension modules: numpy\n'
    )
    assert [(one.line, one.function) for one in frames_in(output)] == [(2, "<module>"), (7, "load")]


def test_a_signal_without_a_name_is_told_by_number() -> None:
    number = signal.SIGRTMIN + 1
    end = End(what="x", returncode=-number, is_late=False, output="")
    assert seen_at_end(end).signal == f"signal {number}"


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "python: symbol lookup error: /x/_C.so: undefined symbol: f\n",
            "/x/_C.so: undefined symbol: f",
        ),
        (
            "x\nInconsistency detected by ld.so: dl-lookup.c: 107: y\n",
            "Inconsistency detected by ld.so: dl-lookup.c: 107: y",
        ),
        ("a library lacks a symbol\n", ""),
    ],
)
def test_the_words_with_which_the_linker_ends_a_process_are_read(output: str, words: str) -> None:
    ended = seen_at_end(End(what="x", returncode=127, is_late=False, output=output))
    assert ended.words_of_linker == words
    died = seen_at_end(End(what="x", returncode=-6, is_late=False, output=output))
    assert died.words_of_linker == ""


def test_a_log_that_was_cut_is_read_as_far_as_it_goes() -> None:
    log = parse_log(
        "      1:\tfind library=liba.so [0]; searching\n"
        "      1:\t search cache=/etc/ld.so.cache\n"
        "      1:\t  trying file=/lib/liba.so\n"
        "      1:\t\n"
        "      1:\tfile=liba.so [0];  needed by /x/_C.so [0]\n"
        "      1:\tfile=liba.so [0];  generating link map\n"
        "      1:\tcalling init: /lib/liba.so\n"
        "      1:\tfile=/x/_D.so [0];  dynamically loaded by /usr/bin/python [0]\n"
        "      1:\tfind libr"
    )
    assert log.last_opened == "/x/_D.so"
    assert log.found == {"liba.so": "/lib/liba.so"}
    assert log.needed_by == {"liba.so": "/x/_C.so", "/x/_D.so": "/usr/bin/python"}
    assert log.last_initialized == "/lib/liba.so"

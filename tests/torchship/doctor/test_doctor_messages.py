"""What a message means: every known one is found, and what it blames is judged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environments import (
    ABSENT,
    REPO,
    SYMBOL,
    add_extension,
    add_package,
    add_torch,
    make_environment,
    run_doctor,
)
from packaging_alone import packaging_alone
from shared_objects import shared_object
from site_messages import THREADS

from docs._ext import code_pages
from torchship.doctor.reasons import meaning
from torchship.doctor.reasons.demangle import qualified_name
from torchship.judge.machine.torch_probe import release
from torchship.judge.rules import CODES
from torchship.judge.target import Target
from torchship.judge.words import codes, messages

TORCH_29 = release("2.9.1", (2, 9))
TORCH_26 = release("2.6.0", (2, 6))
NEW_FLAVOUR = "undefined symbol: _ZN2at1fENSt7__cxx1112basic_stringIcE"
OLD_FLAVOUR = "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("env") / "env"
    site = make_environment(prefix)
    add_torch(site)
    add_extension(site, "good", SYMBOL, pin="2.9.1")
    add_extension(site, "broken", SYMBOL, ABSENT)
    return prefix


@pytest.mark.parametrize("message", messages.MESSAGES, ids=lambda message: message.example[:60])
def test_every_known_message_is_found_among_other_lines(message: messages.Message) -> None:
    log = f"Traceback (most recent call last):\n  x = y\n{message.example}\nand more\n"
    assert meaning.diagnose(Target(), log, None).code == message.code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("python: symbol lookup error: /x/libtorch_cpu.so: undefined symbol: iJIT_Notify", "TD105"),
        ("ImportError: /x/y.so: undefined symbol: _ZNK3c1010TensorImpl4sizeEv", "TD115"),
        ("/lib/libc.so.6: version `GLIBC_2.34' not found (required by /x/y.so)", "TD304"),
        ("ImportError: /x/libstdc++.so.6: version `CXXABI_1.3.15' not found", "TD305"),
        ("ModuleNotFoundError: No module named 'torch._C'", "TD104"),
        ("ModuleNotFoundError: No module named 'torchvision'", "TD903"),
        ("ImportError: libnvinfer.so.10: cannot open shared object file: No such file", "TD402"),
        ("something else entirely", "TD903"),
        ("", "TD903"),
    ],
)
def test_messages_are_told_apart(text: str, code: str) -> None:
    assert meaning.diagnose(Target(), text, None).code == code


@pytest.mark.parametrize("torch", [None, TORCH_26, TORCH_29])
@pytest.mark.parametrize("case", THREADS, ids=lambda case: case.thread)
def test_a_message_has_one_answer_in_the_terminal_and_on_the_site(case, torch) -> None:
    code = meaning.diagnose(Target(), case.message, torch).code
    assert f"fails/codes/{code.lower()}.html" == case.page


def test_whether_it_can_be_the_cxx_abi_is_said_of_the_torch_that_is_here() -> None:
    for message, torch in ((NEW_FLAVOUR, TORCH_29), (OLD_FLAVOUR, TORCH_26)):
        about = meaning.diagnose(Target(), message, torch).about_cause
        assert f"beside torch {torch.version}, which is here, the cause is another" in about
        assert codes.TORCH_LACKS_SYMBOLS in about
    assert not meaning.diagnose(Target(), OLD_FLAVOUR, TORCH_29).about_cause
    assert not meaning.diagnose(Target(), NEW_FLAVOUR, TORCH_26).about_cause


def test_this_torch_judges_only_a_file_that_is_here(environment: Path) -> None:
    """The torch of this machine has the symbol, which says nothing of a file of another one."""
    symbol = "undefined symbol: _ZNK2at6Tensor3addEv"
    for place in ("/gone/project/x.so", "C:\\env\\x.pyd"):
        message = f"ImportError: {place}: {symbol}"
        report = run_doctor("--json", "--python", str(environment), message)
        said = json.loads(report.stdout)
        assert (said["code"], said["about_cause"]) == (codes.TORCH_LACKS_SYMBOLS, None)
        assert "which is here" not in said["about_symbol"]


@pytest.mark.parametrize(
    "message",
    [
        "ImportError: DLL load failed while importing _C: The specified module could not be found.",
        "ImportError: dlopen(/e/_C.so, 2): Library not loaded: @rpath/libc10.dylib",
        "ImportError: dlopen(/e/_C.so, 2): symbol not found in flat namespace '__ZN3c105ErrorE'",
    ],
)
def test_a_message_of_another_system_is_said_to_be_one(message: str) -> None:
    process = run_doctor(message)
    assert "on Windows or macOS" in process.stdout
    assert process.returncode == 2


def test_the_torches_that_have_a_symbol_are_named() -> None:
    about = meaning.diagnose(Target(), "_ZN3c105ErrorC2ENS_14SourceLocationESs", None).about_symbol
    assert "c10::Error::Error" in about
    assert "; torch 2.6 and older have it (looked at: torch 2.4 to " in about


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN2at4_ops10zeros_like4callERKNS_6TensorE", "at::_ops::zeros_like::call"),
        ("_ZNK2at6Tensor3addEv", "at::Tensor::add"),
        ("_ZN3c105ErrorD1Ev", "c10::Error::~Error"),
        ("_ZTVN5torch8autograd4NodeE", "virtual table of torch::autograd::Node"),
        ("_ZNKSt5ctypeIcE8do_widenEc", "std::ctype"),
        ("_Z3foov", "foo"),
        ("cudaMalloc", ""),
        ("_Z", ""),
        ("_ZN999", ""),
    ],
)
def test_symbols_are_made_readable(symbol: str, name: str) -> None:
    assert qualified_name(symbol) == name


def test_the_file_that_a_message_names_is_judged(environment: Path) -> None:
    (path,) = environment.glob("lib/*/site-packages/broken/_C.so")
    text = f"ImportError: {path}: undefined symbol: {ABSENT}"
    process = run_doctor("--json", "--python", str(environment), text)
    report = json.loads(process.stdout)
    assert report["code"] == codes.TORCH_LACKS_SYMBOLS
    assert [(row["package"], row["state"]) for row in report["extensions"]] == [("broken", "fails")]
    assert process.returncode == 1
    assert "torch 2.9.1 does not have it" in report["about_symbol"]


def test_json_of_a_message_is_what_is_documented() -> None:
    report = json.loads(run_doctor("--json", "file too short").stdout)
    page = (REPO / "docs" / "fails" / "compat.md").read_text()
    table = page.partition("| field of a message |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(report)


@pytest.mark.parametrize("arguments", [("-",), ()])
def test_a_traceback_on_standard_input_leads_to_its_package(
    environment: Path, arguments: tuple[str, ...]
) -> None:
    site = next(environment.glob("lib/*/site-packages"))
    trace = f'Traceback (most recent call last):\n  File "{site}/good/__init__.py", line 1, in x\n'
    trace += "RuntimeError: operator good::nms does not exist\n"
    process = run_doctor("--python", str(environment), *arguments, text=trace)
    assert "TD127" in process.stdout
    assert "good 1.0" in process.stdout
    assert "broken" not in process.stdout
    assert process.returncode == 0


def test_the_namespace_of_a_missing_operator_leads_to_its_package(environment: Path) -> None:
    text = "RuntimeError: operator broken::nms does not exist"
    process = run_doctor("--json", "--python", str(environment), text)
    assert [row["package"] for row in json.loads(process.stdout)["extensions"]] == ["broken"]


NVJITLINK = "libnvJitLink.so.12"


@pytest.fixture
def with_nvjitlink(tmp_path: Path) -> Path:
    """An environment with torch, and a package that brings a library and says so."""
    site = make_environment(tmp_path / "env")
    add_torch(site)
    shared_object(site / "nvidia" / "lib" / NVJITLINK, defined=["__nvJitLinkComplete_12_1"])
    info = add_package(site, "nvidia-nvjitlink-cu12", {})
    (info / "RECORD").write_text(f"nvidia/lib/{NVJITLINK},sha256=x,1\n")
    return tmp_path / "env"


def test_the_library_that_a_message_names_is_looked_up(with_nvjitlink: Path) -> None:
    text = f"undefined symbol: __nvJitLinkComplete_12_4, version {NVJITLINK}"
    process = run_doctor("--json", "--python", str(with_nvjitlink), text)
    about = json.loads(process.stdout)["about_library"]
    assert "nvidia-nvjitlink-cu12 1.0 does not define it" in about, process.stderr


def test_without_a_symbol_nothing_is_said_of_the_library_of_a_message(with_nvjitlink: Path) -> None:
    process = run_doctor("--json", "--python", str(with_nvjitlink), f"version {NVJITLINK} is wrong")
    assert json.loads(process.stdout)["about_library"] is None


def test_a_message_of_several_arguments_needs_no_quotes() -> None:
    process = run_doctor("file", "too", "short")
    assert "TD201" in process.stdout
    assert process.returncode == 0


def test_an_unknown_message_is_said_to_be_unknown() -> None:
    process = run_doctor("nobody ever saw this")
    assert codes.MESSAGE_UNKNOWN in process.stdout
    assert process.returncode == 2


def test_a_code_is_explained() -> None:
    process = run_doctor("TD110")
    assert process.stdout.startswith("TD110  Built for another torch\nwhy:      ")
    assert process.returncode == 0


def test_a_pipe_that_nobody_writes_to_is_given_up(environment: Path) -> None:
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as silent:
        process = subprocess.run(
            [
                *(sys.executable, "-S", "-m", "torchship.doctor"),
                *("--no-import", "--python", str(environment)),
            ],
            stdin=silent.stdout,
            capture_output=True,
            text=True,
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": packaging_alone()},
            timeout=50,
        )
        silent.kill()
    assert "2 files" in process.stdout


@pytest.mark.parametrize(
    "text",
    [
        "x" * (1 << 22),
        "undefined symbol: " * 100_000,
        ("symbol " + "a" * 999 + " version ") * 3000,
        'File "' + "/site-packages/" * 100_000,
        "\n" * 1_000_000,
        "'" * 1_000_000,
        "libcu" * 300_000,
    ],
    ids=["long", "repeated", "versions", "paths", "lines", "quotes", "names"],
)
def test_a_hostile_message_costs_little(text: str) -> None:
    before = time.process_time()
    meaning.diagnose(Target(), text, None)
    assert time.process_time() - before < 3


def test_of_a_long_line_the_beginning_is_shown() -> None:
    line = f"ImportError: {'x' * 1000}.so: file too short"
    assert meaning.diagnose(Target(), line, None).line == line[:300]


def test_control_characters_of_a_message_are_not_printed() -> None:
    process = run_doctor("undefined symbol: f\x1b[31m\x07")
    assert "\x1b" not in process.stdout


def test_the_pages_of_codes_and_messages_are_those_of_the_tables() -> None:
    written = {path: path.read_text(encoding="utf-8") for path in code_pages.FOLDER.glob("*.md")}
    written[code_pages.INDEX] = code_pages.INDEX.read_text(encoding="utf-8")
    expected = code_pages.pages()
    assert sorted(written) == sorted(expected)
    different = [path.name for path in expected if written[path] != expected[path]]
    assert different == [], "run python -m docs._ext.code_pages"


def test_every_code_has_words() -> None:
    for code in CODES:
        words = meaning.meaning_of(code)
        assert words.why
        assert words.fix


def test_what_codes_mean_fits_into_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line for code in CODES for line in meaning.lines_of_meaning(meaning.meaning_of(code))]
    long = [line for line in lines if len(line) > 80 and " " in line[10:].strip()]
    assert long == []


def test_a_message_from_another_environment_leads_to_a_check_of_that_one(
    environment: Path, tmp_path: Path
) -> None:
    add_torch(make_environment(tmp_path / "here"))
    site = next(environment.glob("lib/*/site-packages"))
    here = ("--python", str(tmp_path / "here"))
    error = f"ImportError: {site}/broken/_C.so: undefined symbol: {ABSENT}"
    # The home folder is not shortened in a command.
    process = run_doctor(*here, error, HOME=str(environment.parent))
    command = f"--python {environment}/bin/python"
    assert command in process.stdout
    assert "torch 2.9.1 (CPU) in" not in process.stdout  # no file was judged
    mended = run_doctor("--json", *command.split())
    failing = [row for row in json.loads(mended.stdout)["extensions"] if row["state"] == "fails"]
    assert [row["package"] for row in failing] == ["broken"]


@pytest.mark.parametrize("folder", ["env", "my env"])
def test_the_environment_of_a_traceback_is_that_of_its_innermost_line(
    tmp_path: Path, folder: str
) -> None:
    there = make_environment(tmp_path / folder)
    add_torch(make_environment(tmp_path / "here"))
    trace = (
        f'  File "/gone/lib/python3.11/site-packages/torch/__init__.py", line 1, in x\n'
        f'  File "{there}/theirs/__init__.py", line 1, in x\n'
        "RuntimeError: operator theirs::nms does not exist\n"
    )
    process = run_doctor("--json", "--python", str(tmp_path / "here"), "-", text=trace)
    python = str(tmp_path / folder / "bin" / "python")
    assert json.loads(process.stdout)["other_python"] == python


@pytest.mark.parametrize("place", ["here", "gone"])
def test_what_lies_in_the_judged_environment_or_nowhere_leads_to_no_other(
    tmp_path: Path, place: str
) -> None:
    add_torch(make_environment(tmp_path / "here"))
    error = f"{tmp_path}/{place}/lib/python3.11/site-packages/x/_C.so: file too short"
    process = run_doctor("--json", "--python", str(tmp_path / "here"), f"ImportError: {error}")
    assert json.loads(process.stdout)["other_python"] is None

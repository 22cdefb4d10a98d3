"""Objects that use torch's symbols and do not name the library of torch that has them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from made_facts import make_runtime, make_torch
from packaging_alone import packaging_alone
from shared_objects import ERROR_NEW, fake_torch, shared_object
from sick_environment import REPO, SickEnvironment, carries_out

from torchship.doctor import judge_file
from torchship.doctor.reasons.meaning import Diagnosis, diagnose
from torchship.judge import fixes
from torchship.judge.machine.torch_probe import find_torch
from torchship.judge.records import NOWHERE, Finding, TorchInstall
from torchship.judge.target import Target
from torchship.judge.words import codes

ADD = "_ZN2at6Tensor3addEv"
ABSENT = "_ZN2at6absentEv"
CASTER = "_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb"


@pytest.fixture
def torch(tmp_path: Path) -> TorchInstall:
    root = fake_torch(tmp_path / "site", "2.9.1", exports=[ADD])
    shared_object(
        root / "lib" / "libtorch_python.so", defined=[CASTER], soname="libtorch_python.so"
    )
    return find_torch(tmp_path / "site")


def cause_of(path: Path, torch: TorchInstall) -> Finding:
    cause = judge_file(path, make_runtime(torch)).cause
    assert cause is not None
    return cause


@carries_out(fixes.Kind.SHARE_TORCH)
def test_what_is_not_linked_with_torch_loads_where_torch_shares_its_symbols(
    tmp_path: Path,
) -> None:
    place = SickEnvironment(tmp_path)
    place.publish_torch("2.13.0", [ADD])
    extension = shared_object(tmp_path / "made" / "_C.so", undefined=[ADD])
    place.publish_wheel("theirs", "1.0", {"theirs/_C.so": extension}, ["torch==2.13.0"])
    place.install("torch", "theirs")
    before = place.judge("theirs/_C.so")
    assert not before.accepted
    assert before.kind == fixes.Kind.SHARE_TORCH.value
    assert before.why.startswith("_C.so is not linked with libtorch_cpu.so of torch 2.13.0")
    program = f"python probe.py {place.site}/theirs/_C.so"
    output = place.type(f"{before.command}; {program}", PYTHONPATH=f"{REPO}:{packaging_alone()}")
    assert json.loads(output.splitlines()[-1])["accepted"]


@pytest.mark.slow
def test_the_real_torch_shares_its_symbols_only_where_it_is_told_to(tmp_path: Path) -> None:
    path = shared_object(tmp_path / "_C.so", undefined=[ERROR_NEW])
    program = f"import ctypes, torch; ctypes.CDLL({str(path)!r})"

    def loads(**variables: str) -> bool:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=variables, capture_output=True).returncode == 0

    assert not loads()
    assert loads(TORCH_USE_RTLD_GLOBAL="1")


@pytest.mark.parametrize("variable", ["", "0"])
def test_any_value_of_the_variable_but_the_empty_one_counts(
    variable: str,
    tmp_path: Path,
    torch: TorchInstall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_USE_RTLD_GLOBAL", variable)
    path = shared_object(tmp_path / "_C.so", undefined=[ADD])
    is_unlinked = cause_of(path, torch).code == codes.NOT_LINKED
    assert is_unlinked == (variable == "")


def test_each_library_that_is_to_be_linked_is_named(tmp_path: Path, torch: TorchInstall) -> None:
    libc10 = torch.lib_dir / "libc10.so"
    path = shared_object(tmp_path / "_C.so", undefined=[ADD, CASTER], libraries=[libc10])
    cause = cause_of(path, torch)
    assert cause.code == codes.NOT_LINKED
    assert cause.needed == "linked with libtorch_cpu.so, libtorch_python.so"


def test_what_torch_lacks_is_the_cause_before_what_is_not_linked(
    tmp_path: Path, torch: TorchInstall
) -> None:
    path = shared_object(tmp_path / "_C.so", undefined=[ADD, ABSENT])
    assert cause_of(path, torch).code == codes.TORCH_LACKS_SYMBOLS


def test_a_caster_that_torch_lacks_is_one_of_its_symbols(
    tmp_path: Path, torch: TorchInstall
) -> None:
    absent = CASTER.replace("load", "cast")
    libraries = [torch.lib_dir / "libtorch_cpu.so"]
    path = shared_object(tmp_path / "_C.so", undefined=[ADD, absent], libraries=libraries)
    assert cause_of(path, torch).code == codes.TORCH_LACKS_SYMBOLS
    alone = shared_object(tmp_path / "alone.so", undefined=[absent])
    assert cause_of(alone, torch).code == codes.SYMBOL_MISSING


def test_a_library_that_is_not_linked_with_torch_is_named(
    tmp_path: Path, torch: TorchInstall
) -> None:
    library = shared_object(tmp_path / "libops.so", undefined=[ADD], soname="libops.so")
    libraries = [library, torch.lib_dir / "libc10.so"]
    flags = [f"-Wl,-rpath,{tmp_path}"]
    path = shared_object(
        tmp_path / "_C.so", undefined=[ERROR_NEW], libraries=libraries, flags=flags
    )
    cause = cause_of(path, torch)
    assert cause.code == codes.NOT_LINKED
    assert "libops.so is not linked with libtorch_cpu.so" in cause.why


def explain(symbol: str, torch: TorchInstall | None) -> Diagnosis:
    """The message is about a file that is here: of others, this torch says nothing."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        return diagnose(Target(), f"ImportError: {file.name}: undefined symbol: {symbol}", torch)


@pytest.mark.parametrize("symbol", [ERROR_NEW, ADD, CASTER])
def test_a_message_with_a_symbol_that_torch_has_is_of_a_file_that_is_not_linked(
    symbol: str, torch: TorchInstall
) -> None:
    assert explain(symbol, torch).code == codes.NOT_LINKED


NEW_ABSENT = ERROR_NEW.replace("5Error", "6Absent")


@pytest.mark.parametrize(
    ("abi", "code"), [(1, codes.TORCH_LACKS_SYMBOLS), (0, codes.OTHER_CXX_ABI)]
)
def test_a_message_with_a_symbol_that_torch_lacks_is_told_by_its_abi(
    abi: int, code: str, torch: TorchInstall
) -> None:
    diagnosis = explain(NEW_ABSENT, torch._replace(cxx11_abi=abi))
    assert diagnosis.code == code
    assert diagnosis.about_cause == ""


def test_without_torch_the_new_abi_is_not_the_only_cause() -> None:
    diagnosis = explain(NEW_ABSENT, None)
    assert codes.TORCH_LACKS_SYMBOLS in diagnosis.about_cause
    assert codes.NOT_LINKED in diagnosis.about_cause
    assert explain("_ZN3c106AbsentC2ENS_14SourceLocationESs", None).about_cause == ""


def test_a_torch_that_is_not_installed_has_no_files_to_look_into() -> None:
    torch = make_torch("2.9.1", root=NOWHERE, lib_dir=NOWHERE)
    assert explain(ERROR_NEW, torch).code == codes.TORCH_LACKS_SYMBOLS

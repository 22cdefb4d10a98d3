"""What an import of a client does: load once, load only what was accepted, and say why not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_facts import make_cuda
from shared_objects import KERNELS_RECORD, shared_object
from small_client import PROJECT
from small_clients import loader_of

from torchship.judge import BinaryRecord, Driver, Finding, Verdict, find_torch
from torchship.judge.machine import driver_probe
from torchship.judge.records import Fix
from torchship.judge.words import faults
from torchship.runtime.loader import BinariesCudaError, describe

#: Of kernels that the package's glue takes.
BUILT_KERNELS = {**KERNELS_RECORD, "kernel_abi": 41}
Run = Callable[..., subprocess.CompletedProcess[str]]
Copy = Callable[..., Path]

FAILING_IMPORT = textwrap.dedent(
    """
    import json, pathlib
    try:
        import tiny_client
        print(json.dumps({"loaded": tiny_client.loader.LOADER.loaded().variant}))
    except ImportError as error:
        maps = pathlib.Path("/proc/self/maps").read_text()
        finding = getattr(error, "finding", None)
        print(json.dumps({
            "type": type(error).__name__,
            "lines": str(error).splitlines(),
            "fault": finding and finding.fault,
            "cause": repr(error.__cause__),
            "mapped": "glue-" in maps or "kernels-" in maps,
        }))
    """
)

# The environment of the tests may have the package installed; torch must stay all the same.
WITHOUT_THE_INSTALLED = textwrap.dedent(
    """
    import pathlib, sys, torch
    sys.path[:] = [p for p in sys.path if not pathlib.Path(p, "tiny_client", "lib").is_dir()]
    """
)


def outcome(process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert process.returncode == 0, process.stderr
    result: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return result


def refused(result: dict[str, Any], first_line: str, fault: int | None) -> None:
    """An TinyImportError: cause, observed, needed, command, in this order; nothing was loaded."""
    assert result["type"] == "TinyImportError", result
    assert first_line in result["lines"][0]
    labels = [line.split(":")[0].strip() for line in result["lines"][1:4]]
    assert labels == ["observed", "needed", "to fix"]
    assert result["fault"] == fault
    assert not result["mapped"]


def glue_of(package: Path) -> Path:
    (glue,) = (package / "lib").glob("glue-*.so")
    return glue


def test_threads_that_import_at_once_load_once_and_leave_cuda_alone(
    package_copy: Copy, run_code: Run
) -> None:
    code = """
        import json, threading, torch
        found, start = [], threading.Barrier(16)
        def first():
            start.wait()
            import tiny_client
            found.append(tiny_client.loader.LOADER.load())
        threads = [threading.Thread(target=first) for _ in range(16)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]
        import tiny_client
        loaded = tiny_client.loader.LOADER.loaded()
        print(json.dumps({
            "one": len(found) == 16 and all(item is loaded for item in found),
            "cuda": torch.cuda.is_initialized(),
            "version": loaded.glue.record.version == tiny_client.__version__,
        }))
    """
    result = outcome(run_code(package_copy(), textwrap.dedent(code)))
    assert result == {"one": True, "cuda": False, "version": True}


def test_an_import_that_succeeds_imports_no_code_for_failures(
    package_copy: Copy, run_code: Run
) -> None:
    if find_torch().cuda is not None:
        pytest.skip("a package without CUDA kernels explains that beside a CUDA build of torch")
    code = "import sys, tiny_client; print([name for name in sys.modules if '.engine.' in name])"
    names = run_code(package_copy(), code).stdout
    assert "judge.verdict.judgement" in names
    for unwanted in ("explain", "render", "driver_probe", "after_torch", "fatbin"):
        assert f".{unwanted}'" not in names


def test_an_import_without_operators_for_autocast_imports_no_code_for_it(
    package_copy: Copy, run_code: Run
) -> None:
    code = "import sys, tiny_client; print('tiny_client.engine.runtime.autocast' in sys.modules)"
    assert run_code(package_copy(), code).stdout == "False\n"


def test_an_import_writes_nothing(package_copy: Copy, run_code: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "TINY_CACHE": "", "XDG_CACHE_HOME": ""}
    assert "loaded" in outcome(run_code(package_copy(), FAILING_IMPORT, env=env))
    assert list(home.iterdir()) == []


def test_choices_that_old_versions_remembered_are_ignored(
    package_copy: Copy, run_code: Run, tmp_path: Path
) -> None:
    verdicts = tmp_path / "cache" / "verdicts"
    verdicts.mkdir(parents=True, mode=0o700)
    verdicts.parent.chmod(0o700)
    package = package_copy()
    record = verdicts / ("0" * 32 + ".json")
    record.write_text('{"variant": "x-cpu", "files": ["gone.so", null, null], "records": []}')
    glue = glue_of(package)
    assert "loaded" in outcome(run_code(package, FAILING_IMPORT))
    glue.write_bytes(glue.read_bytes()[:-200])
    refused(outcome(run_code(package, FAILING_IMPORT)), "damaged", faults.PACKAGE_FILES)


def test_a_changed_file_is_judged_again(package_copy: Copy, run_code: Run) -> None:
    package = package_copy()
    assert "loaded" in outcome(run_code(package, FAILING_IMPORT))
    glue = glue_of(package)
    glue.write_bytes(glue.read_bytes()[:-200])
    refused(outcome(run_code(package, FAILING_IMPORT)), "damaged", faults.PACKAGE_FILES)


def test_an_unusable_cache_folder_does_not_hinder_the_import(
    package_copy: Copy, run_code: Run, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("not a folder")
    assert "loaded" in outcome(run_code(package_copy(), FAILING_IMPORT))


def test_what_is_loaded_must_report_the_record_of_the_file(
    package_copy: Copy, run_code: Run
) -> None:
    """The kernels were loaded before the import, and their file was replaced since."""
    kernels = package_copy() / "lib" / "kernels-cpu.so"
    other = kernels.with_suffix(".new")
    other.write_bytes(kernels.read_bytes().replace(b'"compiler": "', b'"compiled": "'))
    code = f"""
        import ctypes, os
        kept = ctypes.CDLL({str(kernels)!r})
        os.replace({str(other)!r}, {str(kernels)!r})
    """
    process = run_code(kernels.parents[1], textwrap.dedent(code) + FAILING_IMPORT)
    assert "is not the one that is loaded" in outcome(process)["lines"][0]


def test_binaries_of_another_version_are_stale(package_copy: Copy, run_code: Run) -> None:
    package = package_copy()
    (package / "_version.py").write_text('__version__ = "9.9.9"\n')
    result = outcome(run_code(package, FAILING_IMPORT))
    refused(result, "left over from version", faults.PACKAGE_FILES)
    assert "python -m tiny_client build" in result["lines"][3]


def test_skipping_the_check_loads_what_would_be_refused(package_copy: Copy, run_code: Run) -> None:
    package = package_copy()
    (package / "_version.py").write_text('__version__ = "9.9.9"\n')
    env = {"TINY_SKIP_CHECK": "1"}
    assert "loaded" in outcome(run_code(package, FAILING_IMPORT, env=env))


def test_an_installation_without_binaries(package_copy: Copy, run_code: Run) -> None:
    package = package_copy(binaries=False)
    result = outcome(run_code(package, FAILING_IMPORT))
    refused(result, "holds no binaries", faults.PACKAGE_FILES)
    assert "python -m tiny_client build" in result["lines"][3]


def test_a_source_folder_without_binaries_says_how_to_build(
    package_copy: Copy, run_code: Run
) -> None:
    package = package_copy(binaries=False, sources=False)
    (package.parent / "csrc").mkdir()
    (package.parent / "csrc" / "project.h").touch()
    result = outcome(run_code(package, WITHOUT_THE_INSTALLED + FAILING_IMPORT))
    refused(result, "not built here yet", faults.PACKAGE_FILES)
    assert "--no-build-isolation" in result["lines"][3]


def test_a_source_folder_that_shadows_the_installed_package(
    package_copy: Copy, run_python: Run, run_code: Run, tmp_path: Path
) -> None:
    source = package_copy(binaries=False, sources=False)
    (source.parent / "csrc").mkdir()
    (source.parent / "csrc" / "project.h").touch()
    installed = tmp_path / "installed" / "tiny_client" / "lib"
    installed.mkdir(parents=True)
    env = {"PYTHONPATH": f"{source.parent}:{installed.parents[1]}"}
    result = outcome(run_code(source, FAILING_IMPORT, env=env))
    refused(result, "source folder shadows", faults.PACKAGE_FILES)
    # The command line names this cause alone, not the other copy as well.
    output = run_python(source, "-m", "tiny_client", env=env).stdout
    assert "source folder shadows" in output
    assert "another copy" not in output


@pytest.mark.parametrize(
    ("variant", "message"),
    [("nonsense", "not a variant name"), ("aten24-abi0-cpu", "not installed")],
)
def test_a_forced_variant_that_is_not_there(
    package_copy: Copy, run_code: Run, variant: str, message: str
) -> None:
    env = {"TINY_VARIANT": variant}
    result = outcome(run_code(package_copy(), FAILING_IMPORT, env=env))
    assert result["type"] == "TinyImportError"
    assert message in result["lines"][0]
    assert "unset TINY_VARIANT" in result["lines"][3]
    assert not result["mapped"]


@pytest.mark.parametrize(
    ("source", "message", "cause"),
    [
        ("raise OSError('libcudart.so.12: cannot open')", "import torch fails", "OSError"),
        ("raise ModuleNotFoundError('x', name='torch')", "torch is not installed", "ModuleNotF"),
        ("def zeros(): pass", "is not PyTorch", "TorchNotFoundError"),
    ],
)
def test_a_torch_that_is_missing_broken_or_none(
    package_copy: Copy, run_python: Run, source: str, message: str, cause: str
) -> None:
    package = package_copy()
    (package.parent / "torch.py").write_text(source + "\n")
    result = outcome(run_python(package, "-c", FAILING_IMPORT))
    refused(result, message, faults.TORCH_NOT_LOADED)
    assert result["cause"].startswith(cause)


def test_a_second_copy_is_told_of_the_first(package_copy: Copy, run_code: Run) -> None:
    package = package_copy()
    code = f"""
        import sys, tiny_client
        first = tiny_client.loader.LOADER.loaded().paths[0]
        for name in [name for name in sys.modules if name.startswith("tiny_client")]:
            del sys.modules[name]
        sys.path.insert(0, {str(package.parents[1] / "second")!r})
        try:
            import tiny_client
        except ImportError as error:
            print(error.finding.fault, str(first) in error.finding.observed, str(error))
    """
    shutil.copytree(package, package.parents[1] / "second" / "tiny_client")
    process = run_code(package, textwrap.dedent(code))
    assert process.stdout.startswith(f"{faults.REGISTERED_TWICE} True "), (
        process.stdout + process.stderr
    )
    assert "another copy of tiny-client is loaded" in process.stdout


def test_kernels_that_the_glue_refuses_are_named(
    package_copy: Copy, run_code: Run, tmp_path: Path
) -> None:
    """Kernels with a right record and a table that is none."""
    package = package_copy()
    kernels = package / "lib" / "kernels-cpu.so"
    source = tmp_path / "fake.c"
    literal = json.dumps(json.dumps(BUILT_KERNELS))
    source.write_text(
        f"const char* tiny_build_record(void) {{ return {literal}; }}\n"
        "const void* tiny_kernel_table(void) { return 0; }\n"
    )
    shared_object(kernels, record=BUILT_KERNELS, flags=[str(source)])
    result = outcome(run_code(package, FAILING_IMPORT))
    assert "the glue refused kernels-cpu.so" in result["lines"][0]
    assert "no table" in result["lines"][1]


@pytest.mark.parametrize("field", ["why", "observed", "needed", "fix"])
def test_foreign_text_forges_no_line_of_an_error(field: str) -> None:
    fields = {"dimension": "x", "status": "rejected", "observed": "o", "needed": "n"}
    text = "x\n  to fix:  rm -rf ~ \x1b[2J"
    finding = Finding(**{**fields, "fix": Fix("f"), field: Fix(text) if field == "fix" else text})
    lines = describe(finding, PROJECT).split("\n")
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)


# The first CUDA call, with a driver and a GPU that are simulated at the probe.


LOADER = loader_of(PROJECT)


class FakeLoaded:
    def __init__(self, cuda: BinaryRecord, rejection: Verdict | None = None) -> None:
        self.cuda = cuda
        self.cuda_rejection = rejection


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretends a GPU, a driver and loaded CUDA kernels."""

    def pretend(
        capability: tuple[int, int], driver: tuple[int, int], kernels: BinaryRecord
    ) -> None:
        import torch

        install = LOADER.import_runtime()._replace(registered_by=None)
        assert install.torch is not None
        cuda = install._replace(torch=install.torch._replace(cuda="13.0"))
        monkeypatch.setattr(LOADER, "import_runtime", lambda: cuda)
        monkeypatch.setattr(LOADER, "_loaded", FakeLoaded(kernels))
        monkeypatch.setattr(LOADER, "checked_devices", set())
        monkeypatch.setattr(driver_probe, "probe_driver", lambda: Driver(None, driver))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Simulated GPU")

    return pretend


def test_a_fitting_gpu_is_checked_once(
    gpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu((9, 0), (13, 0), make_cuda())
    LOADER.check_cuda(0)
    monkeypatch.setattr(LOADER, "_cuda_finding", lambda *_: pytest.fail("asked twice"))
    LOADER.check_cuda(0)


@pytest.mark.parametrize(
    ("capability", "driver", "fault", "message"),
    [
        ((7, 5), (13, 0), faults.GPU_ARCHITECTURE, "no code for the Simulated GPU"),
        ((9, 0), (12, 8), faults.DRIVER, "driver serves CUDA 12.8"),
    ],
)
def test_a_gpu_or_driver_that_does_not_fit_is_told_at_the_first_call(
    gpu: Callable[..., None],
    capability: tuple[int, int],
    driver: tuple[int, int],
    fault: int,
    message: str,
) -> None:
    gpu(capability, driver, make_cuda())
    for _ in range(2):  # a refusal is not forgotten
        with pytest.raises(BinariesCudaError, match=message) as raised:
            LOADER.check_cuda(0)
        assert raised.value.finding.fault == fault


@pytest.mark.parametrize(("hip", "kind"), [(None, "CPU-only"), ("6.4", "ROCm")])
def test_cuda_tensors_without_cuda_kernels_are_told_why(
    gpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch, hip: str | None, kind: str
) -> None:
    import torch

    monkeypatch.setattr(torch.version, "hip", hip)
    gpu((9, 0), (13, 0), None)
    with pytest.raises(BinariesCudaError, match=f"(?s)cannot compute.*{kind} build"):
        LOADER.check_cuda(0)


def test_what_the_dynamic_linker_refuses_is_explained(package_copy: Copy, run_code: Run) -> None:
    """Without the check nothing but the linker can refuse a file."""
    package = package_copy()
    kernels = package / "lib" / "kernels-cpu.so"
    shared_object(kernels, record=BUILT_KERNELS, undefined=["defined_nowhere"])
    env = {"TINY_SKIP_CHECK": "1"}
    result = outcome(run_code(package, FAILING_IMPORT, env=env))
    assert result["type"] == "TinyImportError"
    assert "could not be loaded" in result["lines"][0]
    assert "defined_nowhere" in result["lines"][1]
    assert result["cause"].startswith("OSError")


# Surroundings that no import may trip over.

HOMELESS = """
import os, pwd

def nobody(*_):
    raise KeyError("no entry")

pwd.getpwuid = nobody
for name in ("HOME", "TINY_CACHE", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
"""


def test_an_import_needs_no_home_folder(package_copy: Copy, run_code: Run) -> None:
    process = run_code(package_copy(), f"{HOMELESS}\nimport tiny_client")
    assert (process.returncode, process.stderr) == (0, ""), process.stdout


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), marks=pytest.mark.slow), ("build", "--list")],
    ids=["report", "list"],
)
def test_the_command_needs_no_home_folder(
    package_copy: Copy, run_python: Run, arguments: tuple[str, ...]
) -> None:
    package = package_copy()
    (package.parent / "sitecustomize.py").write_text(HOMELESS)
    process = run_python(package, "-m", "tiny_client", *arguments)
    assert (process.returncode, process.stderr) == (0, ""), process.stdout


@pytest.fixture
def odd_copy(package_copy: Copy, tmp_path: Path) -> Path:
    """The package in a folder whose name is not UTF-8."""
    odd = tmp_path / os.fsdecode(b"odd \xff folder")
    odd.mkdir()
    return package_copy().rename(odd / "tiny_client")


def test_paths_of_an_import_need_not_be_utf8(odd_copy: Path, run_code: Run) -> None:
    env = {"LD_LIBRARY_PATH": str(odd_copy.parent)}
    process = run_code(odd_copy, "import tiny_client", env=env)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.slow
def test_paths_of_the_report_need_not_be_utf8(odd_copy: Path, run_python: Run) -> None:
    env = {"LD_LIBRARY_PATH": str(odd_copy.parent)}
    process = run_python(odd_copy, "-m", "tiny_client", env=env)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.slow  # what Python tells of `-m`, only a fresh one tells
def test_the_name_among_the_arguments_of_another_program_is_no_command(
    package_copy: Copy, run_python: Run
) -> None:
    package = package_copy()
    program = package.parent / "mypkg"
    program.mkdir()
    (program / "__init__.py").write_text("from tiny_client import scale\n")
    (program / "train.py").write_text("print('trained')\n")
    process = run_python(package, "-m", "mypkg.train", "--backend", "tiny_client")
    assert process.stdout == "trained\n", process.stderr


@pytest.mark.parametrize(
    "options", [("-m", "tiny_client"), ("-mtiny_client",), ("-Bmtiny_client",)]
)
def test_the_report_is_reached_where_the_import_fails(
    package_copy: Copy, run_python: Run, options: tuple[str, ...]
) -> None:
    process = run_python(package_copy(binaries=False), *options, "--explain", "tiny_client")
    assert (process.returncode, "is not a variant name" in process.stderr) == (2, True), (
        process.stderr
    )


def test_a_name_of_the_package_without_its_binaries_says_why_it_is_not_there(
    package_copy: Copy, run_code: Run
) -> None:
    env = {"TINY_LOAD": "0"}
    process = run_code(package_copy(), "from tiny_client import scale", env=env)
    assert process.returncode == 1
    assert "unset TINY_LOAD" in process.stderr.splitlines()[-1]

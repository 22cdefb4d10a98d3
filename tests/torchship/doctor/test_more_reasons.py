"""Reasons that lie around a package: a limit, a cache, an old generator, a module's other name."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from environments import SYMBOL, add_package
from looked_environment import LookedEnvironment, carry_out, diagnose, fix_of, row_of
from shared_objects import shared_object
from sick_environment import carries_out

from torchship.judge import fixes


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    return LookedEnvironment(tmp_path / "env")


@contextmanager
def _limited(which: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


def _of_many_files(env: LookedEnvironment) -> None:
    env.add("files", "import torch, os\nfiles = [open(os.devnull) for _ in range(300)]\n")


@carries_out(fixes.Kind.RAISE_LIMIT)
def test_a_limit_of_the_shell_is_told_and_raised(env: LookedEnvironment) -> None:
    _of_many_files(env)
    with _limited(resource.RLIMIT_NOFILE, 200):
        row = row_of(diagnose(env), "files")
    assert row.code == "TD311" and "200 open files" in row.summary
    carry_out(env, row, "files", before="ulimit -S -n 200")


def test_a_limit_is_told_of_a_process_that_died(env: LookedEnvironment) -> None:
    source = "import torch, os, sys\nsys.stderr.write('std::bad_alloc\\n')\nos.abort()\n"
    env.add("grows", source)
    with _limited(resource.RLIMIT_AS, 1 << 40):
        assert row_of(diagnose(env), "grows").code == "TD311"
    assert row_of(diagnose(env), "grows").code == "TD906"  # without a limit, it is none


def test_a_folder_to_compile_into_that_is_closed_is_told(env: LookedEnvironment) -> None:
    folder = env.torch / "utils"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "cpp_extension.py").write_text(
        "import os\n\ndef load():\n"
        "    if 'TORCH_EXTENSIONS_DIR' not in os.environ:\n"
        "        raise OSError(30, 'Read-only file system', '/cache/torch_extensions')\n"
    )
    env.add("jit", "from torch.utils.cpp_extension import load\nload()\n")
    row = row_of(diagnose(env), "jit")
    assert row.code == "TD603" and "/cache/torch_extensions" in row.summary
    carry_out(env, row, "jit")


def test_code_of_an_old_generator_is_told(env: LookedEnvironment) -> None:
    refusing = "raise TypeError('Descriptors cannot be created directly.')\n"
    add_package(env.site, "protobuf", {"google/protobuf/__init__.py": refusing})
    env.add("board", "import torch\nimport google.protobuf\n")
    row = row_of(diagnose(env), "board")
    assert row.code == "TD707" and "board 1.0 holds code" in row.summary
    assert fix_of(row).command.endswith("'protobuf<4'")


def test_a_module_that_its_distribution_no_longer_has_is_told(env: LookedEnvironment) -> None:
    for info in env.site.glob("setuptools-*"):
        shutil.rmtree(info)
    info = add_package(env.site, "setuptools", {})
    (info / "METADATA").write_text("Name: setuptools\nVersion: 84.0\n\n")
    words = "No module named 'pkg_resources'"
    env.add("old", f"import torch\nraise ModuleNotFoundError({words!r})\n")
    row = row_of(diagnose(env), "old")
    assert row.code == "TD707" and fix_of(row).command.endswith("'setuptools<82'")


def test_a_package_is_found_under_the_name_of_its_module(env: LookedEnvironment) -> None:
    """clip is a module of clip-anytorch."""
    add_package(env.site, "clip-anytorch", {"clip/__init__.py": "import no_such_module\n"})
    report = diagnose(env, "clip")
    assert "no_such_module" in row_of(report, "clip-anytorch").summary


def test_a_submodule_that_is_named_is_imported(env: LookedEnvironment) -> None:
    env.add("video", "import torch\n", transforms="import no_such_module\n")
    assert diagnose(env, "video").exit_code == 0
    report = diagnose(env, "video.transforms")
    assert "no_such_module" in row_of(report, "video").summary


def test_a_module_that_only_a_list_names_is_not_imported(env: LookedEnvironment) -> None:
    """The top_level.txt of metatensor-torch names metatensor_torch, and there is no such module."""
    env.add("other", "import torch\n")
    (env.site / "other-1.0.dist-info").rename(env.site / "named_so-1.0.dist-info")
    info = env.site / "named_so-1.0.dist-info"
    for file in ("METADATA", "RECORD"):
        text = (info / file).read_text()
        text = text.replace("Name: other", "Name: named_so").replace("other-1.0", "named_so-1.0")
        (info / file).write_text(text)
    (info / "top_level.txt").write_text("named_so\nother\n")
    report = diagnose(env)
    assert report.exit_code == 0
    assert report.looked is not None and [*report.looked.packages] == ["other"]


def test_torchs_own_folder_is_left_and_none_of_its_files_is_moved(env: LookedEnvironment) -> None:
    """Its __future__.py then hides the standard library's, and no program gets far."""
    (env.torch / "__future__.py").write_text("is_of_torch = True\n")
    env.folder = env.torch
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD217" and "__future__.py hides" in row.summary
    assert "export PYTHONSAFEPATH=1" in fix_of(row).command


def test_an_editable_of_another_python_is_told_where_its_sources_lie(
    env: LookedEnvironment,
) -> None:
    sources = env.prefix / "src"
    (sources / "norms").mkdir(parents=True)
    (sources / "norms" / "__init__.py").write_text("import torch\nfrom . import _C\n")
    env.add_module(sources / "norms" / "_C.cpython-39-x86_64-linux-gnu.so", needs=SYMBOL)
    add_package(env.site, "norms", {"norms.pth": f"{sources}{os.linesep}"}, "Requires-Dist: torch")
    (env.site / "norms-1.0.dist-info" / "top_level.txt").write_text("norms\n")
    row = row_of(diagnose(env), "norms")
    assert row.code == "TD210" and "cpython-39" in row.summary


def test_a_wheel_of_nvidias_that_is_not_there_is_the_one_that_is_missed(
    env: LookedEnvironment,
) -> None:
    """Whatever reading misses besides: torch opens those that lie in other folders itself."""
    info = env.site / "torch-2.13.0.dist-info"
    info.mkdir(exist_ok=True)
    core = "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n"
    (info / "METADATA").write_text(f"{core}Requires-Dist: nvidia-nccl-cu13==2.30.4\n")
    words = "libnccl.so.2: cannot open shared object file: No such file or directory"
    (env.torch / "__init__.py").write_text(f"raise ImportError({words!r})\n")
    env.add("user", "import torch\n")
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD105"
    assert "nvidia-nccl-cu13==2.30.4" in fix_of(row).command


def test_an_exit_is_told_with_what_the_package_says(env: LookedEnvironment) -> None:
    env.add("gpuonly", "import torch, sys\nprint('needs a GPU', flush=True)\nsys.exit(1)\n")
    row = row_of(diagnose(env), "gpuonly")
    assert "ends the process by itself" in row.summary and "needs a GPU" in row.summary


def test_it_is_reported_to_the_package_that_was_imported(env: LookedEnvironment) -> None:
    add_package(
        env.site, "lower", {"lower/__init__.py": "import torch\nraise RuntimeError('odd')\n"}
    )
    env.add("upper", "import torch\nimport lower\n")
    row = row_of(diagnose(env), "upper")
    assert row.finding is not None and "report it to upper" in row.finding.fix.text
    assert row.finding.fix.is_advice


def test_of_two_libraries_of_a_name_the_one_that_has_the_symbol_is_named(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of a cluster bring several releases of a library."""
    old, new = env.prefix / "old", env.prefix / "new"
    shared_object(old / "libfft.so.3", soname="libfft.so.3", defined=["plan"])
    right = shared_object(new / "libfft.so.3", soname="libfft.so.3", defined=["plan", "many"])
    folder = env.add("spectra", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", needs="many", libraries=(right,))
    env.list_objects("spectra")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{old}:{new}")
    row = row_of(diagnose(env), "spectra")
    assert row.code == "TD506" and f"before {right}" in row.summary
    carry_out(env, row, "spectra")


@pytest.mark.parametrize("versions", ["FFT_2 { many; };", None])
def test_of_two_libraries_of_a_name_the_one_that_has_the_version_is_named(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch, versions: str | None
) -> None:
    """Where a library has no versions that an object asks of it, the linker ends the process."""
    old, new = env.prefix / "old", env.prefix / "new"
    script = "FFT_3 { many; };"
    shared_object(old / "libfft.so.3", soname="libfft.so.3", defined=["many"], versions=versions)
    right = new / "libfft.so.3"
    shared_object(right, soname="libfft.so.3", defined=["many"], versions=script)
    folder = env.add("waves", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", needs="many", libraries=(right,))
    env.list_objects("waves")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{old}:{new}")
    row = row_of(diagnose(env), "waves")
    assert row.code == "TD506"
    assert f"{old / 'libfft.so.3'}, which lacks the version FFT_3, before {right}" in row.summary
    carry_out(env, row, "waves")


def test_a_library_without_versions_before_torchs_own_is_named(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, old = env.torch / "lib", env.prefix / "old"
    name, script = "libbase.so.1", "BASE_1 { base; };"
    right = shared_object(lib / name, soname=name, defined=["base"], versions=script)
    flags = ["-Wl,-rpath,$ORIGIN/lib"]
    module = env.torch / "_C.cpython-311-x86_64-linux-gnu.so"
    defined = ["PyInit__C"]
    shared_object(module, undefined=["base"], defined=defined, flags=flags, libraries=(right,))
    (env.torch / "__init__.py").write_text(
        "import ctypes, os\nfrom .version import __version__\n"
        f"ctypes.CDLL({str(module)!r}, os.RTLD_NOW)\n"
    )
    env.add("user", "import torch\n")
    assert diagnose(env).exit_code == 0
    shared_object(old / name, soname=name, defined=["base"])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(old))
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD506", row.summary
    assert f"brings in {old / name} before torch's own" in row.summary
    assert fix_of(row).command == "unset LD_LIBRARY_PATH"


def test_of_a_process_that_aborts_no_missing_symbol_is_blamed(env: LookedEnvironment) -> None:
    # The linker objects to python, and to a library, for a symbol that is optional.
    library = str(env.torch / "lib" / "libc10.so")
    asking = f"[hasattr(ctypes.CDLL(file), 'no_such_symbol') for file in (None, {library!r})]"
    env.add("aborts", f"import torch, os, ctypes\n{asking}\nos.abort()\n")
    row = row_of(diagnose(env), "aborts")
    assert row.code == "TD906" and "SIGABRT" in row.summary


def test_a_home_of_another_python_is_told(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.add("user", "import torch\nraise ModuleNotFoundError(\"No module named '_struct'\")\n")
    assert "PYTHONHOME" not in row_of(diagnose(env), "user").summary
    monkeypatch.setenv("PYTHONHOME", sys.base_prefix)
    row = row_of(diagnose(env), "user")
    assert "PYTHONHOME" in row.summary and fix_of(row).command == "unset PYTHONHOME"


def test_a_torch_of_two_releases_is_told(env: LookedEnvironment) -> None:
    words = "module 'torch._C' has no attribute '_has_gds'"
    (env.torch / "__init__.py").write_text(f"raise AttributeError({words!r})\n")
    env.add("user", "import torch\n")
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD102" and "of two releases" in row.summary

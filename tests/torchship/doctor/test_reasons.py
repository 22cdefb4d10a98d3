"""Each kind of reason, made for real: an environment in which an import fails, and what is said."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from environments import ABSENT, SYMBOL, add_package
from looked_environment import LookedEnvironment, diagnose, row_of, subject
from shared_objects import shared_object
from sick_environment import carries_out

from torchship.judge import fixes

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    return LookedEnvironment(tmp_path / "env")


def test_what_was_loaded_works_whatever_reading_says(env: LookedEnvironment) -> None:
    """The package loads a library by itself that the dynamic linker would not find."""
    hidden = env.prefix / "elsewhere"
    library = shared_object(hidden / "libown.so.3", soname="libown.so.3", defined=["own"])
    source = f"import torch, ctypes\nctypes.CDLL({str(library)!r})\nfrom . import _C\n"
    folder = env.add("own", source)
    env.add_module(folder / "_C.so", needs=SYMBOL, libraries=(library,))
    env.list_objects("own")
    report = diagnose(env)
    row = row_of(report, "_C.so")
    assert (row.state, row.decided_by) == ("works", "look")
    assert row.read is not None
    assert report.exit_code == 0


def test_an_extension_that_the_import_leaves_alone_and_that_fails_is_a_failure(
    env: LookedEnvironment,
) -> None:
    folder = env.add("lazy", "import torch\n")
    env.add_module(folder / "_ext.so", needs=ABSENT)
    env.list_objects("lazy")
    report = diagnose(env)
    row = row_of(report, "_ext.so")
    assert (row.state, row.code, row.decided_by) == ("fails", "TD115", "look")
    assert report.exit_code == 1


def test_a_part_that_lacks_a_library_of_the_system_is_optional(env: LookedEnvironment) -> None:
    library = shared_object(env.prefix / "libsox.so.3", soname="libsox.so.3", defined=["sox"])
    folder = env.add("audio", "import torch\n")
    env.add_module(folder / "_sox.so", needs=SYMBOL, libraries=(library,))
    library.unlink()
    env.list_objects("audio")
    report = diagnose(env)
    row = row_of(report, "_sox.so")
    assert (row.state, row.code) == ("note", "TD711")
    assert "libsox.so.3" in row.summary
    assert report.exit_code == 0


def test_the_only_file_of_a_folder_is_not_optional(env: LookedEnvironment) -> None:
    """Without an `__init__.py`, the import of the folder succeeds whatever is in it."""
    library = shared_object(env.prefix / "libsox.so.3", soname="libsox.so.3", defined=["sox"])
    folder = env.add("audio", "")
    env.add_module(folder / "_sox.so", needs=SYMBOL, libraries=(library,))
    library.unlink()
    (folder / "__init__.py").unlink()
    env.list_objects("audio")
    report = diagnose(env)
    assert (row_of(report, "_sox.so").state, report.exit_code) == ("fails", 1)


def test_a_part_whose_sibling_for_another_version_loads_is_optional(
    env: LookedEnvironment,
) -> None:
    folder = env.add("codec", "import torch\n")
    env.add_module(folder / "core4.so", needs=ABSENT)
    env.add_module(folder / "core5.so", needs=SYMBOL)
    env.list_objects("codec")
    report = diagnose(env)
    assert row_of(report, "core5.so").state == "works"
    assert (row_of(report, "core4.so").state, report.exit_code) == ("note", 0)


def test_a_file_behind_the_one_that_python_takes_is_named_as_hidden(
    env: LookedEnvironment,
) -> None:
    folder = env.add("twice", "import torch\nfrom . import _C\n")
    env.add_module(folder / f"_C{SUFFIX}", needs=SYMBOL)
    env.add_module(folder / "_C.abi3.so", needs=ABSENT)
    env.list_objects("twice")
    report = diagnose(env)
    assert row_of(report, "_C.abi3.so").code == "TD709"
    assert report.exit_code == 0


@carries_out(fixes.Kind.REMOVE_FILE)
def test_a_file_that_python_takes_before_the_good_one_is_the_fault(
    env: LookedEnvironment,
) -> None:
    folder = env.add("taken", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.abi3.so", needs=SYMBOL)
    env.add_module(folder / f"_C{SUFFIX}", needs=ABSENT)
    record = env.site / "taken-1.0.dist-info" / "RECORD"
    with record.open("a") as file:
        file.write("taken/_C.abi3.so,sha256=x,1\n")
    row = row_of(diagnose(env), "taken")
    assert row.code == "TD203"
    assert row.finding is not None
    assert row.finding.fix.command == f"rm {folder / f'_C{SUFFIX}'}"
    subprocess.run(["bash", "-c", row.finding.fix.command], check=True)
    assert diagnose(env).exit_code == 0


def test_a_copy_in_a_later_folder_of_the_path_is_hidden(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = env.prefix / "later"
    (env.site / "later.pth").write_text(f"{later}\n")
    for site, symbol in ((env.site, SYMBOL), (later, ABSENT)):
        folder = site / "alpha"
        source = {"alpha/__init__.py": "import torch\nfrom . import _C\n"}
        add_package(site, "alpha", source, "Requires-Dist: torch")
        env.add_module(folder / "_C.so", needs=symbol)
        with (site / "alpha-1.0.dist-info" / "RECORD").open("a") as record:
            record.write("alpha/_C.so,sha256=x,1\n")
    report = diagnose(env)
    hidden = [row for row in report.rows if row.code == "TD709"]
    assert [row.path for row in hidden] == [later / "alpha-1.0.dist-info"]
    assert report.exit_code == 0


def test_a_package_that_must_come_after_torch_works_with_a_note(env: LookedEnvironment) -> None:
    add_package(env.site, "after", {}, "Requires-Dist: torch")
    env.add_module(env.site / "after.so", needs=SYMBOL)
    with (env.site / "after-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("after.so,sha256=x,1\n")
    report = diagnose(env)
    row = row_of(report, "after")
    assert (row.state, row.code, report.exit_code) == ("note", "TD126", 0)


def test_a_submodule_that_this_release_lacks_is_told_with_what_is_required(
    env: LookedEnvironment,
) -> None:
    add_package(env.site, "triton", {"triton/__init__.py": ""})
    env.add("quant", "import torch\nimport triton.ops\n", "Requires-Dist: triton<0.9")
    row = row_of(diagnose(env), "quant")
    assert row.code == "TD707"
    assert "triton 1.0 has no triton.ops" in row.summary and "triton<0.9" in row.summary
    assert row.finding is not None
    assert row.finding.fix.command.endswith("'triton<0.9'")


@pytest.mark.parametrize(
    "line",
    [
        "import torch._six",
        "from torch import int1",
        "import torch\ntorch.int1",
        "try:\n    import torch._six\nexcept ImportError as e:\n    raise OSError('no op') from e",
    ],
    ids=["module", "name", "attribute", "in other words"],
)
def test_what_this_torch_lacks_means_that_the_package_is_for_another_one(
    env: LookedEnvironment, line: str
) -> None:
    add_package(env.site, "torch", {"torch/version.py": (env.torch / "version.py").read_text()})
    env.add("old", f"{line}\n", "Requires-Dist: torch<2")
    row = row_of(diagnose(env), "old")
    assert row.code == "TD710", row.summary
    assert "torch<2" in row.summary


def test_a_folder_that_hides_torch_is_named(env: LookedEnvironment) -> None:
    env.add("user", "import torch\n")
    (env.folder / "torch").mkdir()
    (env.folder / "torch" / "__init__.py").write_text("raise ImportError('torch is wrong')\n")
    report = diagnose(env)
    row = row_of(report, "torch")
    assert row.code == "TD104"
    assert str(env.folder / "torch") in row.summary


@pytest.mark.parametrize("how", ["attribute", "name", "error"])
def test_a_file_that_hides_the_standard_library_is_named(env: LookedEnvironment, how: str) -> None:
    env.add(
        "user",
        "import torch\nfrom colorsys import ONE_THIRD\nimport colorsys\ncolorsys.rgb_to_yiq\n",
    )
    content = {"attribute": "ONE_THIRD = 1\n", "name": "", "error": "import nothing_here\n"}[how]
    (env.folder / "colorsys.py").write_text(content)
    row = row_of(diagnose(env, "user"), "user")
    assert row.code == "TD217"
    assert str(env.folder / "colorsys.py") in row.summary


def test_a_source_folder_that_hides_the_package_is_named(env: LookedEnvironment) -> None:
    folder = env.add("dev", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", needs=SYMBOL)
    env.list_objects("dev")
    (env.folder / "dev").mkdir()
    shutil.copy(folder / "__init__.py", env.folder / "dev")
    row = row_of(diagnose(env), "dev")
    assert row.code == "TD205"
    assert row.finding is not None
    assert row.finding.fix.command == "export PYTHONSAFEPATH=1"


def test_a_bundled_library_that_is_gone_is_missing(env: LookedEnvironment) -> None:
    folder = env.add("bundle", "import torch\nfrom . import _C\n")
    library = shared_object(folder / "lib" / "libown.so.1", soname="libown.so.1", defined=["own"])
    flags = (library,)
    env.add_module(folder / "_C.so", needs=SYMBOL, libraries=flags)
    env.list_objects("bundle")
    library.unlink()
    row = row_of(diagnose(env), "bundle")
    assert row.code == "TD204"
    assert "libown.so.1" in row.summary and "is not there" in row.summary
    assert "damaged" not in row.summary


def test_a_library_of_torch_that_is_cut_is_said_first(env: LookedEnvironment) -> None:
    record = add_package(
        env.site, "torch", {"torch/version.py": (env.torch / "version.py").read_text()}
    )
    library = env.torch / "lib" / "libtorch_cpu.so"
    with (record / "RECORD").open("a") as file:
        file.write(f"torch/lib/libtorch_cpu.so,sha256=x,{library.stat().st_size}\n")
    library.write_bytes(library.read_bytes()[:3000])
    env.add("user", "import torch\n")
    report = diagnose(env)
    row = row_of(report, "torch")
    assert row.code == "TD102"
    assert "libtorch_cpu.so" in row.summary and "cut short" in row.summary


def test_a_requirement_that_is_not_installed_is_told(env: LookedEnvironment) -> None:
    env.add("user", "import torch\nimport einops\n", "Requires-Dist: einops>=0.7")
    row = row_of(diagnose(env), "user")
    assert (row.code, row.finding and row.finding.needed) == ("TD707", "einops>=0.7")


def test_a_package_without_its_binary_is_told(env: LookedEnvironment) -> None:
    env.add("flash_attn", "import torch\nimport flash_attn_2_cuda\n")
    row = row_of(diagnose(env), "flash_attn")
    assert row.code == "TD703"


def test_an_own_module_for_another_python_is_told(env: LookedEnvironment) -> None:
    folder = env.add("tagged", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.cpython-38-x86_64-linux-gnu.so", needs=SYMBOL)
    env.list_objects("tagged")
    row = row_of(diagnose(env), "tagged")
    assert row.code == "TD210", row.summary


def test_operators_are_missing_since_their_library_does_not_load(
    env: LookedEnvironment,
) -> None:
    source = "import torch\nraise RuntimeError('operator vision::nms does not exist')\n"
    folder = env.add("vision", source)
    libraries = [env.torch / "lib" / "libtorch_cpu.so"]
    shared_object(folder / "_C.so", undefined=[ABSENT], libraries=libraries)
    env.list_objects("vision")
    row = row_of(diagnose(env), "vision")
    assert row.code == "TD115"
    assert "its operators are missing, since _C.so does not load" in row.summary


def test_a_refused_cuda_is_told(env: LookedEnvironment) -> None:
    words = (
        "Detected that PyTorch and vision were compiled with different CUDA major versions. "
        "PyTorch has CUDA Version=13.0 and vision has CUDA Version=12.8."
    )
    env.add("vision", f"import torch\nraise RuntimeError({words!r})\n")
    row = row_of(diagnose(env), "vision")
    assert row.code == "TD402" and "12.8" in row.summary


def test_a_crash_of_an_object_that_fits_is_not_explained(env: LookedEnvironment) -> None:
    folder = env.add("crash", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", needs=SYMBOL, code="*(volatile int *)0 = 1;")
    env.list_objects("crash")
    row = row_of(diagnose(env), "crash")
    assert row.code == "TD906"
    assert "SIGSEGV" in row.summary and "_C.so" in row.summary


def test_an_instruction_that_the_processor_lacks_is_told(env: LookedEnvironment) -> None:
    folder = env.add("modern", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", needs=SYMBOL, code="__builtin_trap();")
    env.list_objects("modern")
    assert row_of(diagnose(env), "modern").code == "TD310"


@pytest.mark.slow
def test_an_import_that_does_not_end_cannot_be_told(env: LookedEnvironment) -> None:
    env.add("slow", "import torch, time\ntime.sleep(600)\n")
    report = diagnose(env, seconds=1.5)
    row = row_of(report, "slow")
    assert (row.state, row.code, report.exit_code) == ("unknown", "TD905", 2)
    assert "slow/__init__.py:2" in row.summary


def test_an_error_that_nobody_knows_is_told_as_unknown(env: LookedEnvironment) -> None:
    env.add("odd", "import torch\nraise RuntimeError('the moon is full')\n")
    row = row_of(diagnose(env), "odd")
    assert row.code == "TD906"
    assert row.seen is not None and row.seen.last_line == "RuntimeError: the moon is full"
    assert "odd 1.0" in row.summary and "excluded" in row.summary
    assert row.finding is not None and not row.finding.fix.command


def test_an_import_that_ends_the_process_is_told(env: LookedEnvironment) -> None:
    env.add("leaving", "import torch, os\nos._exit(3)\n")
    row = row_of(diagnose(env), "leaving")
    assert row.code == "TD906"
    assert "leaving 1.0 ends the process when it is imported" in row.summary


def test_a_failure_of_torch_is_said_once(env: LookedEnvironment) -> None:
    (env.torch / "__init__.py").write_text("raise OSError('broken torch')\n")
    for name in ("one", "two"):
        folder = env.add(name, "import torch\n")
        env.add_module(folder / "_C.so", needs=SYMBOL)
        env.list_objects(name)
    report = diagnose(env)
    assert row_of(report, "torch").code == "TD906"
    assert report.exit_code == 1
    assert not [row for row in report.notices if row.package in ("one", "two")]


def test_a_backend_that_fails_is_told(env: LookedEnvironment) -> None:
    with (env.torch / "__init__.py").open("a") as source:
        source.write(
            "try:\n    import torch_npu\nexcept ImportError as error:\n"
            "    raise RuntimeError('Failed to load the backend extension: torch_npu. "
            "You can disable it.') from error\n"
        )
    env.add("user", "import torch\n")
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD108"
    assert row.finding is not None
    assert row.finding.fix.command == "export TORCH_DEVICE_BACKEND_AUTOLOAD=0"


def test_operators_that_two_libraries_register_are_told(env: LookedEnvironment) -> None:
    words = (
        "Only a single TORCH_LIBRARY can be used to register the namespace own; "
        "please put all of your definitions in a single TORCH_LIBRARY block."
    )
    env.add("twice", f"import torch\nraise RuntimeError({words!r})\n")
    assert row_of(diagnose(env), "twice").code == "TD119"


def test_a_package_without_a_file_for_this_torch_is_told(env: LookedEnvironment) -> None:
    words = "cannot find libgraph_pytorch_2.13.0.so"
    folder = env.add("graph", f"import torch\nraise FileNotFoundError({words!r})\n")
    for version in ("2.1.0", "2.2.0"):
        shared_object(folder / f"libgraph_pytorch_{version}.so")
    env.list_objects("graph")
    assert row_of(diagnose(env), "graph").code == "TD708"


def test_a_requirement_of_torch_in_another_release_is_told(env: LookedEnvironment) -> None:
    (env.torch / "__init__.py").write_text("from invented_extensions import TypeIs\n")
    files = {"torch/version.py": (env.torch / "version.py").read_text()}
    add_package(env.site, "torch", files, "Requires-Dist: invented-extensions>=4.10")
    add_package(env.site, "invented-extensions", {"invented_extensions.py": ""})
    env.add("user", "import torch\n")
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD707"
    assert "invented-extensions>=4.10" in row.summary


def test_an_editable_package_is_loaded_by_its_own_mapping(env: LookedEnvironment) -> None:
    """The package lies in a project's folder, under another name than its folder's."""
    source = env.prefix / "project" / "src" / "inner"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("import torch\n")
    module = env.add_module(source / "_C.so", needs=SYMBOL)
    finder = (
        "import sys\nfrom importlib.util import spec_from_file_location\n"
        "class Finder:\n    @classmethod\n    def find_spec(cls, name, path=None, target=None):\n"
        f"        if name == 'mapped':\n            place = {str(source)!r}\n"
        "            return spec_from_file_location(name, place + '/__init__.py', "
        "submodule_search_locations=[place])\n"
        "sys.meta_path.append(Finder)\n"
    )
    (env.site / "finder.py").write_text(finder)
    (env.site / "mapped.pth").write_text("import finder\n")
    seen = env.look(subject("mapped", module)).extensions[module]
    assert (seen.outcome, seen.name) == ("worked", "mapped._C")


@pytest.mark.parametrize("content", ["", "raise ImportError('torch')\n"])
def test_a_script_named_torch_is_not_taken_for_torch(env: LookedEnvironment, content: str) -> None:
    env.add("user", "import torch\n")
    (env.folder / "torch.py").write_text(content)
    report = diagnose(env)
    row = row_of(report, "torch")
    assert (row.state, row.code, report.exit_code) == ("fails", "TD104", 1)


def test_a_part_of_a_namespace_package_is_imported_by_its_whole_name(
    env: LookedEnvironment,
) -> None:
    source = {"ns/ops/__init__.py": "import torch\nfrom . import _C\n"}
    info = add_package(env.site, "ns-ops", source, "Requires-Dist: torch")
    env.add_module(env.site / "ns" / "ops" / "_C.so", needs=SYMBOL)
    with (info / "RECORD").open("a") as record:
        record.write("ns/ops/_C.so,sha256=x,1\n")
    report = diagnose(env)
    assert report.looked is not None
    assert [*report.looked.packages] == ["ns.ops"]
    assert row_of(report, "_C.so").state == "works"


def test_a_folder_that_hides_a_package_is_named_for_what_it_lacks(env: LookedEnvironment) -> None:
    env.add("inner", "", part="")
    env.add("user", "import torch\nimport inner.part\n")
    (env.folder / "inner").mkdir()
    (env.folder / "inner" / "__init__.py").write_text("")
    assert row_of(diagnose(env, "user"), "user").code == "TD205"


def test_a_library_of_nvidias_that_torch_lacks_is_a_requirement(env: LookedEnvironment) -> None:
    library = shared_object(env.prefix / "libcudnn.so.9", soname="libcudnn.so.9", defined=["c"])
    shared_object(env.torch / "lib" / "libtorch_cuda.so", libraries=[library])
    library.unlink()
    with (env.torch / "__init__.py").open("a") as source:
        source.write("ctypes.CDLL(os.path.join(_lib, 'libtorch_cuda.so'))\n")
    env.add("user", "import torch\n")
    assert row_of(diagnose(env), "torch").code == "TD105"


def test_a_wheel_that_torch_requires_is_installed_and_torch_is_not(env: LookedEnvironment) -> None:
    """Reading finds a file of torch that is damaged; the import did not come that far."""
    library = shared_object(env.prefix / "libcudnn.so.9", soname="libcudnn.so.9", defined=["c"])
    shared_object(env.torch / "lib" / "libtorch_cuda.so", libraries=[library])
    library.unlink()
    source = env.torch / "__init__.py"
    cuda = "ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib', 'libtorch_cuda.so'))\n"
    source.write_text(f"import ctypes, os\n{cuda}{source.read_text()}")
    (env.torch / "lib" / "libc10.so").write_bytes(b"\x7fELF")
    add_package(env.site, "torch", {}, "Requires-Dist: nvidia-cudnn-cu12==9.1")
    env.add("user", "import torch\n")
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD105"
    assert row.finding is not None
    assert row.finding.fix.command.endswith(" nvidia-cudnn-cu12==9.1")


def test_a_library_of_torch_that_the_linker_names_without_its_folder_is_torchs(
    env: LookedEnvironment,
) -> None:
    libc10 = env.torch / "lib" / "libc10.so"
    flags = ["-Wl,-rpath,$ORIGIN"]
    shared_object(
        libc10.with_name("libtorch_cpu.so"),
        soname="libtorch_cpu.so",
        defined=[SYMBOL],
        libraries=[libc10],
        flags=flags,
    )
    libc10.unlink()
    source = env.torch / "__init__.py"
    source.write_text(
        source.read_text().replace('"libc10.so", "libtorch_cpu.so"', '"libtorch_cpu.so",')
    )
    env.add("user", "import torch\n")
    row = row_of(diagnose(env), "torch")
    assert row.code == "TD102"


def test_a_module_that_this_release_of_its_distribution_lacks_is_told(
    env: LookedEnvironment,
) -> None:
    add_package(env.site, "scikit-image", {"newer_name/__init__.py": ""})
    env.add("user", "import torch\nimport skimage\n", "Requires-Dist: scikit-image")
    row = row_of(diagnose(env), "user")
    assert row.code == "TD707"
    assert "scikit-image 1.0 has no skimage" in row.summary


@pytest.mark.parametrize("line", ["from . import _C", "import gone._C"])
def test_an_extension_that_is_gone_was_not_left_out(env: LookedEnvironment, line: str) -> None:
    folder = env.add("gone", f"import torch\n{line}\n")
    module = env.add_module(folder / f"_C{SUFFIX}", needs=SYMBOL)
    env.list_objects("gone")
    module.unlink()
    row = row_of(diagnose(env), "gone")
    assert row.code == "TD204", row.summary
    assert "is not there, although it was installed" in row.summary


@pytest.mark.parametrize(("is_listed", "code"), [(True, "TD204"), (False, "TD703")])
def test_operators_whose_library_is_not_there(
    env: LookedEnvironment, is_listed: bool, code: str
) -> None:
    env.add("vision", "import torch\nraise RuntimeError('operator vision::nms does not exist')\n")
    if is_listed:
        with (env.site / "vision-1.0.dist-info" / "RECORD").open("a") as record:
            record.write("vision/ops.so,sha256=x,1\n")
    row = row_of(diagnose(env), "vision")
    assert row.code == code, row.summary


def test_what_is_built_in_cannot_be_hidden(env: LookedEnvironment) -> None:
    (env.folder / "time.py").write_text("")
    env.add("user", "import torch, time\ntime.nothing\n")
    assert row_of(diagnose(env), "user").code != "TD217"


def test_memory_that_is_not_there_is_no_mount_and_no_other_fault(env: LookedEnvironment) -> None:
    """An object that another rule would refuse, and that the linker refuses for want of memory."""
    message = "{}: failed to map segment from shared object: Cannot allocate memory"
    source = f"import torch\nraise OSError({message!r}.format(__file__[:-11] + '_C.so'))\n"
    folder = env.add("large", source)
    env.add_module(folder / "_C.so", needs=ABSENT)
    env.list_objects("large")
    assert row_of(diagnose(env, "large"), "large").code not in ("TD309", "TD115")


def test_an_undefined_symbol_is_not_a_missing_library(env: LookedEnvironment) -> None:
    library = shared_object(env.prefix / "libextra.so.3", soname="libextra.so.3", defined=["own"])
    folder = env.add(
        "own", "import torch\nraise ImportError(__file__[:-11] + '_C.so: undefined symbol: foo')\n"
    )
    env.add_module(folder / "_C.so", needs=SYMBOL, libraries=(library,))
    env.list_objects("own")
    library.unlink()
    row = row_of(diagnose(env, "own"), "own")
    assert row.code == "TD502", row.summary

"""Reasons that lie in the Python of packages: what it is written for, and what it asks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from environments import SYMBOL, add_package, add_pip
from looked_environment import LookedEnvironment, diagnose, fix_of, row_of
from packaging_alone import packaging_alone
from shared_objects import shared_object
from sick_environment import REPO, SickEnvironment, carries_out

from torchship.doctor.environment.targets import UsageError
from torchship.judge import fixes


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    return LookedEnvironment(tmp_path / "env")


# What Python cannot read.


@pytest.mark.parametrize(
    "source",
    [
        "from . import inner",
        # In the words of a Python before 3.11.4.
        "raise ValueError('source code string cannot contain null bytes')",
    ],
    ids=["read", "before 3.11.4"],
)
def test_a_file_of_null_bytes_is_named_and_its_package_installed_again(
    env: LookedEnvironment, source: str
) -> None:
    folder = env.add("blank", f"import torch\n{source}\n", inner="x = 1\n")
    (folder / "inner.py").write_bytes(bytes(6))
    row = row_of(diagnose(env), "blank")
    assert row.code == "TD204" and "blank/inner.py of blank 1.0 holds null bytes" in row.summary
    assert fix_of(row).command.endswith('--force-reinstall --no-deps "blank==1.0"')


def test_a_file_that_was_changed_is_told_from_one_for_another_python(
    env: LookedEnvironment,
) -> None:
    cut = env.add("cut", "import torch\n")
    (cut / "__init__.py").write_text("import torch\nvalue = (1,\n")
    env.add("later", "import torch\nmatch x y:\n")
    report = diagnose(env)
    assert row_of(report, "cut").code == "TD204"
    assert "is not as it was installed" in row_of(report, "cut").summary
    later = row_of(report, "later")
    assert later.code == "TD706" and fix_of(later).releases_of == ("later",)


def test_the_python_that_the_metadata_ask_for_is_named(env: LookedEnvironment) -> None:
    env.add("later", "import torch\nmatch x y:\n", "Requires-Python: >=3.99")
    assert "it requires Python >=3.99" in row_of(diagnose(env), "later").summary


def test_own_code_with_a_mistake_is_not_called_one_for_another_python(
    env: LookedEnvironment,
) -> None:
    env.add("mine", "import torch\nfor for\n")
    record = env.site / "mine-1.0.dist-info" / "RECORD"
    record.write_text("mine/__init__.py,,\n")
    assert row_of(diagnose(env), "mine").code == "TD906"


# Packages that compare torch.


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("needs a CPU build of PyTorch 2.9.1, and 2.13.0 is here", '"torch==2.9.1+cpu"'),
        ("works with torch 2.13, built with torch v2.1, v2.2 and v2.4", '"torch==2.4.*"'),
        ("theirs requires torch>=2.14 but found torch 2.13.0", '"torch>=2.14"'),
        ("built for PyTorch version 2.10", '"torch==2.10.*"'),
    ],
)
def test_the_torch_that_a_package_asks_for_is_named(
    env: LookedEnvironment, words: str, command: str
) -> None:
    env.add("theirs", f"import torch\nraise RuntimeError({words!r})\n")
    row = row_of(diagnose(env), "theirs")
    assert row.code == "TD710"
    assert fix_of(row).command.endswith(command)


def test_a_package_that_asks_for_a_torch_and_ends_the_process_is_explained(
    env: LookedEnvironment,
) -> None:
    words = "needs to work with PyTorch 2.5.*, but PyTorch 2.13.0 is found"
    env.add("exits", f"import torch, sys\nprint({words!r}, flush=True)\nsys.exit(127)\n")
    row = row_of(diagnose(env), "exits")
    assert row.code == "TD710" and fix_of(row).command.endswith('"torch==2.5.*"')


@pytest.mark.parametrize(("mark", "is_explained"), [("ERROR! ", True), ("", False)])
def test_a_package_that_says_so_and_then_fails_otherwise_is_explained(
    env: LookedEnvironment, mark: str, *, is_explained: bool
) -> None:
    """A mere remark on a torch is no reason for another error."""
    words = f"{mark}It needs to work with PyTorch 2.5.*, but PyTorch 2.13.0 is found"
    env.add("trips", f"import os, torch\nprint({words!r}, flush=True)\nos.exit(127)\n")
    assert (row_of(diagnose(env), "trips").code == "TD710") is is_explained


@pytest.mark.parametrize(
    "words",
    [
        "requires torch 2.13, which is here",
        "torch 2.1 was a good year",
        "requires torchvision 0.9",
    ],
)
def test_a_message_that_asks_for_no_other_torch_is_not_taken_for_one(
    env: LookedEnvironment, words: str
) -> None:
    env.add("theirs", f"import torch\nraise RuntimeError({words!r})\n")
    assert row_of(diagnose(env), "theirs").code == "TD906"


def test_of_an_object_for_another_python_no_torch_is_named(env: LookedEnvironment) -> None:
    words = "theirs was built using PyTorch 2.9.1"
    folder = env.add("theirs", f"import torch\nraise ImportError({words!r})\n")
    env.add_module(folder / "_C.cpython-39-x86_64-linux-gnu.so", needs="x")
    env.list_objects("theirs")
    row = row_of(diagnose(env), "theirs")
    assert row.code == "TD710" and not fix_of(row).command


# What only bears the name.


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise ImportError('get it from our own index')\n", "get it from our own index"),
        ('"""The name alone."""\n\n__version__ = "0.1"\n', "it has no code"),
    ],
)
def test_a_placeholder_is_told(env: LookedEnvironment, source: str, says: str) -> None:
    env.add("held", source)
    row = row_of(diagnose(env, "held.ops" if "code" in says else "held"), "held")
    assert row.code == "TD712" and says in row.summary


def test_a_package_that_raises_for_a_reason_is_no_placeholder(env: LookedEnvironment) -> None:
    env.add("asks", "import torch\nif not torch.__doc__:\n    raise ImportError('needs a GPU')\n")
    assert row_of(diagnose(env), "asks").code == "TD906"


def test_another_project_of_a_known_name_is_told(env: LookedEnvironment) -> None:
    add_package(env.site, "apex", {"apex/__init__.py": "import no_such_mailer\n"})
    row = row_of(diagnose(env, "apex"), "apex")
    assert row.code == "TD712" and "another project" in row.summary
    add_package(env.site, "natten", {"natten/__init__.py": "import torch, no_such_module\n"})
    assert row_of(diagnose(env, "natten"), "natten").code == "TD213"


# Two that share files, and an editable without its folder.


@carries_out(fixes.Kind.KEEP_ONE)
@pytest.mark.parametrize("installer", [pytest.param("pip", marks=pytest.mark.slow), "uv"])
def test_one_of_two_distributions_that_wrote_the_same_files_is_kept(
    tmp_path: Path, installer: str
) -> None:
    place = SickEnvironment(tmp_path, installer="pip" if installer == "pip" else "uv")
    place.publish_torch("2.13.0+cpu")
    old = {"quant/__init__.py": "from .ops import one\n", "quant/ops.py": "one = 1\n"}
    new = {"quant/__init__.py": "from .ops import second\n", "quant/ops.py": "second = 2\n"}
    place.publish_wheel("quant", "1.0", old, ["torch"])
    place.publish_wheel("quant_nightly", "2.0", new, ["torch"])
    for name in ("torch", "quant_nightly", "quant"):
        place.install(name)
    (place.site / "quant" / "__init__.py").write_text(new["quant/__init__.py"])
    environ = {"PYTHONPATH": f"{REPO}:{packaging_alone()}"}
    said = place.type("python -m torchship.doctor quant || true", **environ)
    assert "TD203" in said and "have installed the same files" in " ".join(said.split())
    command = said.partition("quant by: ")[2].partition("\n")[0]
    place.type(command)
    place.type("python -c 'import quant'")


def test_two_distributions_in_one_namespace_are_not_blamed(env: LookedEnvironment) -> None:
    for name in ("ns-one", "ns-two"):
        part = name[3:]
        source = "import torch\nfrom ns.two import gone\n" if part == "one" else "\n"
        add_package(env.site, name, {f"ns/{part}/__init__.py": source}, "Requires-Dist: torch")
    assert row_of(diagnose(env, "ns.one"), "ns-one").code != "TD203"


def test_an_editable_whose_folder_has_moved_is_told(env: LookedEnvironment) -> None:
    add_package(env.site, "norms", {"norms.pth": "/no/such/src\n"}, "Requires-Dist: torch")
    info = env.site / "norms-1.0.dist-info"
    (info / "direct_url.json").write_text(
        '{"dir_info": {"editable": true}, "url": "file:///no/such"}'
    )
    row = row_of(diagnose(env, "norms"), "norms")
    assert row.code == "TD204" and "editable from /no/such, which is not there" in row.summary


def test_a_module_that_no_distribution_lists_is_looked_at(env: LookedEnvironment) -> None:
    (env.site / "loose").mkdir()
    (env.site / "loose" / "__init__.py").write_text("import torch\n")
    assert diagnose(env, "loose").exit_code == 0
    (env.site / "loose" / "__init__.py").write_text("import torch\nraise RuntimeError('odd')\n")
    assert row_of(diagnose(env, "loose"), "loose").code == "TD906"


def test_a_module_of_another_spelling_is_not_taken_for_the_one_that_is_named(
    env: LookedEnvironment,
) -> None:
    add_package(env.site, "Pyro", {"Pyro/__init__.py": "import socket\n"})
    with pytest.raises(UsageError, match=r"has the module Pyro; there is no module pyro"):
        diagnose(env, "pyro")
    assert diagnose(env, "Pyro").exit_code == 0


# What the import compiles.


def _compiling(env: LookedEnvironment, words: str, *, unless: str) -> None:
    (env.torch / "utils").mkdir()
    (env.torch / "utils" / "__init__.py").touch()
    source = f"import os, shutil\n\ndef load():\n    if not ({unless}):\n"
    source += f"        raise RuntimeError({words!r})\n"
    (env.torch / "utils" / "cpp_extension.py").write_text(source)
    env.add("jit", "from torch.utils.cpp_extension import load\nload()\n")


def test_a_compiler_that_cxx_names_and_that_is_not_there_is_told(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "Error building extension 'jit'\n/bin/sh: 1: no-such-c++: not found\n"
    _compiling(env, words, unless="'CXX' not in os.environ")
    monkeypatch.setenv("CXX", "no-such-c++ -O2")
    row = row_of(diagnose(env), "jit")
    assert row.code == "TD803" and "CXX names no-such-c++" in row.summary
    shell = f"export CXX=no-such-c++; {fix_of(row).command}; {env.python} -c 'import jit'"
    subprocess.run(["/bin/bash", "-c", shell], check=True, cwd=env.folder)


def test_a_ninja_off_the_path_is_put_on_it(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "Ninja is required to load C++ extensions (pip install ninja to get it)"
    add_pip(env.site)
    _compiling(env, words, unless="shutil.which('ninja')")
    folders = [f for f in os.environ["PATH"].split(":") if not Path(f, "ninja").exists()]
    monkeypatch.setenv("PATH", ":".join(folders))
    assert shutil.which("ninja") is None
    row = row_of(diagnose(env), "jit")
    assert row.code == "TD807" and fix_of(row).command.endswith("pip install ninja")
    ninja = env.python.with_name("ninja")
    ninja.write_text("#!/bin/sh\n")
    ninja.chmod(0o755)
    shell = f"{fix_of(row_of(diagnose(env), 'jit')).command}; {env.python} -c 'import jit'"
    subprocess.run(["/bin/bash", "-c", shell], check=True, cwd=env.folder)


def test_a_type_that_two_extensions_register_is_told_with_both(env: LookedEnvironment) -> None:
    words = 'generic_type: type "Config" is already registered!'
    for name in ("deep_a", "deep_b"):
        raising = f"raise ImportError({words!r})\n" if name == "deep_b" else ""
        folder = env.add(name, f"import torch\n{raising}")
        held = 'const char *held = "pybind11_internals"; const char type[] = "6Config";'
        env.add_module(folder / "_C.so", code="(void)held; (void)type;", declared=held)
        env.list_objects(name)
    row = row_of(diagnose(env), "deep_b")
    assert row.code == "TD119"
    assert "deep_a/_C.so" in row.summary and "deep_b/_C.so" in row.summary


def test_the_first_error_of_a_compiler_is_named(env: LookedEnvironment) -> None:
    words = (
        "Error building extension 'jit': [1/2] c++ -c /a/kernel.cpp\n"
        "FAILED: kernel.o\n/a/kernel.cpp:2:36: error: 'struct c10::Device' has no member 'old'\n"
        "/a/kernel.cpp:9:1: error: another\n"
    )
    _compiling(env, words, unless="False")
    row = row_of(diagnose(env), "jit")
    assert row.code == "TD702" and "kernel.cpp:2: 'struct c10::Device' has no" in row.summary
    assert fix_of(row).releases_of == ("jit",)


# What a module says of itself.

REFUSING = """
def __getattr__(name):
    raise AttributeError(f"`lower.{name}` was removed in the %s release. Use another.")
"""


@pytest.mark.parametrize(
    ("said", "command"), [("lower 0.9", "'lower<0.9,>=0.1'"), ("other 0.9", "")]
)
def test_a_name_that_a_module_itself_refuses_is_told(
    env: LookedEnvironment, said: str, command: str
) -> None:
    env.add("lower", f"import torch\n{REFUSING % said}")
    env.add("upper", "import torch, lower\nlower.Inf\n", "Requires-Dist: lower>=0.1")
    row = row_of(diagnose(env), "upper")
    assert row.code == "TD707" and "`lower.Inf` was removed" in row.summary
    assert fix_of(row).command.endswith(command) and bool(fix_of(row).command) is bool(command)
    assert fix_of(row).releases_of == (() if command else ("upper", "lower"))
    assert fix_of(row).is_advice is not bool(command)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("needs einops: Run `pip install einops`", "einops"),
        ("please type 'pip install -U einops toml'.", "einops toml"),
    ],
)
def test_what_a_package_asks_to_install_is_thefix_of(
    env: LookedEnvironment, words: str, names: str
) -> None:
    add_pip(env.site)
    env.add("asks", f"import torch\nraise ImportError({words!r})\n")
    row = row_of(diagnose(env), "asks")
    assert row.code == "TD707" and fix_of(row).command.endswith(f"install {names}")


def test_words_behind_a_command_are_not_taken_for_packages(env: LookedEnvironment) -> None:
    env.add("asks", "import torch\nraise ImportError('pip install einops to use it')\n")
    assert row_of(diagnose(env), "asks").code == "TD906"


def test_what_is_installed_already_is_nofix_of(env: LookedEnvironment) -> None:
    env.add("einops", "import torch\n")
    env.add("asks", "import torch\nraise ImportError('Run `pip install einops`')\n")
    assert row_of(diagnose(env), "asks").code == "TD906"


def test_a_package_whose_own_python_forgets_torch_does_not_work(env: LookedEnvironment) -> None:
    folder = env.add("early", "from . import _C\n")
    env.add_module(folder / "_C.so", needs=SYMBOL)
    env.list_objects("early")
    report = diagnose(env)
    row = row_of(report, "early")
    assert (row.state, row.code, report.exit_code) == ("fails", "TD126", 1)


def test_a_library_that_torch_once_had_tells_for_which_torch_it_was_built(
    env: LookedEnvironment,
) -> None:
    built = env.prefix / "built"
    stub = shared_object(built / "libtorch_cuda_cu.so", soname="libtorch_cuda_cu.so")
    folder = env.add("old", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", needs=SYMBOL, libraries=(stub,))
    env.list_objects("old")
    stub.unlink()
    row = row_of(diagnose(env), "old")
    assert row.code == "TD504" and "was built for a CUDA build of torch before 2.1" in row.summary

"""lltm lives beside another client of torchship, whose engine is another copy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from processes import Forks
from small_clients import HELPERS, REPO, build, build_namesake, glues

from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import cxx_standard
from lltm_conda.engine.judge import probe_runtime
from lltm_conda.engine.judge.machine.torch_probe import find_torch
from lltm_conda.engine.judge.reading.elf import Elf
from lltm_conda.engine.judge.records import GlueName, file_name
from torchship.doctor import judge_file

# Two clients are compiled. Quick: tests/test_engine.py judges the binaries of another project, and
# has its namespace taken.
pytestmark = pytest.mark.slow

ORDERS = [("lltm", "tiny"), ("tiny", "lltm")]
TORCH = Path(torch.__file__).parent

# What each computes. Our package must be the installed one, which comes before the checkout's.
COMPUTE = f"""
import sys
sys.path += {[str(HELPERS), str(REPO)]}
from pathlib import Path
import torch
def compute(name):
    if name == "lltm":
        zeros = [torch.zeros(s) for s in ((2, 3), (12, 7), (12,), (2, 4))]
        new_h, new_cell, _ = torch.ops.lltm.forward(*zeros, torch.ones(2, 4))
        assert torch.equal(new_cell, torch.ones(2, 4)) and torch.allclose(
            new_h, torch.ones(2, 4).tanh() / 2)
    else:
        assert torch.equal(torch.ops.tiny.scale(torch.ones(5000), 3), torch.full((5000,), 3.0))
"""

LOAD = """
from small_clients import loader_of, project_of
order, tiny = sys.argv[1].split(), Path(sys.argv[2])
for name in order:
    if name == "lltm":
        from lltm_conda.loader import loaded
        assert loaded() is not None
    else:
        loader_of(project_of("tiny", tiny)).load()
for name in (*order, *order):
    compute(name)
"""

OPEN_FOR_ALL = """
import ctypes, os
opened = [ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL) for path in sys.argv[2:]]
names = sys.argv[1].split()
for name, glue, kernels in zip(names, opened[::2], opened[1::2], strict=True):
    table, attach = kernels[f"{name}_kernel_table"], glue[f"{name}_attach_kernels"]
    table.restype = attach.restype = ctypes.c_void_p
    attach.argtypes = [ctypes.c_void_p]
    assert attach(table()) is None
for name in names:
    compute(name)
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the other client's package."""
    root = tmp_path_factory.mktemp("neighbours") / "tiny_client"
    build("tiny", root, glues()[0])
    return root


Run = Callable[..., str]


@pytest.fixture
def run(forked: Forks) -> Run:
    """Runs code after COMPUTE, in a process of its own; returns what it prints."""

    def run_code(code: str, *arguments: object, **environment: str) -> str:
        process = forked.run(
            COMPUTE + code, *map(str, arguments), cwd=HELPERS, env=os.environ | environment
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run_code


def pair(folder: Path) -> list[Path]:
    """The glue that fits best, and the CPU kernels."""
    return [folder / "lib" / file_name(GlueName.parse(glues()[0])), folder / "lib/kernels-cpu.so"]


def test_each_accepts_its_own_binaries_and_not_the_others(tiny: Path) -> None:
    runtime = probe_runtime(project=PROJECT, gpu=False)
    assert judge_file(pair(PROJECT.folder)[0], runtime).accepted
    refusal = judge_file(pair(tiny)[0], runtime)
    assert not refusal.accepted
    assert refusal.cause is not None
    assert "tiny-client" in refusal.cause.why


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_both_load_and_compute(tiny: Path, order: tuple[str, ...], run: Run) -> None:
    run(LOAD, " ".join(order), tiny)


LOAD_TWO = """
from small_clients import loader_of, project_of
namesake = project_of("bare", Path(sys.argv[2]))._replace(namespace="lltm")
for name in sys.argv[1].split():
    try:
        if name == "lltm":
            from lltm_conda.loader import load
            load()
        else:
            loader_of(namesake).load()
        print(name, "is loaded")
    except ImportError as error:
        print(str(error))
"""


@pytest.fixture(scope="module")
def namesake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of another project whose operators have the namespace of lltm."""
    return build_namesake(tmp_path_factory.mktemp("namesake") / "bare", "lltm").folder


@pytest.mark.parametrize("order", [("lltm", "bare-client"), ("bare-client", "lltm")], ids=" ".join)
def test_a_project_with_the_namespace_of_a_loaded_one_is_refused(
    namesake: Path, order: tuple[str, str], run: Run
) -> None:
    """Torch would end the process, whatever the operators of the two are called."""
    first, second = order
    output = run(LOAD_TWO, " ".join(order), namesake, LLTM_CONDA_LOAD="0")
    assert output.startswith(f"{first} is loaded\n{second} cannot be loaded: another project")
    assert f"registered already by {first}: " in output


# Added by every linker.
LINKER = {"__bss_start", "_edata", "_end", "_init", "_fini"}


def test_our_binaries_export_only_prefixed_symbols() -> None:
    """Instances of other libraries' templates are common to all who use them."""
    paths = sorted((PROJECT.folder / "lib").glob("*.so"))
    assert paths
    for path in paths:
        with Elf(path) as elf:
            exported = {symbol.decode() for symbol, defined, _ in elf.symbols() if defined}
        strange = {
            symbol
            for symbol in exported - LINKER
            if "4lltm" in symbol or not symbol.startswith(("_Z", "lltm_"))
        }
        assert strange == set(), path
        assert "lltm_build_record" in exported


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_symbols_that_all_see_do_not_meet(tiny: Path, order: tuple[str, ...], run: Run) -> None:
    folders = {"lltm": PROJECT.folder, "tiny": tiny}
    objects = [path for name in order for path in pair(folders[name])]
    run(OPEN_FOR_ALL, " ".join(order), *objects)


PROGRAM = """
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <string>

extern "C" {
const void* lltm_kernel_table();
const void* tiny_kernel_table();
const char* lltm_attach_kernels(const void*);
const char* tiny_attach_kernels(const void*);
}

template <typename Signature>
auto op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

int main() {
  const char* refused[] = {lltm_attach_kernels(lltm_kernel_table()),
                           tiny_attach_kernels(tiny_kernel_table()),
                           lltm_attach_kernels(tiny_kernel_table()),
                           tiny_attach_kernels(lltm_kernel_table())};
  for (const char* text : refused) std::printf("%s\\n", text == nullptr ? "attached" : text);
  using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  using Operand = const at::Tensor&;
  using Forward = Results(Operand, Operand, Operand, Operand, Operand);
  const Results results =
      op<Forward>("lltm::forward")
          .call(at::zeros({2, 3}), at::zeros({12, 7}), at::zeros({12}), at::zeros({2, 4}),
                at::ones({2, 4}));
  const at::Tensor new_cell = std::get<1>(results);
  const at::Tensor scaled = op<at::Tensor(Operand, double)>("tiny::scale").call(at::ones({5}), 3);
  std::printf("%g %g\\n", new_cell.sum().item<double>(), scaled.sum().item<double>());
}
"""


def test_both_linked_into_one_program_do_not_meet(tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "main.cpp"
    program = tmp_path / "main"
    facts = find_torch()
    source.write_text(PROGRAM)
    lib = TORCH / "lib"
    include = TORCH / "include"
    compiler = os.environ.get("CXX", "c++").split()
    standard = cxx_standard("aten", facts.version_tuple)
    flags = [f"-std=c++{standard}", "-O0", "-DAT_PER_OPERATOR_HEADERS"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={facts.cxx11_abi}", "-isystem", str(include)]
    flags += ["-isystem", str(include / "torch" / "csrc" / "api" / "include")]
    linked = [str(path) for folder in (PROJECT.folder, tiny) for path in pair(folder)]
    links = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-ltorch", "-ltorch_cpu", "-lc10"]
    compilation = [*compiler, *flags, str(source), "-o", str(program)]
    subprocess.run([*compilation, "-Wl,--no-as-needed", *linked, *links], check=True)
    process = subprocess.run([program], capture_output=True, text=True, timeout=120)
    lines = process.stdout.splitlines()
    assert process.returncode == 0, process.stderr
    assert lines[:2] == ["attached"] * 2
    assert lines[2].startswith("lltm: the kernels speak kernel ABI 41 ")
    assert lines[3].startswith("tiny-client: the kernels speak kernel ABI ")
    assert lines[4] == "8 15"

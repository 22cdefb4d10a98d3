"""Other clients live beside lltm: one engine builds, judges and loads them all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from clients import CLIENTS, HERE, build, glues, project_of

from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import (
    cxx_standard,
    execute,
    fitting_request,
    plan,
)
from lltm_conda.engine.doctor import judge_file, probe_runtime
from lltm_conda.engine.doctor.elf import Elf
from lltm_conda.engine.doctor.project import Project
from lltm_conda.engine.doctor.records import GlueName, file_name
from lltm_conda.engine.doctor.torch_probe import find_torch

NAMES = ("lltm", *CLIENTS)
TORCH = Path(torch.__file__).parent

# What each client computes, from ones.
COMPUTE = """
import torch
def compute(name):
    if name == "lltm":
        zeros = [torch.zeros(s) for s in ((2, 3), (12, 7), (12,), (2, 4))]
        new_h, new_cell, _ = torch.ops.lltm.forward(*zeros, torch.ones(2, 4))
        assert torch.equal(new_cell, torch.ones(2, 4)) and torch.allclose(
            new_h, torch.ones(2, 4).tanh() / 2)
    elif name == "tiny":
        for shape in ((), (0, 3), (5000,), (2, 1, 3, 1, 2, 1, 2)):
            scaled = torch.ops.tiny.scale(torch.ones(shape), 3)
            assert torch.equal(scaled, torch.full(shape, 3.0)), scaled
    else:
        rows = torch.arange(6, dtype=torch.float64).reshape(2, 3)
        assert torch.equal(torch.ops.bare.gram(rows), rows @ rows.T)
"""

LOAD = """
import sys
from pathlib import Path
from clients import loader_of, project_of
order, root = sys.argv[1].split(), Path(sys.argv[2])
for name in order:
    if name == "lltm":
        from lltm_conda.loader import loaded
        print(name, loaded().variant)
    else:
        loader = loader_of(project_of(name, root / name))
        print(name, loader.load().variant)
        assert loader.load() is loader.loaded()
for name in (*order, *order):
    compute(name)
"""

OPEN_FOR_ALL = """
import ctypes, os, sys
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


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    root = tmp_path_factory.mktemp("clients")
    built_projects = {name: build(name, root / name) for name in CLIENTS}
    return {"lltm": PROJECT, **built_projects}


def run(code: str, *arguments: object, **environment: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", COMPUTE + code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(HERE)} | environment,
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def libraries(project: Project) -> list[Path]:
    return sorted((project.folder / "lib").glob("*.so"))


def pair(project: Project) -> list[Path]:
    """The glue that fits best, and the CPU kernels."""
    lib = project.folder / "lib"
    return [lib / file_name(GlueName.parse(glues()[0])), lib / "kernels-cpu.so"]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_has_the_binaries_of_its_devices(clients: dict[str, Project], name: str) -> None:
    expected = {f"glue-{glue}.so" for glue in glues()}
    expected |= {f"kernels-{device}.so" for device in clients[name].kernels}
    assert {path.name for path in libraries(clients[name])} == expected


def test_no_linker_flag_of_the_user_drops_what_the_checker_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDFLAGS", "-Wl,--gc-sections")
    project = build("bare", tmp_path / "bare")
    runtime = probe_runtime(project=project, gpu=False)
    verdicts = [judge_file(path, runtime) for path in libraries(project)]
    assert [verdict.cause for verdict in verdicts if not verdict.accepted] == []
    assert {verdict.binary.name for verdict in verdicts if verdict.binary.layout} == {
        glue for glue in glues() if glue.startswith("aten")
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_accepts_its_own_binaries_and_no_others(
    clients: dict[str, Project], name: str
) -> None:
    runtime = probe_runtime(project=clients[name], gpu=False)
    for owner, project in clients.items():
        verdict = judge_file(pair(project)[0], runtime)
        assert verdict.accepted == (owner == name), (owner, verdict.cause)
        if owner != name:
            assert verdict.cause is not None
            assert project.distribution in verdict.cause.why


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1]], ids=" ".join)
def test_clients_load_side_by_side(clients: dict[str, Project], order: tuple[str, ...]) -> None:
    pairs = run(LOAD, " ".join(order), clients["tiny"].folder.parent).split()
    variants = dict(zip(pairs[::2], pairs[1::2], strict=True))
    assert list(variants) == list(order)
    assert variants["tiny"] == variants["bare"] == f"{glues()[0]}-cpu"


LOAD_TWO = """
import sys
from pathlib import Path
from clients import loader_of, project_of
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
    folder = tmp_path_factory.mktemp("namesake") / "bare"
    shutil.copytree(HERE / "bare", folder)
    header = folder / "csrc" / "project.h"
    content = header.read_text().replace("PROJECT_NAMESPACE bare", "PROJECT_NAMESPACE lltm")
    header.write_text(content.replace(" bare_##name", " lltm_##name"))
    project = project_of("bare", folder)._replace(namespace="lltm")
    env = {**os.environ, "DEBUG": "1"}
    request = fitting_request(project, find_torch(), folder / "lib", env, log=lambda line: None)
    execute(plan(request), folder / "work", log=lambda line: None)
    return folder


@pytest.mark.parametrize("order", [("lltm", "bare-client"), ("bare-client", "lltm")], ids=" ".join)
def test_a_project_with_the_namespace_of_a_loaded_one_is_refused(
    namesake: Path, order: tuple[str, str]
) -> None:
    """Torch would end the process, whatever the operators of the two are called."""
    first, second = order
    output = run(LOAD_TWO, " ".join(order), namesake, LLTM_CONDA_LOAD="0")
    assert output.startswith(f"{first} is loaded\n{second} cannot be loaded: another project")
    assert f"registered already by {first}: " in output


@pytest.mark.parametrize("glue", glues())
def test_clients_load_through_either_door(clients: dict[str, Project], glue: str) -> None:
    forced = {"TINY_VARIANT": f"{glue}-cpu", "BARE_VARIANT": f"{glue}-cpu"}
    output = run(LOAD, "tiny bare", clients["tiny"].folder.parent, **forced)
    assert output.split() == ["tiny", f"{glue}-cpu", "bare", f"{glue}-cpu"]


def test_errors_carry_the_name_of_the_client(clients: dict[str, Project]) -> None:
    code = LOAD + (
        "integers = torch.ones(2).int()\n"
        "transposed = torch.ones(2, 2).T\n"
        "meta = torch.ones(2, device='meta')\n"
        "for wrong in (integers, transposed, meta):\n"
        "    try: torch.ops.tiny.scale(wrong, 2)\n"
        "    except (RuntimeError, NotImplementedError) as error:\n"
        "        print(str(error).splitlines()[0])"
    )
    output = run(code, "tiny", clients["tiny"].folder.parent)
    assert "tiny-client: values must be float32, got int32" in output
    assert "tiny-client: values must be contiguous, got shape (2, 2) with strides (1, 2)" in output


def test_kernels_that_are_not_loaded_are_named(clients: dict[str, Project]) -> None:
    code = (
        "import sys; torch.ops.load_library(sys.argv[1])\n"
        "try: compute('tiny')\nexcept RuntimeError as error: print(error)"
    )
    message = "tiny-client: the CPU kernels are not loaded; `python -m tiny_client` says why"
    assert message in run(code, pair(clients["tiny"])[0])


# Added by every linker.
LINKER = {"__bss_start", "_edata", "_end", "_init", "_fini"}


@pytest.mark.parametrize("name", NAMES)
def test_only_the_prefixed_symbols_are_exported(clients: dict[str, Project], name: str) -> None:
    for path in libraries(clients[name]):
        with Elf(path) as elf:
            exported = {symbol.decode() for symbol, defined, _ in elf.symbols() if defined}
        # Instances of other libraries' inline functions and templates are common to all who
        # use them; none may be of our types.
        namespace = f"{len(name)}{name}"
        strange = {
            symbol
            for symbol in exported - LINKER
            if namespace in symbol or not symbol.startswith(("_Z", f"{name}_"))
        }
        assert strange == set(), path
        assert f"{name}_build_record" in exported


@pytest.mark.parametrize("order", [("lltm", "tiny"), ("tiny", "lltm")], ids=" ".join)
def test_symbols_that_all_see_do_not_meet(
    clients: dict[str, Project], order: tuple[str, ...]
) -> None:
    objects = [path for name in order for path in pair(clients[name])]
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


def test_two_clients_linked_into_one_program_do_not_meet(
    clients: dict[str, Project], tmp_path: Path
) -> None:
    source = tmp_path / "main.cpp"
    program = tmp_path / "main"
    facts = find_torch()
    source.write_text(PROGRAM)
    lib = TORCH / "lib"
    include = TORCH / "include"
    compiler = os.environ.get("CXX", "c++").split()
    standard = cxx_standard(facts.version_tuple)
    flags = [f"-std=c++{standard}", "-O0", "-DAT_PER_OPERATOR_HEADERS"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={facts.cxx11_abi}", "-isystem", str(include)]
    flags += ["-isystem", str(include / "torch" / "csrc" / "api" / "include")]
    linked = [str(path) for name in ("lltm", "tiny") for path in pair(clients[name])]
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

"""Small clients live beside each other: one engine builds, judges and loads them all."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from processes import Forks
from small_clients import CLIENTS, PYTHONPATH, build_namesake, glue_of, linked_again, request

from torchship.doctor import judge_file
from torchship.judge import probe_runtime
from torchship.judge.project import Project
from torchship.judge.reading.elf import Elf

# The glue of one of them is for ATen, whose headers take most of the time.
pytestmark = pytest.mark.slow

# What each client computes, from ones, and what it says of wrong arguments.
LOAD = """
import sys
from pathlib import Path
import torch
from small_clients import loader_of, project_of

def compute(name):
    if name == "tiny":
        for shape in ((), (0, 3), (5000,), (2, 1, 3, 1, 2, 1, 2)):
            scaled = torch.ops.tiny.scale(torch.ones(shape), 3)
            assert torch.equal(scaled, torch.full(shape, 3.0)), scaled
    else:
        rows = torch.arange(6, dtype=torch.float64).reshape(2, 3)
        assert torch.equal(torch.ops.bare.gram(rows), rows @ rows.T)

order, folders = sys.argv[1].split(), map(Path, sys.argv[2:])
for name, folder in zip(order, folders, strict=True):
    loader = loader_of(project_of(name, folder))
    print(name, loader.load().variant)
    assert loader.load() is loader.loaded()
for name in (*order, *order):
    compute(name)
integers = torch.ones(2).int()
transposed = torch.ones(2, 2).T
meta = torch.ones(2, device="meta")
for wrong in (integers, transposed, meta):
    try:
        torch.ops.tiny.scale(wrong, 2)
    except (RuntimeError, NotImplementedError) as error:
        print(str(error).splitlines()[0])
"""


Run = Callable[..., str]


@pytest.fixture(scope="session")
def run(forked: Forks, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs code in a process of its own; returns what it prints."""
    folder = tmp_path_factory.mktemp("empty")

    def run_code(code: str, *arguments: object, **environment: str) -> str:
        env = os.environ | {"PYTHONPATH": PYTHONPATH} | environment
        process = forked.run(code, *map(str, arguments), cwd=folder, env=env)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run_code


# Each is loaded through a door of its own, and either may be the first.
ORDERS = ["tiny bare", "bare tiny"]


@pytest.fixture(scope="session")
def output_of(clients: dict[str, Project], run: Run):
    """The lines that LOAD prints for the clients in this order."""

    @cache
    def load(order: str) -> list[str]:
        return run(LOAD, order, *(clients[name].folder for name in order.split())).splitlines()

    return load


def libraries(project: Project) -> list[Path]:
    return sorted((project.folder / "lib").glob("*.so"))


def own_glue(project: Project) -> Path:
    (glue,) = (project.folder / "lib").glob("glue-*.so")
    return glue


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_has_the_binaries_of_its_devices(clients: dict[str, Project], name: str) -> None:
    expected = {f"glue-{glue_of(name)}.so"}
    expected |= {f"kernels-{device}.so" for device in clients[name].kernels}
    assert {path.name for path in libraries(clients[name])} == expected


@pytest.mark.parametrize("name", CLIENTS)
def test_debug_leaves_debugging_symbols(clients: dict[str, Project], name: str) -> None:
    """The clients are built with DEBUG=1."""
    for path in libraries(clients[name]):
        with Elf(path) as elf:
            assert elf.section(".debug_info") is not None, path.name


@pytest.mark.parametrize("name", CLIENTS)
def test_no_linker_flag_of_the_user_drops_what_the_checker_reads(
    clients: dict[str, Project], name: str, tmp_path: Path
) -> None:
    project = clients[name]
    binaries = linked_again(request(project, glue_of(name)), tmp_path, "-Wl,--gc-sections")
    assert len(binaries) == len(libraries(project))
    runtime = probe_runtime(project=project, gpu=False)
    verdicts = [judge_file(path, runtime) for path in binaries]
    assert [verdict.cause for verdict in verdicts if not verdict.accepted] == []
    with_layout = [verdict.binary.name for verdict in verdicts if verdict.binary.layout]
    assert with_layout == ([glue_of(name)] if glue_of(name).startswith("aten") else [])


@pytest.mark.parametrize("name", CLIENTS)
def test_each_accepts_its_own_binaries_and_no_others(
    clients: dict[str, Project], name: str
) -> None:
    runtime = probe_runtime(project=clients[name], gpu=False)
    for owner, project in clients.items():
        verdict = judge_file(own_glue(project), runtime)
        assert verdict.accepted == (owner == name), (owner, verdict.cause)
        if owner != name:
            assert verdict.cause is not None
            assert project.distribution in verdict.cause.why


@pytest.mark.parametrize("order", ORDERS)
def test_clients_load_side_by_side_through_either_door(output_of, order: str) -> None:
    loaded = [f"{name} {glue_of(name)}-cpu" for name in order.split()]
    assert output_of(order)[:2] == loaded


@pytest.mark.parametrize("order", ORDERS)
def test_errors_carry_the_name_of_the_client(output_of, order: str) -> None:
    errors = output_of(order)[2:]
    assert len(errors) == 3
    assert errors[0].startswith("tiny-client: values must be float32, got int32")
    assert errors[1].startswith(
        "tiny-client: values must be contiguous, got shape (2, 2) with strides (1, 2)"
    )


LOAD_TWO = """
import sys
from pathlib import Path
from small_clients import loader_of, project_of
tiny, namesake = map(Path, sys.argv[1:])
for project in (project_of("tiny", tiny), project_of("bare", namesake)._replace(namespace="tiny")):
    try:
        loader_of(project).load()
        print(project.distribution, "is loaded")
    except ImportError as error:
        print(str(error))
"""


def test_a_project_with_the_namespace_of_a_loaded_one_is_refused(
    clients: dict[str, Project], tmp_path: Path, run: Run
) -> None:
    """Torch would end the process, whatever the operators of the two are called."""
    namesake = build_namesake(tmp_path / "bare", "tiny")
    output = run(LOAD_TWO, clients["tiny"].folder, namesake.folder)
    first, second = "tiny-client", "bare-client"
    assert output.startswith(f"{first} is loaded\n{second} cannot be loaded: another project")
    assert f"registered already by {first}: " in output


def test_kernels_that_are_not_loaded_are_named(clients: dict[str, Project]) -> None:
    """This process loads no other binary of the client."""
    torch.ops.load_library(str(own_glue(clients["tiny"])))
    message = "tiny-client: the CPU kernels are not loaded; `python -m tiny_client` says why"
    with pytest.raises(RuntimeError, match=message.replace("(", r"\(")):
        torch.ops.tiny.scale(torch.ones(2), 3)


# Added by every linker.
LINKER = {"__bss_start", "_edata", "_end", "_init", "_fini"}


@pytest.mark.parametrize("name", CLIENTS)
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

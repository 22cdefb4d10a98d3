"""What holds for every test folder."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# Before any test folder puts the repository on sys.path, where the sources would shadow the
# installed package.
try:
    import lltm_conda  # noqa: F401
except ImportError as error:
    _not_installed = str(error)
else:
    _not_installed = ""

TESTS = Path(__file__).resolve().parent

# For the programs of `benchmarks` and `measurements`; last, so that the sources shadow nothing.
sys.path.append(str(TESTS.parent))
sys.path.append(str(TESTS / "torchship"))

from processes import Forks, clean_environment, forks  # noqa: E402

# Processes side by side share the processors, and so do those that tests start: threads that wait
# for a processor that another process has cost ten times their work.
_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_threads = max(1, torch.get_num_threads() // _processes)
torch.set_num_threads(_threads)
os.environ.setdefault("OMP_NUM_THREADS", str(_threads))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Refuses tests of a package that is not installed; torchship's suite needs none."""
    is_of_torchship = "torchship" in collector.path.relative_to(TESTS).parts
    if _not_installed and isinstance(collector, pytest.Module) and not is_of_torchship:
        raise pytest.UsageError(
            f"{_not_installed}: the tests run against the installed package. Run scripts/test.sh, "
            "or: python -m pip install . --no-build-isolation"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with the largest share of slow tests first, and of equal ones those of the release
    tool, so that no long one ends alone."""
    tests = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(
        key=lambda item: (-slow[item.path] / tests[item.path], item.path.parent.name != "release")
    )


# Thousands of tests and their modules stay, so the garbage collector passes over them.
gc.disable()


def pytest_collection_finish() -> None:
    """Lets it collect from now on."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def children_load_the_package() -> Iterator[None]:
    """The release tool sets LLTM_CONDA_LOAD when a test imports it; other tests' children would
    inherit it and find a package without its op."""
    os.environ.pop("LLTM_CONDA_LOAD", None)
    yield


@pytest.fixture(autouse=True, scope="module")
def signals_keep_their_handlers() -> Iterator[None]:
    """A signal that a test leaves with another handler may end the process in a later test."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
    before = {number.name: signal.getsignal(number) for number in numbers}
    yield
    assert {number.name: signal.getsignal(number) for number in numbers} == before


@pytest.fixture(scope="session")
def forked() -> Iterator[Forks]:
    """Runs code in processes in which torch is imported already."""
    with forks("torch") as runner:
        yield runner


@pytest.fixture(scope="session")
def forked_package() -> Iterator[Forks]:
    """Runs code in processes that have imported the package, and what tests of an op import.

    The kernels read their variables at the first call, so each process has its own.
    """
    # symbolic_shapes is what torch imports at the first backward; it takes half a second.
    modules = ("lltm_conda", "hypothesis", "torch.fx.experimental.symbolic_shapes")
    env = {k: v for k, v in clean_environment().items() if not k.startswith("LLTM_")}
    with forks(*modules, env=env) as runner:
        yield runner

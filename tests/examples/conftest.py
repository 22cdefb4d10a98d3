"""The examples as modules, whose imports take seconds that other tests need not wait."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NEEDED = ("sklearn", "matplotlib", "rich")


def imported(name: str) -> ModuleType:
    for module in NEEDED:
        pytest.importorskip(module)
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


@pytest.fixture(scope="session")
def digits() -> ModuleType:
    return imported("digits")


@pytest.fixture(scope="session")
def pause() -> ModuleType:
    return imported("pause")

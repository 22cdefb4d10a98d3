"""`torchship port` is tested from the checkout: no client's wheel carries it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def report(tmp_path):
    """Writes sources, by their names, and reads the report on them."""
    from torchship.porting.report import read_folder

    def read(*sources: str, **named: str):
        names = {f"source{number}.cpp": source for number, source in enumerate(sources)}
        for name, source in {**names, **named}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return read_folder(tmp_path)

    return read


@pytest.fixture
def uses(report):
    """The names that sources use of torch, with their numbers."""

    def count(*sources: str) -> dict[str, int]:
        return {row.name: row.count for row in report(*sources).rows}

    return count

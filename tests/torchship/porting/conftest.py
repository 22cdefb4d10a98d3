"""`torchship port` reads what tests write."""

import pytest

from torchship.porting.report import read_folder


@pytest.fixture
def report(tmp_path):
    """Writes sources, by their names, and reads the report on them."""

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

"""What the tests of the doctor share: a sample object, an open folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from shared_objects import GLUE_RECORD, shared_object

from torchship.judge.reading import layouts


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real object with our sections, torch symbols of several kinds and versions."""
    folder = tmp_path_factory.mktemp("sample")
    return shared_object(
        folder / "glue-stable210.so",
        record=GLUE_RECORD,
        layout=layouts.LAYOUTS[(2, 9)],
        undefined=["aoti_torch_get_dim", "_ZN2at6Tensor3addEv", "PyObject_Call", "strlen"],
        weak=["aoti_torch_get_current_cuda_stream"],
        defined=["tiny_build_record", "PyInit_sample"],
    )


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users may look into (pytest's own are closed to them)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)

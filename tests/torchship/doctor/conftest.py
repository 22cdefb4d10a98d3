"""What the tests of the doctor share: a sample object, an open folder."""

from __future__ import annotations

import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shared_objects import GLUE_RECORD, shared_object

from torchship.doctor.environment import owner
from torchship.judge.reading import layouts
from torchship.judge.target import Target


@pytest.fixture(autouse=True, scope="session")
def lists_of_this_python_are_read_once() -> Iterator[None]:
    """No test changes the packages that are installed here, and to read what they list takes each
    new target a third of a second."""
    site = Path(sysconfig.get_path("purelib"))
    read = owner.listed_objects
    known: dict[Path, list[str]] = {}

    def listed(target: Target, place: Path, is_wanted: Callable[[str], bool]) -> list[str]:
        if place.parent != site:
            return read(target, place, is_wanted)
        if place not in known:
            known[place] = read(target, place, is_wanted)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, "listed_objects", listed)
        yield


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

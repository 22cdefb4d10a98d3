"""The pages agree with the tables they are made of."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import troubleshooting_page

from lltm_conda.engine import doctor
from lltm_conda.engine.doctor import faults
from lltm_conda.engine.doctor.layouts import LAYOUTS
from lltm_conda.engine.doctor.records import dotted

REPO = Path(__file__).resolve().parents[2]


FAULTS = [value for value in vars(faults).values() if isinstance(value, faults.Fault)]


def test_the_troubleshooting_page_describes_every_class_under_its_name() -> None:
    named = {fault: fault.title for fault in FAULTS}
    assert list(troubleshooting_page.TITLES.items()) == list(named.items())
    assert troubleshooting_page.CURES.keys() == troubleshooting_page.PROOFS.keys() == named.keys()


def test_there_are_fifteen_classes_in_order() -> None:
    assert list(range(1, 16)) == FAULTS
    assert {*troubleshooting_page.PROOFS.values()} == {"injected", "GPU machine", "simulated"}


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ("undefined symbol: _ZN2at4_ops10zeros_like4callERKNS_6TensorE", 1),
        ("x.so: undefined symbol: torch_list_push_back", 1),
        ("undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs", 2),
        ("undefined symbol: _ZN5torch3jit11parseSchemaERKNSt7__cxx1112basic_stringIcE", 2),
        ("libcudart.so.12: cannot open shared object file: No such file or directory", 3),
        ("CUDA error: no kernel image is available for execution on the device", 4),
        ("the provided PTX was compiled with an unsupported toolchain.", 5),
        ("CUDA driver version is insufficient for CUDA runtime version", 5),
        ("ext 0.1 is built for 2.4.0+cu121 (you have 2.4.0+cpu)", 6),
        ("libtorch_cuda.so: cannot open shared object file", 6),
        ("Could not run 'ns::op' with arguments from the 'CUDA' backend.", 7),
        ("cannot import name '_C' from 'pkg'", 8),
        ("/x/glue.so: file too short", 8),
        ("undefined symbol: THPVariableClass", 9),
        ("libc10.so: cannot open shared object file: No such file or directory", 9),
        ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x.so)", 10),
        ("/lib/libc.so.6: version `GLIBC_2.34' not found (required by x.so)", 10),
        ("The detected CUDA version (12.2) mismatches the version that was used to compile", 11),
        ("CUDA_HOME environment variable is not set. Please set it", 12),
        ("#error -- unsupported GNU version! gcc versions later than 12", 12),
        ("ModuleNotFoundError: No module named 'torch'", 13),
        ("ValueError: Unknown CUDA arch (9.9) or GPU not supported", 14),
        ("Only a single TORCH_LIBRARY can be used to register the namespace lltm", 15),
        ("something else entirely", None),
    ],
)
def test_error_texts_are_classified(message: str, number: int | None) -> None:
    fault = faults.classify(message)
    assert fault == number


def test_every_public_name_is_documented_and_exists() -> None:
    page = (REPO / "docs" / "fails" / "compat.md").read_text()
    for name in ("read_binary", "find_torch", "probe_runtime", "judge", "judge_file", "select"):
        assert f"`{name}(" in page
        assert callable(getattr(doctor, name))
    for name in ("VariantName", "GlueName", "KernelsName", "BinaryRecord", "Runtime", "Verdict"):
        assert f"`{name}`" in page
        assert isinstance(getattr(doctor, name), type)


def script(name: str) -> ModuleType:
    path = REPO / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    path = REPO / "scripts" / "pair_table" / "pair_table.json"
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_the_tables_are_up_to_date() -> None:
    module = script("draw_tables")
    assert module.PAGE.read_text() == module.page()


def test_the_pair_table_is_complete(table: dict[str, Any]) -> None:
    minors = [dotted(minor) for minor in sorted(LAYOUTS)]
    assert table["minors"] == minors
    pairs = {(re.sub(r"-abi.", "", cell["glue"]), cell["torch"]) for cell in table["cells"]}
    rows = [f"aten{minor.replace('.', '')}" for minor in minors] + ["stable210"]
    assert pairs == {(row, minor) for row in rows for minor in minors}


def test_no_pair_was_accepted_that_does_not_work(table: dict[str, Any]) -> None:
    wrong = [c for c in table["cells"] if c["accepted"] and c["outcome"] != "works"]
    assert wrong == []


def test_at_most_one_working_pair_in_five_was_refused_each_with_a_reason(
    table: dict[str, Any],
) -> None:
    works = [c for c in table["cells"] if c["outcome"] == "works" and c["glue"].startswith("aten")]
    refused = [cell for cell in works if not cell["accepted"]]
    assert 5 * len(refused) <= len(works)
    assert all(cell["reason"] for cell in refused)


def test_the_stable_glue_was_predicted_everywhere(table: dict[str, Any]) -> None:
    cells = [cell for cell in table["cells"] if cell["glue"].startswith("stable")]
    assert all(cell["accepted"] == (cell["outcome"] == "works") for cell in cells)


@pytest.fixture(scope="module")
def foreign() -> dict[str, Any]:
    path = REPO / "scripts" / "foreign_table" / "foreign_table.json"
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_the_foreign_table_holds_what_it_promises(foreign: dict[str, Any]) -> None:
    cells = [cell for column in foreign["columns"] for cell in column["cells"] if cell]
    counts = script("draw_tables").counts(cells)
    assert len(foreign["objects"]) >= 300
    assert len({item["distribution"] for item in foreign["objects"]}) >= 15
    assert len(foreign["columns"]) >= 8
    assert counts["accepted that fail"] == 0
    not_accepted = counts["working, refused"] + counts["of these vouched"]
    assert not_accepted <= 0.05 * counts["work"]
    assert counts["wrong cause"] <= 0.02 * counts["refused rightly"]
    assert counts["unknown"] <= 0.2 * counts["pairs"]


@pytest.mark.parametrize(
    ("outcome", "error", "cause"),
    [
        ("works", "", None),
        ("crash at load", "signal 6: terminate called", "torch"),
        ("load error", "OSError: x.so: undefined symbol: _ZNK2at6Tensor3addEv", "torch"),
        ("load error", "OSError: x.so: undefined symbol: aoti_torch_abi_version", "torch"),
        ("load error", "ImportError: x.so: undefined symbol: PyMutex_Unlock", "python"),
        ("load error", "OSError: x.so: undefined symbol: foo", "library"),
        ("load error", "OSError: libavutil.so.58: cannot open shared object file", "library"),
        ("load error", "OSError: libcudart.so.12: cannot open shared object file", "cuda"),
        ("load error", "OSError: libc10_cuda.so: cannot open shared object file", "build"),
        ("load error", "OSError: libcuda.so.1: cannot open shared object file", "driver"),
        ("load error", "OSError: x.so: invalid ELF header", "file"),
        ("load error", "OSError: version `GLIBC_2.38' not found (required by x.so)", "system"),
        ("load error", "ModuleNotFoundError: No module named 'x'", "python"),
    ],
)
def test_the_rules_read_the_loaders_error(outcome: str, error: str, cause: str | None) -> None:
    assert script("foreign_table/causes").real_cause(outcome, error) == cause

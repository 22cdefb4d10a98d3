"""The pages agree with the tables they are made of."""

from __future__ import annotations

from pathlib import Path

import fault_classes
import pytest

from measurements.foreign_table import interpreter_table
from measurements.foreign_table import table as foreign_table
from torchship import judge
from torchship.judge.words import faults, messages

REPO = Path(__file__).resolve().parents[3]


FAULTS = [value for value in vars(faults).values() if isinstance(value, faults.Fault)]


def test_the_fault_classes_describes_every_class_under_its_name() -> None:
    named = {fault: fault.title for fault in FAULTS}
    assert list(fault_classes.TITLES.items()) == list(named.items())


def test_there_are_fifteen_classes_in_order() -> None:
    assert list(range(1, 16)) == FAULTS
    assert {*fault_classes.PROOFS.values()} == {"injected", "GPU machine", "simulated"}


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
        ("Getting requirements to build: No module named 'torch'", 13),
        ("ValueError: Unknown CUDA arch (9.9) or GPU not supported", 14),
        ("Only a single TORCH_LIBRARY can be used to register the namespace ns", 15),
        ("something else entirely", None),
    ],
)
def test_error_texts_are_classified(message: str, number: int | None) -> None:
    fault = messages.classify(message)
    assert fault == number


def test_every_public_name_is_documented_and_exists() -> None:
    page = (REPO / "docs" / "fails" / "compat.md").read_text()
    for name in ("read_binary", "find_torch", "probe_runtime", "judge", "judge_file", "select"):
        assert f"`{name}(" in page
        assert callable(getattr(judge, name))
    for name in ("VariantName", "GlueName", "KernelsName", "BinaryRecord", "Runtime", "Verdict"):
        assert f"`{name}`" in page
        assert isinstance(getattr(judge, name), type)


def test_the_tables_are_up_to_date() -> None:
    from measurements import draw_tables

    for page, content in draw_tables.pages():
        assert page.read_text(encoding="utf-8") == content


def test_the_foreign_table_holds_what_it_promises() -> None:
    from measurements import draw_tables

    table = foreign_table.load()
    counts = draw_tables.count(cell for column in table.columns for cell in column.cells)
    assert len(table.objects) >= 300
    assert len({item.distribution for item in table.objects}) >= 15
    assert len(table.columns) >= 8
    assert counts.wrongly_accepted == 0
    not_accepted = counts.wrongly_refused + counts.vouched_unknown
    assert not_accepted <= 0.05 * counts.working
    assert counts.wrong_cause <= 0.02 * counts.rightly_refused
    assert counts.unknown <= 0.2 * counts.pairs


def test_under_no_interpreter_an_object_was_accepted_that_fails() -> None:
    rows = interpreter_table.load().rows
    assert interpreter_table.count_accepted_that_fail(rows) == 0
    assert len({row.interpreter for row in rows}) >= 4
    assert any(row.interpreter.startswith("Debian's") for row in rows)
    with_library_path = [row for row in rows if row.library_path]
    assert 0.05 <= len(with_library_path) / len(rows) <= 0.15
    working = [row for row in rows if row.works]
    assert sum(row.verdict == "fails" for row in working) <= 0.02 * len(working)
    assert sum(row.verdict == "unknown" for row in working) <= 0.1 * len(working)

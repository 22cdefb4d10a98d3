"""The choice among many binaries, its order, and the trace of why not the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_facts import make_aten, make_binary, make_cuda, make_glue, make_runtime, make_torch
from shared_objects import KERNELS_RECORD

from torchship.judge import (
    BinaryRecord,
    GlueName,
    KernelsName,
    NameFormatError,
    Runtime,
    TorchInstall,
    Verdict,
    judge,
    select,
)
from torchship.judge.records import file_name, parse_file_name
from torchship.judge.verdict.selection import Selection, glue_preference

GLUES = ["stable210", *(f"aten2{m}-abi{a}" for m in range(4, 10) for a in (0, 1) if a or m < 7)]
PATHS = [
    *(Path(f"/nowhere/lib/glue-{name}.so") for name in GLUES),
    *(Path(f"/nowhere/lib/kernels-{name}.so") for name in ("cpu", "cuda12", "cuda13")),
]


def record_of(path: Path) -> BinaryRecord:
    name = parse_file_name(path.name)
    if isinstance(name, GlueName):
        return make_glue() if name.lane == "stable" else make_aten(name.torch, name.cxx11_abi or 0)
    assert isinstance(name, KernelsName)
    if name.cuda_major is None:
        return make_binary(KERNELS_RECORD, needed=())
    return make_cuda(f"{name.cuda_major}.0")


def judge_one(path: Path, runtime: Runtime) -> Verdict:
    return judge(record_of(path), runtime)


def choose(torch: TorchInstall, paths: list[Path] = PATHS, **options: object) -> Selection:
    runtime = make_runtime(torch, missing_symbols={str(path): () for path in PATHS})
    return select(paths, runtime, judge_one, **options)


@pytest.mark.parametrize(
    ("torch", "variant"),
    [
        (make_torch("2.13.0+cpu"), "stable210-cpu"),
        (make_torch("2.13.0", cuda="13.0"), "stable210-cu13"),
        (make_torch("2.10.0", cuda="12.8"), "stable210-cu12"),
        (make_torch("2.17.0", cuda="14.0"), "stable210-cu13"),
        (make_torch("2.9.1", cuda="12.8"), "aten29-abi1-cu12"),
        (make_torch("2.4.1", cuda="12.1"), "aten24-abi0-cu12"),
        (make_torch("2.4.1", cxx11_abi=1), "aten24-abi1-cpu"),
        (make_torch("2.6.0", cuda="12.6", cxx11_abi=1), "aten26-abi1-cu12"),
        (make_torch("2.3.0"), None),
        (make_torch("2.9.0", cuda="11.8"), "aten29-abi1-cpu"),
    ],
    ids=lambda value: value.version if isinstance(value, TorchInstall) else str(value),
)
def test_the_variant_of_each_torch(torch: TorchInstall, variant: str | None) -> None:
    assert choose(torch).variant == variant
    assert choose(torch, exhaustive=True).variant == variant


def test_the_choice_does_not_depend_on_the_order_of_the_files() -> None:
    torch = make_torch("2.6.0", cuda="12.4")
    assert choose(torch, PATHS[::-1]).variant == choose(torch).variant


def test_only_candidates_are_read_at_import() -> None:
    read = []

    def reader(path: Path, runtime: Runtime) -> Verdict:
        read.append(path.name)
        return judge_one(path, runtime)

    runtime = make_runtime(missing_symbols={str(path): () for path in PATHS})
    select(PATHS, runtime, reader)
    assert read == ["glue-stable210.so", "kernels-cpu.so"]


def test_the_exhaustive_trace_holds_every_file() -> None:
    selection = choose(make_torch(), exhaustive=True)
    assert {v.binary.path for v in selection.considered} == set(PATHS)


def test_the_cause_is_that_of_the_nearest_binary() -> None:
    cause = choose(make_torch("2.3.1")).cause
    assert cause is not None
    assert "built for torch 2.4" in cause.why
    torch = make_torch("2.9.1", cxx11_abi=0)
    cause = choose(torch).cause
    assert cause is not None
    assert cause.dimension == "C++ ABI"


def test_a_forced_variant_is_taken_or_nothing() -> None:
    torch = make_torch("2.10.0", cuda="13.0")
    older = make_torch("2.9.1", cuda="12.8")
    assert choose(older).variant == "aten29-abi1-cu12"
    assert choose(older, forced="aten29-abi1-cpu").variant == "aten29-abi1-cpu"
    assert choose(torch, forced="stable210-cu12").variant == "stable210-cu12"
    refused = choose(torch, forced="aten24-abi0-cpu")
    assert refused.variant is None
    assert refused.cause is not None
    assert "TINY_VARIANT asks for aten24-abi0-cpu" in refused.cause.why
    assert refused.cause.fix.text == "unset TINY_VARIANT"


def test_a_forced_variant_that_is_no_name_is_an_error() -> None:
    with pytest.raises(NameFormatError, match="nonsense"):
        choose(make_torch(), forced="nonsense")


def test_no_cpu_kernels_is_no_choice() -> None:
    selection = choose(make_torch(), [path for path in PATHS if path.name != "kernels-cpu.so"])
    assert not selection.complete
    assert selection.variant is None


def test_kernels_of_another_table_are_not_attached() -> None:
    other = json.loads(json.dumps(KERNELS_RECORD)) | {
        "kernel_abi": KERNELS_RECORD["kernel_abi"] + 1
    }

    def reader(path: Path, runtime: Runtime) -> Verdict:
        if path.name == "kernels-cpu.so":
            return judge(make_binary(other, needed=()), runtime)
        return judge_one(path, runtime)

    runtime = make_runtime(missing_symbols={str(path): () for path in PATHS})
    selection = select(PATHS, runtime, reader)
    assert selection.glue is not None
    assert selection.cpu is None
    assert selection.cause is not None
    assert selection.cause.dimension == "kernel table"


def test_preference_is_a_total_order_over_the_matrix() -> None:
    names = [GlueName.parse(name) for name in GLUES]
    for version in ("2.4.0", "2.8.0", "2.9.0", "2.13.0"):
        torch = make_torch(version)
        keys = [glue_preference(name, torch) for name in names]
        assert len(set(keys)) == len(keys), version
        assert all(parse_file_name(file_name(name)) == name for name in names)

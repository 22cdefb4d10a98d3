"""A glue that itself has code for CUDA: its name, its record, and when it is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_facts import make_aten, make_binary, make_runtime, make_torch
from shared_objects import GLUE_RECORD
from small_client import PROJECT

from torchship.judge import (
    BinaryRecord,
    BuildRecord,
    GlueName,
    NameFormatError,
    Runtime,
    TorchInstall,
    VariantName,
    Verdict,
    judge,
    select,
)
from torchship.judge.reading import layouts
from torchship.judge.records import Device, Driver, RecordError, file_name, parse_file_name
from torchship.judge.verdict.explain import no_cuda
from torchship.judge.verdict.selection import Selection, glue_preference

CLIENT = PROJECT._replace(kernels=(), has_cuda_glue=True, is_stable=False)
PATHS = [
    Path(f"/nowhere/lib/glue-aten213-abi1{cuda}.so") for cuda in ("-cu12", "", "-cu14", "-cu13")
]


def cuda_glue(cuda: str, archs: tuple[str, ...] = ("sm_90",)) -> BinaryRecord:
    record = {
        **GLUE_RECORD,
        "name": f"aten213-abi1-cu{cuda.partition('.')[0]}",
        "lane": "aten",
        "torch_target": "2.13",
        "torch_built": "2.13.0",
        "cxx11_abi": 1,
        "cuda": cuda,
        "cuda_archs": list(archs),
    }
    return make_binary(record, layout=layouts.LAYOUTS.get((2, 13)), cxx11_abi=1)


def judge_one(path: Path, runtime: Runtime) -> Verdict:
    name = parse_file_name(path.name)
    assert isinstance(name, GlueName)
    if name.cuda_major is None:
        return judge(make_aten((2, 13)), runtime)
    return judge(cuda_glue(f"{name.cuda_major}.0"), runtime)


def choose(
    torch: TorchInstall, *, forced: str | None = None, exhaustive: bool = False
) -> Selection:
    missing = {str(path): () for path in PATHS}
    runtime = make_runtime(torch, missing_symbols=missing, project=CLIENT)
    return select(PATHS, runtime, judge_one, forced=forced, exhaustive=exhaustive)


@pytest.mark.parametrize(
    ("cuda", "variant"),
    [
        (None, "aten213-abi1-cpu"),
        ("13.0", "aten213-abi1-cu13"),
        ("13.2", "aten213-abi1-cu13"),
        ("12.8", "aten213-abi1-cu12"),
        ("14.0", "aten213-abi1-cu14"),
        ("15.0", "aten213-abi1-cu14"),
        ("11.8", "aten213-abi1-cpu"),
    ],
)
def test_the_glue_of_each_build_of_torch(cuda: str | None, variant: str) -> None:
    assert choose(make_torch("2.13.0", cuda=cuda)).variant == variant


def test_glues_are_tried_from_the_nearest_cuda_on() -> None:
    names = [GlueName("aten", (2, 13), 1, major) for major in (14, None, 11, 13, 12)]
    torch = make_torch("2.13.0", cuda="12.8")
    majors = [name.cuda_major for name in sorted(names, key=lambda n: glue_preference(n, torch))]
    assert majors == [12, 11, None, 13, 14]


@pytest.mark.parametrize("variant", ["aten213-abi1-cpu", "aten213-abi1-cu12"])
def test_a_forced_variant_is_the_glue_of_its_device(variant: str) -> None:
    assert choose(make_torch("2.13.0", cuda="13.0"), forced=variant).variant == variant


def test_another_torch_gets_none_of_them() -> None:
    selection = choose(make_torch("2.12.1", cuda="13.0"))
    assert selection.glue is None
    assert selection.cause is not None
    assert "built for torch 2.13" in selection.cause.why


def test_a_gpu_without_code_in_the_glue_is_named() -> None:
    torch = make_torch("2.13.0", cuda="13.0")
    runtime = make_runtime(
        torch,
        project=CLIENT,
        gpu_probed=True,
        driver=Driver(version="580.65.06", cuda=(13, 0)),
        devices=(Device(index=0, name="an old GPU", capability=(7, 5)),),
    )
    cause = judge(cuda_glue("13.0"), runtime).cause
    assert cause is not None
    assert cause.why.startswith("aten213-abi1-cu13 holds no code for the an old GPU")


def test_why_a_cuda_torch_gets_the_glue_without_cuda_is_explained() -> None:
    selection = choose(make_torch("2.13.0", cuda="11.8"), exhaustive=True)
    runtime = make_runtime(make_torch("2.13.0", cuda="11.8"), project=CLIENT)
    assert no_cuda(selection, runtime).dimension == "CUDA build of torch"


@pytest.mark.parametrize("spelling", ["aten213-abi1-cu13", "stable210-cu12"])
def test_names_survive_a_round_trip(spelling: str) -> None:
    name = GlueName.parse(spelling)
    assert str(name) == spelling
    assert parse_file_name(file_name(name)) == name
    assert str(name.of_torch) == spelling.rpartition("-")[0]


@pytest.mark.parametrize("spelling", ["aten213-abi1-cu", "stable210-cu0x", "aten213-cu13-abi1"])
def test_other_spellings_are_no_names(spelling: str) -> None:
    with pytest.raises(NameFormatError):
        GlueName.parse(spelling)


def test_a_variant_names_its_cuda_once() -> None:
    with pytest.raises(NameFormatError):
        VariantName.parse("aten213-abi1-cu13-cu13")


def test_a_record_whose_architectures_are_no_names_is_refused() -> None:
    content = cuda_glue("13.0").record
    assert content is not None
    with pytest.raises(RecordError, match="cuda_archs"):
        BuildRecord.parse(content.text.replace('["sm_90"]', "[90]"))

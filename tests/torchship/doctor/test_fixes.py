"""The command that mends a fault, from the support facts and the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_facts import make_cuda, make_torch
from shipped_facts import PROJECT, make_runtime

from torchship.judge import (
    BinaryRecord,
    Environment,
    Runtime,
    TorchInstall,
    VariantName,
    fixes,
    judge,
    support,
)
from torchship.judge.fixes import of_project
from torchship.judge.records import Device, Driver, Owner

PIP = Environment("pip")
CONDA = Environment("conda")
UPGRADE = "python -m pip install --force-reinstall --no-deps --upgrade tiny-client"


def test_the_shipped_facts_are_readable_and_name_real_variants() -> None:
    facts = support.load(PROJECT.folder)
    assert "stable210-cpu" in facts.variants
    assert all(str(VariantName.parse(name)) == name for name in facts.variants)
    assert facts.torch_min < (2, 10) < facts.torch_max


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"torch_min": 3}'])
def test_without_facts_nothing_is_promised_but_a_local_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    path = tmp_path / "support.json"
    if content is not None:
        path.write_text(content)
    facts = support.load(tmp_path)
    assert facts.variants == ()
    monkeypatch.setattr(of_project, "load", lambda _: facts)
    assert fixes.fit_torch(make_runtime(make_torch("2.13.0"))) == fixes.build(PROJECT)


def test_the_facts_come_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "support.json"
    path.write_text(
        json.dumps(
            {
                "variants": ["aten27-abi1-cpu"],
                "torch_min": "2.7",
                "torch_max": "2.8",
                "python_min": "3.12",
            }
        )
    )
    facts = support.load(tmp_path)
    assert facts.glues() == {"aten27-abi1"}
    assert (facts.torch_min, facts.torch_max, facts.python_min) == ((2, 7), (2, 8), (3, 12))


@pytest.mark.parametrize(("oldest", "served"), [("stable211", False), ("stable29", True)])
def test_what_is_served_is_what_the_project_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oldest: str, served: bool
) -> None:
    """Not the glue that the client happens to have."""
    facts = support.Support((f"{oldest}-cpu",), index="https://pypi.org/simple")
    monkeypatch.setattr(of_project, "load", lambda _: facts)
    fix = fixes.fit_torch(make_runtime(make_torch("2.10.0")))
    assert fix.text == (UPGRADE if served else fixes.build(PROJECT).text)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an index and a channel served the package."""
    facts = support.load(PROJECT.folder)
    served = facts._replace(index="https://pypi.org/simple", channel="ours")
    monkeypatch.setattr(of_project, "load", lambda _: served)


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("torch", "environment", "command"),
    [
        (make_torch("2.3.1"), PIP, 'python -m pip install "torch>=2.4"'),
        (make_torch("2.3.1"), CONDA, 'conda install "pytorch>=2.4"'),
        (make_torch("2.9.1"), PIP, UPGRADE),
        (make_torch("2.9.1"), CONDA, 'conda install tiny-client "pytorch=2.9" -c ours'),
        (make_torch("2.9.0a0+git1"), PIP, "python -m tiny_client build"),
        (make_torch("2.9.1", cxx11_abi=0), PIP, "python -m tiny_client build"),
        (
            make_torch("2.6.0", cxx11_abi=1),
            CONDA,
            'conda install tiny-client "pytorch=2.6" -c ours',
        ),
    ],
)  # fmt: skip
def test_the_command_for_a_torch(
    torch: TorchInstall, environment: Environment, command: str
) -> None:
    assert fixes.fit_torch(make_runtime(torch, environment=environment)).text == command


@pytest.mark.parametrize(
    ("kind", "source", "command"),
    [
        ("pip", None, "python -m tiny_client build"),
        ("conda", None, "python -m tiny_client build"),
        ("pip", "/x/a.whl", "python -m pip install --force-reinstall --no-deps /x/a.whl"),
        ("conda", "/x/a.conda", "conda install --force-reinstall /x/a.conda"),
        (
            "pip",
            "/x/checkout",
            "python -m pip install --force-reinstall --no-deps --no-build-isolation /x/checkout",
        ),
    ],
)
def test_what_no_index_has_is_built_or_comes_from_what_is_at_hand(
    kind: str, source: str | None, command: str
) -> None:
    environment = Environment(kind, source=source)
    runtime = make_runtime(make_torch("2.9.1"), environment=environment)
    assert fixes.reinstall(runtime).text == command
    assert fixes.fit_torch(runtime).text == "python -m tiny_client build"
    once = fixes.install_once(environment, PROJECT).text.replace("uninstall tiny-client", "")
    assert "tiny" not in once
    assert source is None or source in once


def test_an_index_that_is_not_pypi_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = support.load(PROJECT.folder)._replace(index="https://example.org/simple")
    monkeypatch.setattr(of_project, "load", lambda _: facts)
    assert "--index-url https://example.org/simple" in fixes.reinstall(make_runtime()).text


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(("environment", "tool"), [(PIP, "-m pip "), (CONDA, "conda install ")])
def test_commands_are_those_of_the_environment(environment: Environment, tool: str) -> None:
    runtime = make_runtime(environment=environment)
    for fix in (
        fixes.install_torch(environment, PROJECT),
        fixes.reinstall_torch(environment, make_torch("2.9.1")),
        fixes.cuda_torch(environment, make_torch("2.9.1+cpu")),
        fixes.reinstall(runtime),
    ):
        assert tool in fix.text
        assert "+" not in fix.text  # a local version exists on no index


def test_a_build_for_gpus_names_their_architectures_once() -> None:
    fix = fixes.build_cuda(make_cuda(), make_runtime(), ((9, 0), (7, 5), (9, 0)))
    assert fix.text == 'TORCH_CUDA_ARCH_LIST="7.5;9.0" python -m tiny_client build'


def theirs(**facts: object) -> BinaryRecord:
    owner = Owner(name="theirs", version="1.0", libraries={}, has_sdist=True)
    return BinaryRecord(path=Path("/x/_C.so"), kind="extension", name="_C.so", owner=owner, **facts)


def everything_wrong() -> Iterator[tuple[str, BinaryRecord, Runtime]]:
    """Another package's extension in environments where it does not work."""
    gpu = Device(0, "a GPU", (12, 0))
    driver = Driver("580.1", (13, 0))
    probed_libraries = {
        "missing_symbols": {"/x/_C.so": ()},
        "missing_libraries": {"/x/_C.so": ()},
    }
    probed_gpu = {"devices": (gpu,), "gpu_probed": True, "driver": driver}
    yield "GPU", theirs(cuda_archs=("sm_80",)), make_runtime(**probed_libraries, **probed_gpu)
    for hip, lib in ((None, "libtorch_cuda.so"), ("6.2", "libtorch_cuda.so")):
        gone = {**probed_libraries, "missing_libraries": {"/x/_C.so": (lib,)}}
        yield "ROCm", theirs(needed=(lib,)), make_runtime(make_torch(hip=hip), **gone)
    for family, floor in (("GLIBC", (2, 99)), ("GLIBCXX", (3, 4, 99))):
        yield family, theirs(floors={family: floor}), make_runtime(**probed_libraries)
    musl = ("musl", ())
    yield "musl", theirs(floors={"GLIBC": (2, 28)}), make_runtime(libc=musl, **probed_libraries)
    yield "torch", theirs(torch_symbols=("_ZN2at1aEv",)), make_runtime(**probed_libraries)
    flavour = {"torch_symbols": ("_ZN2at1aESs",), "cxx11_abi": 0}
    yield "ABI", theirs(**flavour), make_runtime(**probed_libraries)
    yield "platform", theirs(platform="darwin-aarch64"), make_runtime(**probed_libraries)
    yield "file", theirs(problems=("cut",)), make_runtime(**probed_libraries)


@pytest.mark.parametrize(
    ("binary", "runtime"), [pytest.param(b, r, id=name) for name, b, r in everything_wrong()]
)
def test_the_cure_for_another_packages_extension_is_its_owners(
    binary: BinaryRecord, runtime: Runtime
) -> None:
    cause = judge(binary, runtime).cause
    assert cause is not None
    assert "theirs" in cause.fix.text
    assert runtime.torch is None or not runtime.torch.hip or "for ROCm 6.2" in cause.fix.text
    for own in ("tiny", "reference"):
        assert own not in cause.fix.text


def test_a_build_for_a_gpu_is_another_packages_build() -> None:
    _name, binary, runtime = next(everything_wrong())
    cause = judge(binary, runtime).cause
    assert cause is not None
    assert cause.dimension == "GPU architecture"
    assert 'TORCH_CUDA_ARCH_LIST="12.0" python -m pip install' in cause.fix.text
    assert "--no-binary theirs theirs==1.0" in cause.fix.text


def test_a_damaged_file_is_its_owners_whatever_its_name() -> None:
    """Another client of the engine names its files as we do."""
    path = Path("/x/glue-stable210.so")
    for name in ("other-op", PROJECT.distribution):
        owner = Owner(name=name, version="1.0", libraries={})
        binary = BinaryRecord(
            path=path, kind="unreadable", name="x", problems=("cut",), owner=owner
        )
        cause = judge(binary, make_runtime()).cause
        assert cause is not None
        assert ("other-op" in cause.fix.text) == (name == "other-op")


def test_torch_that_is_missing_is_the_one_that_the_owner_names() -> None:
    built_for = (((2, 9), "its metadata"),)
    owner = Owner(name="theirs", version="1.0", libraries={}, built_for=built_for)
    cause = judge(theirs()._replace(owner=owner), make_runtime()._replace(torch=None)).cause
    assert cause is not None
    assert cause.fix.text == 'python -m pip install "torch==2.9.*"'

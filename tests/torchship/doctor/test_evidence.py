"""Of what the verdict on an extension is made: its own symbols, those beside it, its package's
requirement, and the kind of a library that is missing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from made_facts import make_runtime
from shared_objects import fake_torch, shared_object

from torchship.doctor import judge_file
from torchship.judge import TorchNotFoundError, Verdict, judge, probe_runtime
from torchship.judge.machine.torch_probe import TorchShadowedError, find_torch, read_install
from torchship.judge.records import BinaryRecord, Owner
from torchship.judge.words import codes, faults

ADD = "_ZN2at6Tensor3addEv"
#: A symbol of torch 2.13 and every later measured one, which have one class layout.
SINCE_213 = "_ZN5torch8autograd4Node17release_resourcesEv"


def install(site: Path, version: str, files: dict[str, list[str]], requires: str = "") -> None:
    """A torch, and a package of extensions that need these symbols."""
    root = fake_torch(site, version, exports=[ADD, SINCE_213])
    (root / "__init__.py").touch()
    libraries = [root / "lib" / "libtorch_cpu.so"]
    for name, symbols in files.items():
        flags = ["-Wl,--no-as-needed", f"-L{libraries[0].parent}", "-l:libtorch_cpu.so"]
        shared_object(site / "theirs" / name, undefined=symbols, flags=flags)
    info = site / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: theirs\nVersion: 1.0\n{requires}\n\n")
    (info / "RECORD").write_text("".join(f"theirs/{name},sha256=x,1\n" for name in files))


def judge_in(site: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    monkeypatch.syspath_prepend(str(site))
    return judge_file(site / "theirs" / name, probe_runtime(site / "torch", gpu=False))


@pytest.mark.parametrize(("torch", "works"), [("2.13.0", True), ("2.9.1", False)])
def test_the_objects_of_one_build_share_their_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, works: bool
) -> None:
    install(tmp_path, torch, {"_a.so": [ADD, SINCE_213], "_b.so": [ADD]})
    verdict = judge_in(tmp_path, "_b.so", monkeypatch)
    assert verdict.accepted == works
    assert any("_a.so" in finding.why for finding in verdict.findings)
    assert works or 'install "torch==2.15.*"' in verdict.findings[-1].fix.text


def test_an_object_that_names_its_own_torch_is_no_evidence_for_those_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"libx_torch213.so": [ADD, SINCE_213], "_b.so": [ADD]}
    install(tmp_path, "2.13.0", files)
    assert not judge_in(tmp_path, "_b.so", monkeypatch).accepted


@pytest.mark.parametrize(("torch", "works"), [("2.13.0", True), ("2.9.1", False)])
def test_a_requirement_is_wrong_if_its_torch_lacks_the_symbols(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, works: bool
) -> None:
    requires = "Requires-Dist: torch==2.9.1"
    install(tmp_path, torch, {"_a.so": [ADD, SINCE_213]}, requires)
    assert judge_in(tmp_path, "_a.so", monkeypatch).accepted == works


@pytest.mark.parametrize(
    ("library", "fault"),
    [
        ("libcudart.so.12", faults.CUDA_MAJOR),
        ("libcublasLt.so.12", faults.CUDA_MAJOR),
        ("libcudnn_graph.so.9", faults.CUDA_MAJOR),
        ("libnvrtc-builtins.so.13.0", faults.CUDA_MAJOR),
        ("libnccl.so.2", faults.CUDA_MAJOR),
        ("libnvshmem_host.so.3", faults.CUDA_MAJOR),
        ("libnppig.so.12", faults.CUDA_MAJOR),
        ("libcurl.so.4", faults.SYSTEM_LIBRARIES),
        ("libcups.so.2", faults.SYSTEM_LIBRARIES),
        ("libnvonnxparser.so.10", faults.SYSTEM_LIBRARIES),
        ("libnvinfer.so.10", faults.SYSTEM_LIBRARIES),
        ("libnvidia-ml.so.1", faults.DRIVER),
    ],
)
def test_a_librarys_name_is_not_its_kind(library: str, fault: int) -> None:
    owner = Owner(name="theirs", version="1.0", libraries={})
    path = Path("/x/_C.so")
    binary = BinaryRecord(path=path, kind="extension", name="_C.so", owner=owner)
    runtime = make_runtime(
        missing_symbols={str(path): ()}, missing_libraries={str(path): (library,)}
    )
    cause = judge(binary, runtime).cause
    assert cause is not None
    assert cause.fault == fault


@pytest.mark.parametrize("shadow", ["torch.py", "torch/__init__.py"])
@pytest.mark.parametrize("is_installed", [True, False])
def test_what_hides_torch_is_named_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shadow: str, is_installed: bool
) -> None:
    """In front of an installed torch, or where there is none."""
    install(tmp_path / "site", "2.13.0", {"_a.so": [ADD]}, "Requires-Dist: torch==2.13.0")
    file = tmp_path / "work" / shadow
    file.parent.mkdir(parents=True)
    file.touch()
    path = [str(tmp_path / "work"), *([str(tmp_path / "site")] if is_installed else [])]
    monkeypatch.setattr(
        "sys.path", [*path, *(entry for entry in sys.path if "-packages" not in entry)]
    )
    monkeypatch.delitem(sys.modules, "torch")
    importlib.invalidate_caches()
    cause = judge_file(tmp_path / "site" / "theirs" / "_a.so", probe_runtime(gpu=False)).cause
    assert cause is not None
    assert cause.code == codes.TORCH_SHADOWED
    hiding = file if shadow == "torch.py" else file.parent
    assert cause.why.startswith(f"{hiding} hides torch")
    assert cause.fix.text == f"mv {hiding} {hiding.with_name(f'my_{hiding.name}')}"


def test_a_python_that_fails_is_named_without_the_program_that_it_was_given(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(TorchNotFoundError) as error:
        find_torch(python=str(python))
    assert "it ended with exit code 3" in str(error.value)
    assert "import" not in str(error.value)


def test_a_torch_that_has_lost_its_version_hides_nothing(tmp_path: Path) -> None:
    root = fake_torch(tmp_path, "2.13.0")
    (root / "version.py").unlink()
    with pytest.raises(TorchNotFoundError) as error:
        read_install(root)
    assert not isinstance(error.value, TorchShadowedError)

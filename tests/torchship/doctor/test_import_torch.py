"""What keeps `import torch`, or a package beside it, from working although everything links."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
from environments import (
    ABSENT,
    SYMBOL,
    add_extension,
    add_package,
    add_torch,
    make_environment,
    run_doctor,
)
from made_facts import make_runtime, make_torch
from shared_objects import shared_object
from sick_environment import carries_out

from torchship.doctor import judge_file
from torchship.doctor.environment.families import families, of_other_cudas
from torchship.judge import fixes
from torchship.judge.reading.elf import Elf, ElfError
from torchship.judge.words import codes


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = make_environment(tmp_path / "env")
    add_torch(site, "2.13.0")
    return site


def rows(site: Path, **variables: str) -> list[dict[str, object]]:
    """The rows that fail, those of extensions first."""
    process = run_doctor("--json", "--python", str(site.parents[2]), **variables)
    report = json.loads(process.stdout)
    every = [*report["extensions"], *report["notices"]]
    return [row for row in every if row["state"] == "fails"]


def codes_of(site: Path, **variables: str) -> list[tuple[object, object]]:
    return [(row["package"], row["code"]) for row in rows(site, **variables)]


def enter_torch(site: Path) -> None:
    info = site / "torch-2.13.0.dist-info"
    info.mkdir()
    header = "Name: torch\nVersion: 2.13.0\n\n"
    (info / "METADATA").write_text(header)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_torch_that_has_lost_its_module_is_damaged(site: Path, is_there: bool) -> None:
    enter_torch(site)
    module = "torch/_C.cpython-311-x86_64-linux-gnu.so"
    (site / "torch-2.13.0.dist-info" / "RECORD").write_text(f"torch/a.py,,\n{module},sha256=x,1\n")
    if is_there:
        shared_object(site / module)
    assert [code for _, code in codes_of(site)] == ([] if is_there else [codes.TORCH_DAMAGED])


@pytest.mark.parametrize(
    ("defined", "undefined", "fails"),
    [
        (["PyInit__C"], [], False),
        (["PyInit_deform"], [], True),
        (["PyInit_deform", "PyInit__C"], [], False),
        (["PyInit_deform"], ["_ZN5torch7Library4_defEv"], False),  # for torch.ops.load_library
    ],
)
def test_a_module_under_another_name_is_refused(
    tmp_path: Path, defined: list[str], undefined: list[str], fails: bool
) -> None:
    tag = make_runtime().python_tag
    path = tmp_path / f"_C.{tag}x86_64-linux-gnu.so"
    shared_object(path, defined=defined, undefined=undefined)
    findings = judge_file(path, make_runtime(torch=make_torch())).findings
    assert any(finding.code == codes.MODULE_RENAMED for finding in findings) == fails


def test_a_segment_off_its_page_is_damage(tmp_path: Path) -> None:
    path = shared_object(tmp_path / "x.so")
    data = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    places = [table + number * size for number in range(count)]
    last = [at for at in places if struct.unpack_from("<I", data, at) == (1,)][-1]
    (offset,) = struct.unpack_from("<Q", data, last + 8)
    struct.pack_into("<Q", data, last + 8, offset - 16)
    path.write_bytes(data)
    with pytest.raises(ElfError, match="does not lie on its page"):
        Elf(path)


@carries_out(fixes.Kind.ALLOW_EXECUTION)
def test_files_of_a_file_system_mounted_noexec_are_refused_until_it_is_mounted_again(
    tmp_path: Path,
) -> None:
    mount = tmp_path / "a mount"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "noexec,size=1m", "tmpfs", str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a file system")
    try:
        path = shared_object(mount / "_C.so", undefined=[SYMBOL])
        cause = judge_file(path, make_runtime()).cause
        assert cause is not None
        assert cause.code == codes.EXECUTION_FORBIDDEN
        subprocess.run(["bash", "-c", cause.fix.command], check=True)
        codes_left = [finding.code for finding in judge_file(path, make_runtime()).findings]
        assert codes.EXECUTION_FORBIDDEN not in codes_left
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_files_for_other_torches_are_a_family(tmp_path: Path) -> None:
    names = ["libg_pytorch_2.1.0.so", "libg_pytorch_2.2.1.so", "libh_torch29.so", "libi.so"]
    (family,) = families([tmp_path / name for name in names])
    assert family.name == "libg_pytorch*.so"
    assert family.fits(make_torch("2.2.1+cu121"))
    assert not family.fits(make_torch("2.2.2"))
    assert [path.name for path in family.others(make_torch("2.1.0"))] == ["libg_pytorch_2.2.1.so"]


@pytest.mark.parametrize(
    ("cuda", "others"),
    [("12.8", ["x_cuda118.so"]), ("13.0", []), (None, [])],
)
def test_of_files_for_several_cudas_the_one_of_torch_is_opened(
    tmp_path: Path, cuda: str | None, others: list[str]
) -> None:
    paths = [tmp_path / name for name in ("x_cuda118.so", "x_cuda128.so", "y_cuda118.so")]
    torch = make_torch(cuda=cuda)
    assert sorted(path.name for path in of_other_cudas(paths, torch)) == others
    (tmp_path / "x_cpu.so").touch()
    left = {path.name for path in of_other_cudas(paths, torch)}
    assert left == ({*others} if cuda else {"x_cuda118.so", "x_cuda128.so"})


def add_family(site: Path, *versions: str) -> None:
    for version in versions:
        symbol = SYMBOL if version == "2.13.0" else ABSENT
        add_extension(site, "dgl", symbol, file=f"libg_pytorch_{version}.so")
        (site / "dgl-1.0.dist-info").rename(site / f"kept-{version}")
    info = add_package(site, "dgl", {})
    files = [f"dgl/libg_pytorch_{version}.so" for version in versions]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_a_package_that_has_no_file_for_this_torch_is_named(site: Path) -> None:
    add_family(site, "2.1.0", "2.2.1")
    assert codes_of(site) == [("dgl", codes.NO_FILE_FOR_TORCH)]


def test_of_files_for_several_torches_the_one_for_this_torch_counts(site: Path) -> None:
    add_family(site, "2.1.0", "2.13.0")
    assert codes_of(site) == []


def test_a_module_for_another_system_is_reported_though_nobody_asked(site: Path) -> None:
    path = add_extension(site, "theirs", pin="2.13.0")
    path.write_bytes(b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01" + bytes(64))
    assert codes_of(site) == [("theirs", codes.OTHER_PLATFORM)]


@carries_out(fixes.Kind.RENAME_SHADOW)
@pytest.mark.parametrize("name", ["torch.py", "torch/__init__.py"])
def test_what_hides_torch_in_the_working_folder_is_renamed(
    site: Path, tmp_path: Path, name: str
) -> None:
    work = tmp_path / "work"
    (work / name).parent.mkdir(parents=True)
    (work / name).write_text("x = 1\n")

    def find_cure() -> str:
        process = run_doctor("--json", "--python", str(site.parents[2]), cwd=work)
        causes = [row["cause"] for row in json.loads(process.stdout)["extensions"]]
        return next((c["command"] for c in causes if c["code"] == codes.TORCH_SHADOWED), "")

    command = find_cure()
    assert command.startswith("mv ")
    subprocess.run(["bash", "-c", command], check=True, cwd=work)
    assert find_cure() == ""


def test_a_library_beside_an_extension_that_lacks_symbols_of_torch_names_torch(
    site: Path,
) -> None:
    add_extension(site, "theirs", pin="2.13.0")
    library = shared_object(
        site / "theirs" / "libhelper.so",
        undefined=[ABSENT],
        soname="libhelper.so",
        flags=[f"-L{site / 'torch' / 'lib'}", "-Wl,--no-as-needed", "-l:libtorch_cpu.so"],
    )
    shared_object(
        site / "theirs" / "_C.so",
        undefined=[SYMBOL],
        libraries=[library],
        flags=["-Wl,-rpath,$ORIGIN", f"-L{site / 'torch' / 'lib'}", "-l:libtorch_cpu.so"],
    )
    causes = {row["code"] for row in rows(site)}
    assert causes == {codes.TORCH_LACKS_SYMBOLS}

"""Whatever a file holds, reading it ends quickly in a record, never in an exception."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from costs import cost_of
from hostile_files import (
    CONTAINER,
    MEGABYTES,
    MEGABYTES_ANY_SIZE,
    SECONDS,
    SECONDS_ANY_SIZE,
    Image,
    in_section,
    many_places,
    many_symbols,
    mutate,
    one_symbol,
    overlapping_needs,
    real_objects,
    record_of,
    structured,
    torch_symbols,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared_objects import fake_torch, shared_object
from small_client import PROJECT

from torchship.doctor import judge_file
from torchship.doctor.wheels import audit, choose
from torchship.judge import (
    BinaryRecord,
    Runtime,
    TorchInstall,
    find_torch,
    probe_runtime,
    read_binary,
)
from torchship.judge.budget import Budget, BudgetSpentError
from torchship.judge.reading import fatbin
from torchship.judge.reading.elf import Elf, ElfError
from torchship.judge.records import UNKNOWN
from torchship.judge.text import printable
from torchship.judge.words import codes, render

REPO = Path(__file__).resolve().parents[3]


def exercise(path: Path) -> float:
    """Read the file in every way, then look names up in it; returns processor seconds."""
    start = time.process_time()
    read_binary(path)
    try:
        with Elf(path, Budget()) as elf:
            for name in ("aoti_torch_get_dim", "tiny_build_record", "PyInit_sample", "x"):
                elf.defines(name)
            elf.version_definitions()
    except (ElfError, BudgetSpentError):
        pass
    return time.process_time() - start


def mutations(originals: list[bytes], path: Path, seeds: range) -> float:
    """Exercise a mutation for every seed; returns the longest processor time."""
    worst = 0.0
    for seed in seeds:
        rng = random.Random(seed)
        path.write_bytes(mutate(rng.choice(originals), rng))
        worst = max(worst, exercise(path))
    return worst


def read_safely(path: Path) -> BinaryRecord:
    start = time.process_time()
    binary = read_binary(path)
    assert time.process_time() - start < SECONDS
    return binary


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> TorchInstall:
    """A small one: to read the symbols of the real one takes half a second."""
    return find_torch(fake_torch(tmp_path_factory.mktemp("torch")))


@pytest.fixture
def runtime(torch: TorchInstall) -> Runtime:
    return probe_runtime(torch, gpu=False, project=PROJECT)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Real objects, the first with GPU code."""
    folder = tmp_path_factory.mktemp("originals")
    objects = real_objects(folder)
    with Elf(folder / "a.so") as elf:
        assert fatbin.architectures(elf) == ("sm_90",)
    return objects


def test_the_limits_are_those_that_the_policy_promises() -> None:
    policy = " ".join((REPO / "SECURITY.md").read_text(encoding="utf-8").split())
    run = Budget()
    assert f"{run.seconds:g} s of processor time and {run.megabytes} MB" in policy
    assert f"{audit._SECONDS} s and {audit._MEGABYTES} MB" in policy
    assert (audit._SECONDS, audit._MEGABYTES) == (choose._SECONDS, choose._MEGABYTES)


def test_a_few_hundred_mutations(originals: list[bytes], tmp_path: Path) -> None:
    assert mutations(originals, tmp_path / "m.so", range(400)) < SECONDS


@pytest.mark.slow
def test_four_thousand_mutations_in_bounded_time_and_memory(
    originals: list[bytes], tmp_path: Path
) -> None:
    cost = cost_of(lambda: mutations(originals, tmp_path / "m.so", range(1000, 5000)))
    assert cost.seconds < SECONDS
    assert cost.megabytes < MEGABYTES


#: Take more than a second each; all others together take that.
COSTLY = {"GPU code of 6 GB", "10 MB of torch symbols"}


@pytest.mark.parametrize("are_costly", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_tables_made_to_hang_or_bloat_the_reader_cost_little(
    are_costly: bool, tmp_path: Path
) -> None:
    """Shared strings, overlapping tables, counts of 2^32, endless chains, holes of gigabytes."""
    for name, path, seconds, megabytes in structured(tmp_path):
        if (name in COSTLY) is not are_costly:
            continue
        cost = cost_of(lambda path=path: exercise(path), allowed=seconds)  # type: ignore[misc]
        assert cost.seconds < seconds, name
        assert cost.megabytes < megabytes, name


@pytest.mark.slow
def test_more_symbols_than_the_budget_suffices_for_end_with_it(tmp_path: Path) -> None:
    path = torch_symbols(40_000).write(tmp_path / "x.so")

    def read() -> float:
        start = time.process_time()
        with pytest.raises(BudgetSpentError):
            read_binary(path, budget=Budget(SECONDS))
        return time.process_time() - start

    cost = cost_of(read, allowed=2 * SECONDS)
    assert cost.seconds < 2 * SECONDS
    assert cost.megabytes < MEGABYTES_ANY_SIZE


@pytest.mark.parametrize("part", [b"T", b"TI", b"Th", b"Th1", b"Th1_", b"GV", b"NK"])
def test_a_long_mangled_name_is_matched_in_linear_time(part: bytes, tmp_path: Path) -> None:
    read_safely(one_symbol(b"_Z" + part * 15_000).write(tmp_path / "x.so"))


def test_a_thousand_missing_libraries_are_looked_for_and_named_briefly(
    tmp_path: Path, runtime: Runtime
) -> None:
    path = overlapping_needs(1000, 200).write(tmp_path / "libx.so")
    start = time.process_time()
    cause = judge_file(path, runtime).cause
    assert time.process_time() - start < SECONDS
    assert cause is not None
    assert len(cause.observed) < 2000


@pytest.mark.parametrize("name", ["stable2" + "9" * 5000, "aten2" + "9" * 5000 + "-abi1"])
def test_a_record_name_of_many_digits_is_a_finding(name: str, tmp_path: Path) -> None:
    binary = read_safely(record_of(name=name).write(tmp_path / "x.so"))
    assert "'name'" in binary.problems[0]
    assert len(binary.problems[0]) < 500


def test_a_nested_record_is_a_finding(tmp_path: Path) -> None:
    for depth in (*range(50, 1000, 50), 2000, 20_000):
        for field in ("kind", "schema", "torch_target", "cxx11_abi"):
            record = f'{{"{field}": {"[" * depth}{"]" * depth}}}'
            path = in_section(".torch_extension.record", record.encode()).write(tmp_path / "x.so")
            assert read_safely(path).problems


def test_a_file_that_shrinks_while_it_is_read_is_an_error_and_no_signal(
    originals: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(originals[0])

    def shrink() -> float:
        with Elf(path) as elf:
            os.truncate(path, 0)
            with pytest.raises(ElfError, match="became shorter"):
                list(elf.symbols())
        return 0.0

    cost_of(shrink)  # a child: SIGBUS would end it


@pytest.mark.slow
def test_many_needs_and_many_folders_cost_little(tmp_path: Path) -> None:
    path = many_places(1000, 3000).write(tmp_path / "x.so")
    runtime = probe_runtime(gpu=False)

    def judged() -> float:
        start = time.process_time()
        assert not judge_file(path, runtime).accepted
        return time.process_time() - start

    assert cost_of(judged, allowed=SECONDS_ANY_SIZE).seconds < SECONDS_ANY_SIZE


FORGED = "x\n  to fix:  rm -rf ~ \x1b[2J\x9b31m\u202e"


@pytest.mark.parametrize("where", ["needed", "symbol", "module", "record", "file name"])
def test_text_of_a_foreign_file_stays_on_one_line_without_control_characters(
    where: str, tmp_path: Path, runtime: Runtime
) -> None:
    image = (
        one_symbol(b"_ZN2at" + FORGED.encode()) if where == "symbol" else overlapping_needs(0, 9)
    )
    if where == "needed":
        image = overlapping_needs(1, 9)
        image.strings(b"\0" + FORGED.encode() + b"\0")
    elif where == "module":
        image = one_symbol(b"PyInit_" + FORGED.encode())
        at = image.dynamic[-1][1]
        image.data[at + 6 : at + 8] = b"\1\0"  # defined
    elif where == "record":
        image = record_of(version=FORGED, torch_built=FORGED, package=FORGED)
    path = image.write(tmp_path / (f"{FORGED}.so" if where == "file name" else "x.so"))
    verdict = judge_file(path, runtime._replace(package_version="0"))
    strings = [
        string
        for finding in verdict.findings
        for string in finding._asdict().values()
        if type(string) is str
    ]
    assert [string for string in strings if not string.isprintable()] == []
    assert "\n  to fix:  rm" not in render.verdict_text(verdict)
    assert "\x1b" not in render.verdict_text(verdict)
    strings = [*verdict.binary.needed, *verdict.binary.modules, *verdict.binary.torch_symbols]
    strings += [verdict.binary.name, *verdict.binary.problems]
    assert [string for string in strings if not string.isprintable()] == []


def test_bytes_that_are_not_utf_8_can_be_printed(
    tmp_path: Path, sample: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    assert find_torch(fake_torch(folder)).problems == ()
    (folder / "torch" / "lib" / "libc10.so").unlink()
    render.runtime_table(probe_runtime(folder, gpu=False)).encode()
    render.runtime_table(probe_runtime(folder / "none", gpu=False)).encode()
    path = folder / "glue-stable210.so"
    path.write_bytes(sample.read_bytes()[:100])
    verdict = judge_file(path, runtime)
    render.verdict_text(verdict).encode()
    for finding in verdict.findings:
        "".join(map(str, finding._asdict().values())).encode()
    assert printable(folder).endswith("caf\\udce9")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_arbitrary_bytes_after_a_valid_start(
    data: st.DataObject, originals: list[bytes], tmp_path: Path
) -> None:
    original = data.draw(st.sampled_from(originals))
    keep = data.draw(st.integers(0, len(original)))
    tail = data.draw(st.binary(max_size=4096))
    path = tmp_path / "h.so"
    path.write_bytes(original[:keep] + tail)
    assert exercise(path) < SECONDS


def test_huge_counts_cost_neither_time_nor_memory(originals: list[bytes], tmp_path: Path) -> None:
    """Every 4- and 8-byte word of the headers and the dynamic section, set to the largest value."""
    data = originals[0]
    path = tmp_path / "big.so"
    for at in range(0, 0x200, 4):
        changed = bytearray(data)
        struct.pack_into("<I", changed, at, 0xFFFFFFF0)
        path.write_bytes(changed)
        read_safely(path)


def test_a_record_of_the_wrong_shape_is_a_finding(tmp_path: Path) -> None:
    records = ["", "{", "[]", "{}", '{"schema": 1}', "[" * 5000, '"x"', '{"kind": "glue"}', "\\xff"]
    for index, record in enumerate(records):
        path = shared_object(tmp_path / str(index) / "glue-stable210.so", record=record)
        binary = read_safely(path)
        assert binary.problems, record


def test_a_folder_a_device_a_fifo_and_a_loop_are_findings(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.so"
    loop = tmp_path / "loop.so"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    for path in (tmp_path, Path("/dev/zero"), fifo, loop, tmp_path / "missing.so"):
        binary = read_safely(path)
        assert binary.kind == "unreadable", path
        assert binary.problems, path


def test_a_file_without_permission_is_a_finding(sample: Path, public_folder: Path) -> None:
    path = public_folder / "locked.so"
    path.write_bytes(sample.read_bytes())
    path.chmod(0)
    child = os.fork()
    if child == 0:  # root may read anything, so ask as nobody
        if os.getuid() == 0:
            os.setuid(65534)
        os._exit(0 if read_binary(path).problems == ("Permission denied",) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def overlapping_symbols(count: int, *, section: int = 0) -> Image:
    """Symbols whose names are the tails of one name."""
    image = Image()
    image.strings(b"\0" + b"x" * 2 * count + b"\0")
    image.symbols([1 + index for index in range(count)], section=section)
    return image


def many_tags(count: int) -> Image:
    """A dynamic segment whose string table comes after so many tags that nobody knows."""
    image = Image()
    image.dynamic += [(0x60000000, 0)] * count
    image.strings(b"\0")
    return image


@pytest.mark.parametrize(
    ("image", "whose"),
    [
        (lambda: overlapping_needs(1000, 16_000), "libraries and versions"),
        (lambda: overlapping_symbols(1000), "symbols"),
    ],
    ids=["libraries", "symbols"],
)
def test_of_a_file_whose_names_lie_over_each_other_nothing_can_be_told(
    image: Callable[[], Image], whose: str, tmp_path: Path, runtime: Runtime
) -> None:
    """Such a file may be whole, so it is not called damaged."""
    path = image().write(tmp_path / "x.so")
    verdict = judge_file(path, runtime)
    assert verdict.rejection is None
    assert verdict.cause is not None
    assert verdict.cause.status == UNKNOWN
    assert verdict.cause.code == codes.TOO_LARGE
    assert f"names of {whose} that lie over each other" in verdict.cause.why


@pytest.mark.parametrize(
    "image",
    [
        lambda: overlapping_needs(15, 2000),
        lambda: one_symbol(b"_ZN2at" + b"x" * 70_000),
        lambda: many_symbols(b"_ZN2at" + b"x" * 1000, 20_000),
        lambda: many_symbols(b"PyInit_x", 1001, section=1),
        lambda: many_tags(5000),
        lambda: in_section(".nv_fatbin", CONTAINER * 100_001),
    ],
    ids=["needs", "symbol", "symbols", "modules", "tags", "GPU code"],
)
def test_a_file_with_more_than_others_is_read_whole(
    image: Callable[[], Image], tmp_path: Path
) -> None:
    assert read_binary(image().write(tmp_path / "x.so")).is_read_whole


def test_of_a_file_whose_library_costs_too_much_nothing_can_be_told(
    tmp_path: Path, runtime: Runtime
) -> None:
    library = shared_object(tmp_path / "libmany.so", soname="libmany.so")
    path = shared_object(
        tmp_path / "x.so",
        undefined=["_ZN2at9elsewhereEv"],
        libraries=[library],
        flags=["-Wl,-rpath,$ORIGIN"],
    )
    overlapping_symbols(1000).write(library)
    verdict = judge_file(path, runtime)
    assert verdict.rejection is None
    assert verdict.cause is not None
    assert verdict.cause.status == UNKNOWN
    assert "libmany.so with names of symbols that lie over each other" in verdict.cause.why


def test_beside_a_library_of_torch_that_costs_too_much_nothing_can_be_told(tmp_path: Path) -> None:
    torch = fake_torch(tmp_path / "site", "2.9.1")
    overlapping_symbols(1000, section=1).write(torch / "lib" / "libtorch_cpu.so")
    path = shared_object(tmp_path / "x.so", undefined=["_ZN2at9elsewhereEv"])
    runtime = probe_runtime(find_torch(torch), gpu=False, project=PROJECT)
    verdict = judge_file(path, runtime)
    assert verdict.rejection is None
    assert verdict.cause is not None
    assert verdict.cause.status == UNKNOWN
    assert "names of symbols that lie over each other" in verdict.cause.why


def test_the_names_of_its_defined_symbols_are_no_bound_of_an_extension(tmp_path: Path) -> None:
    """intel-extension-for-pytorch 2.8.0 has 41 MB of them."""
    image = many_symbols(b"_ZN2at" + b"x" * 1000, 20_000, section=1)
    binary = read_binary(image.write(tmp_path / "x.so"))
    assert not binary.too_large
    assert not binary.problems

"""Whatever a file holds, reading it ends quickly in a record, never in an exception."""

from __future__ import annotations

import os
import random
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared_objects import GLUE_RECORD, shared_object

from lltm_conda.compat import BinaryRecord, fatbin, layouts, read_binary
from lltm_conda.compat.elf import Elf, ElfError

#: A hang is told from a busy machine by the processor time that was used.
SECONDS = 1.0
MEGABYTES = 200


def read_safely(path: Path) -> BinaryRecord:
    start = time.process_time()
    binary = read_binary(path)
    assert time.process_time() - start < SECONDS
    return binary


def lookups_end(path: Path) -> None:
    """Hash lookups in a broken library find, do not find, or say that it is broken."""
    start = time.process_time()
    try:
        with Elf(path) as elf:
            for name in ("aoti_torch_get_dim", "lltm_build_record", "PyInit_sample", "x"):
                elf.defines(name)
            elf.version_definitions()
    except ElfError:
        pass
    assert time.process_time() - start < SECONDS


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A truncation, flipped bits, or plausible and absurd numbers where headers lie."""
    out = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(out[: rng.randrange(len(out))])
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(out) - 8)
        if kind == 1:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            at = rng.randrange(0, 64 + 56 * 9)  # the ELF header and the program headers
            struct.pack_into("<I", out, at, rng.choice((0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)))
        elif kind == 3:
            at = rng.randrange(len(out) // 8) * 8
            value = rng.choice((0, 1, len(out) - 1, len(out), 1 << 32, 1 << 63, (1 << 64) - 1))
            struct.pack_into("<Q", out, min(at, len(out) - 8), value)
        else:
            size = rng.randrange(1, 64)
            out[at : at + size] = rng.randbytes(len(out[at : at + size]))
    return bytes(out)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Objects with our sections, with versions, and with a hand-made GPU code section."""
    folder = tmp_path_factory.mktemp("originals")
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, 128, 0, 0, 8, 1, 90, 0, 0, 0x11, 0, 0)
    body = entry + bytes(128)
    container = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    (folder / "fatbin.bin").write_bytes(container)
    gpu = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{folder / "fatbin.bin"}\\"\\n");'
    (folder / "gpu.c").write_text(gpu)
    first = shared_object(
        folder / "a.so",
        record=GLUE_RECORD,
        layout=layouts.layout_of((2, 9)),
        undefined=["aoti_torch_get_dim", "_ZN2at6Tensor3addEv", "strlen"],
        defined=["lltm_build_record", "PyInit_sample"],
        flags=["-Wl,--hash-style=both", str(folder / "gpu.c")],
    )
    second = shared_object(
        folder / "b.so",
        defined=[f"f{index}" for index in range(40)],
        versions="GLIBCXX_3.4.30 { global: f*; };",
        flags=["-Wl,--hash-style=sysv"],
    )
    with Elf(first) as elf:
        assert fatbin.architectures(elf) == ("sm_90",)
    return [first.read_bytes(), second.read_bytes()]


def fuzz(originals: list[bytes], path: Path, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        path.write_bytes(mutate(rng.choice(originals), rng))
        read_safely(path)
        lookups_end(path)


def test_a_few_hundred_mutations(originals: list[bytes], tmp_path: Path) -> None:
    fuzz(originals, tmp_path / "m.so", range(400))


@pytest.mark.slow
def test_twenty_thousand_mutations(originals: list[bytes], tmp_path: Path) -> None:
    fuzz(originals, tmp_path / "m.so", range(1000, 21_000))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    import torch  # what this process holds besides: torch itself, loaded with the package

    assert used - _resident_of_torch() < MEGABYTES, torch.__version__


def _resident_of_torch() -> float:
    code = (
        "import torch, resource, hypothesis, pytest; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


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
    read_safely(path)
    lookups_end(path)


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
    texts = ["", "{", "[]", "{}", '{"schema": 1}', "[" * 5000, '"x"', '{"kind": "glue"}', "\\xff"]
    for index, text in enumerate(texts):
        path = shared_object(tmp_path / str(index) / "glue-stable210.so", record=text)
        binary = read_safely(path)
        assert binary.problems, text


def test_a_folder_a_device_a_fifo_and_a_loop_are_findings(tmp_path: Path) -> None:
    fifo, loop = tmp_path / "fifo.so", tmp_path / "loop.so"
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

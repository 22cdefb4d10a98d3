"""Compares the GPU code of two builds of a kernel object: the host's platform must not matter."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import zstandard

from engine.compat.binary import read_binary
from engine.compat.elf import Elf
from engine.compat.fatbin import codes

ZSTD = b"\x28\xb5\x2f\xfd"  # how nvcc compresses an image
# nvcc names what is private to a source after a hash of its options, all architectures among them.
PRIVATE = re.compile(rb"[0-9a-f]{8}(?=_\d+_\w+_cu_)|(?<=_cu_)[0-9a-f]{8}")


def machine_code(path: Path) -> dict[str, list[str]]:
    """The hashes of a shared object's machine code, by architecture.

    PTX is left out, and the linker's own images, which hold no code.
    """
    found: dict[str, list[str]] = {}
    with Elf(path) as elf:
        data = path.read_bytes()
        for code in codes(elf):
            if not code.ptx:
                image = data[code.at : code.at + code.size]
                if image.startswith(ZSTD):
                    image = zstandard.ZstdDecompressor().decompressobj().decompress(image)
                if b".text." in image:
                    text = PRIVATE.sub(b"", image)
                    found.setdefault(str(code), []).append(hashlib.sha256(text).hexdigest())
    return {arch: sorted(hashes) for arch, hashes in found.items()}


def compare(path: Path, other: Path) -> tuple[str, list[str]]:
    """What the two builds have in common, in words, and the architectures for which they differ.

    Only builds of one commit are compared; `other` need not exist.
    """
    mine, its = build(path), build(other)
    if not its or (mine.get("git_commit"), mine.get("cuda")) != (its["git_commit"], its["cuda"]):
        return f"{path.name}: no build of this commit for another platform to compare with", []
    left, right = machine_code(path), machine_code(other)
    common = [arch for arch in left if arch in right]
    differ = [arch for arch in common if left[arch] != right[arch]]
    same = ", ".join(arch for arch in common if arch not in differ) or "no architecture"
    return f"{path.name}: its machine code for {same} is that of {its['platform']}'s build", differ


def build(path: Path) -> dict[str, str]:
    record = read_binary(path).record
    return json.loads(record.text) if record else {}
